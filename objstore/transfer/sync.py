"""Fetching and pushing: which refs are to move, which objects go along, and in which order it is made visible.

Interrupted at any point, nothing is half visible on either side, and running it again completes it: what has
arrived is there and isn't sent again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain as chained
from typing import Final

from objstore.chain import Chains
from objstore.kinds import Kind
from objstore.scan import Progress
from objstore.storage import Storage
from objstore.transfer.memory import Mark
from objstore.transfer.negotiate import Wanted, select
from objstore.transfer.outgoing import pack
from objstore.transfer.quarantine import Quarantine
from objstore.transfer.remote import Remote, read_refs
from objstore.transfer.report import How, Moved, Parted, Report
from refs.errors import (
    BadTransfer,
    DamagedStore,
    InvalidValue,
    LimitExceeded,
    NoSuchRef,
    NotFound,
    RefChanged,
    RefExists,
)
from refs.ids import NodeId, Oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, REMOTES, TAGS, RefName, remote_ref
from refs.store import Move
from refs.taken import NameSet

_NAME_AT: Final = 2  # refs/<class>/<name>


def is_before(chains: Chains, a: NodeId, b: NodeId) -> bool:
    """Whether node `a` is `b` or before it; both are stored."""
    if a == b:
        return True
    back = chains.depth(b) - chains.depth(a)
    return back > 0 and chains.ancestor(b, back) == a


# -- fetch ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fetched:
    """What a fetch did, and the refs of the remote as they were read."""

    report: Report
    refs: dict[RefName, Oid]


def fetch(
    here: Storage,
    remote: Remote,
    label: str,
    *,
    names: Collection[str] = (),
    track_all: bool = True,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Fetched:
    """Bring what a remote has here, and remember where its refs stand as `refs/remotes/<label>/…`.

    `names` limits it to some conversations. Tags that aren't here are made; one that is stays. With
    `track_all` off only conversations that lead on from ours, or away from them, are remembered. Raises
    `BadTransfer` for what can't be believed; then nothing has changed.
    """
    report = Report(remote.url)
    refs = _chosen(read_refs(remote, report), names)
    moves, tags = _to_remember(here, label, refs, names, track_all), _new_tags(here, refs, report)
    wanted = Wanted(
        [oid for ref, oid in refs.items() if ref.startswith(CONVERSATIONS)]
        + [move.new for move in tags if move.new],
        [oid for ref, oid in refs.items() if ref.startswith(DESCRIPTIONS)],
        calls=not names,
    )
    if dry_run:
        with _suspicious(remote.url):
            report.objects, report.bytes = remote.weigh(wanted)
    else:
        with Quarantine(here, remote.open_payload, progress) as quarantine:
            quarantine.require(Kind.NODE, wanted.heads)
            quarantine.require(Kind.DESCRIPTION, wanted.descriptions)
            report.bytes = _take(remote, wanted, quarantine)
            if moves or tags or quarantine.objects:
                quarantine.commit([*moves, *tags], f"fetch from {label}")
            report.objects = quarantine.objects
        remote.taken(wanted)
    report.moved = [Moved(move.ref, move.expected, move.new, _how(move)) for move in chained(moves, tags)]
    return Fetched(report, refs)


def _take(remote: Remote, wanted: Wanted, quarantine: Quarantine) -> int:
    """Take packs until all that is needed is there; their bytes, and those of attachments."""
    taken, lacking = 0, ""
    with _suspicious(remote.url):
        for again in (False, True):
            for coming in remote.get(wanted, again=again):
                with coming as reader:
                    quarantine.take(reader)
                    taken += reader.size()
            unmet = next(quarantine.unmet(), None)
            if unmet is None:
                return taken + quarantine.payload_bytes
            lacking = f"{unmet[0]} {unmet[1]}"
    raise BadTransfer(remote.url, f"{lacking}, which what it sent builds on, isn't there")


@contextlib.contextmanager
def _suspicious(url: str) -> Iterator[None]:
    """What can't be read is the remote's fault."""
    try:
        yield
    except BadTransfer:
        raise
    except (DamagedStore, LimitExceeded, InvalidValue, NotFound) as error:
        raise BadTransfer(url, str(error)) from error


def _chosen(refs: dict[RefName, Oid], names: Collection[str]) -> dict[RefName, Oid]:
    if not names:
        return refs
    for name in names:
        if CONVERSATIONS + name not in refs:
            raise NoSuchRef(name)
    return {ref: oid for ref, oid in refs.items() if _name(ref) in names and not ref.startswith(TAGS)}


def _to_remember(
    here: Storage, label: str, refs: Mapping[RefName, Oid], names: Collection[str], track_all: bool
) -> list[Move]:
    """Moves of `refs/remotes/<label>/` to where the remote's refs stand."""
    before = dict(here.refs.list(f"{REMOTES}{label}/"))
    now: dict[RefName, Oid] = {}
    chains = Chains(here.database, here.index)
    for ref, oid in refs.items():
        if ref.startswith(CONVERSATIONS):
            remembered = track_all or not _holds(here, chains, ref, oid)
        else:
            remembered = track_all and ref.startswith(DESCRIPTIONS)
        if remembered:
            now[remote_ref(label, ref.removeprefix("refs/"))] = oid
    gone = before.keys() - now.keys() if track_all and not names else ()
    return [
        *(Move(ref, before[ref], None) for ref in sorted(gone)),
        *(Move(ref, before.get(ref), oid) for ref, oid in now.items() if before.get(ref) != oid),
    ]


def _holds(here: Storage, chains: Chains, ref: RefName, head: Oid) -> bool:
    """Whether our conversation of the same name has all of theirs."""
    ours = here.refs.resolve(ref)
    known = ours is not None and here.database.has(Kind.NODE, head)
    return known and is_before(chains, NodeId(head), NodeId(Oid(str(ours))))


def _new_tags(here: Storage, refs: Mapping[RefName, Oid], report: Report) -> list[Move]:
    """Tags that can be made here; those of which we have another are refused."""
    ours = dict(here.refs.list(TAGS))
    taken = NameSet(ours)
    moves = []
    for ref, oid in refs.items():
        if not ref.startswith(TAGS) or ours.get(ref) == oid:
            continue
        conflict = "there is another tag of that name here" if ref in ours else taken.conflict(ref)
        if conflict is not None:
            report.refuse(ref, conflict)
            continue
        taken.add(ref)
        moves.append(Move(ref, None, oid))
    return moves


def _how(move: Move) -> How:
    if move.new is None:
        return How.GONE
    return How.NEW if move.expected is None else How.CHANGED


def _name(ref: RefName) -> str:
    return ref.split("/", _NAME_AT)[_NAME_AT]


# -- push -----------------------------------------------------------------------------------------


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
        raise NoSuchRef(_name(ref))
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
            report.diverged.append(Parted(_name(ref), NodeId(oid), NodeId(there)))
    going = {_name(ref) for ref, _ in _going(plan) if ref.startswith(CONVERSATIONS)}
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


def past_values(here: Storage, refs: Collection[RefName]) -> dict[RefName, set[Oid]]:
    """Where some refs have been, as far as the reflog goes back."""
    found: dict[RefName, set[Oid]] = {ref: set() for ref in refs}
    if found:
        for entry in here.refs.reflog.entries():
            if entry.ref in found and entry.old is not None:
                found[entry.ref].add(entry.old)
    return found


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


def forget(here: Storage, label: str) -> None:
    """Forget heads of a remote that our conversations of the same name have come to hold."""
    chains, prefix = Chains(here.database, here.index), f"{REMOTES}{label}/"
    held = []
    for tracking, oid in here.refs.list(prefix):
        ref = RefName(f"refs/{tracking.removeprefix(prefix)}")
        if _holds(here, chains, ref, oid):
            held.append(Move(tracking, oid, None))
    if held:
        with here.transaction() as transaction:
            for move in held:
                transaction.move(move.ref, move.expected, None, "merged")
