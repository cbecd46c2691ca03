"""``preflight help``, ``completion`` and ``version``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from preflight.version import VERSION


@click.command("help")
@click.argument("command", required=False)
@click.pass_context
def help_of(ctx: click.Context, command: str | None) -> None:
    """Print the help of a command, or list the commands.

    \b
    Example: preflight help check
    """
    parent = ctx.parent
    assert parent is not None
    if command is None:
        click.echo(parent.get_help())
        return
    assert isinstance(parent.command, click.Group)
    _, target, _ = parent.command.resolve_command(parent, [command])
    assert target is not None
    with click.Context(target, info_name=target.name, parent=parent) as own:
        click.echo(target.get_help(own))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Example: source <(preflight completion bash)
    """
    click.echo(completion_script(ctx.find_root().command, shell), nl=False)


def completion_script(command: click.Command, shell: str) -> str:
    """Return click's completion script for a shell, without starting the shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(command, {}, "preflight", "_PREFLIGHT_COMPLETE")
    source: str = complete.source_template % complete.source_vars()
    return "\n".join(line.rstrip() for line in source.strip().splitlines()) + "\n"


@click.command()
def version() -> None:
    """Print the version.

    \b
    Example: preflight version
    """
    click.echo(f"preflight, version {VERSION}")
