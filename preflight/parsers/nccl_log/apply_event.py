"""What an event adds to the tally."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from preflight.parsers.nccl_log.counters import Tally
from preflight.parsers.nccl_log.event import Event
from preflight.parsers.nccl_log.model import Line, is_tcp
from preflight.parsers.nccl_log.prefix import Origin

#: A communicator of more ranks than this is a slip of the pen, and would cost memory.
MOST_RANKS = 1 << 20

#: Kinds that are counted as they are; with the host where hosts may differ.
_PLAIN = frozenset({"network", "provider", "plugin", "ring", "trees", "counts", "nvls", "clique", "sharp", "driver",
                    "gdr disabled"})  # fmt: skip
_BY_HOST = frozenset({"env", "affinity", "nvls support", "connected"})


#: There is one of these facts for each of a hundred thousand ranks, and nobody quotes their lines.
_NOWHERE = Line(0, None, "", "")


def nowhere() -> Line:
    """Return an empty line, for facts that are never quoted."""
    return _NOWHERE


def add_version(tally: Tally, version: object, cuda: object, line: Callable[[], Line]) -> None:
    """Count a version of NCCL, and the CUDA that it was built for where the line names one."""
    tally.add("version", (version,), line)
    if cuda is not None:
        tally.add("built", (cuda,), line)


def apply(tally: Tally, said: Event, origin: Origin, line: Callable[[], Line]) -> None:
    """Count what one process said; the line is made only where it is kept."""
    if said.kind in _PLAIN:
        tally.add(said.kind, said.values, line)
        if said.kind == "network":
            tally.add("chosen", (origin.host, *said.values), nowhere)
    elif said.kind == "version":
        version, cuda = said.values
        add_version(tally, version, cuda, line)
    elif said.kind in _BY_HOST:
        tally.add(said.kind, (origin.host, *said.values), line)
    elif said.kind == "sockets":
        for name, address in cast("tuple[tuple[str, str], ...]", said.values):
            tally.add("socket", (name,), line)
            tally.add("bootstrap", (origin.host, name, address), line)
    elif said.kind == "ib":
        devices, interface = cast("tuple[tuple[tuple[object, ...], ...], str | None]", said.values)
        for device in devices:
            tally.add("ib", (origin.host, *device), line)
        if interface is not None:
            tally.add("oob", (interface,), line)
    elif said.kind == "bootstrap":
        for name, address in cast("tuple[tuple[str, str], ...]", said.values):
            tally.add("bootstrap", (origin.host, name, address), line)
    elif said.kind == "shape":
        nranks, nnodes, *channels = cast("tuple[int, int, int | None]", said.values)
        sized(tally, nranks)
        tally.add("size", (nranks, nnodes, None), line)
        if channels[0] is not None:
            tally.add("counts", tuple(channels), line)
    elif said.kind == "nranks":
        sized(tally, cast("tuple[int]", said.values)[0])
    elif said.kind == "via":
        tally.add("via", (origin.host, *said.values), line)
    elif said.kind == "registered":
        tally.add("registered", origin.process, nowhere)
    else:
        _ranks(tally, said, origin, line)
    _obstacle(tally, said, line)


def sized(tally: Tally, nranks: int) -> None:
    """Keep that there is a communicator of so many ranks, of which a line names no rank."""
    if 0 < nranks <= MOST_RANKS:
        tally.add("collective size", (nranks,), nowhere, 0)


def _ranks(tally: Tally, said: Event, origin: Origin, line: Callable[[], Line]) -> None:
    """Take in who takes part in a communicator."""
    if said.kind == "comm":
        phase, rank, nranks, name = cast("tuple[str, int, int, str | None]", said.values)
    else:
        rank, nranks = cast("tuple[int, int]", said.values[:2])
        phase, name = "", None
    if not 0 <= rank < nranks <= MOST_RANKS:
        return
    tally.add("rank", (nranks, rank, *origin.process), nowhere)
    if said.kind == "size":
        _, _, nodes, local, _ = cast("tuple[int, int, int, int | None, bool]", said.values)
        tally.add("size", (nranks, nodes, local), line)
    if not phase:
        return
    if phase == "Init COMPLETE":
        tally.add("made", (nranks, *origin.process), nowhere)
    if name is None:
        # without an id, communicators of one size are told apart by how many each rank has set up
        if phase == "Init COMPLETE":
            tally.add("nameless", (nranks, rank), nowhere)
        elif phase != "Init START":
            tally.add("nameless destroyed", (nranks, rank), nowhere)
        return
    key = (name, nranks)
    comm = tally.comms.get(key) or tally.comm(key, line())
    if phase == "Init START":
        comm.started |= 1 << rank
    elif phase == "Init COMPLETE":
        comm.completed |= 1 << rank
    else:
        comm.destroyed += 1


def _obstacle(tally: Tally, said: Event, line: Callable[[], Line]) -> None:
    """Keep what keeps a run from RDMA, as far as a variable or a plug-in does."""
    if said.kind == "env":
        name, value = cast("tuple[str, str]", said.values)
        off = name == "NCCL_IB_DISABLE" and value not in ("", "0")
        if off or (name == "NCCL_NET" and is_tcp(value)):
            tally.add("obstacle", (name,), line)
    elif said.kind == "plugin" and said.values[0] in ("failed", "unsupported"):
        name = str(said.values[1])
        if not is_tcp(name):
            tally.add("obstacle", (f"{said.values[0]} {name}",), line)
