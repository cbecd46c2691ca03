"""``ibdiagnet``: errors and warnings, and their numbers by stage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("-E- ", "-W- ", "-I- ")

_MARK = re.compile(r"\s*-([EWI])- (\S.{0,2000})")
_ROW = re.compile(r"-I- (\w[\w /&-]{1,40}?)\s{2,}(\d{1,7})\s+(\d{1,7})(?:\s+\S.{0,100})?\s*")
#: Lines of related tools with the same marks.
_OTHERS = re.compile(r"\s*-[EWI]- .*(?:mst|flint|mlxlink|mlxconfig|device|firmware|driver|image)\b", re.IGNORECASE)
#: Maximum number of lines without a mark (a port's counters, headings) after one with a mark.
_BELOW = 40
#: Maximum number of messages of each kind.
MOST = 1000


@dataclass(frozen=True)
class Complaint:
    """An error or warning, with the lines below it."""

    text: str
    line: int


@dataclass(frozen=True)
class FabricDiagnosis:
    """The errors and warnings; ``stages`` has (warnings, errors) of the summary."""

    errors: tuple[Complaint, ...]
    warnings: tuple[Complaint, ...]
    notes: int  # number of lines marked -I-
    stages: Mapping[str, tuple[int, int]]

    @property
    def missing_messages(self) -> tuple[tuple[str, int, int], ...]:
        """Messages that the summary counts and the text lacks: what, counted, shown."""
        rows = (("warnings", 0, self.warnings), ("errors", 1, self.errors))
        counts = ((what, sum(numbers[at] for numbers in self.stages.values()), len(shown)) for what, at, shown in rows)
        return tuple(row for row in counts if row[1] > row[2])


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line and one of the next lines have the marks of ``ibdiagnet``."""
    if not _MARK.match(lines[at].text) or _OTHERS.match(lines[at].text):
        return False
    return sum(_MARK.match(line.text) is not None for line in lines[at : at + _BELOW]) > 1


def parse_lines(lines: Lines, at: int) -> Parsed[FabricDiagnosis]:
    """Read the marked lines and the summary."""
    errors: list[Complaint] = []
    warnings: list[Complaint] = []
    stages: dict[str, tuple[int, int]] = {}
    notes = 0
    end = last = at
    below = 0
    while end < len(lines) and end - last <= _BELOW:
        text = lines[end].text
        if is_prompt(text):
            break
        if match := _ROW.fullmatch(text.strip()):
            stages.setdefault(match[1], (int(match[2]), int(match[3])))
            last = end
        elif match := _MARK.match(text):
            into = {"E": errors, "W": warnings}.get(match[1])
            if into is None:
                notes += 1
            elif len(into) < MOST:
                into.append(Complaint(match[2].strip(), lines[end].number))
            last, below = end, 0
        elif text.strip() and warnings and last == end - 1 - below and text[:1].isspace() and ":" in text:
            _extend(errors, warnings, lines[last].number, text)
            below += 1
        end += 1
    diagnosis = FabricDiagnosis(tuple(errors), tuple(warnings), notes, stages)
    gaps = tuple(
        ParseGap(lines[at].number, f"the summary counts {counted} {what}, but the text shows {shown}")
        for what, counted, shown in diagnosis.missing_messages
    )
    return Parsed(diagnosis, gaps, last + 1 + below)


def _extend(errors: list[Complaint], warnings: list[Complaint], line: int, text: str) -> None:
    """Add a line to the message that starts at line number ``line``."""
    for into in (errors, warnings):
        if into and into[-1].line == line and len(into[-1].text) < 600:
            into[-1] = Complaint(f"{into[-1].text}; {' '.join(text.split())}", line)


def facts(diagnosis: FabricDiagnosis) -> dict[str, Any]:
    """Return the diagnosis as `preflight read --json` prints it."""
    return {
        "errors": [{"text": item.text[:600], "line": item.line} for item in diagnosis.errors],
        "warnings": [{"text": item.text[:600], "line": item.line} for item in diagnosis.warnings],
        "stages": {name: {"warnings": few, "errors": many} for name, (few, many) in diagnosis.stages.items()},
    }


def summary(diagnosis: FabricDiagnosis) -> str:
    """Return a one-line summary of the diagnosis."""
    shown = {"errors": len(diagnosis.errors), "warnings": len(diagnosis.warnings)}
    counts = shown | {what: counted for what, counted, _ in diagnosis.missing_messages}
    return f"{counts['errors']} errors, {counts['warnings']} warnings"
