"""Revisions: how people name nodes. `name`, `HEAD`, an id or its beginning, `X~3`, `X^`, `X@{2}`."""

from __future__ import annotations

import re
from typing import Final

from objstore.chain import Chains
from objstore.database import Database
from objstore.index import Index
from objstore.kinds import Kind
from refs.errors import (
    AmbiguousRevision,
    InvalidRefName,
    ObjectMissing,
    UnknownRevision,
)
from refs.ids import MIN_PREFIX_DIGITS, ROOT, NodeId, Oid, is_oid, is_prefix
from refs.names import CONVERSATIONS, RefName, check_ref_name
from refs.store import RefStore

MAX_CANDIDATES: Final = 20
_STEP: Final = re.compile(r"(?:~(\d{0,9})|\^|@\{(\d{1,9})\})$", re.ASCII)
_CLASSES: Final = ("conversations", "descriptions", "tags", "remotes")


def ref_name(text: str) -> RefName:
    """The ref that a name means: `refs/…` as it is, `tags/x` and the like below `refs/`, else a conversation."""
    if text.startswith("refs/"):
        return check_ref_name(text)
    if text.split("/", 1)[0] in _CLASSES and "/" in text:
        return check_ref_name(f"refs/{text}")
    return check_ref_name(f"{CONVERSATIONS}{text}")


class Revisions:
    """Resolves revisions to nodes. Raises `UnknownRevision` and `AmbiguousRevision`."""

    def __init__(self, refs: RefStore, database: Database, index: Index, chains: Chains) -> None:
        self._refs, self._database, self._index, self._chains = refs, database, index, chains

    def resolve(self, revision: str) -> NodeId:
        """The node that a revision names. `root` names the place before all first messages."""
        base, steps = self._split(revision)
        node = self._start(base, steps, revision)
        for kind, count in reversed(steps):
            if kind == "@":
                raise UnknownRevision(revision, "@{…} stands directly behind the name of a ref")
            node = self._back(node, count, revision)
        return node

    def ref(self, text: str) -> RefName | None:
        """The ref that exists and is meant by `text` (a conversation, a tag, `HEAD`…), or None."""
        if text in ("HEAD", "@"):
            return self._refs.head()
        names = [text] if "/" in text else [text, f"tags/{text}"]
        for name in names:
            try:
                ref = ref_name(name)
            except InvalidRefName:
                continue
            if self._refs.resolve(ref) is not None:
                return ref
        return None

    def objects(self, prefix: str, kinds: tuple[Kind, ...] = tuple(Kind)) -> list[tuple[Kind, Oid]]:
        """All objects of `kinds` whose ids begin with `prefix`, at most `MAX_CANDIDATES` of each."""
        found = []
        for kind in kinds:
            for row, loc in self._index.prefix_matches(kind, prefix, MAX_CANDIDATES):
                oid = self._database.oid_of(kind, row, loc)
                if oid.startswith(prefix):
                    found.append((kind, oid))
        return found

    def _split(self, revision: str) -> tuple[str, list[tuple[str, int]]]:
        base, steps = revision, []
        while match := _STEP.search(base):
            back, log = match.groups()
            steps.append(("@", int(log)) if log is not None else ("~", int(back) if back else 1))
            base = base[: match.start()]
        return base, steps

    def _start(self, base: str, steps: list[tuple[str, int]], revision: str) -> NodeId:
        if steps and steps[-1][0] == "@":
            return self._logged(base, steps.pop()[1], revision)
        if base == ROOT:
            return ROOT
        ref = self.ref(base) if base else None
        if ref is not None:
            _check_class(ref, revision)
            value = self._refs.resolve(ref)
            if value is None:
                raise UnknownRevision(revision, f"{base!r} has no message yet")
            return NodeId(value)
        if is_prefix(base):
            return self._by_prefix(base, revision)
        if base and all(digit in "0123456789abcdef" for digit in base) and len(base) < MIN_PREFIX_DIGITS:
            raise UnknownRevision(revision, f"at least {MIN_PREFIX_DIGITS} digits of an id are needed")
        raise UnknownRevision(revision)

    def _by_prefix(self, prefix: str, revision: str) -> NodeId:
        if is_oid(prefix):
            if self._index.row(Kind.NODE, prefix) is None:
                self._database.locate(Kind.NODE, Oid(prefix))
            return NodeId(Oid(prefix))
        found = [oid for _, oid in self.objects(prefix, (Kind.NODE,))]
        if len(found) > 1:
            raise AmbiguousRevision(prefix, found)
        if not found:
            raise UnknownRevision(revision, "no node's id begins so")
        return NodeId(found[0])

    def _logged(self, base: str, back: int, revision: str) -> NodeId:
        try:
            ref = self._refs.head() if base in ("", "HEAD", "@") else self.ref(base) or ref_name(base)
        except InvalidRefName as error:
            raise UnknownRevision(revision, error.reason) from error
        _check_class(ref, revision)
        entry = self._refs.reflog.entry(ref, back)
        if entry is None or entry.new is None:
            raise UnknownRevision(revision, f"the reflog of {base or 'HEAD'!r} doesn't go back so far")
        return NodeId(entry.new)

    def _back(self, node: NodeId, count: int, revision: str) -> NodeId:
        try:
            depth = self._chains.depth(node)
            if count > depth:
                raise UnknownRevision(revision, f"there are only {depth} messages before and with it")
            return self._chains.ancestor(node, count)
        except ObjectMissing as error:
            raise UnknownRevision(revision, str(error)) from error


def _check_class(ref: RefName, revision: str) -> None:
    """Descriptions have refs too, here or on a remote, but none that names a node."""
    if "descriptions" in ref.split("/")[1:4:2]:
        raise UnknownRevision(revision, "a description is no node")
