"""The NICs at both ends of a connection, joined by the connection's name.

NCCL names a connection by channel, ranks and GPUs ("Channel 00/0 : 8[0] -> 0[0]"), not by communicator. If two
communicators use one name for connections over different NICs, that name is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

#: Maximum number of stored ends. Beyond it, a sample is stored, chosen by the checksum of the name, so every part
#: of a log has the same sample.
MAX_ENDS = 32_768
#: The value of an end whose name occurs with different NICs.
MIXED = b""


def left_out(before: bytes, mask: int) -> bool:
    """Return whether the sample leaves out an end, by its channel and sender.

    Both ends of a connection start with the same channel and sender, so the sample has both or neither.
    """
    return mask != 0 and crc32(before[:16]) & mask != 0


def name_of(before: bytes) -> bytes:
    """Return the name of a connection, without its direction."""
    return before[: before.rfind(b" [")]


def add(ends: dict[bytes, bytes], mask: int, before: bytes, rest: bytes) -> int:
    """Store one end; return the sample's mask, which grows when the table is full."""
    if left_out(before, mask):
        return mask
    known = ends.get(before)
    if known is not None:
        if known != rest:
            ends[before] = MIXED
        return mask
    ends[before] = rest
    return thin(ends, mask)


def thin(ends: dict[bytes, bytes], mask: int) -> int:
    """Halve the sample until it fits; return its mask."""
    while len(ends) > MAX_ENDS:
        mask = mask << 1 | 1
        for before in [before for before in ends if left_out(before, mask)]:
            del ends[before]
    return mask


def merge(ends: dict[bytes, bytes], mask: int, other: dict[bytes, bytes], other_mask: int) -> int:
    """Add the ends of another part of the log; return the sample's mask."""
    both = mask | other_mask
    if both != mask:
        for before in [before for before in ends if left_out(before, both)]:
            del ends[before]
    for before, rest in other.items():
        both = add(ends, both, before, rest)
    return both


def pairs(ends: dict[bytes, bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield (name, sender's NIC, receiver's NIC) for connections with known ends."""
    for before, rest in ends.items():
        if rest is MIXED or rest == MIXED or not before.endswith(b"[send"):
            continue
        name = name_of(before)
        other = ends.get(name + b" [receive", MIXED)
        if other != MIXED:
            yield name, rest, other
