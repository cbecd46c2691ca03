"""``last reboot`` and ``last -x``: boots, shutdowns and sessions ended by a crash.

Source: last(1).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("system boot", "system down", " - crash")

_BOOT = re.compile(
    r"reboot\s+system boot\s+(?P<kernel>\S{1,60})\s+(?P<time>.{10,40}?)(?:\s+(?:still running|- .{1,60}))?\s*"
)
_DOWN = re.compile(r"shutdown\s+system down\s.*")
_SESSION = re.compile(
    r"(?P<user>[\w.-]{1,32})\s+\S{1,20}\s+(?:\S{1,60}\s+)?(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} .{8,40}?)\s+"
    r"(?:- (?P<end>.{1,60})|still (?:logged in|running))\s*"
)
_FOOT = re.compile(r"(?:wtmp|\S{0,40}wtmp\S{0,20}) begins .*")


@dataclass(frozen=True)
class BootHistory:
    """Boots and crashed sessions, and the number of orderly shutdowns."""

    boots: tuple[tuple[int, str], ...]  # line number and time
    shutdowns: int
    crashes: tuple[tuple[int, str], ...]  # line number and start of the session


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``last`` output begins at a line."""
    text = lines[at].text
    return _BOOT.fullmatch(text) is not None or (" - crash" in text and _SESSION.fullmatch(text) is not None)


def parse_lines(lines: Lines, at: int) -> Parsed[BootHistory]:
    """Read the rows of ``last``, starting at a line."""
    forms = (_BOOT, _DOWN, _SESSION, _FOOT)
    end, taken = block(lines, at, lambda text: any(form.fullmatch(text) for form in forms), blanks=1)
    boots, crashes = list[tuple[int, str]](), list[tuple[int, str]]()
    for line in taken:
        if match := _BOOT.fullmatch(line.text):
            boots.append((line.number, match["time"].strip()))
        elif (match := _SESSION.fullmatch(line.text)) and (match["end"] or "").startswith("crash"):
            crashes.append((line.number, match["time"].strip()))
    shutdowns = sum(_DOWN.fullmatch(line.text) is not None for line in taken)
    return Parsed(BootHistory(tuple(boots), shutdowns, tuple(crashes)), (), end)


def facts(history: BootHistory) -> dict[str, Any]:
    """Return the history as `preflight read --json` prints it."""
    return {
        "boots": [{"line": line, "time": time} for line, time in history.boots], "shutdowns": history.shutdowns,
        "crashes": [{"line": line, "time": time} for line, time in history.crashes],
    }  # fmt: skip


def summary(history: BootHistory) -> str:
    """Return a one-line summary of the history."""
    return f"{counted(len(history.boots), 'boot')}, {counted(len(history.crashes), 'session')} ended by a crash"
