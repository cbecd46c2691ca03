"""Unfinished sends and receives of ranks, from flight-recorder dumps.

Each rank names a message from its own perspective, with numbers in the process group: ``nccl:send 0->1``,
``nccl:recv 1<-0``. The messages of a batch share a number, and a ``coalesced`` entry has the state of all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from preflight._startup.lightclass import dataclass
from preflight.parsers.torch.flight_recorder import RecordedCall, Recording, memberships

_MESSAGE = re.compile(r"[\w-]{1,20}:(?:(send) (\d{1,7})->(\d{1,7})|(recv) (\d{1,7})<-(\d{1,7}))")
_OTHER_END = {"send": "recv", "recv": "send"}

#: Reasons why a rank waits for its peer.
ABSENT, BEHIND, CROSSED, MISMATCH, MOVING = "absent", "behind", "crossed", "mismatch", "moving"


@dataclass(frozen=True)
class Wait:
    """A rank that waits in a send or receive, and why its peer does not answer."""

    group: str
    rank: int
    peer: int
    op: str  # PyTorch's name of the message
    why: str  # one of the reasons above


@dataclass(frozen=True)
class Stall:
    """All unfinished messages, and the ranks that block them."""

    waits: tuple[Wait, ...]
    unclear: tuple[tuple[int, str], ...]  # (rank, its call) if the entry names no peer
    circle: tuple[int, ...]  # ranks that wait for each other in a cycle
    behind: tuple[int, ...]  # ranks for which others wait, but which wait for no message themselves
    absent: tuple[int, ...]  # ranks for which others wait, but whose dump is missing, truncated or without peers

    def of(self, why: str) -> tuple[Wait, ...]:
        """Return the waits with this reason."""
        return tuple(one for one in self.waits if one.why == why)


@dataclass(frozen=True)
class _End:
    """One end of a message."""

    way: str  # send, recv
    unit: int  # index of its batch or single call, in call order
    entry: RecordedCall


#: Message ends by (process group, its members), rank and peer.
_Ends = dict[tuple[str, tuple[int, ...]], dict[tuple[int, int], list[_End]]]


def of_recordings(recordings: Mapping[int, Recording]) -> Stall | None:
    """Compare both ends of each unfinished message; return None without one."""
    ends: _Ends = defaultdict(lambda: defaultdict(list))
    unclear: list[tuple[int, str]] = []
    members = memberships(recordings)
    for rank, recording in sorted(recordings.items()):
        for unit, entry in _calls(recording.resolved_entries):
            group = (entry.group, members[rank, entry.group])
            if (named := _peer(entry, rank, group[1])) is not None:
                way, peer = named
                ends[group][rank, peer].append(_End(way, unit, entry))
            elif not entry.done:
                unclear.append((rank, entry.op))
    known = {rank: recording.from_first_call for rank, recording in recordings.items()
             if rank not in dict(unclear) and not recording.cut}  # fmt: skip
    waits = [wait for (name, _), pairs in sorted(ends.items()) for wait in _waits(name, pairs, known)]
    if not (waits or unclear):
        return None
    blocked: dict[int, list[int]] = defaultdict(list)
    for wait in waits:
        if wait.why in (ABSENT, BEHIND, CROSSED):
            blocked[wait.rank].append(wait.peer)
    behind = {wait.peer for wait in waits if wait.why == BEHIND} - {wait.rank for wait in waits}
    absent = {wait.peer for wait in waits if wait.why == ABSENT}
    return Stall(tuple(waits), tuple(unclear), _circle(blocked), tuple(sorted(behind)), tuple(sorted(absent)))


def _calls(entries: Sequence[RecordedCall]) -> Iterator[tuple[int, RecordedCall]]:
    """Yield (index of the batch or single call, entry) of the messages.

    The ``coalesced`` entry of a batch is only yielded if the batch has no other entry.
    """
    batches: dict[tuple[str, int], list[RecordedCall]] = defaultdict(list)
    for entry in entries:
        if entry.p2p:
            batches[entry.group, entry.seq].append(entry)
    for unit, batch in enumerate(batches.values()):
        for entry in [one for one in batch if not one.closes] or batch:
            yield unit, entry


def _peer(entry: RecordedCall, rank: int, members: Sequence[int]) -> tuple[str, int] | None:
    """Return an entry's direction ("send" or "recv") and its peer's rank in the job.

    None if unknown.
    """
    match = _MESSAGE.fullmatch(entry.op)
    if not match:
        return None
    way, own, other = (match[1], int(match[2]), int(match[3])) if match[1] else (match[4], int(match[5]), int(match[6]))
    if not members:
        return (way, other) if own == rank else None
    return (way, members[other]) if max(own, other) < len(members) and members[own] == rank else None


def _waits(group: str, pairs: Mapping[tuple[int, int], Sequence[_End]], known: Mapping[int, bool]) -> Iterator[Wait]:
    for (rank, peer), ends in sorted(pairs.items()):
        head = _head(ends)
        theirs = pairs.get((peer, rank), ())
        opposite = _head(theirs)
        for way in sorted({end.way for end in head}):
            mine = [end for end in head if end.way == way]
            other = [end for end in opposite if end.way == _OTHER_END[way]]
            if peer not in known:
                why = ABSENT
            elif other:
                why = MISMATCH if _size(mine[0].entry) != _size(other[0].entry) else MOVING
            elif any(end.way == _OTHER_END[way] and not end.entry.done for end in theirs):
                why = CROSSED
            else:
                counted = known.get(rank) and known[peer]
                why = MOVING if counted and _issued(ends, theirs, mine[0]) else BEHIND
            yield Wait(group, rank, peer, mine[0].entry.op, why)


def _head(ends: Sequence[_End]) -> list[_End]:
    """Return the ends of the first unfinished call or batch between two ranks.

    NCCL processes the calls between two ranks in order.
    """
    waiting = [end for end in ends if not end.entry.done]
    return [end for end in waiting if end.unit == waiting[0].unit]


def _issued(mine: Sequence[_End], theirs: Sequence[_End], waiting: _End) -> bool:
    """Return whether the peer has already made the matching call.

    It may have completed, since a small send completes before it is received.
    """
    before = sum(end.way == waiting.way for end in mine[: mine.index(waiting)])
    return sum(end.way == _OTHER_END[waiting.way] for end in theirs) > before


def _size(entry: RecordedCall) -> tuple[object, ...]:
    """Return the number of elements and the types, which both ends must agree on."""
    return (sum(prod(size) for size in entry.sizes), *sorted(set(entry.dtypes)))


def _circle(blocked: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Return the ranks of one cycle of waits; empty if there is none."""
    left = {rank: set(peers) for rank, peers in blocked.items()}
    while ended := [rank for rank, peers in left.items() if not peers & left.keys()]:
        for rank in ended:
            del left[rank]
    path: list[int] = []
    at = min(left, default=None)
    while at is not None and at not in path:
        path.append(at)
        at = min(left[at] & left.keys())
    return tuple(path[path.index(at) :]) if at is not None else ()
