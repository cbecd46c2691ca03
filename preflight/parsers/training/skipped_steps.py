"""Counter of step lines that are not stored."""

from __future__ import annotations

import re
from math import log2

from preflight.parsers.training.repeated_steps import time_reader
from preflight.parsers.training.step_classes import StepsBetween

#: Classes of times: this many between a time and twice that time.
_CLASSES = 20
_MOST_SHAPES = 4096
_DIGITS = b"0123456789"

#: Pattern of a line, and seconds of one unit of its group; 0 for a rate.
_Reader = tuple[re.Pattern[bytes], float]


class SkippedSteps:
    """Counts step lines by their time, in memory that does not grow with them."""

    def __init__(self) -> None:
        self._count = self._unread = 0
        self._classes: dict[int, tuple[int, float]] = {}
        self._longest = (0.0, 0)
        self._readers: dict[bytes, _Reader | None] = {}

    def add(self, number: int, line: bytes) -> None:
        """Count the next line."""
        self._count += 1
        shape = line.translate(None, _DIGITS)
        if shape not in self._readers and len(self._readers) < _MOST_SHAPES:
            self._readers[shape] = time_reader(line.decode("utf-8", "backslashreplace"))
        reader = self._readers.get(shape)
        match = None if reader is None else reader[0].match(line)
        if reader is None or match is None:
            self._unread += 1
            return
        if not reader[0].groups or not (value := float(match[1].replace(b",", b""))):
            return
        seconds = value * reader[1] or 1 / value
        kind = int(log2(seconds) * _CLASSES)
        count, total = self._classes.get(kind, (0, 0.0))
        self._classes[kind] = (count + 1, total + seconds)
        if seconds > self._longest[0]:
            self._longest = (seconds, number)

    def merge(self, other: SkippedSteps) -> None:
        """Add the lines of the next part of a source."""
        self._count += other._count
        self._unread += other._unread
        for kind, (count, total) in other._classes.items():
            own, own_total = self._classes.get(kind, (0, 0.0))
            self._classes[kind] = (own + count, own_total + total)
        self._longest = max(self._longest, other._longest)

    def counted(self) -> StepsBetween:
        """Return what was counted."""
        return StepsBetween(self._count, self._unread, dict(self._classes), *self._longest)
