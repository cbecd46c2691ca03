"""The command line; each command is imported when called."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

from preflight import errors
from preflight.errors import PreflightError
from preflight.version import VERSION

#: Name of each command, and its location in ``preflight.commands``.
COMMANDS = {
    "check": "check:check",
    "pair": "pair:pair",
    "bench": "bench:bench",
    "gate": "gate:gate",
    "slurm": "slurm:slurm",
    "collect": "collect:collect",
    "judge": "judge:judge",
    "show": "show:show",
    "diff": "diff:diff",
    "history": "history:history",
    "lint": "lint:lint",
    "learn": "learn:learn",
    "read": "read:read",
    "trace": "trace:trace",
    "plan": "plan:plan",
    "redact": "redact:redact",
    "bundle": "bundle:bundle",
    "demo": "judge:demo",
    "probes": "catalogue:probes",
    "list": "catalogue:list_checks",
    "explain": "catalogue:explain",
    "checklist": "catalogue:checklist",
    "help": "about:help_of",
    "completion": "about:completion",
    "version": "about:version",
}

#: Groups of commands in help.
GROUPS = {
    "Judge": ("check", "judge", "show", "gate", "slurm", "pair", "bench", "demo"),
    "Compare": ("diff", "history"),
    "Expect": ("learn", "lint"),
    "Text and evidence": ("read", "trace", "plan", "collect", "redact", "bundle"),
    "About preflight": ("list", "explain", "checklist", "probes", "help", "completion", "version"),
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument, or suggest a similar one."""
        word = args[0]  # click may remove it
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(word, COMMANDS, n=1, cutoff=0.6)
            hint = f" Did you mean {near[0]!r}?" if near else " `preflight help` lists them."
            raise click.UsageError(f"No such command {word!r}.{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section of the help that lists the commands in groups."""
        for title, names in GROUPS.items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                assert command is not None
                rows.append((name, command.get_short_help_str(66)))
            with formatter.section(title):
                formatter.write_dl(rows, col_max=12)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            raise _shown(error) from None

    def invoke(self, ctx: click.Context) -> None:
        """Run a command; its return value is the exit status."""
        from preflight.terminal import UsageError

        try:
            status = super().invoke(ctx)
        except (UsageError, errors.DuplicateCheck) as error:
            raise _shown(_UsageError(str(error))) from None
        except KeyboardInterrupt:
            click.echo("\nAborted!", err=True)
            ctx.exit(3)  # not judged; click's own status would mean that a check failed
        except BrokenPipeError:  # the reader has closed the pipe; remaining output is discarded
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            ctx.exit(3)
        except click.ClickException as error:
            raise _shown(error) from None
        if status:
            ctx.exit(status)


#: Options that other programs have -> an option of the command for which the hint is true, and the hint.
_INSTEAD = {
    "-o": ("--save", "--json F, --html F and --save DIR name the files to write."),
    "-q": ("--version", "It follows the command: `preflight check -q`."),
    "--md": ("--format", "--format md prints Markdown."),
    "--yaml": ("--json", "JSON (--json) is valid YAML."),
}
_INSTEAD |= {"--output": _INSTEAD["-o"], "--quiet": _INSTEAD["-q"], "--markdown": _INSTEAD["--md"]}


def _shown(error: click.ClickException) -> click.ClickException:
    """Make control characters from untrusted names or files visible in an error.

    An option known from other programs gets a hint.
    """
    from preflight.reports.sanitize import visible

    if isinstance(error, click.NoSuchOption) and error.ctx and error.option_name in _INSTEAD:
        needed, hint = _INSTEAD[error.option_name]
        if any(needed in parameter.opts for parameter in error.ctx.command.params):
            error = click.UsageError(f"{error.message} {hint}", error.ctx)
    object.__setattr__(error, "message", visible(error.message))
    return error


class _UsageError(PreflightError, click.ClickException):
    exit_code = 2


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="preflight")
@click.option("-v", "--verbose", is_flag=True, help="Print the traceback of an error in preflight or a plug-in.")
def main(verbose: bool) -> None:
    """Find out before the job starts why a GPU cluster would run slow.

    \b
    First:   preflight demo                     an example cluster with faults
    Then:    preflight check                    this machine
             preflight check --cluster cluster.toml --html report.html
    More:    man preflight, preflight help COMMAND, preflight explain CHECK, docs/
    Bugs:    docs/troubleshooting.md, "Report a bug"
    """
    if verbose:
        import logging

        logging.basicConfig(format="%(message)s")
        logging.getLogger("preflight").setLevel(logging.INFO)
