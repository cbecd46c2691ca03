"""``ip -br link`` and ``ip -br addr``: one line per interface."""

from __future__ import annotations

import re
from typing import Any

from preflight.parsers.network.ip_link import Interface
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = (" UP ", " DOWN ", " UNKNOWN ", "LOWERLAYERDOWN")

_ADDRESS = r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}:[0-9a-f:]{1,36})/\d{1,3}(?: metric \d{1,6})?"
_LINE = re.compile(
    r"\s{0,8}([\w.:-]{1,40})(?:@[\w.-]{1,40})?\s+(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\s+"
    rf"(?:([0-9a-f]{{2}}(?::[0-9a-f]{{2}}){{5,19}}) <([A-Z0-9_,-]{{2,200}})>|({_ADDRESS}(?:\s+{_ADDRESS}){{0,40}}))\s*"
)

#: An interface without an address, below others.
_BARE = re.compile(r"\s{0,8}([\w.:-]{1,40})(?:@[\w.-]{1,40})?\s+(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\s*()()()")


def _row(text: str) -> re.Match[str] | None:
    return _LINE.fullmatch(text) or _BARE.fullmatch(text)


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ip -br`` output begins at a line."""
    return _LINE.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[Interface, ...]]:
    """Read the interfaces starting at a line; the MTU, which is not shown, is 0."""
    end, taken = block(lines, at, lambda text: _row(text) is not None, blanks=0)
    result: list[Interface] = []
    for line in taken:
        if not (match := _row(line.text)):
            continue
        name, state = match[1], match[2]
        flags = set((match[4] or "").split(",")) | ({"UP", "LOWER_UP"} if state == "UP" and not match[4] else set())
        addresses = tuple(word for word in (match[5] or "").split() if "/" in word)
        result.append(Interface(name, line.number, frozenset(filter(None, flags)), 0, state, match[3], addresses))
    return Parsed(tuple(result), (), end)


def facts(interfaces: tuple[Interface, ...]) -> dict[str, Any]:
    """Return the interfaces as `preflight read --json` prints them."""
    return {
        "interfaces": [
            {"name": item.name, "state": item.state, "carrier": item.has_carrier, "mac": item.mac,
             "addresses": list(item.addresses)}
            for item in interfaces
        ]
    }  # fmt: skip


def summary(interfaces: tuple[Interface, ...]) -> str:
    """Return a one-line summary of the interfaces."""
    down = [item.name for item in interfaces if not item.has_carrier]
    return f"{counted(len(interfaces), 'interface')}, without a link: {', '.join(down[:8]) or 'none'}"
