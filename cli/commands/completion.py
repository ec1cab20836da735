"""dag completion: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that teaches SHELL to complete dag's commands, options and names of conversations.

    \b
    Example:
      eval "$(dag completion bash)"
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "dag", "_DAG_COMPLETE").source())
