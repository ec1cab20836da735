"""Fetching: what a remote has comes here, checked, and where its refs stand is remembered.

Interrupted at any point, nothing is half visible, and running it again completes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain as chained

from objstore.chain import Chains
from objstore.kinds import Kind
from objstore.scan import Progress
from objstore.storage import Storage
from objstore.transfer.history import holds, name_of
from objstore.transfer.negotiate import Wanted
from objstore.transfer.quarantine import Quarantine
from objstore.transfer.remote import Remote, read_refs
from objstore.transfer.report import How, Moved, Report
from refs.errors import BadTransfer, DamagedStore, InvalidValue, LimitExceeded, NoSuchRef, NotFound
from refs.ids import Oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, REMOTES, TAGS, RefName, remote_ref
from refs.store import Move
from refs.taken import NameSet


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
    return {ref: oid for ref, oid in refs.items() if name_of(ref) in names and not ref.startswith(TAGS)}


def _to_remember(
    here: Storage, label: str, refs: Mapping[RefName, Oid], names: Collection[str], track_all: bool
) -> list[Move]:
    """Moves of `refs/remotes/<label>/` to where the remote's refs stand."""
    before = dict(here.refs.list(f"{REMOTES}{label}/"))
    now: dict[RefName, Oid] = {}
    chains = Chains(here.database, here.index)
    for ref, oid in refs.items():
        if ref.startswith(CONVERSATIONS):
            remembered = track_all or not holds(here, chains, ref, oid)
        else:
            remembered = track_all and ref.startswith(DESCRIPTIONS)
        if remembered:
            now[remote_ref(label, ref.removeprefix("refs/"))] = oid
    gone = before.keys() - now.keys() if track_all and not names else ()
    return [
        *(Move(ref, before[ref], None) for ref in sorted(gone)),
        *(Move(ref, before.get(ref), oid) for ref, oid in now.items() if before.get(ref) != oid),
    ]


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


def forget(here: Storage, label: str) -> None:
    """Forget heads of a remote that our conversations of the same name have come to hold."""
    chains, prefix = Chains(here.database, here.index), f"{REMOTES}{label}/"
    held = []
    for tracking, oid in here.refs.list(prefix):
        ref = RefName(f"refs/{tracking.removeprefix(prefix)}")
        if holds(here, chains, ref, oid):
            held.append(Move(tracking, oid, None))
    if held:
        with here.transaction() as transaction:
            for move in held:
                transaction.move(move.ref, move.expected, None, "merged")
