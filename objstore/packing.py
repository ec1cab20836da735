"""The order in which a pack wants a transaction's objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from objstore.kinds import Kind
from objstore.loose import Form
from objstore.node import Node
from objstore.records import Call, Note
from refs.ids import ROOT, Oid

if TYPE_CHECKING:
    from objstore.packwriter import PackWriter
    from objstore.transaction import NewObject


def write_in_order(writer: PackWriter, objects: Sequence[NewObject]) -> None:
    """Write objects as a pack wants them: each message before its node, chains together, records behind."""
    messages = {each.oid: each for each in objects if each.kind is Kind.MESSAGE}
    unwritten = dict(messages)
    behind, rest = _records_by_node(objects)
    for each in objects:
        if not isinstance(each.value, Node):
            continue
        if each.value.parent == ROOT:
            writer.start_chain()
        message = unwritten.pop(each.value.message, None)
        if message is not None:
            writer.message(message.oid, message.raw, message.form)
        writer.node(each.oid, each.value, _copier(messages.get(each.value.message)))
        for record in behind.get(each.oid, ()):
            writer.record(record.kind, record.oid, record.raw, record.value)
    for message in unwritten.values():
        writer.message(message.oid, message.raw, message.form)
    for record in rest:
        writer.record(record.kind, record.oid, record.raw, record.value)


def _copier(message: NewObject | None) -> Callable[[], tuple[Form, bytes]] | None:
    return None if message is None else lambda: (message.form, message.raw)


def _records_by_node(objects: Sequence[NewObject]) -> tuple[dict[Oid, list[NewObject]], list[NewObject]]:
    """Records by the last of `objects`' nodes that they name, behind which they belong; and the others."""
    order = {each.oid: i for i, each in enumerate(objects) if each.kind is Kind.NODE}
    behind: dict[Oid, list[NewObject]] = {}
    rest = []
    for each in objects:
        if each.kind in (Kind.MESSAGE, Kind.NODE, Kind.PAYLOAD):
            continue
        named: list[str | None] = []
        if isinstance(each.value, Note):
            named = list(each.value.nodes)
        elif isinstance(each.value, Call):
            named = [each.value.head_input, each.value.head_output]
        here = [Oid(oid) for oid in named if oid in order]
        if here:
            behind.setdefault(max(here, key=order.__getitem__), []).append(each)
        else:
            rest.append(each)
    return behind, rest
