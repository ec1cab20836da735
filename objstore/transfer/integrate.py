"""What was fetched, into our own conversations: forward where that is all, else both heads are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.chain import Chains
from objstore.codec import decode
from objstore.kinds import Kind
from objstore.records import Description
from objstore.storage import Storage
from objstore.transfer.history import is_before, past_values
from objstore.transfer.report import How, Moved, Parted, Refused, Report
from refs.errors import InvalidRefName, RefChanged
from refs.ids import NodeId, Oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, RefName, check_ref_name, conversation_ref, remote_ref
from refs.store import Move
from refs.taken import NameSet

_TRIES: Final = 8  # writers of this store may be faster between the look and the move
_MAX_FORK_NUMBER: Final = 1000


@dataclass(slots=True)
class _Joining:
    moves: list[tuple[Move, How]] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report(""))


@dataclass(frozen=True, slots=True)
class _Standing:
    """Our conversations: where each stands, and one for each head."""

    heads: Mapping[RefName, Oid]
    by_head: Mapping[Oid, RefName]


def integrate(
    here: Storage,
    label: str,
    theirs: Mapping[RefName, Oid],
    *,
    names: Collection[str] = (),
    fork: bool = False,
) -> Report:
    """Bring our conversations up to the remote's, whose heads are stored here already.

    One that we lack is made, unless it was deleted here since (naming it brings it back); one that theirs
    continues moves on. Where both went on ours stays, and with `fork` theirs becomes a conversation beside it.
    """
    for tried in range(_TRIES):
        joining = _Joining()
        _join(here, label, theirs, names, fork, joining)
        if not joining.moves:
            return joining.report
        try:
            with here.transaction() as transaction:
                for move, _ in joining.moves:
                    transaction.move(move.ref, move.expected, move.new, f"pull from {label}")
        except RefChanged:
            if tried == _TRIES - 1:
                raise
            continue
        break
    joining.report.moved = [Moved(move.ref, move.expected, move.new, how) for move, how in joining.moves]
    return joining.report


def _join(
    here: Storage, label: str, theirs: Mapping[RefName, Oid], names: Collection[str], fork: bool, joining: _Joining
) -> None:
    chains = Chains(here.database, here.index)
    ours = dict(here.refs.list(CONVERSATIONS))
    taken = NameSet(ours)
    standing = _Standing(ours, {oid: ref for ref, oid in ours.items()})
    absent: dict[RefName, NodeId] = {}
    for ref, oid in theirs.items():
        if not ref.startswith(CONVERSATIONS):
            continue
        there = NodeId(oid)
        if ref not in ours:
            absent[ref] = there
        elif ours[ref] != there:
            mine = NodeId(ours[ref])
            if is_before(chains, mine, there):
                joining.moves.append((Move(ref, mine, there), How.FORWARD))
            elif not is_before(chains, there, mine):
                _part(chains, label, ref, mine, there, standing, fork, joining)
    for move, how in joining.moves:
        if how is How.NEW:
            taken.add(move.ref)
    deleted = _deleted(here, absent) if absent and not names else {}
    for ref, there in absent.items():
        conflict = taken.conflict(ref)
        if conflict is not None:
            joining.report.refuse(ref, conflict)
        elif ref in deleted and _held(here, chains, there, deleted[ref]):
            joining.report.skipped.append(Refused(ref, "it was deleted here; name it to bring it back"))
        else:
            taken.add(ref)
            joining.moves.append((Move(ref, None, there), How.NEW))
    _describe(here, label, theirs, joining)


def _part(
    chains: Chains,
    label: str,
    ref: RefName,
    mine: NodeId,
    there: NodeId,
    standing: _Standing,
    fork: bool,
    joining: _Joining,
) -> None:
    """Both went on: keep both, and where it is wanted give theirs a name of its own, once."""
    name = ref.removeprefix(CONVERSATIONS)
    beside = standing.by_head.get(there)
    if beside is None and fork:
        for beside in _names_beside(name, label):
            held = standing.heads.get(beside)
            if held is None or is_before(chains, NodeId(held), there):
                how = How.NEW if held is None else How.FORWARD
                joining.moves.append((Move(beside, held, there), how))
                break
            if is_before(chains, there, NodeId(held)):
                break
    forked = None if beside is None else beside.removeprefix(CONVERSATIONS)
    joining.report.diverged.append(Parted(name, mine, there, forked))


def _names_beside(name: str, label: str) -> Iterator[RefName]:
    for number in range(1, _MAX_FORK_NUMBER):
        try:
            yield conversation_ref(f"{name}.{label}" if number == 1 else f"{name}.{label}-{number}")
        except InvalidRefName:  # too long
            yield check_ref_name(f"{CONVERSATIONS}{label}-{number}")


def _deleted(here: Storage, absent: Collection[RefName]) -> dict[RefName, NodeId]:
    """Those of some conversations that were deleted here, and where they stood then."""
    found: dict[RefName, NodeId] = {}
    for entry in here.refs.reflog.entries():
        if entry.ref in absent and entry.ref not in found and entry.old is not None:
            found[entry.ref] = NodeId(entry.old)
    return found


def _held(here: Storage, chains: Chains, there: NodeId, before: NodeId) -> bool:
    """Whether a conversation that was deleted here held all that theirs says."""
    return here.database.has(Kind.NODE, before) and is_before(chains, there, before)


def _describe(here: Storage, label: str, theirs: Mapping[RefName, Oid], joining: _Joining) -> None:
    """Descriptions: theirs where we have none, or one that they had before."""
    made = {move.ref for move, _ in joining.moves}
    differ: dict[RefName, tuple[Oid, Oid]] = {}
    for ref, oid in theirs.items():
        if ref.startswith(DESCRIPTIONS):
            conversation = RefName(CONVERSATIONS + ref.removeprefix(DESCRIPTIONS))
            ours = here.refs.resolve(ref)
            if ours is not None and ours != oid:
                differ[ref] = ours, oid
            elif ours is None and (conversation in made or here.refs.resolve(conversation) is not None):
                _move(here, Move(ref, None, oid), How.NEW, joining)
    tracked = {ref: remote_ref(label, ref.removeprefix("refs/")) for ref in differ}
    before = past_values(here, {*differ, *tracked.values()})
    for ref, (ours, there) in differ.items():
        if ours in before[tracked[ref]]:
            _move(here, Move(ref, ours, there), How.CHANGED, joining)
        elif there not in before[ref]:  # else ours is the newer one
            joining.report.refuse(ref, "it is described otherwise here, and stays so")


def _move(here: Storage, move: Move, how: How, joining: _Joining) -> None:
    """Set a description, if it is one of the conversation of that name."""
    assert move.new is not None
    value = decode(Kind.DESCRIPTION, here.database.read(Kind.DESCRIPTION, move.new)[1])
    if isinstance(value, Description) and value.description == move.ref.removeprefix(DESCRIPTIONS):
        joining.moves.append((move, how))
    else:
        joining.report.refuse(move.ref, "it describes another conversation")
