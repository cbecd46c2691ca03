"""What is counted of a log, in memory that follows the number of hosts and ranks, never that of lines.

A tally of one part of a log and that of the next add up to the tally of both (a monoid), so that parts
can be read by several processes and logs come in one file for each rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from preflight.parsers.nccl_log import rails
from preflight.parsers.nccl_log.model import Line

#: Different facts kept of each kind; what comes after them is counted and told.
KINDS_KEPT = 200_000
#: Warnings kept in full.
WARNINGS_KEPT = 1000
#: Communicators kept apart; beyond, those that are complete are only counted.
COMMUNICATORS_KEPT = 20_000

ENDS_KEPT_NOTE = (
    f"more than {rails.ENDS_KEPT} ends of network connections: rails are judged on a sample of them, chosen by name"
)

Key = tuple[object, ...]


@dataclass(slots=True)
class Seen:
    """How often something was said, and where first."""

    count: int
    first: Line


@dataclass(slots=True)
class Comm:
    """A communicator: which ranks began it and finished it, as bits of a number."""

    first: Line
    started: int = 0
    completed: int = 0
    destroyed: int = 0  # lines

    def add(self, other: Comm) -> None:
        """Take in what another part of the log says of it."""
        self.first = earlier(self.first, other.first)
        self.started |= other.started
        self.completed |= other.completed
        self.destroyed += other.destroyed


@dataclass
class Tally:
    """All that was counted."""

    seen: dict[str, dict[Key, Seen]] = field(default_factory=dict)  # by kind
    overflow: dict[str, int] = field(default_factory=dict)  # by kind: what was not kept
    comms: dict[tuple[str, int], Comm] = field(default_factory=dict)  # by id and size
    folded: dict[int, tuple[int, int]] = field(default_factory=dict)  # by size: complete ones no longer kept, destroyed
    warnings: list[Line] = field(default_factory=list)
    warning_count: int = 0
    ends: dict[bytes, bytes] = field(default_factory=dict)  # a connection's end → what it goes over
    ends_mask: int = 0  # of connections, those whose checksum has none of these bits are kept
    lines: int = 0  # of NCCL
    all_lines: int = 0
    long_lines: int = 0
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, kind: str, key: Key, line: Callable[[], Line], count: int = 1) -> None:
        """Count something; the line is made only where it is the first to say so."""
        table = self.seen.setdefault(kind, {})
        if (known := table.get(key)) is not None:
            known.count += count
        elif len(table) < KINDS_KEPT:
            table[key] = Seen(count, line())
        else:
            self.overflow[kind] = self.overflow.get(kind, 0) + count

    def warning(self, line: Callable[[], Line]) -> None:
        """Keep a warning."""
        self.warning_count += 1
        if len(self.warnings) < WARNINGS_KEPT:
            self.warnings.append(line())

    def comm(self, key: tuple[str, int], line: Line) -> Comm:
        """Return a communicator's entry."""
        if (known := self.comms.get(key)) is None:
            if len(self.comms) >= COMMUNICATORS_KEPT:
                self._fold()
            known = self.comms[key] = Comm(line)
        return known

    def _fold(self) -> None:
        """Make room: count those communicators that all their ranks have set up; if all wait, the oldest half."""
        done = [key for key, comm in self.comms.items() if comm.completed.bit_count() == key[1]]
        if not done:
            done = list(self.comms)[: COMMUNICATORS_KEPT // 2]
            self.notes[f"more than {COMMUNICATORS_KEPT} unfinished communicators: the oldest are only counted"] = None
        for key in done:
            comm = self.comms.pop(key)
            made, destroyed = self.folded.get(key[1], (0, 0))
            self.folded[key[1]] = (made + 1, destroyed + bool(comm.destroyed))

    def merge(self, other: Tally) -> None:
        """Take in the tally of a later part."""
        for kind, table in other.seen.items():
            mine = self.seen.setdefault(kind, {})
            for key, seen in table.items():
                if (known := mine.get(key)) is not None:
                    known.count += seen.count
                    known.first = earlier(known.first, seen.first)
                elif len(mine) < KINDS_KEPT:
                    mine[key] = seen
                else:
                    self.overflow[kind] = self.overflow.get(kind, 0) + seen.count
        for kind, count in other.overflow.items():
            self.overflow[kind] = self.overflow.get(kind, 0) + count
        for name, comm in other.comms.items():
            self.comm(name, comm.first).add(comm)
        for nranks, (made, destroyed) in other.folded.items():
            mine_made, mine_destroyed = self.folded.get(nranks, (0, 0))
            self.folded[nranks] = (made + mine_made, destroyed + mine_destroyed)
        self.warnings = (self.warnings + other.warnings)[:WARNINGS_KEPT]
        self.warning_count += other.warning_count
        self.lines += other.lines
        self.all_lines += other.all_lines
        self.long_lines += other.long_lines
        self.notes.update(other.notes)
        self.ends_mask = rails.merge(self.ends, self.ends_mask, other.ends, other.ends_mask)


def earlier(one: Line, other: Line) -> Line:
    """Return the line that was written first, as far as one clock or one file tells."""
    if one.file != other.file and one.time and other.time:
        return other if other.time < one.time else one
    if one.file == other.file:
        return other if other.number < one.number else one
    return one
