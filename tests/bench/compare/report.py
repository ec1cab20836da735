"""What a run has found, as a document with plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.bench.compare import plot
from tests.bench.compare.aims import aims
from tests.bench.compare.disk import Usage
from tests.bench.compare.reasons import why
from tests.bench.compare.results import OURS, Growth, Prefix, Profile, Results, Sizes, Work
from tests.bench.compare.timing import Outcome, Timed

_SECTIONS = (
    ("Turns", ("turns", "session", "turns filled"), "turns filled"),
    ("The whole history again", ("whole",), "whole"),
    ("Import", ("import",), "import"),
    ("Load", ("load 40", "load 1000", "load 40 fresh", "load 1000 fresh"), "load 1000"),
)
_HOW = """\
Everything is used as its own documentation says, and gets the same messages: this store as `Message` objects,
`llm` as its own, all others as plain dicts, made outside the clock. Contestants take turns in one process, each
round begun by another one. Times are medians over the rounds, with the least and the most; CPU includes child
processes. Ours are with durability on. What each gives back is compared with what it was given: a peer that
loses a message ends the run."""


def write(results: Results) -> tuple[str, dict[str, str]]:
    """The document, and its plots by name; a plot stands in the document as `performance-NAME.svg`."""
    plots: dict[str, str] = {}
    blocks = [
        "# Performance",
        "This is written by the command below, not by hand.",
        _table(("", ""), results.facts),
        _HOW,
        "## What is stored",
        _table(("corpus", "from"), list(results.origins.items())),
        "## Who takes part",
        _peers(results),
        "## What the project promises itself",
        "The bounds are those of a full run; a quick one has smaller corpora and stores.",
        _aims(results),
        *_reasons(results),
    ]
    for title, keys, plotted in _SECTIONS:
        blocks.append(f"## {title}")
        for key in keys:
            blocks += _work(results.work[key])
        blocks += _bars(plots, title, results.work[plotted])
    blocks += ["## Histories of no conversation, sent again", *_resends(results)]
    blocks += ["## Size on disk", *_all_sizes(results, plots)]
    blocks += ["## As the store grows", *_growth(results, plots)]
    for prefix in results.prefixes:
        blocks += _prefix(prefix)
    blocks += ["## Start-up of the command line", *_work(results.work["startup"], base="import click")]
    blocks += ["## Where our microseconds go"]
    for profile in results.profiles:
        blocks += _profile(profile)
    return "\n\n".join(blocks) + "\n", plots


def seconds(value: float) -> str:
    """Three digits, in the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size or unit == "µs":
            return f"{_digits(value / size)} {unit}"
    raise AssertionError


def size(value: float) -> str:
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= bytes_:
            return f"{_digits(value / bytes_)} {unit}"
    return f"{value:.0f} B"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruler = "|".join("---" if place == 0 else "---:" for place in range(len(heads)))
    lines = [f"| {' | '.join(heads)} |", f"|{ruler}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _peers(results: Results) -> str:
    rows = []
    for name, durable in results.durable.items():
        counted = results.syncs.get(name, "")
        syncs = f"{counted:.1f}" if isinstance(counted, float) else counted
        rows.append((name, durable, syncs, results.absent.get(name, "")))
    return _table(("", "durable when a turn is done", "waits for the disk, a turn", ""), rows)


def _aims(results: Results) -> str:
    rows = []
    for aim in aims(results):
        bound = f"{'≥' if aim.at_least else '≤'} {aim.bound:,g}"
        rows.append((aim.what, bound, _digits(aim.found), "yes" if aim.met else "**no**"))
    return _table(("", "aim", "found", "met"), rows)


def _reasons(results: Results) -> Iterator[str]:
    """Why aims are missed, those of one reason together."""
    missed: dict[str, list[str]] = {}
    for aim in aims(results):
        reason = why(aim.what)
        if not aim.met and reason is not None:
            missed.setdefault(reason, []).append(aim.what)
    if missed:
        yield "Where it falls short, and why:"
        yield "\n".join(f"- {'; '.join(which)}. Because {reason}" for reason, which in missed.items())


def _work(work: Work, base: str = OURS) -> Iterator[str]:
    yield f"### {work.title[0].upper()}{work.title[1:]}"
    rows = []
    for name, outcome in work.outcomes.items():
        if isinstance(outcome, Timed):
            ratio = work.ratio(name, base)
            told = "" if ratio is None else f"{ratio:.2f}"
            spread = f"{seconds(outcome.least)} to {seconds(outcome.most)}"
            rows.append((name, seconds(outcome.wall), spread, seconds(outcome.cpu), told))
        else:
            rows.append((name, f"can't: {outcome}", "", "", ""))
    yield _table((f"a {work.unit}", "wall", "least to most", "CPU", f"times {base}"), rows)


def _bars(plots: dict[str, str], section: str, work: Work) -> Iterator[str]:
    name = section.lower().replace(" ", "-")
    values = {peer: outcome.wall for peer, outcome in work.outcomes.items() if isinstance(outcome, Timed)}
    plots[name] = plot.bars(
        f"{section}: time a {work.unit}", values, {peer: seconds(value) for peer, value in values.items()}, OURS
    )
    yield f"![{work.title}: time a {work.unit}](performance-{name}.svg)"


def _resends(results: Results) -> Iterator[str]:
    found = [work for key, work in results.work.items() if key.startswith("resend ")]
    able = {name for work in found for name, outcome in work.outcomes.items() if isinstance(outcome, Timed)}
    names = [name for name in found[0].outcomes if name in able]
    rows = [(work.title, *(_wall_and_cpu(work.outcomes[name]) for name in names)) for work in found]
    yield _table((f"a {found[0].unit}: wall (least to most), CPU", *names), rows)
    yield "LangGraph stores all of it again each time. " + _unable(found[0].outcomes)


def _wall_and_cpu(outcome: Outcome) -> str:
    if isinstance(outcome, str):
        return f"can't: {outcome}"
    spread = f"{seconds(outcome.least)} to {seconds(outcome.most)}"
    return f"{seconds(outcome.wall)} ({spread}), {seconds(outcome.cpu)}"


def _unable(outcomes: Mapping[str, Outcome]) -> str:
    reasons = [f"{name} {outcome}" for name, outcome in outcomes.items() if isinstance(outcome, str)]
    return f"Can't: {'; '.join(reasons)}." if reasons else ""


def _all_sizes(results: Results, plots: dict[str, str]) -> Iterator[str]:
    for key, sizes in results.sizes.items():
        yield from _sizes(sizes)
        if key in ("chats", "corpus"):
            used = {name: use.apparent for name, use in sizes.usages.items() if isinstance(use, Usage)}
            values: dict[str, float] = {**used, "zstd -19 --long=27": sizes.limit}
            title = f"bytes of {sizes.title}"
            shown = {name: size(value) for name, value in values.items()}
            plots[f"size-{key}"] = plot.bars(title, values, shown, OURS)
            yield f"![{title}](performance-size-{key}.svg)"


def _sizes(sizes: Sizes) -> Iterator[str]:
    yield f"### {sizes.title[0].upper()}{sizes.title[1:]}"
    ours = sizes.usages[OURS]
    assert isinstance(ours, Usage)
    rows = []
    for name, use in sizes.usages.items():
        if isinstance(use, Usage):
            rows.append((name, size(use.apparent), size(use.allocated), f"{use.apparent / ours.apparent:.2f}"))
        else:
            rows.append((name, f"can't: {use}", "", ""))
    packs = f"{sizes.packs / sizes.packs_limit:.2f} times the limit of their lines"
    for part, used in sizes.shares.items():
        rows.append((f"of msgdag: {part}", size(used), "", packs if part == "packs" else ""))
    rows.append(("limit: the lines of the packs, `zstd -19 --long=27`", size(sizes.packs_limit), "", ""))
    rows.append(("limit: the unique messages, `zstd -19 --long=27`", size(sizes.limit), "", ""))
    rows.append(("the unique messages as JSON Lines", size(sizes.lines), "", ""))
    yield _table(("after gc, all synced", "bytes", "of the disk", "times msgdag"), rows)


def _growth(results: Results, plots: dict[str, str]) -> Iterator[str]:
    found = results.growth
    rows = []
    measured: tuple[tuple[str, Callable[[Growth], str]], ...] = (
        ("a turn", lambda each: _wall_and_cpu(each.turn)),
        ("the prefix of a conversation that is stored", lambda each: _wall_and_cpu(each.lookup)),
        ("load of a conversation", lambda each: _wall_and_cpu(each.load)),
        ("gc: looking only (mark)", lambda each: seconds(each.mark)),
        ("gc: all of it (repack)", lambda each: seconds(each.repack)),
        ("rebuild of the index, everything hashed", lambda each: seconds(each.reindex)),
        ("its CPU", lambda each: seconds(each.reindex_cpu)),
        ("its memory", lambda each: f"{each.memory:.0f} MB"),
    )
    for name, read in measured:
        rows.append((name, *(read(each) for each in found)))
    yield _table(("nodes in the store", *(f"{each.nodes:,}" for each in found)), rows)
    title = "our costs as the store grows, against the smallest"
    series = {name: [getattr(each, name).wall for each in found] for name in ("turn", "lookup", "load")}
    plots["growth"] = plot.lines(title, [each.nodes for each in found], series)
    yield f"![{title}](performance-growth.svg)"


def _prefix(found: Prefix) -> Iterator[str]:
    yield f"### The longest stored prefix: {found.stored:,} of {found.messages:,} messages, {found.nodes:,} nodes"
    yield f"Existence checks: {found.checks}."
    yield from list(_work(found.work, base="search, ids at hand"))[1:]


def _profile(profile: Profile) -> Iterator[str]:
    yield f"### {profile.title[0].upper()}{profile.title[1:]}"
    yield (
        f"{profile.micros:,.0f} µs a {profile.unit}; the floor ({profile.floor_is}) {profile.floor:,.0f} µs. "
        "Under a profiler, which slows small functions down most:"
    )
    yield _table(
        ("function", f"own µs a {profile.unit}"),
        [(f"`{name}`", f"{micros:,.1f}") for name, micros in profile.functions],
    )
