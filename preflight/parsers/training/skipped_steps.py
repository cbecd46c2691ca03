"""Counter of step lines that are not stored."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from math import log2

from preflight.parsers.training.repeated_steps import time_reader
from preflight.parsers.training.step_classes import StepsBetween

#: Number of classes between a time and twice that time.
_CLASSES = 20
_MOST_SHAPES = 4096
_DIGITS = b"0123456789"

#: Pattern of a line, and seconds of one unit of its group; 0 for a rate.
_Reader = tuple[re.Pattern[bytes], float]
_NONE: _Reader = (re.compile(rb"(?!)"), 0.0)


class SkippedSteps:
    """Counts step lines by their time, in memory that does not grow with them."""

    def __init__(self) -> None:
        self._count = self._unread = 0
        self._times, self._totals = Counter[int](), defaultdict[int, float](float)
        self._longest = (0.0, 0)
        self._readers: dict[bytes, _Reader] = {}

    def add(self, steps: Collection[tuple[int, bytes]]) -> None:
        """Count the next numbered lines."""
        self._count += len(steps)
        read = defaultdict[float, tuple[list[bytes], list[int]]](lambda: ([], []))  # unit → times and line numbers
        pattern, unit = _NONE
        for number, line in steps:
            if (match := pattern.fullmatch(line)) is None:
                pattern, unit = self._reader(line)
                if (match := pattern.fullmatch(line)) is None:
                    self._unread += 1
                    continue
                times, numbers = read[unit]
            if pattern.groups:
                times.append(match[1])
                numbers.append(number)
        for unit, (times, numbers) in read.items():
            longest, slowest = self._longest[0], b""
            for time, count in Counter(times).items():
                if not (value := float(time.replace(b",", b""))):
                    continue
                seconds = value * unit or 1 / value
                kind = int(log2(seconds) * _CLASSES)
                self._times[kind] += count
                self._totals[kind] += count * seconds
                if seconds > longest:
                    longest, slowest = seconds, time
            if slowest:
                self._longest = longest, numbers[times.index(slowest)]

    def _reader(self, line: bytes) -> _Reader:
        shape = line.translate(None, _DIGITS)
        if shape not in self._readers and len(self._readers) < _MOST_SHAPES:
            self._readers[shape] = time_reader(line.decode("utf-8", "backslashreplace")) or _NONE
        return self._readers.get(shape, _NONE)

    def merge(self, other: SkippedSteps) -> None:
        """Add the lines of the next part of a source."""
        self._count += other._count
        self._unread += other._unread
        self._times += other._times
        for kind, total in other._totals.items():
            self._totals[kind] += total
        self._longest = max(self._longest, other._longest)

    def counted(self) -> StepsBetween:
        """Return the counts so far."""
        classes = {kind: (count, self._totals[kind]) for kind, count in self._times.items()}
        return StepsBetween(self._count, self._unread, classes, *self._longest)
