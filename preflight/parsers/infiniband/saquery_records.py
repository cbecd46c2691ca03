"""``saquery``: records of the subnet administrator, with all fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("Record dump:",)

_HEAD = re.compile(r"\s*(\w{3,40}Record) dump:\s*")
_FIELD = re.compile(r"\s*([A-Za-z][\w .\[\]]{0,40}?)\.{2,60}(.{0,200})")
#: Maximum number of records.
MOST_RECORDS = 10_000


@dataclass(frozen=True)
class SubnetRecord:
    """One record of the subnet administrator."""

    kind: str
    line: int
    fields: Mapping[str, str]


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``saquery`` records begin at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[SubnetRecord, ...]]:
    """Read the records."""
    end, taken = block(lines, at, lambda text: bool(_HEAD.fullmatch(text) or _FIELD.fullmatch(text)
                                                    or text.strip().endswith(":")))  # fmt: skip
    records: list[tuple[str, int, dict[str, str]]] = []
    for line in taken:
        if (head := _HEAD.fullmatch(line.text)) and len(records) < MOST_RECORDS:
            records.append((head[1], line.number, {}))
        elif (match := _FIELD.fullmatch(line.text)) and records:
            records[-1][2].setdefault(match[1], match[2].strip())
    gaps = tuple(ParseGap(line, "the record has no fields") for _, line, fields in records if not fields)
    return Parsed(tuple(SubnetRecord(*record) for record in records), gaps, end)


def facts(records: tuple[SubnetRecord, ...]) -> dict[str, Any]:
    """Return the records as `preflight read --json` prints them."""
    return {"records": [{"record": item.kind, "fields": dict(item.fields)} for item in records]}


def summary(records: tuple[SubnetRecord, ...]) -> str:
    """Return a one-line summary of the records."""
    return ", ".join(f"{number} {kind}" for kind, number in Counter(item.kind for item in records).items())
