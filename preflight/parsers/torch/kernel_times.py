"""Times of a trace's compute kernels, by kernel.

Kernels are equal if they have the same name and number of thread blocks: those of the layers of a model, for example,
but not those of its loss. Times are in microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from preflight.parsers.torch.gpu_work import COMPUTE, GpuWork

#: Maximum number of distinguished kernels of a trace; the number 0 is for all others.
_MOST_KERNELS = (1 << 14) - 1
#: Maximum numbers of kernels whose times are returned, the longest first, and of their steps.
_MOST_RETURNED, _MOST_TIMES = 200, 100_000
#: Maximum number of quantiles of a kernel's times.
QUANTILES = 64


class KernelTimes(NamedTuple):
    """The times of equal kernels."""

    steps: Mapping[int, tuple[float, int]]  # step number → total time, number of kernels
    kernels: int  # number in these steps
    quantiles: array[float]  # evenly spaced, from the shortest to the longest

    @property
    def total(self) -> float:
        """The time of all kernels."""
        return sum(time for time, _ in self.steps.values())


class KernelNumbers:
    """Numbers of the compute kernels of a trace, which fit in 16 bits."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}

    def number(self, name: str, grid: object) -> int:
        """Return the number of kernels with this name and grid (three integers)."""
        blocks = 0
        if type(grid) is list and len(grid) == 3:
            x, y, z = grid
            if type(x) is type(y) is type(z) is int:
                blocks = x * y * z % (1 << 62)
        number = self._numbers.get((name, blocks))
        if number is None:
            if len(self._numbers) >= _MOST_KERNELS:
                return 0
            number = self._numbers[name, blocks] = len(self._numbers) + 1
        return number

    def __len__(self) -> int:
        return len(self._numbers)

    def digests(self) -> Iterator[tuple[int, int]]:
        """Yield each kernel's number, and one that is the same in all traces."""
        for (name, blocks), number in self._numbers.items():
            yield number, crc32(f"{name} {blocks}".encode("utf-8", "replace"))


class KernelTally:
    """Times of kernels by step and number, for a bounded number of kernels."""

    def __init__(self, work: GpuWork, numbers: KernelNumbers, steps: int) -> None:
        totals = array("d", [0.0]) * (len(numbers) + 1)
        for begin, end, kind, number in zip(work.begins, work.ends, work.kinds, work.numbers, strict=True):
            if kind == COMPUTE:
                totals[number] += end - begin
        longest = sorted(range(1, len(totals)), key=totals.__getitem__, reverse=True)
        chosen = longest[: min(_MOST_RETURNED, _MOST_TIMES // max(1, steps))]
        self._numbers = numbers
        self._lengths = {number: array("f") for number in chosen}
        self._steps: dict[int, dict[int, tuple[float, int]]] = {number: {} for number in chosen}

    def add(self, number: int, step: int, length: float) -> None:
        """Add a kernel of a step."""
        steps = self._steps.get(number)
        if steps is not None:
            time, count = steps.get(step, (0.0, 0))
            steps[step] = (time + length, count + 1)
            self._lengths[number].append(length)

    def times(self) -> dict[int, KernelTimes]:
        """Return the times by digest."""
        return {
            digest: KernelTimes(self._steps[number], len(lengths), _quantiles(lengths))
            for number, digest in self._numbers.digests()
            if (lengths := self._lengths.get(number))
        }


def _quantiles(lengths: array[float]) -> array[float]:
    ordered = sorted(lengths)
    count = min(QUANTILES, len(ordered))
    return array("f", (ordered[(2 * at + 1) * len(ordered) // (2 * count)] for at in range(count)))
