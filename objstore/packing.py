"""The order in which a pack wants a transaction's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    messages, nodes, records = _by_kind(objects)
    unwritten = dict(messages)
    behind, rest = _records_by_node(nodes, records)
    for oid, node in nodes.items():
        if node.parent == ROOT:
            writer.start_chain()
        message = unwritten.pop(node.message, None)
        if message is None:
            writer.node(oid, node, _copier(messages.get(node.message)))
        elif message.form is Form.PLAIN:
            writer.pair(message.oid, message.raw, oid, node)
        else:
            writer.message(message.oid, message.raw, message.form)
            writer.node(oid, node)
        if oid in behind:
            for record in behind[oid]:
                writer.record(record.kind, record.oid, record.raw, record.value)
    for message in unwritten.values():
        writer.message(message.oid, message.raw, message.form)
    for record in rest:
        writer.record(record.kind, record.oid, record.raw, record.value)


def _copier(message: NewObject | None) -> Callable[[], tuple[Form, bytes]] | None:
    return None if message is None else lambda: (message.form, message.raw)


def _by_kind(objects: Sequence[NewObject]) -> tuple[dict[Oid, NewObject], dict[Oid, Node], list[NewObject]]:
    """The messages, the nodes and the records among some objects, in their order."""
    messages: dict[Oid, NewObject] = {}
    nodes: dict[Oid, Node] = {}
    records = []
    for each in objects:
        value = each.value
        if isinstance(value, Node):
            nodes[each.oid] = value
        elif each.kind is Kind.MESSAGE:
            messages[each.oid] = each
        elif each.kind is not Kind.PAYLOAD:
            records.append(each)
    return messages, nodes, records


def _records_by_node(
    nodes: Iterable[Oid], records: Sequence[NewObject]
) -> tuple[dict[Oid, list[NewObject]], list[NewObject]]:
    """Records by the last of `nodes` that they name, behind which they belong; and the others."""
    order = {oid: i for i, oid in enumerate(nodes)} if records else {}
    behind: dict[Oid, list[NewObject]] = {}
    rest = []
    for each in records:
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
