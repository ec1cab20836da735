"""Pushing: objects first, then refs, each only from where it is expected.

Interrupted at any point, nothing is half visible there, and running it again completes it: what has arrived
isn't sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from objstore.chain import Chains
from objstore.kinds import Kind
from objstore.scan import Progress
from objstore.storage import Storage
from objstore.transfer.history import is_before, name_of, past_values
from objstore.transfer.memory import Mark
from objstore.transfer.negotiate import Wanted, select
from objstore.transfer.outgoing import pack
from objstore.transfer.remote import Remote, read_refs
from objstore.transfer.report import How, Moved, Parted, Report
from refs.errors import NoSuchRef, RefChanged, RefExists
from refs.ids import NodeId, Oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, TAGS, RefName, remote_ref
from refs.store import Move


@dataclass(slots=True)
class _Plan:
    """Moves of a remote's refs that lose nothing there."""

    moves: list[tuple[Move, How]] = field(default_factory=list)
    standing: dict[RefName, Oid] = field(default_factory=dict)
    """Refs that are already where they should be."""


def push(
    here: Storage,
    remote: Remote,
    label: str,
    refs: Sequence[RefName],
    *,
    everything: bool = False,
    force: Oid | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Send conversations (with their descriptions) and tags, and move the remote's refs to where ours stand.

    A ref moves only forward, so that no head is lost; `force` names the head that one conversation may lose.
    `everything` also sends the calls that belong to no conversation. What was refused, and why, is in the
    report. Raises `NoSuchRef`.
    """
    report = Report(remote.url)
    theirs = read_refs(remote, report)
    report.refused, report.refused_count = [], 0  # what else is odd there is no matter of a push
    ours = {ref: _value(here, ref) for ref in refs}
    plan = _plan(here, ours, theirs, force, report)
    wanted = Wanted(
        [oid for ref, oid in _going(plan) if not ref.startswith(DESCRIPTIONS)],
        [oid for ref, oid in _going(plan) if ref.startswith(DESCRIPTIONS)],
        calls=everything,
    )
    mark = Mark.of(here.index)
    _send(here, remote, wanted, report, dry_run, progress)
    for move, how in plan.moves:
        if not dry_run:
            try:
                remote.move(move.ref, move.expected, move.new)
            except (RefChanged, RefExists) as error:
                report.refuse(move.ref, str(error))
                continue
        report.moved.append(Moved(move.ref, move.expected, move.new, how))
    if not dry_run:
        remote.sent(wanted, mark)
        _remember_push(here, label, plan, report)
    return report


def delete(here: Storage, remote: Remote, label: str, refs: Sequence[RefName], *, dry_run: bool = False) -> Report:
    """Delete refs of a remote, as far as they are where we saw them last. Raises `NoSuchRef`."""
    report = Report(remote.url)
    theirs = read_refs(remote, Report(remote.url))
    for ref in refs:
        if ref not in theirs:
            raise NoSuchRef(ref)
        seen = here.refs.resolve(remote_ref(label, ref.removeprefix("refs/")))
        if not ref.startswith((DESCRIPTIONS, TAGS)) and seen != theirs[ref]:
            report.refuse(ref, "it has moved since the last fetch")
            continue
        if not dry_run:
            remote.move(ref, theirs[ref], None)
        report.moved.append(Moved(ref, theirs[ref], None, How.GONE))
    if not dry_run:
        _remember_push(here, label, _Plan(), report)
    return report


def _value(here: Storage, ref: RefName) -> Oid:
    oid = here.refs.resolve(ref)
    if oid is None:
        raise NoSuchRef(name_of(ref))
    return oid


def _going(plan: _Plan) -> Iterator[tuple[RefName, Oid]]:
    for move, _ in plan.moves:
        if move.new is not None:
            yield move.ref, move.new
    yield from plan.standing.items()


def _plan(
    here: Storage, ours: Mapping[RefName, Oid], theirs: Mapping[RefName, Oid], force: Oid | None, report: Report
) -> _Plan:
    plan, chains = _Plan(), Chains(here.database, here.index)
    for ref, oid in ours.items():
        there = theirs.get(ref)
        if there == oid:
            plan.standing[ref] = oid
        elif there is None:
            plan.moves.append((Move(ref, None, oid), How.NEW))
        elif ref.startswith(TAGS):
            report.refuse(ref, "there is another tag of that name there")
        elif force is not None:
            plan.moves.append((Move(ref, force, oid), How.FORCED))
        elif not here.database.has(Kind.NODE, there):
            report.refuse(ref, f"it is at {there[:8]} there, which isn't here: fetch first")
        elif is_before(chains, NodeId(there), NodeId(oid)):
            plan.moves.append((Move(ref, there, oid), How.FORWARD))
        elif is_before(chains, NodeId(oid), NodeId(there)):
            plan.standing[ref] = oid  # the remote is ahead: nothing of ours is lacking but what hangs on it
        else:
            report.diverged.append(Parted(name_of(ref), NodeId(oid), NodeId(there)))
    going = {name_of(ref) for ref, _ in _going(plan) if ref.startswith(CONVERSATIONS)}
    _plan_descriptions(here, going, theirs, plan, report)
    return plan


def _plan_descriptions(
    here: Storage, names: Collection[str], theirs: Mapping[RefName, Oid], plan: _Plan, report: Report
) -> None:
    """Descriptions are replaced as a whole: ours takes the place of one that we had before."""
    differ: dict[RefName, tuple[Oid, Oid]] = {}
    for name in names:
        ref = RefName(DESCRIPTIONS + name)
        ours, there = here.refs.resolve(ref), theirs.get(ref)
        if ours is None:
            continue
        if there is None:
            plan.moves.append((Move(ref, None, ours), How.NEW))
        elif there == ours:
            plan.standing[ref] = ours
        else:
            differ[ref] = ours, there
    before = past_values(here, differ)
    for ref, (ours, there) in differ.items():
        if there in before[ref]:
            plan.moves.append((Move(ref, there, ours), How.CHANGED))
        else:
            report.refuse(ref, "it is described otherwise there: pull first")


def _send(
    here: Storage, remote: Remote, wanted: Wanted, report: Report, dry_run: bool, progress: Progress | None
) -> None:
    selection = select(here, remote.missing, wanted, remote.known())
    if not selection:
        return
    outgoing = pack(here, selection, remote.missing, here.files, progress)
    try:
        report.objects = outgoing.objects
        report.bytes = outgoing.bytes(here.files)
        if not dry_run:
            report.bytes = remote.put(outgoing.sealed, outgoing.payloads)
    finally:
        outgoing.discard(here.files)


def _remember_push(here: Storage, label: str, plan: _Plan, report: Report) -> None:
    """Where the remote's refs stand now, as a fetch would tell it."""
    now: dict[RefName, Oid | None] = dict(plan.standing.items())
    now |= {moved.ref: moved.new for moved in report.moved}
    moves = []
    for ref, oid in now.items():
        if not ref.startswith(TAGS):
            tracking = remote_ref(label, ref.removeprefix("refs/"))
            before = here.refs.resolve(tracking)
            if before != oid:
                moves.append(Move(tracking, before, oid))
    if moves:
        with here.transaction() as transaction:
            for move in moves:
                transaction.move(move.ref, move.expected, move.new, f"push to {label}")
