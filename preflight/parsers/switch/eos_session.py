"""Terminal sessions with an Arista EOS switch: prompts, commands and answers.

A prompt is the host name, a mode in parentheses, and ``#`` or ``>``; a time or a supervisor may be between them.
Source: EOS user manual (command-line interface).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight._startup.lightclass import dataclass
from preflight.parsers.switch import eos_answers

_PROMPT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z][A-Za-z0-9_-]{0,62}){0,6})"
    r"(?:\.[0-9]{2}:[0-9]{2}:[0-9]{2})?(?:\([A-Za-z0-9_-]{1,60}\)){0,2}[#>] ?(?P<command>.*)"
)
#: Text that a terminal adds: escape sequences, erased characters and the pager.
_TERMINAL = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|[^\n]\x08|[\x08\x07]|^ *--More-- *\r?", re.MULTILINE)


@dataclass(frozen=True)
class EosSession:
    """The name of a switch, and its answers in the order of the session."""

    name: str
    answers: Sequence[tuple[str, str]]  # command and text
    first: int  # line number of the first command
    unread: Sequence[tuple[int, str]]  # line numbers and show commands whose output is not read


def parse(text: str) -> EosSession | None:
    """Parse a session; None if it contains none of the commands of ``eos_answers``."""
    name, first = "", 0
    answers: list[tuple[str, str]] = []
    unread: list[tuple[int, str]] = []
    lines: list[str] = []
    question: str | None = None
    for number, line in enumerate([*_TERMINAL.sub("", text).replace("\r", "").split("\n"), None], 1):
        match = _PROMPT.fullmatch(line) if line is not None else None
        if line is not None and not (match and (not name or match["name"] == name)):
            lines.append(line)
            continue
        if question is not None:
            answers.append((question, "\n".join(lines)))
        lines, question = [], eos_answers.question(match["command"]) if match else None
        if match and question and not name:
            name, first = match["name"], number
        elif match and name and question is None and match["command"].startswith("sh"):
            unread.append((number, match["command"].strip()))
    return EosSession(name, answers, first, unread) if answers else None
