"""Collective calls of one rank, from the kernels in its trace.

A call has a process group, kind, number, bytes, start and end. PyTorch attaches these to NCCL's kernels
(``record_param_comms``, PyTorch 2.2 and later; ``Seq`` and the peers of sends since 2.6). Times are in microseconds of
the rank's own clock.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from preflight.parsers.torch.gpu_work import number_of
from preflight.parsers.torch.trace_events import Arguments

#: Maximum number of series (process group and kind) in one trace; calls of further ones are left out.
MOST_SERIES = 4096

_LISTED = re.compile(r"\[\s*\d{1,7}(?:\s*,\s*\d{1,7})*\s*\]")
_ELEMENT_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1,
    "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "uint64": 8,
}  # fmt: skip
_NUMBERS = re.compile(r"\d{1,15}")


class CallGroup(NamedTuple):
    """A process group, as described by a kernel; missing fields are empty or None."""

    name: str
    ranks: tuple[int, ...]  # empty if the list is shortened or missing
    listed: str  # the ranks as printed
    description: str
    size: int | None


class CallKey(NamedTuple):
    """The properties that all calls of a series have in common."""

    group: CallGroup
    kind: str
    peer: int | None  # of a send or receive: the rank in the job at the other end
    stream: object  # only if the kernel names no group


class CallSeries:
    """Calls of one kind in one process group, in the order of their kernels."""

    def __init__(self) -> None:
        self.begins = array("d")
        self.ends = array("d")
        self.bytes = array("q")  # -1: unknown
        self.sent = array("q")  # elements that this rank provides, -1: unknown
        self.received = array("q")  # elements that it receives, -1: unknown
        self.numbers = array("q")  # Seq of PyTorch, -1: unknown
        self.correlations = array("q")  # -1: unknown
        self.steps = array("q")  # the profiler's step number, -1: outside all steps; filled when the trace is complete

    def __len__(self) -> int:
        return len(self.begins)

    def order(self) -> None:
        """Sort the calls by start time, since a trace need not be sorted."""
        if all(self.begins[at] <= self.begins[at + 1] for at in range(len(self) - 1)):
            return
        places = sorted(range(len(self)), key=self.begins.__getitem__)
        for name in ("begins", "ends", "bytes", "sent", "received", "numbers", "correlations"):
            values = getattr(self, name)
            setattr(self, name, array(values.typecode, (values[place] for place in places)))


class CollectiveCalls:
    """The calls of one trace, by group and kind."""

    def __init__(self) -> None:
        self._series: dict[tuple[Any, ...], tuple[CallKey, CallSeries]] = {}
        self.left_out = 0

    def __iter__(self) -> Iterator[tuple[CallKey, CallSeries]]:
        return iter(self._series.values())

    def add(self, kind: str, arguments: Arguments, begin: float, end: float) -> None:
        """Add the call of a kernel that runs from ``begin`` to ``end``, in microseconds."""
        stream = arguments.stream if arguments.group_name is None and arguments.group_ranks is None else None
        raw = (kind, arguments.group_name, arguments.group_ranks, arguments.group_size, _peer(kind, arguments), stream)
        entry = self._series.get(raw)
        if entry is None:
            if len(self._series) >= MOST_SERIES:
                self.left_out += 1
                return
            entry = self._series[raw] = (_key(kind, arguments, stream), CallSeries())
        series = entry[1]
        series.begins.append(begin)
        series.ends.append(end)
        series.bytes.append(size_of(arguments))
        series.sent.append(number_of(arguments.sent_elements))
        series.received.append(number_of(arguments.received_elements))
        series.numbers.append(number_of(arguments.sequence))
        series.correlations.append(number_of(arguments.correlation))


def _key(kind: str, arguments: Arguments, stream: object) -> CallKey:
    listed = (arguments.group_ranks or "")[:4096]
    ranks = tuple(int(number) for number in _NUMBERS.findall(listed)) if _LISTED.fullmatch(listed) else ()
    size, name = arguments.group_size, arguments.group_name
    group = CallGroup(
        name="" if name is None else str(name)[:200],
        ranks=ranks if len(set(ranks)) == len(ranks) else (),
        listed=listed,
        description=(arguments.group_description or "")[:200],
        size=size if size is not None and 0 < size < 1 << 24 else len(ranks) or None,
    )
    peer = _peer(kind, arguments)
    return CallKey(group, kind, peer if peer is not None and peer >= 0 else None, stream)


def _peer(kind: str, arguments: Arguments) -> int | None:
    """Return the rank within the group at the other end of a send or receive."""
    return arguments.destination if kind == "send" else arguments.source if kind == "recv" else None


def size_of(arguments: Arguments) -> int:
    """Return the bytes of a call's larger side, as in nccl-tests; -1 if unknown.

    The larger side is the output of an all-gather, and the input of a reduce-scatter. Each side of an all-to-all with
    uneven splits is the sum of its splits.
    """
    each = _ELEMENT_BYTES.get((arguments.element_type or "").lower())
    elements = max(number_of(arguments.sent_elements), number_of(arguments.received_elements))
    return elements * each if each and elements >= 0 else -1


def ordered(calls: CollectiveCalls) -> Sequence[tuple[CallKey, CallSeries]]:
    """Return the series of a complete trace, each in time order."""
    for _, series in calls:
        series.order()
    return tuple(calls)
