"""Writer of man page and shell completions in ``deploy`` from click's help: ``python -m tests.support.manual``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from preflight.cli.app import COMMANDS, main
from preflight.commands.about import completion_script
from preflight.version import VERSION
from tests.support import paths

DEPLOY = paths.ROOT / "deploy"
PAGE = DEPLOY / "man" / "preflight.1"

#: Shell -> its file, each in a separate folder below ``share``.
COMPLETIONS = {"bash": "preflight", "zsh": "_preflight", "fish": "preflight.fish"}

_HEAD = """\
.\\" Written by python -m tests.support.manual from the commands' own help.
.TH PREFLIGHT 1 "" "preflight {version}" "User Commands"
.SH NAME
preflight \\- cluster preflight and diagnostics for GPU training clusters
.SH SYNOPSIS
.B preflight
.I COMMAND
.RI [ OPTIONS ]
.RI [ ARGUMENTS ]
.SH DESCRIPTION
"""
_TAIL = """\
.SH EXIT STATUS
.TP
.B 0
Every gating check passed, warned or did not apply.
.TP
.B 1
A gating check failed.
.TP
.B 2
Usage or configuration: no node was contacted.
.TP
.B 3
Unknown: a gating check is unknown, a node gave no answer, or nothing was judged.
.PP
If several apply, 2 takes precedence over 1, and 1 over 3. The exit status of
.B preflight gate
is that of the hook, which
.B preflight gate \\-\\-policy
prints. The exit status of
.B preflight checklist
is 0 even if items fail: it prints answers, no verdict.
.SH FILES
.TP
.I /var/lib/preflight
Where root keeps verdicts and the last valid cluster file; for other users, they are in
.IR $XDG_STATE_HOME/preflight .
"""


def page() -> str:
    """Return the man page, in the man macros of groff_man(7)."""
    top = click.Context(main, info_name="preflight", **main.context_settings)
    lines = [*_paragraphs(inspect.cleandoc(main.help or "")), ".SH COMMANDS"]
    for name in COMMANDS:
        command = main.get_command(top, name)
        assert command is not None
        lines += _command(name, command, top)
    return _HEAD.format(version=VERSION) + "\n".join(lines) + "\n" + _TAIL


def completion(shell: str) -> str:
    """Return a shell's completion, as ``preflight completion`` prints it."""
    return completion_script(main, shell)


def _command(name: str, command: click.Command, top: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=top)
    yield f".SS {_escaped(f'preflight {name}')}"
    yield f".B {_escaped(' '.join(['preflight', name, *command.collect_usage_pieces(context)]))}"
    yield ".PP"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            yield from (".TP", f".B {_escaped(record[0])}", _escaped(record[1]))


def _paragraphs(text: str) -> Iterator[str]:
    r"""Yield click's paragraphs; those after ``\b`` keep their lines, those after ``\f`` are not in the help."""
    for paragraph in text.replace("\f", "").strip().split("\n\n"):
        lines = paragraph.strip().splitlines()
        if lines[0].strip() == "\b":
            yield from (".nf", *map(_escaped, lines[1:]), ".fi")
        else:
            yield _escaped(" ".join(line.strip() for line in lines))
        yield ".PP"


def _escaped(text: str) -> str:
    """Escape a line so that troff shows it unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if re.match(r"[.']", text) else text


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    for shell, file in COMPLETIONS.items():
        (DEPLOY / "completions").mkdir(exist_ok=True)
        (DEPLOY / "completions" / file).write_text(completion(shell), encoding="utf-8")
