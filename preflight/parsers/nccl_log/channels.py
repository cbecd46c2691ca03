"""Parsers of channel messages: connections, transports, rings, trees, counts."""

from __future__ import annotations

import re
from typing import NamedTuple

from preflight.parsers.nccl_log.event import LogEvent
from preflight.textprep.line_suffix import trimmed

_NET = re.compile(
    r"(?P<kind>NET|COLLNET)/(?P<name>.{1,63}?)/(?P<device>\d{1,6})(?:\((?P<proxy>\d+)\))?(?P<rest>(?:[/ .…].*)?)"
)
_GPUDIRECT = "/GDRDMA"
_WAY_SIZE = re.compile(r" comm 0x[0-9a-f]{1,16} nRanks (\d{1,7})\b")
_CUT = re.compile(r"/?(?:\.{2,}|…)?")
#: Transports between the GPUs of a node: P2P/IPC, P2P/CUMEM/read, P2P/direct pointer, P2P/indirect/3[1b000].
_P2P = re.compile(r"P2P/(?:direct pointer|\w{1,28})")
_CONNECTION = re.compile(
    r"(?:Ring|Channel|Coll|CollNet) \d+(?:/\d+)?"
    r"(?:\s*:\s*\d+(?:\[[0-9a-fA-F]+\]?)?(?:\s*->\s*\d+(?:\[[0-9a-fA-F]+\]?)?)?)?(?: \[(?:send|receive|recv)\]?)?"
)
#: A connection as printed up to 2.3, or on a web page that removed the brackets.
_PLAIN_CONNECTION = re.compile(
    r"(?:Ring|Channel|CollNet|Coll) \d+(?:/\d+)?(?: ?:)? (?:\d+(?: -> \d+)? )?"
    r"(?:\(?(?:send|receive|recv)\)? )?via (\S.*)"
)
_RING = re.compile(r"Channel (\d{1,3})(?:/(\d{1,3}))? ?:\s+(\d+(?:\s+\d+)*)\s*")
_TREE = re.compile(r"\[(\d{1,3})\] ")
_TREE_SIZE = re.compile(r" comm 0x[0-9a-f]+ nRanks (\d{1,7}) busId")  # RCCL
_COUNTS = re.compile(
    r"(\d{1,3}) coll channels, (?:(\d{1,3}) collnet channels, )?(?:(\d{1,3}) nvls channels, )?(\d{1,3}) p2p channels"
)
#: The counts that RCCL prints since 2.27, with the size of the communicator.
_SHAPE = re.compile(
    r"comm:\S{1,20}, nRanks:(\d{1,7}), nNodes:(\d{1,7})(?:, coll channels:(\d{1,3}) collnet channels:(\d{1,3}),"
    r" nvls channels:(\d{1,3}), p2p channels:(\d{1,3}))?"
)
_RING_USE = re.compile(r"Connected all rings(?:, use ring PXN (\d) GDR (\d))?")


class Via(NamedTuple):
    """The transport of a channel."""

    transport: str  # "NET", "COLLNET", "P2P/CUMEM", "SHM", …
    network: str  # of NET and COLLNET: IB, Socket, AWS Libfabric, …; otherwise empty
    device: int | None  # index of the NIC in its network's list
    proxied: bool  # through the NIC of another rank's process
    gpudirect: bool | None  # None: the line is truncated before that word


def via(text: str) -> Via | None:
    """Parse the text after "via" in a channel line; None if truncated or unknown."""
    text = trimmed(text).partition('"')[0]
    if match := _NET.fullmatch(text):
        direct = _direct(match["rest"])
        return Via(match["kind"], match["name"], int(match["device"]), match["proxy"] is not None, direct)
    if text in ("NET/Socket", "NET/FastSocket"):
        return Via("NET", text[4:], None, False, False)
    if text.startswith(("SHM", "direct shared memory")):
        return Via("SHM", "", None, False, False)
    if match := _P2P.match(text):
        return Via(match[0], "", None, False, False)
    return None


def _direct(rest: str) -> bool | None:
    """Return whether the text after the NIC shows GPUDirect RDMA.

    The word may be truncated, since no other word starts the same way. None if the text ends before it.
    """
    if rest.startswith(_GPUDIRECT) or (len(rest) > 1 and _GPUDIRECT.startswith(rest)):
        return True
    return None if rest and _CUT.fullmatch(rest) else False


def ranks_of(way: str) -> int | None:
    """Return the communicator size that RCCL prints after a transport, or None."""
    match = _WAY_SIZE.search(way)
    return int(match[1]) if match else None


def connects(text: str) -> bool:
    """Return whether the text before "via" names a channel and its ends."""
    return _CONNECTION.match(text) is not None


def plain_connection(message: str) -> LogEvent | None:
    """Parse a connection without a bracketed direction before "via"."""
    way = via(match[1]) if (match := _PLAIN_CONNECTION.fullmatch(message)) else None
    return LogEvent("via", tuple(way)) if way else None


def ring(message: str) -> LogEvent | None:
    """Parse a ring: the ranks in the order of one channel."""
    match = _RING.fullmatch(message)
    return LogEvent("ring", (int(match[1]), int(match[2] or 0), " ".join(match[3].split()))) if match else None


def tree(message: str) -> LogEvent | None:
    """Parse the number of trees, and the communicator size if printed."""
    if "[0] " not in message:
        return None
    size = _TREE_SIZE.search(message)
    return LogEvent("trees", (max(map(int, _TREE.findall(message))) + 1, int(size[1]) if size else None))


def counts(message: str) -> LogEvent | None:
    """Parse the number of channels of each kind."""
    match = _COUNTS.search(message)
    return LogEvent("counts", tuple(None if part is None else int(part) for part in match.groups())) if match else None


def shape(message: str) -> LogEvent | None:
    """Parse RCCL's message with the communicator size and the number of channels."""
    match = _SHAPE.match(message)
    return LogEvent("shape", tuple(None if part is None else int(part) for part in match.groups())) if match else None


def connected(message: str) -> LogEvent | None:
    """Parse "Connected all rings", with PXN and GPUDirect RDMA if printed."""
    match = _RING_USE.match(message)
    return LogEvent("connected", (match[1] == "1", match[2] == "1") if match[1] else ()) if match else None
