"""``df``: the space on mounted file systems, in any unit that ``df`` prints."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Mounted on", "% ")

_HEAD = re.compile(r"\s*Filesystem\s+(?:Type\s+)?(Size|Inodes|(\d{1,9}[KMGTB]?)-blocks)\s+I?Used\s+.*Mounted on\s*")
#: The header in another language: words, one of them with a percent sign, and at most the size of a block.
_TRANSLATED = re.compile(
    r"(?!.*Mounted on)\s*[^\W\d_][^\d%/|]{4,60}(?:(\d{1,9}[KMGTB]?)-[^\d%/|]{4,60})?\S%\s[^\d%/|]{3,40}"
)
_AMOUNT = r"([\d.,]{1,20}[KMGTPE]?i?|-)"
_ROW = re.compile(
    rf"\s*(\S{{1,200}})\s+(?:([a-z][\w.]{{1,20}})\s+)?{_AMOUNT}\s+{_AMOUNT}\s+{_AMOUNT}\s+(\d{{1,3}}%|-)"
    r"\s+(/.{0,300}?)\s*"
)
_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}


@dataclass(frozen=True)
class MountedSpace:
    """One row of ``df``: bytes, or inodes for ``df -i``; None if not shown."""

    device: str
    mount: str
    size: float | None
    free: float | None
    used_pct: int | None
    line: int


@dataclass(frozen=True)
class DiskSpace:
    """One table of ``df``; ``inodes`` states that it counts inodes instead of bytes."""

    rows: tuple[MountedSpace, ...]
    inodes: bool


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``df`` begins at a line, in any language."""
    if _HEAD.fullmatch(lines[at].text):
        return True
    below = lines[at + 1].text if at + 1 < len(lines) else ""
    return bool("%" in below and _TRANSLATED.fullmatch(lines[at].text) and _ROW.fullmatch(below))


def parse_lines(lines: Lines, at: int) -> Parsed[DiskSpace]:
    """Read the rows below the header."""
    head = _HEAD.fullmatch(lines[at].text)
    translated = _TRANSLATED.fullmatch(lines[at].text)
    block = head[2] if head else translated[1] if translated else None
    unit = _size(block, 1) or 1024.0 if block else 1.0
    plain = not block  # no row has a unit
    rows: list[MountedSpace] = []
    end = at + 1
    while end < len(lines) and not is_prompt(lines[end].text) and (match := _ROW.fullmatch(lines[end].text)):
        plain = plain and not re.search("[A-Z]", match[3] + match[5])
        used = int(match[6][:-1]) if match[6] != "-" else None
        rows.append(MountedSpace(match[1], match[7], _size(match[3], unit), _size(match[5], unit), used,
                                 lines[end].number))  # fmt: skip
        end += 1
    gaps = () if rows else (ParseGap(lines[at].number, "no row follows the header"),)
    return Parsed(DiskSpace(tuple(rows), head[1] == "Inodes" if head else plain), gaps, end)


def _size(cell: str, unit: float) -> float | None:
    if not (match := re.fullmatch(r"(\d{1,20}(?:[.,]\d{1,6})?)([BKMGTPE]?)i?", cell)):
        return None
    return float(match[1].replace(",", ".")) * (_UNITS[match[2]] if match[2] else unit)


def facts(space: DiskSpace) -> dict[str, Any]:
    """Return the file systems as `preflight read --json` prints them."""
    unit = "inodes" if space.inodes else "bytes"
    return {
        "file_systems": [
            {"device": row.device, "mount": row.mount, unit: row.size, f"free_{unit}": row.free,
             "used_percent": row.used_pct}
            for row in space.rows
        ]
    }  # fmt: skip


def summary(space: DiskSpace) -> str:
    """Return a one-line summary of the file systems."""
    return counted(len(space.rows), "file system")
