"""Views: what a person, a chat window or the next request reads out of a graph of nodes.

Pure functions over `Row`s; nothing here knows a store. The rules and where they come from stand in
docs/calls.md.
"""

from objstore.views.chat import Block as Block
from objstore.views.chat import Card as Card
from objstore.views.chat import ChatItem as ChatItem
from objstore.views.chat import aggregate_tool_messages as aggregate_tool_messages
from objstore.views.context import render_context as render_context
from objstore.views.history import Siblings as Siblings
from objstore.views.history import Spawn as Spawn
from objstore.views.history import linear_history as linear_history
from objstore.views.history import siblings as siblings
from objstore.views.history import spawned_from as spawned_from
from objstore.views.rows import Expose as Expose
from objstore.views.rows import Row as Row
from objstore.views.rows import Rows as Rows
