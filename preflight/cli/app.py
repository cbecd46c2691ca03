"""The command line: which commands there are. Each is imported when it is called, or when help names it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

from preflight import errors
from preflight.errors import PreflightError
from preflight.version import VERSION

#: Name of each command, and where in ``preflight.commands`` it is defined.
COMMANDS = {
    "check": "check:check",
    "pair": "pair:pair",
    "gate": "gate:gate",
    "collect": "collect:collect",
    "judge": "judge:judge",
    "diff": "diff:diff",
    "history": "history:history",
    "lint": "lint:lint",
    "learn": "learn:learn",
    "read": "read:read",
    "redact": "redact:redact",
    "bundle": "bundle:bundle",
    "demo": "judge:demo",
    "probes": "catalogue:probes",
    "list": "catalogue:list_checks",
    "explain": "catalogue:explain",
    "checklist": "catalogue:checklist",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"preflight.commands.{module}"), function)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            raise _shown(error) from None

    def invoke(self, ctx: click.Context) -> None:
        """Carry out a command; what it returns is the exit status."""
        from preflight.terminal import UsageError

        try:
            status = super().invoke(ctx)
        except (UsageError, errors.DuplicateCheck) as error:
            raise _shown(_UsageError(str(error))) from None
        except KeyboardInterrupt:
            click.echo("\nAborted!", err=True)
            ctx.exit(3)  # nothing was judged; click's own status would say that a check failed
        except BrokenPipeError:  # the reader has left; what is still to be flushed goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            ctx.exit(3)
        except click.ClickException as error:
            raise _shown(error) from None
        if status:
            ctx.exit(status)


def _shown(error: click.ClickException) -> click.ClickException:
    """Make visible what somebody else's name or file did to an error's words."""
    from preflight.reports.sanitize import visible

    object.__setattr__(error, "message", visible(error.message))
    return error


class _UsageError(PreflightError, click.ClickException):
    exit_code = 2


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="preflight")
@click.option("-v", "--verbose", is_flag=True, help="Print the traceback of an internal error, or of a plug-in's.")
def main(verbose: bool) -> None:
    """Find out before the job starts why a GPU cluster would run slow.

    \b
    First:   preflight demo                     a sick cluster, made by hand
    Then:    preflight check                    this machine
             preflight check --cluster cluster.toml --html report.html
    """
    if verbose:
        import logging

        logging.basicConfig(format="%(message)s")
        logging.getLogger("preflight").setLevel(logging.INFO)
