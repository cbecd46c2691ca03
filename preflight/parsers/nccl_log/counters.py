"""Counters of a log; their size depends on the hosts and ranks, not on the lines.

The counters of two parts of a log can be added, so several processes can each read a part, and each rank can have
a separate file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from preflight.parsers.nccl_log import rails
from preflight.parsers.nccl_log.model import LogLine

#: Maximum number of different facts that are stored of each kind; further ones are only counted.
MAX_KEYS_PER_KIND = 200_000
#: Maximum number of warnings stored in full.
MAX_WARNINGS = 1000
#: Maximum number of communicators stored individually; further complete ones are only counted.
MAX_COMMUNICATORS = 20_000
#: Maximum number of processes for which the lines of communicator setups are stored, and maximum lines for each.
MAX_SETUP_PROCESSES, MAX_SETUP_LINES = 256, 1000

ENDS_SAMPLED_NOTE = (
    f"more than {rails.MAX_ENDS} ends of network connections: rails are judged on a sample of them, chosen by name"
)

Key = tuple[object, ...]


@dataclass(slots=True)
class Occurrence:
    """The number of occurrences of a fact, and its first line."""

    count: int
    first: LogLine


@dataclass(slots=True)
class Comm:
    """A communicator: bit sets of the ranks that started and finished its setup."""

    first: LogLine
    started: int = 0
    completed: int = 0
    destroyed: int = 0  # number of lines that report it

    def add(self, other: Comm) -> None:
        """Add the counts of another part of the log."""
        self.first = earlier(self.first, other.first)
        self.started |= other.started
        self.completed |= other.completed
        self.destroyed += other.destroyed


@dataclass
class LogCounters:
    """All counts of a log, or of a part of it."""

    seen: dict[str, dict[Key, Occurrence]] = field(default_factory=dict)  # by kind
    overflow: dict[str, int] = field(default_factory=dict)  # by kind: occurrences of facts that are not stored
    comms: dict[tuple[str, int], Comm] = field(default_factory=dict)  # by id and size
    folded: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # by size: number of communicators no longer stored, and how many of these were destroyed
    setups: dict[Key, array[int]] = field(
        default_factory=dict
    )  # by process: lines at which it had set up a communicator; only for the first processes
    warnings: list[LogLine] = field(default_factory=list)
    warning_count: int = 0
    ends: dict[bytes, bytes] = field(default_factory=dict)  # end of a connection → its network
    ends_mask: int = 0  # connections with one of these bits in their checksum are not stored
    lines: int = 0  # number of lines from NCCL
    all_lines: int = 0
    span: tuple[int, int] | None = None  # numbers of the first and last line from NCCL, or about it
    long_lines: int = 0
    unread: dict[str, None] = field(default_factory=dict)  # descriptions of unread text, with the reason
    notes: dict[str, None] = field(default_factory=dict)  # descriptions of text that was only counted

    def add(self, kind: str, key: Key, line: Callable[[], LogLine], count: int = 1) -> None:
        """Count a fact; ``line`` is called only for its first occurrence."""
        table = self.seen.setdefault(kind, {})
        if (known := table.get(key)) is not None:
            known.count += count
        elif len(table) < MAX_KEYS_PER_KIND:
            table[key] = Occurrence(count, line())
        else:
            self.overflow[kind] = self.overflow.get(kind, 0) + count

    def warning(self, line: Callable[[], LogLine]) -> None:
        """Count a warning, and store it if there is room."""
        self.warning_count += 1
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(line())

    def spanned(self, first: int, last: int) -> None:
        """Record the numbers of the first and last NCCL line of a part."""
        self.span = (min(first, self.span[0]), max(last, self.span[1])) if self.span else (first, last)

    def comm(self, key: tuple[str, int], line: LogLine) -> Comm:
        """Return the entry of a communicator, which may be new."""
        if (known := self.comms.get(key)) is None:
            if len(self.comms) >= MAX_COMMUNICATORS:
                self._fold()
            known = self.comms[key] = Comm(line)
        return known

    def set_up(self, process: Key, lines: Iterable[int]) -> None:
        """Record the lines at which a process had set up a communicator."""
        if process in self.setups or len(self.setups) < MAX_SETUP_PROCESSES:
            places = self.setups.setdefault(process, array("Q"))
            places.extend(islice(lines, MAX_SETUP_LINES - len(places)))

    def _fold(self) -> None:
        """Make room: only count the complete communicators, or else the oldest half."""
        done = [key for key, comm in self.comms.items() if comm.completed.bit_count() == key[1]]
        if not done:
            done = list(self.comms)[: MAX_COMMUNICATORS // 2]
            self.notes[f"more than {MAX_COMMUNICATORS} unfinished communicators: the oldest are only counted"] = None
        for key in done:
            comm = self.comms.pop(key)
            made, destroyed = self.folded.get(key[1], (0, 0))
            self.folded[key[1]] = (made + 1, destroyed + bool(comm.destroyed))

    def merge(self, other: LogCounters) -> None:
        """Add the counters of the next part of the log."""
        for kind, table in other.seen.items():
            mine = self.seen.setdefault(kind, {})
            for key, seen in table.items():
                if (known := mine.get(key)) is not None:
                    known.count += seen.count
                    known.first = earlier(known.first, seen.first)
                elif len(mine) < MAX_KEYS_PER_KIND:
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
        for process, lines in other.setups.items():
            self.set_up(process, lines)
        self.warnings = (self.warnings + other.warnings)[:MAX_WARNINGS]
        self.warning_count += other.warning_count
        self.lines += other.lines
        self.all_lines += other.all_lines
        if other.span is not None:
            self.spanned(*other.span)
        self.long_lines += other.long_lines
        self.unread.update(other.unread)
        self.notes.update(other.notes)
        self.ends_mask = rails.merge(self.ends, self.ends_mask, other.ends, other.ends_mask)


def earlier(one: LogLine, other: LogLine) -> LogLine:
    """Return the earlier line, by number or time; ``one`` if that is unknown."""
    if one.file != other.file and one.time and other.time:
        return other if other.time < one.time else one
    if one.file == other.file:
        return other if other.number < one.number else one
    return one
