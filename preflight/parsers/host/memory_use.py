"""``free``: memory and swap of the host, in any of its units."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

HINTS = ("available",)

_HEAD = re.compile(r"\s+total\s+used\s+free\s+shared\s+buff/cache\s+available\s*")
_ROW = re.compile(r"\s*(Mem|Swap|Total|Low|High):((?:\s+[\d.]{1,20}[BKMGTP]?i?){3,6})\s*")
_CELL = re.compile(r"([\d.]{1,20})([BKMGTP]?)i?")
_UNITS = {unit: 1024.0**power for power, unit in enumerate("BKMGTP")}


@dataclass(frozen=True)
class MemoryUse:
    """Amounts in the unit of the table; None: not shown."""

    total: float
    available: float | None
    swap_total: float | None
    swap_used: float | None
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[MemoryUse]:
    """Read the rows below the header."""
    rows: dict[str, list[float]] = {}
    end = at + 1
    while end < len(lines) and (match := _ROW.fullmatch(lines[end].text)):
        rows.setdefault(match[1], [_amount(cell) for cell in match[2].split()])
        end += 1
    memory, swap = rows.get("Mem", []), rows.get("Swap", [])
    gaps = () if len(memory) == 6 else (ParseGap(lines[at].number, "the row of the memory is missing or cut"),)
    return Parsed(
        MemoryUse(memory[0] if memory else 0.0, memory[5] if len(memory) == 6 else None, swap[0] if swap else None,
                  swap[1] if len(swap) > 1 else None, lines[at].number),
        gaps, end,
    )  # fmt: skip


def _amount(cell: str) -> float:
    match = _CELL.fullmatch(cell)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return 0.0
    return float(match[1]) * (_UNITS[match[2]] if match[2] else 1.0)


def facts(memory: MemoryUse) -> dict[str, Any]:
    """Return the amounts as `preflight read --json` prints them."""
    return {"total": memory.total, "available": memory.available, "swap_total": memory.swap_total,
            "swap_used": memory.swap_used}  # fmt: skip


def summary(memory: MemoryUse) -> str:
    """Return one line on the memory."""
    share = f", {100 * memory.available / memory.total:.0f} % available" if memory.total and memory.available else ""
    return f"memory of the host{share}"
