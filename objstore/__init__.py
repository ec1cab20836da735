"""A content-addressed store of LLM conversations: the library's public face.

Everything here is imported when it is first used, so that `import objstore` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from objstore.attachment import Attachment as Attachment
    from objstore.canonical import canonical_message_json as canonical_message_json
    from objstore.canonical import message_content_hash as message_content_hash
    from objstore.codec import decode as decode
    from objstore.codec import encode as encode
    from objstore.draft import Delta as Delta
    from objstore.draft import DeltaKind as DeltaKind
    from objstore.drafts import Draft as Draft
    from objstore.drafts import LeftDraft as LeftDraft
    from objstore.exchange import Exchange as Exchange
    from objstore.exchange import SideChain as SideChain
    from objstore.kinds import Kind as Kind
    from objstore.message import AttachmentPart as AttachmentPart
    from objstore.message import Message as Message
    from objstore.message import Part as Part
    from objstore.message import ReasoningPart as ReasoningPart
    from objstore.message import TextPart as TextPart
    from objstore.message import ToolCallPart as ToolCallPart
    from objstore.message import ToolResultPart as ToolResultPart
    from objstore.message import UnknownPart as UnknownPart
    from objstore.newcall import NewCall as NewCall
    from objstore.node import Node as Node
    from objstore.node import node_id as node_id
    from objstore.pairing import pair_tool_results as pair_tool_results
    from objstore.records import Call as Call
    from objstore.records import Description as Description
    from objstore.records import Note as Note
    from objstore.records import Tombstone as Tombstone
    from objstore.requests import Api as Api
    from objstore.store import Conversation as Conversation
    from objstore.store import Store as Store
    from objstore.usage import By as By
    from objstore.usage import Prices as Prices
    from objstore.views import ChatItem as ChatItem
    from objstore.views import Row as Row
    from objstore.views import Siblings as Siblings
    from objstore.views import Spawn as Spawn
    from refs.errors import DagError as DagError
    from refs.ids import ROOT as ROOT

_HOMES = {
    "objstore.attachment": ("Attachment",),
    "objstore.canonical": ("canonical_message_json", "message_content_hash"),
    "objstore.codec": ("decode", "encode"),
    "objstore.draft": ("Delta", "DeltaKind"),
    "objstore.drafts": ("Draft", "LeftDraft"),
    "objstore.exchange": ("Exchange", "SideChain"),
    "objstore.kinds": ("Kind",),
    "objstore.message": (
        "AttachmentPart",
        "Message",
        "Part",
        "ReasoningPart",
        "TextPart",
        "ToolCallPart",
        "ToolResultPart",
        "UnknownPart",
    ),
    "objstore.newcall": ("NewCall",),
    "objstore.node": ("Node", "node_id"),
    "objstore.pairing": ("pair_tool_results",),
    "objstore.records": ("Call", "Description", "Note", "Tombstone"),
    "objstore.requests": ("Api",),
    "objstore.store": ("Conversation", "Store"),
    "objstore.usage": ("By", "Prices"),
    "objstore.views": ("ChatItem", "Row", "Siblings", "Spawn"),
    "refs.errors": ("DagError",),
    "refs.ids": ("ROOT",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'objstore' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
