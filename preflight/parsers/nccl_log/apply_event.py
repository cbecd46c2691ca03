"""Counts of parsed NCCL messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from preflight.parsers.nccl_log.counters import LogCounters
from preflight.parsers.nccl_log.event import LogEvent
from preflight.parsers.nccl_log.model import LogLine, is_tcp
from preflight.parsers.nccl_log.prefix import Origin

#: Maximum number of ranks in a communicator; a larger number is an error in the text, and would take much memory.
MOST_RANKS = 1 << 20

#: Kinds of messages about a communicator's ranks; they contain an address, so each occurs only once.
OF_COMMUNICATORS = frozenset({"comm", "size", "rank"})
#: Kinds that are counted by their values, and kinds that are counted by host and values.
_PLAIN = frozenset({"network", "provider", "plugin", "ring", "trees", "counts", "nvls", "clique", "sharp", "driver",
                    "gdr disabled"})  # fmt: skip
_BY_HOST = frozenset({"env", "affinity", "nvls support", "connected"})


#: The line of all facts that are never quoted; shared, since each of a hundred thousand ranks has such facts.
_NOWHERE = LogLine(0, None, "", "")


def nowhere() -> LogLine:
    """Return an empty line, for facts that are never quoted."""
    return _NOWHERE


def add_version(tally: LogCounters, version: object, cuda: object, line: Callable[[], LogLine], count: int = 1) -> None:
    """Count an NCCL version, and the CUDA version of its build if it is known."""
    tally.add("version", (version,), line, count)
    if cuda is not None:
        tally.add("built", (cuda,), line, count)


def apply(
    tally: LogCounters, event: LogEvent, origin: Origin, number: int, line: Callable[[], LogLine], count: int = 1
) -> None:  # fmt: skip
    """Count an event of one process, which occurred ``count`` times.

    ``number`` is that of its line; ``line`` is called only if the line is stored.
    """
    if event.kind in OF_COMMUNICATORS:
        _ranks(tally, event, origin, number, line, count)
    elif event.kind in _PLAIN:
        tally.add(event.kind, event.values, line, count)
        if event.kind == "network":
            tally.add("chosen", (origin.host, *event.values), nowhere, count)
    elif event.kind == "version":
        version, cuda = event.values
        add_version(tally, version, cuda, line, count)
    elif event.kind in _BY_HOST:
        tally.add(event.kind, (origin.host, *event.values), line, count)
    elif event.kind == "sockets":
        for name, address in cast("tuple[tuple[str, str], ...]", event.values):
            tally.add("socket", (name,), line, count)
            tally.add("bootstrap", (origin.host, name, address), line, count)
    elif event.kind == "ib":
        devices, interface = cast("tuple[tuple[tuple[object, ...], ...], str | None]", event.values)
        for device in devices:
            tally.add("ib", (origin.host, *device), line, count)
        if interface is not None:  # it is printed after the list, so the list is complete
            tally.add("oob", (interface,), line, count)
            tally.add("ib list", (origin.host, tuple(f"{device[1]}:{device[2]}" for device in devices)), line, count)
    elif event.kind == "bootstrap":
        for name, address in cast("tuple[tuple[str, str], ...]", event.values):
            tally.add("bootstrap", (origin.host, name, address), line, count)
    elif event.kind == "shape":
        nranks, nnodes, *channels = cast("tuple[int, int, int | None]", event.values)
        sized(tally, nranks)
        tally.add("size", (nranks, nnodes, None), line, count)
        if channels[0] is not None:
            tally.add("counts", tuple(channels), line, count)
    elif event.kind == "nranks":
        sized(tally, cast("tuple[int]", event.values)[0])
    elif event.kind == "via":
        tally.add("via", (origin.host, *event.values), line, count)
    elif event.kind == "registered":
        tally.add("registered", origin.process, nowhere, count)
    if event.kind in ("env", "plugin"):
        _obstacle(tally, event, line, count)


def sized(tally: LogCounters, nranks: int) -> None:
    """Record the size of a communicator, from a line that does not name a rank."""
    if 0 < nranks <= MOST_RANKS:
        tally.add("collective size", (nranks,), nowhere, 0)


def _ranks(
    tally: LogCounters, event: LogEvent, origin: Origin, number: int, line: Callable[[], LogLine], count: int
) -> None:  # fmt: skip
    """Record a communicator's rank, and the phase that it has reached."""
    if event.kind == "comm":
        phase, rank, nranks, name = cast("tuple[str, int, int, str | None]", event.values)
    else:
        rank, nranks = cast("tuple[int, int]", event.values[:2])
        phase, name = "", None
    if not 0 <= rank < nranks <= MOST_RANKS:
        return
    tally.add("rank", (nranks, rank, *origin.process), nowhere, count)
    if event.kind == "size":
        _, _, nodes, local, _ = cast("tuple[int, int, int, int | None, bool]", event.values)
        tally.add("size", (nranks, nodes, local), line, count)
    if not phase:
        return
    if phase == "Init COMPLETE":
        tally.add("made", (nranks, *origin.process), nowhere, count)
        tally.set_up(origin.process, (number,))
    if name is None:
        # without an id, communicators of one size are distinguished by the number of communicators that each rank has
        # set up
        if phase == "Init COMPLETE":
            tally.add("nameless", (nranks, rank), nowhere, count)
        elif phase != "Init START":
            tally.add("nameless destroyed", (nranks, rank), nowhere, count)
        return
    key = (name, nranks)
    comm = tally.comms.get(key) or tally.comm(key, line())
    if phase == "Init START":
        comm.started |= 1 << rank
    elif phase == "Init COMPLETE":
        comm.completed |= 1 << rank
    else:
        comm.destroyed += count


def _obstacle(tally: LogCounters, event: LogEvent, line: Callable[[], LogLine], count: int) -> None:
    """Record a reason for not using RDMA: a variable, or a plug-in that failed."""
    if event.kind == "env":
        name, value = cast("tuple[str, str]", event.values)
        off = name == "NCCL_IB_DISABLE" and value not in ("", "0")
        if off or (name == "NCCL_NET" and is_tcp(value)):
            tally.add("obstacle", (name,), line, count)
    elif event.kind == "plugin" and event.values[0] in ("failed", "unsupported"):
        name = str(event.values[1])
        if not is_tcp(name):
            tally.add("obstacle", (f"{event.values[0]} {name}",), line, count)
