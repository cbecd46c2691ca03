"""``edac-util`` and ``ras-mc-ctl``: corrected and uncorrected hardware errors.

Sources: edac-util(1), ras-mc-ctl(8).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("mc0: ", "mc1: ", "events summary:", "No Memory errors", "edac-util: ", "No MCE errors")

_EDAC = re.compile(
    r"(mc\d{1,3}(?:: [\w#. ]{1,60}?)?: (?:[\w#.-]{1,80}: )?)(\d{1,12}) (Uncorrected|Corrected) Errors?"
    r"(?: with no DIMM info)?\s*"
)
_RAS_HEAD = re.compile(
    r"(?:Memory controller|PCIe AER|MCE|Extlog|devlink|Disk|Memory failure|ARM processor) events summary:"
)
_RAS_ROW = re.compile(
    r"\s+(?:(\d{1,12}) )?(Corrected|Uncorrected|Fatal|Deferred)(?: on DIMM Label\(s\): '(.{1,120}?)' location: \S{1,40}"
    r"| errors?)?.{0,80}?(?: errors: (\d{1,12})|: .{1,120})?\s*"
)
_NONE = re.compile(
    r"(?:edac-util: )?No (?:Memory |PCIe AER |MCE |Extlog |devlink |disk |Memory failure |ARM processor )?errors"
    r"(?: to report)?\."
)


@dataclass(frozen=True)
class ErrorCount:
    """One count of hardware errors."""

    place: str  # memory controller, DIMM or kind of event, as printed
    corrected: bool
    number: int
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a report of ``edac-util`` or ``ras-mc-ctl`` begins at a line."""
    return any(form.fullmatch(lines[at].text) for form in (_EDAC, _RAS_HEAD, _NONE))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[ErrorCount, ...]]:
    """Read the counts starting at a line."""
    end, taken = block(
        lines, at, lambda text: any(form.fullmatch(text) for form in (_EDAC, _RAS_HEAD, _RAS_ROW, _NONE)), blanks=1
    )
    counts, head = list[ErrorCount](), ""
    for line in taken:
        if match := _EDAC.fullmatch(line.text):
            counts.append(ErrorCount(match[1].strip(": "), match[3] == "Corrected", int(match[2]), line.number))
        elif match := _RAS_HEAD.fullmatch(line.text):
            head = match[0].removesuffix(" events summary:")
        elif match := _RAS_ROW.fullmatch(line.text):
            number = match[1] or match[4] or "1"
            counts.append(ErrorCount(match[3] or head, match[2] == "Corrected", int(number), line.number))
    return Parsed(tuple(counts), (), end)


def facts(counts: tuple[ErrorCount, ...]) -> dict[str, Any]:
    """Return the counts as `preflight read --json` prints them."""
    return {
        "errors": [
            {"place": count.place, "corrected": count.corrected, "count": count.number, "line": count.line}
            for count in counts
        ]
    }  # fmt: skip


def summary(counts: tuple[ErrorCount, ...]) -> str:
    """Return a one-line summary of the counts."""
    return f"{sum(count.number for count in counts)} hardware errors counted"
