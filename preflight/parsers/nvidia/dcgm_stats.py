"""``dcgmi stats``: statistics of a job or process on each GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

HINTS = ("GPU ID:",)

_TITLE = re.compile(r"\s*\|\s+GPU ID: (\d{1,3})\s+\|?\s*")
_SECTION = re.compile(r"\s*\|-{3,}\s+([A-Z][\w ]{2,40}?)\s+-+.*")
_ROW = re.compile(r"\s*\|\s+([A-Z-][\w /():%.*-]{1,60}?)\s*\|\s*(.{0,80}?)\s*\|?\s*")
_FRAME = re.compile(r"\s*(?:\|.*|\+[-=+]+\+?)\s*")


@dataclass(frozen=True)
class GpuStats:
    """The statistics of one GPU."""

    gpu: int
    line: int
    sections: Mapping[str, Mapping[str, str]]  # section -> name -> value as printed

    def number(self, name: str) -> float | None:
        """Return the value of the first row with a name; None if it is not a number."""
        for rows in self.sections.values():
            if (value := rows.get(name)) is not None:
                return float(value) if re.fullmatch(r"\d{1,15}(?:\.\d{1,6})?", value) else None
        return None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a GPU's table of ``dcgmi stats`` begins at a line."""
    return _TITLE.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[GpuStats]:
    """Read the table of one GPU."""
    title = _TITLE.fullmatch(lines[at].text)
    assert title is not None
    sections: dict[str, dict[str, str]] = {}
    rows = sections.setdefault("", {})
    end = at + 1
    prefix = ""
    while end < len(lines) and _FRAME.fullmatch(lines[end].text) and not _TITLE.fullmatch(lines[end].text):
        text = lines[end].text
        if match := _SECTION.fullmatch(text):
            rows = sections.setdefault(match[1], {})
        elif match := _ROW.fullmatch(text):
            name = match[1].rstrip(" *")
            if name.startswith("Due to - "):
                prefix, name = "Due to ", name.removeprefix("Due to - ")
            elif name.startswith("- "):
                name = name.removeprefix("- ")
            else:
                prefix = ""
            rows.setdefault(prefix + name, match[2])
        end += 1
    gaps = () if any(sections.values()) else (ParseGap(lines[at].number, "no row follows"),)
    return Parsed(GpuStats(int(title[1]), lines[at].number, sections), gaps, end)


def facts(stats: GpuStats) -> dict[str, Any]:
    """Return the table as `preflight read --json` prints it."""
    return {"gpu": stats.gpu, "sections": {name: dict(rows) for name, rows in stats.sections.items() if rows}}


def summary(stats: GpuStats) -> str:
    """Return a one-line summary of the table."""
    return f"GPU {stats.gpu}: {sum(map(len, stats.sections.values()))} rows"
