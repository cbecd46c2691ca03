"""Software RAID of Linux: the arrays in ``/proc/mdstat``, with level and members.

Sources: md(4); drivers/md/md.c, ``md_seq_show``.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

ARRAYS = "file:/proc/mdstat"

#: Levels that go on without one of their members.
_REDUNDANT = frozenset({"raid1", "raid4", "raid5", "raid6", "raid10"})

_ARRAY = re.compile(r"(md[\w-]{1,32}) : (active|inactive)(?: \([a-z-]{1,20}\))?((?: \S{1,60}){0,4096})\s*")
_MEMBER = re.compile(r"([\w!-]{1,32})\[[0-9]{1,5}\](?:\([A-Z]\)){0,3}")


@dataclass(frozen=True)
class RaidArray:
    """One array: its device, level and the disks or partitions that it is made of."""

    name: str
    level: str  # raid0, raid1, ..., linear; empty of an array that is not active
    members: tuple[str, ...]

    @property
    def redundant(self) -> bool:
        """Whether it goes on without one of its members."""
        return self.level in _REDUNDANT


def parse(text: str) -> tuple[RaidArray, ...]:
    """Read ``/proc/mdstat``; raises ValueError."""
    lines = text.split("\n")
    if not lines[0].startswith("Personalities :"):
        raise ValueError(f"{lines[0][:60]!r} is not the head of a list of arrays")
    arrays = []
    for line in lines:
        if not line.startswith("md"):
            continue
        if not (match := _ARRAY.fullmatch(line)):
            raise ValueError(f"{line[:80]!r} is not an array with its members")
        words = match[3].split()
        members = tuple(member[1] for word in words if (member := _MEMBER.fullmatch(word)))
        level = words[0] if match[2] == "active" and words and not _MEMBER.fullmatch(words[0]) else ""
        arrays.append(RaidArray(match[1], level, members))
    return tuple(arrays)
