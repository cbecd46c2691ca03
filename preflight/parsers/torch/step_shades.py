"""Share of time in which a GPU is active in each part of a step, for a diagram.

A step is divided into equal parts, so its memory does not depend on the number of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from preflight.parsers.torch.intervals import Coverage, Spans, Stretch
from preflight.parsers.torch.step_budget import BusyTime

#: Number of equal parts of a step.
PARTS = 160
#: Maximum number of steps stored of a trace; the longest are stored.
MOST_STEPS = 64
#: The step number of a profile without marked steps, which is drawn as one step.
UNMARKED = -1


class StepShades(NamedTuple):
    """Shares of computation and of copies in each part of a step, in percent."""

    begin: float
    end: float
    compute: bytes
    copies: bytes


def shades(steps: Mapping[int, Stretch], busy: BusyTime) -> dict[int, StepShades]:
    """Return the shares of the longest steps, by step number; times in microseconds."""
    if not steps:
        steps = {UNMARKED: (busy.begin, busy.end)}
    longest = sorted(steps, key=lambda number: steps[number][0] - steps[number][1])[:MOST_STEPS]
    return {
        number: StepShades(begin, end, percent(busy.compute, begin, end), percent(busy.copying, begin, end))
        for number in longest
        for begin, end in (steps[number],)
        if end > begin
    }


def percent(covered: Coverage | Spans, begin: float, end: float) -> bytes:
    """Return the covered share of each part of an interval, in percent."""
    length = (end - begin) / PARTS
    instants = [begin + part * length for part in range(PARTS + 1)]
    return bytes(min(100, round(100 * covered.within(*part) / length)) for part in pairwise(instants))
