"""The tests that there are, and the commands of their two sides."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.pair.endpoints import End, Wanted

#: Seconds of traffic at line rate that a bandwidth test asks for; a slower path takes longer.
TRAFFIC_S = 2.0

#: Messages of a bandwidth test at least, and those of one between software devices, which have no rate to go by.
LEAST_MESSAGES = 200


@dataclass(frozen=True)
class Kind:
    """A test of perftest or ibverbs: ``size`` is its usual message, in bytes; that of Soft-RoCE beside it."""

    name: str
    tool: str
    package: str
    size: int
    software_size: int
    messages: int | None = None  # None: as many as fill TRAFFIC_S


#: 8 MiB is the size at which operators state what a port must carry (AzNHC, OCI).
KINDS = {
    kind.name: kind
    for kind in (
        Kind("pingpong", "ibv_rc_pingpong", "ibverbs-utils", 4096, 4096, 200),
        Kind("write-bw", "ib_write_bw", "perftest", 8 << 20, 65536),
        Kind("read-bw", "ib_read_bw", "perftest", 8 << 20, 65536),
        Kind("write-lat", "ib_write_lat", "perftest", 8, 8, 1000),
    )
}

BANDWIDTH = ("write-bw", "read-bw")
PATH_MTU = "path-mtu"
NAMES = (PATH_MTU, *KINDS)
USUAL = (PATH_MTU, "write-bw")


def command(kind: Kind, end: End, other: End, wanted: Wanted, tcp_port: int, server: str = "") -> list[str]:
    """Return the command of one side; ``server`` is the address that a client calls, empty for the server itself."""
    size = wanted.size or (kind.software_size if end.software or other.software else kind.size)
    words = ["-d", end.device, "-i", str(end.port), "-p", str(tcp_port), "-s", str(size)]
    words += ["-n", str(_messages(kind, end, other, size))]
    if wanted.mtu:
        words += ["-m", str(wanted.mtu)]
    if end.gid_index is not None:
        words += ["-g" if kind.tool == "ibv_rc_pingpong" else "-x", str(end.gid_index)]
    if kind.tool != "ibv_rc_pingpong":
        words.append("-F")
    if kind.name in BANDWIDTH:
        words.append("--report_gbits")
    # what a test that hangs has said would be lost with its buffer
    return ["stdbuf", "-oL", kind.tool, *words, *([server] if server else [])]


def _messages(kind: Kind, end: End, other: End, size: int) -> int:
    if kind.messages is not None:
        return kind.messages
    rates = [one.rate_gbps for one in (end, other) if one.rate_gbps is not None and not one.software]
    if len(rates) < 2:
        return LEAST_MESSAGES
    return min(10_000_000, max(LEAST_MESSAGES, round(min(rates) * 1e9 / 8 * TRAFFIC_S / size)))
