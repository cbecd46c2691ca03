"""The available tests, and the commands of their two sides."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.pair.endpoints import End, Wanted

#: Seconds of traffic at line rate in a bandwidth test; a slower path takes longer.
TRAFFIC_S = 2.0

#: Minimum number of messages in a bandwidth test, and their number between software devices, which have no known rate.
LEAST_MESSAGES = 200


@dataclass(frozen=True)
class PairTest:
    """A test of perftest or ibverbs; ``size`` is its usual message size in bytes.

    Software devices such as Soft-RoCE use ``software_size``.
    """

    name: str
    tool: str
    package: str
    size: int
    software_size: int
    messages: int | None = None  # None: as many as fill TRAFFIC_S
    gpu: bool = False  # whether both sides use the memory of a GPU


#: 8 MiB is the size for which operators state a port's required rate (AzNHC, OCI).
KINDS = {
    test.name: test
    for test in (
        PairTest("pingpong", "ibv_rc_pingpong", "ibverbs-utils", 4096, 4096, 200),
        PairTest("write-bw", "ib_write_bw", "perftest", 8 << 20, 65536),
        PairTest("read-bw", "ib_read_bw", "perftest", 8 << 20, 65536),
        PairTest("write-bw-gpu", "ib_write_bw", "perftest", 8 << 20, 65536, gpu=True),
        PairTest("read-bw-gpu", "ib_read_bw", "perftest", 8 << 20, 65536, gpu=True),
        PairTest("write-lat", "ib_write_lat", "perftest", 8, 8, 1000),
    )
}

#: Option of perftest that selects the memory of the GPU with a PCI address, and the one for DMA-BUF.
GPU_OPTION, DMA_BUF_OPTION = "--use_cuda_bus_id", "--use_cuda_dmabuf"

BANDWIDTH = ("write-bw", "read-bw", "write-bw-gpu", "read-bw-gpu")
PATH_MTU = "path-mtu"
NAMES = (PATH_MTU, *KINDS)
USUAL = (PATH_MTU, "write-bw")


def command(test: PairTest, end: End, other: End, wanted: Wanted, tcp_port: int, server: str = "") -> list[str]:
    """Return the command of one side.

    ``server`` is the address that a client connects to; empty for the server itself.
    """
    size = wanted.size or (test.software_size if end.software or other.software else test.size)
    words = ["-d", end.device, "-i", str(end.port), "-p", str(tcp_port), "-s", str(size)]
    words += ["-n", str(_messages(test, end, other, size))]
    if wanted.mtu:
        words += ["-m", str(wanted.mtu)]
    if end.gid_index is not None:
        words += ["-g" if test.tool == "ibv_rc_pingpong" else "-x", str(end.gid_index)]
    if test.tool != "ibv_rc_pingpong":
        words.append("-F")
    if test.name in BANDWIDTH:
        words.append("--report_gbits")
    if test.gpu:
        words += [f"{GPU_OPTION}={end.gpu}", *([DMA_BUF_OPTION] if end.dma_buf else [])]
    # the output of a test that hangs would be lost with its buffer
    return ["stdbuf", "-oL", test.tool, *words, *([server] if server else [])]


def _messages(test: PairTest, end: End, other: End, size: int) -> int:
    if test.messages is not None:
        return test.messages
    rates = [
        endpoint.rate_gbps for endpoint in (end, other) if endpoint.rate_gbps is not None and not endpoint.software
    ]
    if len(rates) < 2:
        return LEAST_MESSAGES
    return min(10_000_000, max(LEAST_MESSAGES, round(min(rates) * 1e9 / 8 * TRAFFIC_S / size)))
