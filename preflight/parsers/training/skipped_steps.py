"""Counter of step lines that are not stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from math import isinf, log2

from preflight.parsers.training.repeated_steps import TimeReader, time_reader
from preflight.parsers.training.step_classes import Step, StepsBetween

#: Number of classes between a time and twice that time.
_CLASSES = 20
_MOST_SHAPES = 4096


class SkippedSteps:
    """Counts step lines by their time, in memory that does not grow with them."""

    def __init__(self) -> None:
        self._count = self._unread = 0
        self._times, self._totals = Counter[int](), defaultdict[int, float](float)
        self._longest = (0.0, 0)
        self._readers: dict[bytes, TimeReader | None] = {}

    def add(self, steps: Collection[Step]) -> None:
        """Count the next lines."""
        self._count += len(steps)
        written = defaultdict[bytes, tuple[list[bytes], list[int]]](lambda: ([], []))  # shape → lines and numbers
        for number, line, shape in steps:
            lines, numbers = written[shape]
            lines.append(line)
            numbers.append(number)
        for shape, (lines, numbers) in written.items():
            if shape not in self._readers and len(self._readers) < _MOST_SHAPES:
                self._readers[shape] = time_reader(lines[0].decode("utf-8", "backslashreplace"))
            if (reader := self._readers.get(shape)) is None:
                self._unread += len(lines)
            elif reader.pattern.groups:
                self._add_times(reader.times(lines), reader.unit, numbers)

    def _add_times(self, times: list[bytes], unit: float, numbers: list[int]) -> None:
        longest, slowest = self._longest[0], b""
        for time, count in Counter(times).items():
            try:
                value = float(time.replace(b",", b""))
            except ValueError:
                self._unread += count
                continue
            if not (seconds := value * unit or (value and 1 / value)) or isinf(seconds):
                continue
            kind = int(log2(seconds) * _CLASSES)
            self._times[kind] += count
            self._totals[kind] += count * seconds
            if seconds > longest:
                longest, slowest = seconds, time
        if slowest:
            self._longest = longest, numbers[times.index(slowest)]

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
