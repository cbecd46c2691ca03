"""The processes of a node, from ps(1) of procps."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

PROCESSES = "cmd:ps -e -o pid=,ppid=,stat=,uid=,user:32=,comm="

_LINE = re.compile(r"\s{0,20}([0-9]{1,10})\s+([0-9]{1,10})\s+([A-Z]\S{0,10})\s+([0-9]{1,10})\s+(\S{1,64})\s+(.{1,100})")


@dataclass(frozen=True)
class ProcessEntry:
    """One running process or zombie."""

    pid: int
    parent: int
    state: str
    uid: int
    user: str
    program: str  # name of the program, at most 15 characters

    @property
    def zombie(self) -> bool:
        """Whether the process has ended but was not reaped by its parent."""
        return self.state.startswith("Z")


def parse(text: str) -> tuple[ProcessEntry, ...]:
    """Read the collected lines; raises ValueError."""
    entries = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        if not (match := _LINE.fullmatch(line)):
            raise ValueError(f"{line.strip()[:80]!r} is not a line of ps")
        program = match[6].strip().removesuffix("<defunct>").strip()
        entries.append(ProcessEntry(int(match[1]), int(match[2]), match[3], int(match[4]), match[5], program))
    return tuple(entries)
