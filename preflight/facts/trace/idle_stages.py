"""Idle time of a pipeline's stages that holds up other stages.

If the CPU of a stage launches its kernels late, its GPU is idle, and it sends its next messages late. A message is late
by the idle time since the stage itself last waited: a wait absorbs earlier idle time. If the stage received a message
meanwhile, the lateness is at most the time for which that message had been ready when the stage began to receive it:
without its idle time, the stage would have waited for it. After a wait in a collective, the lateness with which the
stage had delayed its peers there before remains: without it, they would have been earlier as well. Times are in
microseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.waiting import Messages, Waits
from preflight.parsers.torch.intervals import Spans, Stretches

_BySteps = Mapping[int, float]


class HeldUp(NamedTuple):
    """How long a stage holds up others in a step, beyond its peers."""

    time: float
    more: float  # for how much longer than its peers it is idle
    idle: float


def held_up(
    ranks: Mapping[int, RankTrace], stages: Sequence[int], waits: Waits, steps: Sequence[int]
) -> dict[int, dict[int, HeldUp]]:
    """Return how long each stage holds up others, by step."""
    idle, held = {}, {}
    for rank in stages:
        idle[rank], held[rank] = _idle(ranks[rank], waits, steps)
    return {rank: {step: _beyond(rank, step, idle, held) for step in steps} for rank in stages}


def _beyond(rank: int, step: int, idle: Mapping[int, _BySteps], held: Mapping[int, _BySteps]) -> HeldUp:
    more = idle[rank][step] - median(idle[peer][step] for peer in idle if peer != rank)
    return HeldUp(min(held[rank][step], more), more, idle[rank][step])


def _idle(trace: RankTrace, waits: Waits, steps: Sequence[int]) -> tuple[_BySteps, _BySteps]:
    """Return the idle time of each step, and how much of it delays a receiver."""
    idle, held = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0.0)
    numbers = sorted(trace.steps, key=trace.steps.__getitem__)
    windows = Spans(trace.steps[number] for number in numbers)
    late = 0.0  # idle time that a message sent now would be late by
    shared: dict[int, float] = {}  # group -> how much of it has delayed the peers of that group as well
    for begin, event, group, length in _events(trace, waits):
        step = numbers[at] if (at := windows.place(begin)) >= 0 else None
        if event is _Event.IDLE:
            late += length
            if step in idle:
                idle[step] += length
        elif event is _Event.LAST:
            shared[group] = min(late, shared.get(group, 0.0) + length)
        elif event is _Event.WAITED:
            late = min(late, shared.get(group, 0.0))
        elif event is _Event.RECEIVED:
            late = min(late, length)
        elif event is _Event.SENT:
            if step in held:
                held[step] += min(late, length)
            late -= min(late, length)
        for other in shared:
            shared[other] = min(shared[other], late)
    return idle, held


class _Event(Enum):
    """What changes how late a stage is."""

    IDLE = auto()  # for that length until now
    LAST = auto()  # in a collective, which holds up its peers for that length
    WAITED = auto()  # in a collective
    RECEIVED = auto()  # a message whose sender had been ready for that length when the stage began to receive
    SENT = auto()  # a message for which the GPU of the receiver has been idle for that length


def _events(trace: RankTrace, waits: Waits) -> Iterator[tuple[float, _Event, int, float]]:
    """Yield the events of a rank in time order: time, kind, process group, length."""
    rank = trace.rank
    collectives = [
        _of_group(number, waits.stretches.get((rank, number)), waits.last.get((rank, number)))
        for number, group in enumerate(waits.groups)
        if group.kinds != {"sendrecv"}
    ]
    return heapq.merge(
        ((end, _Event.IDLE, -1, end - begin) for begin, end in trace.gaps),
        ((received, _Event.RECEIVED, -1, ready) for received, ready in waits.received[rank]),
        ((sent, _Event.SENT, -1, blocked) for sent, blocked in waits.sent[rank]),
        *collectives,
        key=itemgetter(0),
    )


def _of_group(
    group: int, waited: Stretches | None, last: Messages | None
) -> Iterator[tuple[float, _Event, int, float]]:
    """Yield the events of a rank in the collectives of a group, in time order."""
    return heapq.merge(
        ((begin, _Event.WAITED, group, 0.0) for begin, _ in (waited.joined() if waited else ())),
        ((begin, _Event.LAST, group, held_up) for begin, held_up in last or ()),
        key=itemgetter(0),
    )
