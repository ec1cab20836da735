"""Which of two heads comes first, and where refs have been: what fetching, pushing and joining ask for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from objstore.chain import Chains
from objstore.kinds import Kind
from objstore.storage import Storage
from refs.ids import NodeId, Oid
from refs.names import RefName

_NAME_AT: Final = 2  # refs/<class>/<name>


def name_of(ref: RefName) -> str:
    """What follows the class in a ref's path."""
    return ref.split("/", _NAME_AT)[_NAME_AT]


def is_before(chains: Chains, a: NodeId, b: NodeId) -> bool:
    """Whether node `a` is `b` or before it; both are stored."""
    if a == b:
        return True
    back = chains.depth(b) - chains.depth(a)
    return back > 0 and chains.ancestor(b, back) == a


def holds(here: Storage, chains: Chains, ref: RefName, head: Oid) -> bool:
    """Whether our conversation of the same name has all of theirs."""
    ours = here.refs.resolve(ref)
    known = ours is not None and here.database.has(Kind.NODE, head)
    return known and is_before(chains, NodeId(head), NodeId(Oid(str(ours))))


def past_values(here: Storage, refs: Collection[RefName]) -> dict[RefName, set[Oid]]:
    """Where some refs have been, as far as the reflog goes back."""
    found: dict[RefName, set[Oid]] = {ref: set() for ref in refs}
    if found:
        for entry in here.refs.reflog.entries():
            if entry.ref in found and entry.old is not None:
                found[entry.ref].add(entry.old)
    return found
