"""``free`` and ``/proc/meminfo``: the host's memory and swap."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

HINTS = ("available", "MemTotal:")

_HEAD = re.compile(r"\s+total\s+used\s+free\s+shared\s+buff/cache\s+available\s*")
_ROW = re.compile(r"\s*(Mem|Swap|Total|Low|High):((?:\s+[\d.]{1,20}[BKMGTP]?i?){3,6})\s*")
_CELL = re.compile(r"([\d.]{1,20})([BKMGTP]?)i?")
_UNITS = {unit: 1024.0**power for power, unit in enumerate("BKMGTP")}


@dataclass(frozen=True)
class MemoryUse:
    """Amounts in the unit of the text; a value that the text lacks is None.

    Amounts that ``free`` prints with their own units (``-h``) are in bytes.
    """

    total: float  # 0 if the text lacks it
    available: float | None
    swap_total: float | None
    swap_used: float | None
    line: int
    huge_free: float | None = None  # reserved as huge pages that nothing uses


#: A line of ``/proc/meminfo``, in KiB.
_MEMINFO = re.compile(r"(\w[\w()]{1,40}):\s{1,20}(\d{1,18})(?: kB)?\s*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``free`` output or ``/proc/meminfo`` begins at a line."""
    return lines[at].text.startswith("MemTotal:") or _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[MemoryUse]:
    """Read the table or list that begins at a line."""
    if lines[at].text.startswith("MemTotal:"):
        return _meminfo(lines, at)
    rows: dict[str, list[float]] = {}
    end = at + 1
    while end < len(lines) and (match := _ROW.fullmatch(lines[end].text)):
        rows.setdefault(match[1], [_amount(cell) for cell in match[2].split()])
        end += 1
    memory, swap = rows.get("Mem", []), rows.get("Swap", [])
    gaps = () if len(memory) == 6 else (ParseGap(lines[at].number, "the memory row is missing or truncated"),)
    return Parsed(
        MemoryUse(memory[0] if memory else 0.0, memory[5] if len(memory) == 6 else None, swap[0] if swap else None,
                  swap[1] if len(swap) > 1 else None, lines[at].number),
        gaps, end,
    )  # fmt: skip


def _meminfo(lines: Lines, at: int) -> Parsed[MemoryUse]:
    fields: dict[str, float] = {}
    end = at
    while end < len(lines) and (match := _MEMINFO.fullmatch(lines[end].text)):
        fields.setdefault(match[1], float(match[2]))
        end += 1
    swap = fields.get("SwapTotal")
    used = swap - fields["SwapFree"] if swap is not None and "SwapFree" in fields else None
    lacking = "MemAvailable" not in fields
    gaps = (ParseGap(lines[end - 1].number, "the available memory is missing"),) if lacking else ()
    pages = fields.get("HugePages_Free", 0.0) - fields.get("HugePages_Rsvd", 0.0)
    huge = pages * fields["Hugepagesize"] if "HugePages_Free" in fields and "Hugepagesize" in fields else None
    value = MemoryUse(fields.get("MemTotal", 0.0), fields.get("MemAvailable"), swap, used, lines[at].number, huge)
    return Parsed(value, gaps, max(end, at + 1))


def _amount(cell: str) -> float:
    match = _CELL.fullmatch(cell)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return 0.0
    return float(match[1]) * (_UNITS[match[2]] if match[2] else 1.0)


def facts(memory: MemoryUse) -> dict[str, Any]:
    """Return the amounts as `preflight read --json` prints them."""
    return {"total": memory.total, "available": memory.available, "swap_total": memory.swap_total,
            "swap_used": memory.swap_used, "huge_pages_free": memory.huge_free}  # fmt: skip


def summary(memory: MemoryUse) -> str:
    """Return a one-line summary of the memory."""
    share = f", {100 * memory.available / memory.total:.0f}% available" if memory.total and memory.available else ""
    return f"host memory{share}"
