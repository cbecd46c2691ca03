"""Software RAID arrays, their members and states, from ``/proc/mdstat``.

Sources: md(4); drivers/md/md.c, ``md_seq_show`` and ``status_resync``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

ARRAYS = "file:/proc/mdstat"

HINTS = ("Personalities :",)

#: RAID levels that survive the loss of one member.
_REDUNDANT = frozenset({"raid1", "raid4", "raid5", "raid6", "raid10"})

_ARRAY = re.compile(r"(md[\w-]{1,32}) : (active|inactive)(?: \(([a-z-]{1,20})\))?((?: \S{1,60}){0,4096})\s*")
_MEMBER = re.compile(r"([\w!-]{1,32})\[[0-9]{1,5}\]((?:\([A-Z]\)){0,3})")
#: The number of slots of an array, the number in use, and one letter or underscore per slot.
_SLOTS = re.compile(r"\[(\d{1,5})/(\d{1,5})\] \[([U_]{1,4096})\]")
_WORK = re.compile(r"\b(recovery|resync|reshape|check|repair)\s*=\s*(?:(\d{1,3}(?:\.\d)?)%|(DELAYED|PENDING))")
_HEAD = "Personalities :"
_LAST = "unused devices:"


@dataclass(frozen=True)
class RaidArray:
    """One array: its device, level and member disks or partitions."""

    name: str
    level: str  # raid0, raid1, ..., linear; empty for an inactive array
    members: tuple[str, ...]
    active: bool = True
    failed: tuple[str, ...] = ()  # members that the kernel has marked as faulty
    slots: int | None = None  # None: not shown, as for raid0
    in_use: int | None = None
    work: str = ""  # such as "recovery 12.4%"; empty if there is none
    line: int = 0

    @property
    def redundant(self) -> bool:
        """Whether the array survives the loss of one member."""
        return self.level in _REDUNDANT


def parse(text: str) -> tuple[RaidArray, ...]:
    """Read ``/proc/mdstat``; raises ValueError."""
    lines = text.split("\n")
    if not lines[0].startswith(_HEAD):
        raise ValueError(f"{lines[0][:60]!r} is not the first line of /proc/mdstat")
    arrays: list[RaidArray] = []
    for at, line in enumerate(lines):
        if not line.startswith("md"):
            continue
        if (array := _array(lines, at)) is None:
            raise ValueError(f"{line[:80]!r} is not an array with its members")
        arrays.append(array)
    return tuple(arrays)


def _array(lines: Sequence[str], at: int) -> RaidArray | None:
    """Read an array's line and the lines below it; None if it is not an array's line."""
    if not (match := _ARRAY.fullmatch(lines[at])):
        return None
    words = match[4].split()
    members = [member for word in words if (member := _MEMBER.fullmatch(word))]
    active = match[2] == "active"
    level = words[0] if active and words and not _MEMBER.fullmatch(words[0]) else ""
    slots = work = None
    for line in lines[at + 1 : at + 1 + _DETAILS]:
        if line.startswith("md") or not line.strip():
            break
        slots = slots or _SLOTS.search(line)
        work = work or _WORK.search(line)
    return RaidArray(
        match[1], level, tuple(member[1] for member in members), active,
        tuple(member[1] for member in members if "(F)" in member[2]),
        int(slots[1]) if slots else None, int(slots[2]) if slots else None,
        f"{work[1]} {f'{work[2]}%' if work[2] else work[3].lower()}" if work else "", at + 1,
    )  # fmt: skip


#: Maximum lines of details below an array: blocks, progress, bitmap.
_DETAILS = 4


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``/proc/mdstat`` begins at a line."""
    return lines[at].text.startswith(_HEAD)


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[RaidArray, ...]]:
    """Read the arrays in pasted text."""
    end, taken = block(lines, at, lambda text: text.startswith((" ", "md", _LAST)))
    texts = [line.text for line in taken]
    arrays, gaps = list[RaidArray](), list[ParseGap]()
    for index, text in enumerate(texts):
        if not text.startswith("md"):
            continue
        if array := _array(texts, index):
            arrays.append(replace(array, line=taken[index].number))
        else:
            gaps.append(ParseGap(taken[index].number, "an array with a truncated or unknown line"))
    if not texts[-1].startswith(_LAST):
        gaps.append(ParseGap(taken[-1].number, "the end of the list is missing"))
    return Parsed(tuple(arrays), tuple(gaps), end)


def facts(arrays: Sequence[RaidArray]) -> dict[str, Any]:
    """Return the arrays as `preflight read --json` prints them."""
    return {
        "arrays": [
            {"name": array.name, "level": array.level or None, "active": array.active, "members": list(array.members),
             "failed": list(array.failed), "slots": array.slots, "in_use": array.in_use, "work": array.work or None,
             "line": array.line}
            for array in arrays
        ]
    }  # fmt: skip


def summary(arrays: Sequence[RaidArray]) -> str:
    """Return a one-line summary of the arrays."""
    return "; ".join(f"{array.name} {array.level or 'inactive'}" for array in arrays[:4]) or "no RAID arrays"
