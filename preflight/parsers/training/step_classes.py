"""Times of step lines that are counted, not stored, in classes of similar length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight._startup.lightclass import dataclass


class StepLines:
    """Step lines: their numbers, their texts, and these without digits."""

    def __init__(
        self, numbers: Iterable[int] = (), texts: Iterable[bytes] = (), names: Iterable[bytes] = ()
    ) -> None:  # fmt: skip
        """Store the lines; a million tuples of these values would take 0.1 s."""
        self.numbers, self.texts, self.names = list(numbers), list(texts), list(names)

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, other: StepLines) -> None:
        """Add the next lines."""
        self.numbers += other.numbers
        self.texts += other.texts
        self.names += other.names

    def sort(self) -> None:
        """Sort the lines by their numbers."""
        order = sorted(range(len(self)), key=self.numbers.__getitem__)
        self.numbers = [self.numbers[at] for at in order]
        self.texts = [self.texts[at] for at in order]
        self.names = [self.names[at] for at in order]

    def split(self, at: int) -> tuple[StepLines, StepLines]:
        """Return the lines before an index, and those from it on."""
        return (StepLines(self.numbers[:at], self.texts[:at], self.names[:at]),
                StepLines(self.numbers[at:], self.texts[at:], self.names[at:]))  # fmt: skip


@dataclass(frozen=True)
class StepsBetween:
    """Step lines between the first and the last ones of a long log."""

    count: int
    unread: int  # of them, without a known pattern
    classes: Mapping[int, tuple[int, float]]  # class → number of times and their sum, in s
    longest_s: float = 0.0
    longest_line: int = 0

    @property
    def timed(self) -> int:
        """The number of lines with a time."""
        return sum(count for count, _ in self.classes.values())

    @property
    def median_s(self) -> float:
        """The mean of the class that has the median; 0 without times."""
        left = (self.timed + 1) // 2
        for _, (count, total) in sorted(self.classes.items()):
            left -= count
            if left <= 0:
                return total / count
        return 0.0

    def above(self, factor: float, usual_s: float) -> tuple[int, float]:
        """Return the number of slow steps, and their excess as a share of all time.

        A step is slow if the mean of its class exceeds ``factor * usual_s``.
        """
        slow = [(count, total) for count, total in self.classes.values() if total > factor * usual_s * count]
        excess = sum(total - count * usual_s for count, total in slow)
        return sum(count for count, _ in slow), excess / (sum(total for _, total in self.classes.values()) or 1)
