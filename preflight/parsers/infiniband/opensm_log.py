"""The log of OpenSM: errors, and ports that left the subnet.

Source: opensm(8); the line format of osm_log.
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("] 0x0", "] 0x80")

_LINE = re.compile(
    r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \d{1,6} \[[0-9A-F]{4,16}\] 0x(?P<level>[0-9a-fA-F]{2}) -> "
    r"(?P<text>.{1,600})"
)
_ERROR = re.compile(r"\w{3,60}: ERR [0-9A-F]{4}: .*")
_LEFT = re.compile(r".*: Removed port with GUID: ?(?P<guid>0x[0-9a-fA-F]{8,16}).{0,60}? of node: ?(?P<node>.{1,80})")


@dataclass(frozen=True)
class OpensmEvent:
    """An error, or a port that left the subnet."""

    text: str
    left: str  # name of the port's node; empty for an error
    line: int


@dataclass(frozen=True)
class OpensmLog:
    """The events of a log."""

    lines: int  # number of lines
    events: tuple[OpensmEvent, ...]


def begins(lines: Lines, at: int) -> bool:
    """Return whether an OpenSM log begins at a line."""
    return _LINE.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[OpensmLog]:
    """Read the events of the log."""
    end, taken = block(lines, at, lambda text: _LINE.fullmatch(text) is not None, blanks=1)
    events = []
    for line in taken:
        if (match := _LINE.fullmatch(line.text)) is None:
            continue
        if left := _LEFT.fullmatch(match["text"]):
            events.append(OpensmEvent(match["text"], left["node"].strip(), line.number))
        elif _ERROR.fullmatch(match["text"]):
            events.append(OpensmEvent(match["text"], "", line.number))
    return Parsed(OpensmLog(len(taken), tuple(events)), (), end)


def facts(log: OpensmLog) -> dict[str, Any]:
    """Return the log as `preflight read --json` prints it."""
    events = [{"text": item.text[:300], "left": item.left or None, "line": item.line} for item in log.events]
    return {"lines": log.lines, "events": events}


def summary(log: OpensmLog) -> str:
    """Return a one-line summary of the log."""
    return f"{counted(log.lines, 'line')} of a subnet manager; {counted(len(log.events), 'error')} or ports that left"
