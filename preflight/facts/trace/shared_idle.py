"""Idle time that all ranks of a group have in a step.

They wait for storage, or collect garbage; one of them is the last by chance, by more the longer they all wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from preflight.facts.trace.ranks import RankTrace


class SharedIdle(NamedTuple):
    """How long GPUs of all ranks are idle in a step, in microseconds."""

    time: float
    beyond: float  # beyond the median step


def shared_idle(ranks: Iterable[RankTrace], steps: Sequence[int], beside: int = 1) -> dict[int, SharedIdle]:
    """Return the idle time that all ranks have in each step.

    The CPU may be ahead of the GPU, so the idle time may belong to a step ``beside`` it; but not that before the first
    kernel of the profile.
    """
    shared = dict.fromkeys(steps, SharedIdle(float("inf"), float("inf")))
    for trace in ranks:
        idle = [trace.idle(step) for step in steps]
        inside = [trace.idle(step, lead=at > 0) for at, step in enumerate(steps)]
        usual = median(idle or (0.0,))
        for at, step in enumerate(steps):
            time = max(idle[at], *inside[max(0, at - beside) : at + beside + 1])
            shared[step] = SharedIdle(min(shared[step].time, time), min(shared[step].beyond, time - usual))
    return shared
