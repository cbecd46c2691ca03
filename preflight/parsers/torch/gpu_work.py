"""Kernels and copies of a GPU in a trace.

Times are in microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress, islice
from typing import Final

from preflight.parsers.torch.intervals import Spans, Stretch, in_order, united

COMPUTE: Final = 0
COMMUNICATION: Final = 1
COPY: Final = 2  # or a fill
COPY_TO_GPU: Final = 3

#: Approximate size of the sample for the median duration.
_SAMPLED = 20_000


class GpuWork:
    """Kernels and copies of one GPU; each takes 27 bytes."""

    def __init__(self) -> None:
        self.begins, self.ends = array("d"), array("d")
        self.correlations = array("q")  # -1: unknown
        self.kinds = array("b")
        self.numbers = array("H")  # of compute kernels, as in ``kernel_times``

    def __len__(self) -> int:
        return len(self.begins)

    def add(self, begin: float, end: float, correlation: int | None, kind: int, number: int = 0) -> None:
        """Add a kernel or a copy."""
        self.begins.append(begin)
        self.ends.append(end)
        self.correlations.append(number_of(correlation))
        self.kinds.append(kind)
        self.numbers.append(number)

    def order(self) -> None:
        """Sort the kernels and copies by start time."""
        order = in_order(self.begins)
        if not isinstance(order, range):
            for name in ("begins", "ends", "correlations", "kinds", "numbers"):
                values = getattr(self, name)
                setattr(self, name, array(values.typecode, (values[at] for at in order)))

    def joined(self, *kinds: int) -> Spans:
        """Return the union of the intervals of these kinds; call ``order`` first."""
        return united(self._stretches(kinds))

    def _stretches(self, kinds: Sequence[int]) -> Iterator[Stretch]:
        chosen = [kind in kinds for kind in range(COPY_TO_GPU + 1)]
        return compress(zip(self.begins, self.ends, strict=True), map(chosen.__getitem__, self.kinds))

    def kernels(self) -> int:
        """Return the number of kernels, without copies."""
        return self.kinds.count(COMPUTE) + self.kinds.count(COMMUNICATION)

    def computed(self) -> int:
        """Return the number of compute kernels."""
        return self.kinds.count(COMPUTE)

    def median_us(self) -> float | None:
        """Return the median duration of a sample of compute kernels; None without one."""
        every = max(1, self.computed() // _SAMPLED)
        lengths = sorted(end - begin for begin, end in islice(self._stretches((COMPUTE,)), 0, None, every))
        return lengths[len(lengths) // 2] if lengths else None


def number_of(correlation: int | None) -> int:
    """Return a number that fits in an array; -1 if it is missing or invalid."""
    return correlation if correlation is not None and 0 <= correlation < 1 << 62 else -1
