"""Counter of step lines that are not stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import isinf, log2

from preflight.parsers.training.repeated_steps import TimeReader, time_reader
from preflight.parsers.training.step_classes import StepLines, StepsBetween

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

    def add(self, steps: StepLines) -> None:
        """Count the next lines."""
        self._count += len(steps)
        readers = {name: self._reader(name, steps) for name in set(steps.names)}
        for reader, numbers, texts in _by_reader(steps, readers):
            if reader is None:
                self._unread += len(texts)
            elif reader.is_timed:
                self._add_times(reader.times(texts), reader.unit, numbers)

    def _reader(self, name: bytes, steps: StepLines) -> TimeReader | None:
        if name not in self._readers and len(self._readers) < _MOST_SHAPES:
            text = steps.texts[steps.names.index(name)]
            self._readers[name] = time_reader(text.decode("utf-8", "backslashreplace"))
        return self._readers.get(name)

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


def _by_reader(
    steps: StepLines, readers: Mapping[bytes, TimeReader | None]
) -> Iterator[tuple[TimeReader | None, list[int], list[bytes]]]:
    """Yield the lines of each reader: their numbers and texts."""
    if len(set(readers.values())) == 1:
        yield readers[steps.names[0]], steps.numbers, steps.texts
        return
    groups = defaultdict[TimeReader | None, tuple[list[int], list[bytes]]](lambda: ([], []))
    by_name = {name: groups[reader] for name, reader in readers.items()}
    for number, text, name in zip(steps.numbers, steps.texts, steps.names, strict=True):
        numbers, texts = by_name[name]
        numbers.append(number)
        texts.append(text)
    for reader, (numbers, texts) in groups.items():
        yield reader, numbers, texts
