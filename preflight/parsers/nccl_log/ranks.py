"""Ranks and communicators: processes, setups, missing ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import Any, cast

from preflight._startup.lightclass import dataclass
from preflight.parsers.nccl_log.counters import Comm, LogCounters
from preflight.parsers.nccl_log.model import Communicators, Missing, Unfinished

Process = tuple[str, int | None, int | None]

_SHOWN = 20
_MISSING_SHOWN = 1000


@dataclass
class Members:
    """Ranks of the largest communicator, and their processes."""

    nranks: int = 0
    known: dict[int, Process] = field(default_factory=dict)
    per_node: int | None = None  # ranks per node, if NCCL reports equal numbers
    ranks: dict[Process, int | None] = field(default_factory=dict)  # None: the process has several ranks

    def rank_of(self, process: Process) -> int | None:
        """Return the rank of a process; None if unknown, or if it has several."""
        return self.ranks.get(process)

    def host_of(self, rank: int) -> str | None:
        """Return the host of a rank, from its lines or from its node's other ranks.

        The node is only known if ranks are numbered node by node. None if the host is unknown.
        """
        if rank in self.known:
            return self.known[rank][0] or None
        hosts: tuple[str, ...] = self._hosts_by_node.get(rank // self.per_node, ()) if self.per_node else ()
        return (hosts[0] or None) if len(hosts) == 1 else None

    @cached_property
    def _hosts_by_node(self) -> dict[int, tuple[str, ...]]:
        """The hosts of each node; empty unless ranks are numbered node by node."""
        if not self.per_node or self.nranks % self.per_node:
            return {}
        node_of: dict[str, int] = {}
        for rank, (host, _, _) in self.known.items():
            if node_of.setdefault(host, rank // self.per_node) != rank // self.per_node:
                return {}
        found: dict[int, tuple[str, ...]] = {}
        for host, node in node_of.items():
            found[node] = (*found.get(node, ()), host)
        return found


def ranks_of(tally: LogCounters) -> Members:
    """Return the ranks of the largest communicator."""
    rows = tally.seen.get("rank", {})
    members = Members(max((cast(int, key[0]) for key in rows), default=0))
    sizes = [key[2] for key in tally.seen.get("size", {}) if key[0] == members.nranks]
    locals_ = {local for local in sizes if local is not None}
    members.per_node = cast("int | None", locals_.pop()) if len(locals_) == 1 else None
    for nranks, rank, who, pid, device in cast("Iterator[Any]", iter(rows)):
        if nranks != members.nranks:
            continue
        process: Process = (who, pid, device)
        members.known.setdefault(rank, process)
        members.ranks[process] = rank if members.ranks.get(process, rank) == rank else None
    return members


def communicators(tally: LogCounters) -> tuple[Communicators, ...]:
    """Return the counts of communicators of each size, largest size first."""
    made: dict[int, list[int]] = {}  # size → created, complete, destroyed
    for (_, nranks), comm in tally.comms.items():
        counts = made.setdefault(nranks, [0, 0, 0])
        counts[0] += 1
        counts[1] += bool(comm.completed) and not comm.started & ~comm.completed
        counts[2] += bool(comm.destroyed)
    for nranks, (folded, destroyed) in tally.folded.items():
        counts = made.setdefault(nranks, [0, 0, 0])
        counts[0] += folded
        counts[1] += folded
        counts[2] += destroyed
    for kind, index in (("nameless", 1), ("nameless destroyed", 2)):
        most = _most(tally, kind)
        for nranks, count in most.items():
            counts = made.setdefault(nranks, [0, 0, 0])
            counts[index] += count
            counts[0] += count if index == 1 else 0
    by_one = _most(tally, "made")
    return tuple(
        Communicators(nranks, found, complete, destroyed, by_one.get(nranks, 0))
        for nranks, (found, complete, destroyed) in sorted(made.items(), reverse=True)
    )


def _most(tally: LogCounters, kind: str) -> dict[int, int]:
    """Return the largest count of any rank, by communicator size."""
    most: dict[int, int] = {}
    for key, seen in tally.seen.get(kind, {}).items():
        nranks = cast(int, key[0])
        most[nranks] = max(most.get(nranks, 0), seen.count)
    return most


def _waiting(tally: LogCounters) -> list[tuple[tuple[str, int], Comm]]:
    """Return communicators that a rank started but did not finish, largest first."""
    found = [(key, comm) for key, comm in tally.comms.items() if comm.started & ~comm.completed and not comm.destroyed]
    return sorted(found, key=lambda item: (-item[0][1], item[1].first.number))


def unfinished(tally: LogCounters) -> tuple[Unfinished, ...]:
    """Return communicators that a rank started but did not finish, largest first."""
    return tuple(
        Unfinished(name, nranks, (comm.started | comm.completed).bit_count(), comm.completed.bit_count(), comm.first)
        for (name, nranks), comm in _waiting(tally)[:_SHOWN]
    )


def missing(tally: LogCounters, members: Members, *, failed: bool) -> tuple[Missing, ...]:
    """Return the ranks for which their peers waited.

    Empty unless at least two ranks, and half of all ranks, are in the log; a log of fewer ranks shows only some of
    them. If the log is that of one of several hosts, the ranks before its first and after its last one are not covered.
    """
    for (_, nranks), comm in _waiting(tally):
        began = comm.started | comm.completed
        if began.bit_count() < max(2, nranks / 2):
            continue
        absent = _absent(tally, began, nranks)
        why = f"{began.bit_count()} of {nranks} ranks began to set up the communicator, but this one did not"
        if not absent and comm.completed:
            absent = _absent(tally, comm.completed, nranks)
            why = (
                f"{comm.completed.bit_count()} of {nranks} ranks finished setting up the communicator, but not this one"
            )
        if absent:
            return _named(absent, nranks, why, members)
    return _nameless(tally, members) if failed else ()


def _absent(tally: LogCounters, seen: int, nranks: int) -> list[int]:
    """Return the ranks that the log covers and that are not in the set ``seen``."""
    one_node = any(key[0] == nranks and key[1] == 1 for key in tally.seen.get("size", {}))
    if one_node or len(tally.seen.get("host", {})) > 1:
        first, last = 0, nranks - 1
    else:
        first, last = (seen & -seen).bit_length() - 1, seen.bit_length() - 1
    return [rank for rank in range(first, last + 1) if not seen >> rank & 1]


def _nameless(tally: LogCounters, members: Members) -> tuple[Missing, ...]:
    """Return the missing ranks in a log of an NCCL without "Init START".

    They are the ranks that set up no communicator, while each of their peers set up the same number.
    """
    rows = tally.seen.get("nameless", {})
    nranks = max((cast(int, key[0]) for key in rows), default=0)
    counts = {cast(int, key[1]): seen.count for key, seen in rows.items() if key[0] == nranks}
    if len(counts) < max(2, nranks / 2) or min(counts.values()) != max(counts.values()):
        return ()
    absent = _absent(tally, sum(1 << rank for rank in counts), nranks)
    why = f"{len(counts)} of {nranks} ranks set up the communicator, but this one did not"
    return _named(absent, nranks, why, members)


def _named(absent: list[int], nranks: int, why: str, members: Members) -> tuple[Missing, ...]:
    known = nranks == members.nranks
    return tuple(Missing(rank, members.host_of(rank) if known else None, why) for rank in absent[:_MISSING_SHOWN])
