"""Gradient buckets: when the first reduction starts within a backward pass.

A series of all-reduces or reduce-scatters synchronises gradients if none of its large calls starts before the last
backward pass of a step. Those of tensor parallelism also run in the forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from preflight.parsers.torch.collective_calls import CallKey, CallSeries
from preflight.parsers.torch.launches import BackwardPass

_KINDS = ("all_reduce", "reduce_scatter")
_POINT_TO_POINT = ("send", "recv", "sendrecv")
#: Minimum number of bytes in a bucket; smaller calls reduce a loss or a norm.
_SMALLEST = 64 << 10


def buckets(
    calls: Sequence[tuple[CallKey, CallSeries]], passes: Sequence[BackwardPass], numbers: Sequence[int]
) -> dict[str, Any] | None:
    """Return the first bucket's start, and the number and size of buckets, or None.

    ``numbers`` are the profiler's step numbers. The start is a median over the steps, as a fraction of the backward
    pass (0 at its start, 1 at its end). Pipeline stages return None, since they reduce only after the last microbatch.
    """
    if any(key.kind in _POINT_TO_POINT for key, _ in calls):
        return None
    by_step = {numbers[each.step]: each for each in passes if each.end > each.begin}
    begins: dict[int, list[float]] = {}
    sizes: list[int] = []
    for key, series in calls:
        if key.kind not in _KINDS:
            continue
        large = [
            (series.steps[at], series.begins[at], series.bytes[at])
            for at in range(len(series))
            if (series.bytes[at] < 0 or series.bytes[at] >= _SMALLEST) and series.steps[at] in by_step
        ]
        if any(begin < by_step[step].begin for step, begin, _ in large):
            continue
        for step, begin, size in large:
            begins.setdefault(step, []).append(begin)
            if size >= 0:
                sizes.append(size)
    if not begins:
        return None
    return {
        "steps": len(begins), "per_step": median(map(len, begins.values())),
        "median_bytes": round(median(sizes)) if sizes else None,
        "first": round(median(_share(min(of_step), by_step[step]) for step, of_step in begins.items()), 4),
    }  # fmt: skip


def _share(begin: float, backward: BackwardPass) -> float:
    return min(1.0, (begin - backward.begin) / (backward.end - backward.begin))
