"""``preflight help`` and ``preflight version``."""

from __future__ import annotations

import click

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
def version() -> None:
    """Print the version.

    \b
    Example: preflight version
    """
    click.echo(f"preflight, version {VERSION}")
