"""dag commit: messages into a conversation."""

from __future__ import annotations

from dataclasses import dataclass

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.failures import say
from cli.inputs import History, read_history, shortened
from cli.maintenance import after_writing
from cli.render import SCHEMA, count, one_line
from objstore.message import Message
from objstore.store import Store
from refs.errors import Conflict, DagError, Diverged, NoSuchRef, RefChanged, RefExists
from refs.ids import ROOT, NodeId, Oid, abbreviate


@dataclass(frozen=True, slots=True)
class Done:
    """What a commit came to."""

    conversation: str
    head: NodeId
    new: int

    def tell(self, app: App, as_json: bool) -> None:
        if as_json:
            about = {"conversation": self.conversation, "head": self.head, "new": self.new}
            app.screen.json([{"schema": SCHEMA, **about}])
        else:
            new = count(self.new, "new message")
            click.echo(f"{one_line(self.conversation)}: {new}, head {abbreviate(self.head)}")


@click.command()
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("-c", "--conversation", metavar="NAME", shell_complete=conversations, help="Instead of the current.")
@click.option("-m", "--message", "words", metavar="TEXT", help="Add one message of this text after the head.")
@click.option("--role", metavar="ROLE", help="Who said TEXT: user (if not given), assistant, system…")
@click.option("--append", is_flag=True, help="Add all messages of FILE after the head, whatever is before it.")
@click.option("--fork", metavar="NAME", help="Leave the conversation alone and make a new one of this name.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(
    app: App,
    file: str | None,
    conversation: str | None,
    words: str | None,
    role: str | None,
    append: bool,
    fork: str | None,
    as_json: bool,
) -> None:
    """Store messages and move the conversation on to them.

    FILE (- for standard input) is a whole history, as a client sends it again with every request: only what
    is new in it is stored. It may be our own JSON or JSON Lines (as 'dag cat' writes them) or a list of
    OpenAI chat messages, with or without the request around it. A history that doesn't continue the
    conversation is refused; --fork and --append are the two ways on.

    \b
    Example:
      dag commit request.json
      dag commit -m "And on a rainy day?" --role user
      dag commit other.json -c trip --fork trip-by-train
    """
    if (file is None) == (words is None):
        raise click.UsageError("name a FILE ('-' for standard input), or give a text with -m")
    if words is None and role is not None:
        raise click.UsageError("--role goes with -m: a FILE says who said what")
    if words is None:
        assert file is not None
        history = read_history(file)
    else:
        history = History([Message.of("user" if role is None else role, words)], [{}], ())
    for warning in shortened(history.warnings):
        say(warning)
    name = conversation or app.current
    after_head = append or words is not None
    try:
        if fork is not None:
            done = _onto_fork(app.store, name, fork, history, after_head, conversation is not None)
        elif after_head:
            head = app.store.commit(name, history.messages, note=history.notes)
            done = Done(name, head, len(history.messages))
        else:
            done = Done(name, *app.store.commit_history(name, history.messages, note=history.notes))
    except RefChanged as error:
        if not after_head and _overtaken(app.store, error):
            Done(name, NodeId(Oid(error.actual or "")), 0).tell(app, as_json)
            return
        kept, head = _kept_apart(app.store, name, error)
        if as_json:
            Done(kept, head, len(history.messages)).tell(app, as_json)
        raise Conflict(
            f"{error}; your messages are stored, in the new conversation {kept!r}",
            hint=f"'dag diff {name} {kept}' shows both sides",
        ) from error
    except Diverged as error:
        error.hint = "--fork NAME makes a second conversation of it, --append adds its messages after the head"
        raise
    done.tell(app, as_json)
    after_writing(app.store)


def _onto_fork(store: Store, name: str, fork: str, history: History, after_head: bool, named: bool) -> Done:
    """A new conversation: of the history alone, or of what `name` holds and the messages behind it."""
    if store.head(fork) is not None:
        raise RefExists(fork)
    base = store.head(name) or ROOT
    if after_head and base == ROOT and named:
        raise NoSuchRef(name)
    start = base if after_head else ROOT
    known = 0 if after_head else store.find_longest_existing_prefix(history.messages)[1]
    head = store.save_chain(history.messages, start, note=history.notes)
    store.fork(head, fork)
    return Done(fork, head, len(history.messages) - known)


def _overtaken(store: Store, error: RefChanged) -> bool:
    """Whether another writer has stored the same history, or more of it, in the meantime."""
    if error.stored is None or error.actual is None:
        return False
    stored, actual = NodeId(Oid(error.stored)), NodeId(Oid(error.actual))
    return store.common_ancestor(stored, actual) == stored


def _kept_apart(store: Store, name: str, error: RefChanged) -> tuple[str, NodeId]:
    """Another writer was faster: what was stored all the same gets a conversation of its own."""
    if error.stored is None:
        raise error
    stored = NodeId(Oid(error.stored))
    fork = f"{name}-{abbreviate(stored)}"
    try:
        if store.head(fork) != stored:
            store.fork(stored, fork)
    except DagError:  # taken, or too long: any name will do
        fork = store.fork(stored)
    return fork, stored
