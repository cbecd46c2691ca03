"""``ip neigh``: addresses on the local networks, and whether they respond.

Source: ip-neighbour(8).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = (" lladdr ", "  FAILED", " INCOMPLETE")

_STATES = "PERMANENT|NOARP|REACHABLE|STALE|DELAY|PROBE|FAILED|INCOMPLETE|NONE"
_ROW = re.compile(
    rf"(?P<address>[0-9a-fA-F.:]{{3,45}}) (?:dev (?P<interface>\S{{1,30}}) )?(?:lladdr (?P<mac>[0-9a-f:]{{11,60}}) )?"
    rf"(?:router |extern_learn |proxy |managed )* ?(?P<state>{_STATES})\s*"
)


@dataclass(frozen=True)
class NetworkNeighbour:
    """One entry of the neighbour table."""

    address: str
    interface: str  # empty if not shown
    state: str
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ip neigh`` output begins at a line."""
    return _ROW.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[NetworkNeighbour, ...]]:
    """Read the rows starting at a line."""
    end, taken = block(lines, at, lambda text: _ROW.fullmatch(text) is not None, blanks=1)
    rows = [
        NetworkNeighbour(match["address"], match["interface"] or "", match["state"], line.number)
        for line in taken
        if (match := _ROW.fullmatch(line.text))
    ]
    return Parsed(tuple(rows), (), end)


def facts(rows: tuple[NetworkNeighbour, ...]) -> dict[str, Any]:
    """Return the rows as `preflight read --json` prints them."""
    return {
        "neighbours": [
            {"address": row.address, "interface": row.interface or None, "state": row.state, "line": row.line}
            for row in rows
        ]
    }  # fmt: skip


def summary(rows: tuple[NetworkNeighbour, ...]) -> str:
    """Return a one-line summary of the rows."""
    return counted(len(rows), "neighbour")
