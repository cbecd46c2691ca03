"""``ulimit -a`` of bash, and ``/proc/PID/limits``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

_BASH = re.compile(r"\s*([A-Za-z][A-Za-z /-]{2,30}?)\s+\((?:([\w -]{1,14}), )?-(\w)\)\s+(unlimited|\d{1,20})\s*")
_PROC = re.compile(r"\s*Max ([a-z][a-z ]{2,30}?)\s{2,}(unlimited|\d{1,20})\s+(unlimited|\d{1,20})(?:\s+(\w+))?\s*")
_PROC_HEAD = re.compile(r"\s*Limit\s+Soft Limit\s+Hard Limit\s+Units\s*")
_UNIT = {"kbytes": 1024, "blocks": 1024, "bytes": 1, "512 bytes": 512}
#: A limit that is often printed alone.
_ALONE = "max locked memory"
#: Maximum number of examined characters of a line of /proc.
_LONGEST = 200
#: Name in /proc -> name in bash.
_NAMES = {"locked memory": "max locked memory", "processes": "max user processes", "address space": "virtual memory"}


@dataclass(frozen=True)
class ProcessLimits:
    """Soft limits by bash's names, in bytes or as counts; None if unlimited."""

    soft: Mapping[str, int | None]


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of process limits begins at a line."""
    text = lines[at].text
    if _PROC_HEAD.fullmatch(text):
        return True
    near = [line.text for line in lines[at : at + 3]]
    if (match := _BASH.fullmatch(text)) and match[1] == _ALONE:  # ``ulimit -l``; a list begins with other limits
        return True
    return sum(bool(_BASH.fullmatch(near_text)) for near_text in near) >= min(2, len(near)) and bool(
        _BASH.fullmatch(text)
    )


def parse_lines(lines: Lines, at: int) -> Parsed[ProcessLimits]:
    """Read the list that begins at a line."""

    def belongs(text: str) -> bool:
        return bool(_BASH.fullmatch(text) or _PROC.fullmatch(text) or _PROC_HEAD.fullmatch(text))

    end, taken = block(lines, at, belongs, blanks=1)
    soft: dict[str, int | None] = {}
    for line in taken:
        if match := _BASH.fullmatch(line.text):
            soft[match[1]] = None if match[4] == "unlimited" else int(match[4]) * _UNIT.get(match[2] or "", 1)
        elif match := _PROC.fullmatch(line.text):
            soft[_NAMES.get(match[1], match[1])] = None if match[2] == "unlimited" else int(match[2])
    gaps = () if len(soft) > 1 or _ALONE in soft else (ParseGap(taken[-1].number, "the other limits are missing"),)
    return Parsed(ProcessLimits(soft), gaps, end)


def soft_limit(text: str, name: str) -> float:
    """Return a soft limit in /proc by its name; ``inf`` if unlimited.

    Raises ValueError.
    """
    for line in text.splitlines():
        if (match := _PROC.fullmatch(line[:_LONGEST])) and match[1] == name:
            return math.inf if match[2] == "unlimited" else int(match[2])
    raise ValueError(f"no line 'Max {name}' found")


HINTS = ("(-", ", -", "Soft Limit")
