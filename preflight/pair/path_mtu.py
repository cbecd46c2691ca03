"""Search for the path MTU: several sizes at a time, from the MTU downwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.parsers.network import ping
from preflight.parsers.network.ping import Ping

#: Bytes that every link must carry: IPv6's minimum MTU; IPv4 hosts must accept 576 (RFC 8200, RFC 1122).
FLOOR = {4: 576, 6: 1280}

#: Common MTUs of devices on the path: Ethernet, RDMA 4096 with headers, jumbo.
LIKELY = (1500, 4200, 9000)

#: Number of sizes tried in parallel.
AT_ONCE = 8

#: Packets of each size, so that one random loss has no effect.
PACKETS = 3


@dataclass(frozen=True)
class Bracket:
    """Bounds so far: largest passing and smallest failing packet, in bytes of IP.

    None means unknown.
    """

    passes: int | None
    fails: int | None

    @property
    def closed(self) -> bool:
        """Whether no size is left between the bounds."""
        return self.passes is not None and self.fails is not None and self.fails - self.passes <= 1


def command(version: int, source: str, target: str, mtu: int) -> list[str]:
    """Return the ping command for unfragmented packets of ``mtu`` bytes."""
    words = ["ping", "-n", f"-{version}", "-M", "do", "-I", source, "-c", str(PACKETS), "-i", "0.2", "-W", "1"]
    return [*words, "-s", str(mtu - ping.HEADERS[version]), target]


def first(mtu: int, version: int) -> list[int]:
    """Return the first sizes to try: interface MTU, likely MTUs, required minimum."""
    floor = FLOOR[version]
    return sorted({mtu, *(size for size in LIKELY if floor < size < mtu), min(floor, mtu)}, reverse=True)


def bracket(pings: Mapping[int, Ping]) -> Bracket:
    """Return the bounds that follow from the results."""
    passing = [size for size, result in pings.items() if result.passes]
    best = max(passing, default=None)
    failing = [size for size, result in pings.items() if not result.passes and (best is None or size > best)]
    return Bracket(best, min(failing, default=None))


def following(limits: Bracket) -> Sequence[int]:
    """Return the sizes to try next; empty if the limit is known.

    They include the size just above the largest passing one, because limits are usually common sizes.
    """
    if limits.passes is None or limits.fails is None or limits.closed:
        return ()
    gap = limits.fails - limits.passes
    between = {limits.passes + gap * number // AT_ONCE for number in range(1, AT_ONCE)}
    return sorted((between | {limits.passes + 1}) - {limits.passes, limits.fails})
