"""Values stated in the lines of a part and around it.

A message names hosts, ranks, processes and quantities in lines that no typed parser reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from preflight.parsers.messages.stated_values import stated
from preflight.parsers.registry import JOB, LAST, TOOLS
from preflight.recognition.detector import TextPart
from preflight.textprep.lines import Lines

#: Kinds whose own lines are searched; for other kinds, only the lines between parts are searched.
_KINDS = frozenset((*JOB, *LAST, *TOOLS, "ucx", "nccl-log", "systemctl status", "fabricmanager status", "dcgmi health",
                    "dcgmi diag", "perftest"))  # fmt: skip
#: Maximum number of lines searched at the start and at the end of a part.
_FIRST, _LAST = 60, 60
#: Maximum number of parts searched in a source: the first ones.
_PARTS = 20
#: Maximum number of characters searched in a text without a recognised part.
_CHARACTERS = 40_000
#: Text of the lines that NCCL's own parser reads.
_OF_NCCL = " NCCL INFO "


def add_stated(parts: Sequence[TextPart], lines: Lines) -> None:
    """Add the values that the lines of a source state to its parts.

    A line belongs to the last part that begins at or above it; lines above the first part belong to the first part.
    """
    parts = sorted(parts, key=lambda part: part.first)
    if not parts:
        return
    begins = [part.first for part in parts]
    numbers = [line.number for line in lines]
    for at, part in enumerate(parts[:_PARTS]):
        first = 0 if not at else bisect_right(numbers, begins[at] - 1)
        end = bisect_right(numbers, begins[at + 1] - 1) if at + 1 < len(parts) else len(numbers)
        own = _own(part, lines, first, end)
        part.stated = stated(own)


def of_text(text: str) -> dict[str, Any]:
    """Return the values stated in a text without a recognised part."""
    lines = [line for line in text[:_CHARACTERS].splitlines() if line.strip() and _OF_NCCL not in line]
    return stated(lines[: _FIRST + _LAST])


def _own(part: TextPart, lines: Lines, first: int, end: int) -> list[str]:
    """Return the lines that are searched for a part: the first and last of its range."""

    def wanted(at: int) -> bool:
        line = lines[at]
        return bool(line.text) and (part.kind in _KINDS or not part.first <= line.number <= part.last) and (
            _OF_NCCL not in line.text)  # fmt: skip

    head: list[int] = []
    at = first
    while at < end and len(head) < _FIRST and at - first < 20 * _FIRST:
        if wanted(at):
            head.append(at)
        at += 1
    tail: list[int] = []
    back = end - 1
    while back >= at and len(tail) < _LAST and end - back < 20 * _LAST:
        if wanted(back):
            tail.append(back)
        back -= 1
    return [lines[index].text for index in (*head, *reversed(tail))]
