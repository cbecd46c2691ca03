"""``nvidia-smi mig``: GPU instances, compute instances and profiles."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("GPU instance", "Compute instance", "No MIG-enabled devices", "No GPU instances found")

_TITLE = re.compile(r"\W{0,4}(GPU instances|Compute instances|GPU instance profiles|Compute instance profiles):?\W*")
_NONE = re.compile(r"\s*(?:No MIG-enabled devices found|No GPU instances found).*")
_ROW = re.compile(r"\s*\|\s+(\d{1,3})\s+(?:(\d{1,3})\s+)?MIG (\S{1,20})\s+(\d{1,3})\s+(\S.{0,80}?)\s*\|?\s*")
_FRAME = re.compile(r"\s*(?:\|.*|\+[-=+]+\+?)\s*")


@dataclass(frozen=True)
class MigInstance:
    """One row of a MIG table: an instance or a profile."""

    gpu: int
    profile: str  # as in 3g.40gb
    profile_id: int
    rest: str  # remaining cells: instance and placement, or, for a profile, free/total and memory
    line: int


@dataclass(frozen=True)
class MigTable:
    """One MIG table; if it has neither rows nor gaps, no GPU is partitioned."""

    what: str
    rows: tuple[MigInstance, ...]


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``nvidia-smi mig`` begins at a line."""
    text = lines[at].text
    return _NONE.fullmatch(text) is not None or (text.count("|") > 0 and _TITLE.fullmatch(text) is not None)


def parse_lines(lines: Lines, at: int) -> Parsed[MigTable]:
    """Read the table whose title is at a line."""
    title = _TITLE.fullmatch(lines[at].text)
    if title is None:
        return Parsed(MigTable("GPU instances", ()), (), at + 1)
    rows: list[MigInstance] = []
    end = at + 1
    while end < len(lines) and _FRAME.fullmatch(lines[end].text) and not _TITLE.fullmatch(lines[end].text):
        if match := _ROW.fullmatch(lines[end].text):
            rows.append(MigInstance(int(match[1]), match[3], int(match[4]), match[5], lines[end].number))
        end += 1
    gaps = () if rows else (ParseGap(lines[at].number, "no row follows"),)
    return Parsed(MigTable(title[1], tuple(rows)), gaps, end)


def facts(table: MigTable) -> dict[str, Any]:
    """Return the table as `preflight read --json` prints it."""
    return {
        "table": table.what,
        "instances": [
            {"gpu": row.gpu, "name": f"MIG {row.profile}", "profile_id": row.profile_id, "rest": row.rest.split()}
            for row in table.rows
        ],
    }  # fmt: skip


def summary(table: MigTable) -> str:
    """Return a one-line summary of the table."""
    return f"{len(table.rows)} {table.what} on {counted(len({row.gpu for row in table.rows}), 'GPU')}"
