"""``/var/log/fabricmanager.log``: lines with a time, a level and a thread."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("] [tid ",)

_LINE = re.compile(
    r"\s*\[([A-Z][a-z]{2} \d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[([A-Z]{3,9})\s*\] \[tid \d{1,9}\] (.{0,2000})"
)
_VERSION = re.compile(r"Fabric Manager version (?:is:? )?(\d{3}(?:\.\d{1,4}){1,2})\b", re.I)
#: Levels of lines that are neither warnings nor errors.
_CALM = frozenset({"INFO", "DEBUG", "NOTICE", "TRACE"})
#: Maximum lines of one log, and maximum distance in lines between two of them.
MOST_LINES, _APART = 100_000, 3
#: Maximum warnings and errors of one log.
MOST_TROUBLES = 1000


@dataclass(frozen=True)
class LoggedTrouble:
    """A warning or error in the fabric manager's log."""

    level: str
    text: str
    time: str
    line: int


@dataclass(frozen=True)
class FabricManagerLog:
    """The warnings and errors, the total number of lines, and the last version."""

    lines: int
    troubles: tuple[LoggedTrouble, ...]
    version: str | None = None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line is from the fabric manager's log."""
    return _LINE.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[FabricManagerLog]:
    """Read the log that begins at a line."""
    count, troubles = 0, list[LoggedTrouble]()
    version: str | None = None
    end, last = at, at
    while end < len(lines) and end - last <= _APART and count < MOST_LINES:
        if match := _LINE.fullmatch(lines[end].text):
            count, last = count + 1, end
            version = named[1] if (named := _VERSION.match(match[3])) else version
            if match[2] not in _CALM and len(troubles) < MOST_TROUBLES:
                troubles.append(LoggedTrouble(match[2], match[3].strip(), match[1], lines[end].number))
        end += 1
    return Parsed(FabricManagerLog(count, tuple(troubles), version), (), last + 1)


def facts(log: FabricManagerLog) -> dict[str, Any]:
    """Return the log as `preflight read --json` prints it."""
    return {
        "lines": log.lines,
        "version": log.version,
        "messages": [
            {"level": item.level, "time": item.time, "text": item.text[:300], "line": item.line}
            for item in log.troubles
        ],
    }  # fmt: skip


def summary(log: FabricManagerLog) -> str:
    """Return a one-line summary of the log."""
    return f"{counted(log.lines, 'line')}, {len(log.troubles)} of them warnings or errors"
