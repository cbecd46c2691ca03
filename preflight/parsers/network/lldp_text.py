"""``lldpctl`` in text form: the switch port at the other end of each cable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("LLDP neighbors:", ", via: LLDP")

_TITLE = re.compile(r"\s*LLDP neighbors:\s*")
_HEAD = re.compile(r"\s*Interface:\s+([\w.@-]{1,64}), via: (\w{3,8})(?:,.*)?")
_FIELD = re.compile(r"\s+([A-Z][\w /()-]{1,40}?):\s*(.{0,400})")
_RULE = re.compile(r"\s*-{20,}\s*")
#: Maximum number of blank lines between entries.
_MOST_BLANKS = 2


@dataclass(frozen=True)
class LldpEntry:
    """One neighbour of an interface; if a name is repeated, its first value is used."""

    interface: str
    line: int
    fields: Mapping[str, str]

    @property
    def switch(self) -> str:
        """The name of the neighbour, else its chassis ID; empty if neither is shown."""
        return self.fields.get("SysName") or self.fields.get("ChassisID", "").partition(" ")[2]

    @property
    def port(self) -> str:
        """The neighbour's port ID, else its description; empty if neither is shown."""
        return self.fields.get("PortID", "").partition(" ")[2] or self.fields.get("PortDescr", "")


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of LLDP neighbours begins at a line."""
    return bool(_TITLE.fullmatch(lines[at].text) or _HEAD.fullmatch(lines[at].text))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[LldpEntry, ...]]:
    """Read the entries starting at a line."""
    entries: list[tuple[str, int, dict[str, str]]] = []
    end, last, blanks = at, at, 0
    while end < len(lines) and blanks <= _MOST_BLANKS:
        text = lines[end].text
        if is_prompt(text):
            break
        if match := _HEAD.fullmatch(text):
            entries.append((match[1], lines[end].number, {}))
        elif (match := _FIELD.fullmatch(text)) and entries:
            entries[-1][2].setdefault(match[1], match[2].strip())
        elif text.strip() and not _RULE.fullmatch(text) and not _TITLE.fullmatch(text):
            break
        blanks = 0 if text.strip() else blanks + 1
        last = end if text.strip() else last
        end += 1
    gaps = () if entries else (ParseGap(lines[at].number, "no neighbour follows"),)
    return Parsed(tuple(LldpEntry(*entry) for entry in entries), gaps, last + 1)


def facts(entries: tuple[LldpEntry, ...]) -> dict[str, Any]:
    """Return the neighbours as `preflight read --json` prints them."""
    return {
        "neighbours": [
            {"interface": item.interface, "switch": item.switch or None, "port": item.port or None,
             "fields": dict(item.fields)}
            for item in entries
        ]
    }  # fmt: skip


def summary(entries: tuple[LldpEntry, ...]) -> str:
    """Return a one-line summary of the neighbours."""
    return f"{counted(len(entries), 'neighbour')}: {', '.join(dict.fromkeys(item.switch for item in entries[:8]))}"
