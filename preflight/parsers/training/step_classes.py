"""Times of step lines that are counted, not stored, in classes of similar length."""

from __future__ import annotations

from collections.abc import Mapping

from preflight._startup.lightclass import dataclass

#: A step line: its number, its text, and the text without digits.
Step = tuple[int, bytes, bytes]


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
