"""The command `dag`: sub-commands that are loaded when they are used, and errors as exit codes.

`dag --version` imports click and nothing else of weight, so what a command needs is imported by its module.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from cli import VERSION

COMMANDS: Final = {
    "calls": "cli.commands.calls",
    "cat": "cli.commands.cat",
    "cat-file": "cli.commands.cat_file",
    "clone": "cli.commands.clone",
    "commit": "cli.commands.commit",
    "completion": "cli.commands.completion",
    "context": "cli.commands.context",
    "delete": "cli.commands.delete",
    "describe": "cli.commands.describe",
    "diff": "cli.commands.diff",
    "drafts": "cli.commands.drafts",
    "export": "cli.commands.export",
    "fetch": "cli.commands.fetch",
    "fork": "cli.commands.fork",
    "fsck": "cli.commands.fsck",
    "gc": "cli.commands.gc",
    "import": "cli.commands.import_",
    "init": "cli.commands.init",
    "list": "cli.commands.list",
    "log": "cli.commands.log",
    "merge": "cli.commands.merge",
    "merge-base": "cli.commands.merge_base",
    "pack": "cli.commands.pack",
    "pull": "cli.commands.pull",
    "push": "cli.commands.push",
    "reflog": "cli.commands.reflog",
    "reindex": "cli.commands.reindex",
    "remote": "cli.commands.remote",
    "rename": "cli.commands.rename",
    "rev-parse": "cli.commands.rev_parse",
    "show": "cli.commands.show",
    "stats": "cli.commands.stats",
    "status": "cli.commands.status",
    "switch": "cli.commands.switch",
    "tag": "cli.commands.tag",
    "tree": "cli.commands.tree",
    "usage": "cli.commands.usage",
    "view": "cli.commands.view",
}
"""Which module's `command` a sub-command is."""

INTERRUPTED: Final = 130
"""The exit code of a shell for what Ctrl-C ended; 141 for what wrote to a pipe that nobody reads any more."""
BROKEN_PIPE: Final = 141


class Dag(click.Group):
    """Loads sub-commands lazily, and turns what they raise into a line on standard error and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name]).command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # What is left in the buffer must go somewhere, or the interpreter complains at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(BROKEN_PIPE) from None
        return result

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.Abort:
            code = INTERRUPTED
        except Exception as error:
            from cli.failures import tell  # noqa: PLC0415  not before something has failed

            code = tell(error)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=Dag, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="dag %(version)s")
@click.option("--store", metavar="PATH", help="The store to use; else DAG_DIR, or the nearest .dag upward.")
@click.pass_context
def dag(ctx: click.Context, store: str | None) -> None:
    """git for LLM conversations: keep them, fork them anywhere, see what was said.

    \b
    Example:
      dag init
      dag commit chat.json
      dag fork HEAD~2 another-way
      dag log --graph --all
    """
    from cli.context import App  # noqa: PLC0415  not for --version

    ctx.obj = ctx.with_resource(App(store, os.environ))


def main() -> NoReturn:
    """The entry point of the program."""
    # By default garbage is searched for after every 700 new objects; a start makes 30,000, all of them to stay.
    gc.set_threshold(50_000)
    try:
        dag.main(prog_name="dag")
    finally:
        # The interpreter ends with a search for garbage in all that is loaded: 10 ms in which nothing is found.
        gc.freeze()
