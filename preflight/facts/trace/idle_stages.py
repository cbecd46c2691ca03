"""Idle time of a pipeline's stages that holds up other stages.

If the CPU of a stage launches its kernels late, its GPU is idle, and it sends its next messages late. A receiver that
waits for such a message would wait less by the idle time since the stage last waited itself, but not by more than a
message that the stage received meanwhile was ready before. Times are in microseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.waiting import Waits
from preflight.parsers.torch.intervals import Spans

_BySteps = Mapping[int, float]


def held_up(
    ranks: Mapping[int, RankTrace], stages: Sequence[int], waits: Waits, steps: Sequence[int]
) -> dict[int, list[float]]:
    """Return how long each stage holds up others in each step, unlike its peers."""
    idle, held = {}, {}
    for rank in stages:
        idle[rank], held[rank] = _idle(ranks[rank], waits, steps)
    return {
        rank: [
            min(held[rank][step], idle[rank][step] - median(idle[peer][step] for peer in stages if peer != rank))
            for step in steps
        ]
        for rank in stages
    }


def _idle(trace: RankTrace, waits: Waits, steps: Sequence[int]) -> tuple[_BySteps, _BySteps]:
    """Return the idle time of each step, and how much of it delays a receiver."""
    idle, held = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0.0)
    numbers = sorted(trace.steps, key=trace.steps.__getitem__)
    windows = Spans(trace.steps[number] for number in numbers)
    late = 0.0  # idle time that a message sent now would be late by
    for begin, end, ready, blocked in _events(trace, waits):
        step = numbers[at] if (at := windows.place(begin)) >= 0 else None
        if step in idle:
            idle[step] += end - begin
            held[step] += min(late, blocked)
        late = min(late + end - begin, ready) - min(late, blocked)
    return idle, held


def _events(trace: RankTrace, waits: Waits) -> Iterator[tuple[float, float, float, float]]:
    """Yield idle times, waits and messages of a rank in time order.

    Each has a start, an end (later only for idle times), for how long the rank could have gone on before, and for how
    long the GPU of a receiver computes nothing.
    """
    collectives = [number for number, group in enumerate(waits.groups) if group.kinds != {"sendrecv"}]
    always = float("inf")
    return heapq.merge(
        ((begin, end, always, 0.0) for begin, end in trace.gaps),
        ((begin, begin, 0.0, 0.0) for begin, _ in waits.waited(trace.rank, collectives)),
        ((received, received, ready, 0.0) for received, ready in waits.received[trace.rank]),
        ((sent, sent, always, blocked) for sent, blocked in waits.sent[trace.rank]),
    )
