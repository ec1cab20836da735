"""dag cat-file: the bytes of any object."""

from __future__ import annotations

import json
import shutil
import sys

import click

from cli.context import App, pass_app
from cli.failures import say
from cli.render import SCHEMA, escape_json
from objstore.jsonvalue import loads_exactly
from objstore.kinds import Kind
from objstore.loose import Form
from refs.errors import AmbiguousRevision, InvalidValue, UnknownRevision
from refs.ids import Oid, PayloadId, is_prefix


@click.command("cat-file")
@click.argument("oid", metavar="ID")
@click.option("-t", "--type", "only_kind", is_flag=True, help="Print the object's kind instead.")
@click.option("-p", "--pretty", is_flag=True, help="Indent the JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with the kind and the value.")
@pass_app
def command(app: App, oid: str, only_kind: bool, pretty: bool, as_json: bool) -> None:
    """Print an object's canonical bytes, exactly: their sha256 is the ID.

    ID is an id or at least 4 of its first digits, of any kind of object (KIND:ID where several kinds have
    it), or a revision for a node. A message whose attachments are stored apart is printed as it is stored,
    with their ids, and a line on standard error says so.

    \b
    Example:
      dag cat-file ab12cd34 -p
      dag cat-file message:ab12cd34 | sha256sum
    """
    kind, found = _find(app, oid)
    if only_kind:
        click.echo(kind)
        return
    if kind is Kind.PAYLOAD:
        if as_json or pretty:
            raise InvalidValue("", "a payload is bytes, not JSON")
        if app.screen.is_terminal:
            raise InvalidValue("", "a payload is bytes, not for a terminal: redirect them into a file")
        with app.store.open_payload(PayloadId(found)) as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        return
    form, raw = app.store.storage.database.read(kind, found)
    if form is not Form.PLAIN:
        say(f"{kind} {found[:8]} is printed as it is stored: {_FORMS[form]}")
    if as_json:
        app.screen.json([{"schema": SCHEMA, "kind": kind, "id": found, "value": loads_exactly(raw)}])
    elif pretty:
        app.screen.utf8([escape_json(json.dumps(loads_exactly(raw), indent=2, ensure_ascii=False))])
    elif app.screen.is_terminal:
        app.screen.utf8([escape_json(raw.decode())])
    else:
        sys.stdout.buffer.write(raw)


_FORMS = {
    Form.CONDENSED: "its attachments are payloads of their own",
    Form.TOMBSTONE: "it was erased, a tombstone stands in its place",
}


def _find(app: App, text: str) -> tuple[Kind, Oid]:
    named, _, prefix = text.rpartition(":")
    if named and named not in list(Kind):
        raise UnknownRevision(text, f"no kind of object is called {named!r}")
    if not is_prefix(prefix):
        return Kind.NODE, app.resolve(text)
    found = app.store.revisions.objects(prefix, (Kind(named),) if named else tuple(Kind))
    if not found:
        raise UnknownRevision(text, "no object's id begins so")
    if len(found) > 1:
        raise AmbiguousRevision(text, [f"{kind}:{oid}" for kind, oid in found])
    return found[0]
