"""Comparison of a measured bandwidth with a roofline.

The result is "as expected", "degraded" with the likely causes, or "impossible".
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight._startup.lightclass import dataclass, replace
from preflight.expectations.roofline.collectives import Roofline, roofline
from preflight.expectations.roofline.machine import RooflineMachine

#: Ratios of a measured to the usual figure: at or above the first, it is as expected; below the second, it fails; below
#: the third, another transport is likely. Public health checks require between 0.75 and 0.97.
AS_EXPECTED, FAILS, ANOTHER_WAY = 0.90, 0.75, 0.50

#: Ratio to the line rate that is tolerated, because of rounding and clock errors.
TOLERANCE = 1.02


#: Maximum ratio of the NICs' usual figure to the limiting one for NICs to be suspected.
NEAR = 1.3

#: Range of ratios to a ring's bandwidth that indicate a ring where NVLS is usual.
RING_FROM, RING_TO = 0.85, 1.10


@dataclass(frozen=True)
class RooflineVerdict:
    """The result of a comparison with a roofline."""

    word: str  # "as expected", "degraded" or "impossible"
    fails: bool
    ratio: float  # of the measured to the usual bandwidth
    causes: tuple[str, ...] = ()  # likeliest first


def judge(busbw: float, roof: Roofline, machine: RooflineMachine) -> RooflineVerdict:
    """Compare a bus bandwidth in GB/s with a roofline."""
    ratio = busbw / roof.customary
    if busbw > TOLERANCE * roof.limit:
        return RooflineVerdict(
            "impossible", False, ratio, ("check the labels: GPUs, NICs, number of ranks, collective",)
        )
    if ratio >= AS_EXPECTED:
        return RooflineVerdict("as expected", False, ratio)
    return RooflineVerdict("degraded", ratio < FAILS, ratio, tuple(_causes(busbw, ratio, roof, machine)))


def proof(busbw: float, roof: Roofline, machine: RooflineMachine) -> str:
    """Describe the feature that a bus bandwidth proves to be in use; may be empty."""
    if roof.collective != "all_reduce":
        return ""
    plain = roofline(roof.collective, replace(machine, nvls=False), roof.nodes)
    if plain is not None and TOLERANCE * plain.limit < min(busbw, roof.limit):
        return f"; more than {plain.limit:.0f} GB/s proves that the NVSwitches reduce (NVLS)"
    plain = roofline(roof.collective, replace(machine, sharp=False), roof.nodes)
    if plain is not None and TOLERANCE * plain.limit < min(busbw, roof.limit):
        return f"; more than {plain.limit:.0f} GB/s proves that switches reduce (SHARP)"
    return ""


def _causes(busbw: float, ratio: float, roof: Roofline, machine: RooflineMachine) -> Iterator[str]:
    """Yield possible causes of a low bus bandwidth, the likeliest first."""
    networked = roof.nics is not None and roof.nics.customary <= NEAR * roof.customary
    if roof.nics is not None and networked:
        yield from _of_the_network(busbw, roof.nics.customary, machine)
    if roof.ring is not None and RING_FROM <= busbw / roof.ring <= RING_TO:
        yield f"a ring instead of NVLS (it reaches about {roof.ring:.0f} GB/s)"
    if not networked:
        if ratio < ANOTHER_WAY and busbw <= 60:
            yield "PCIe or shared memory instead of NVLink (P2P is disabled, or NVLink is down)"
        yield "a GPU with fewer NVLinks or lower clocks, which delays all others"


def _of_the_network(busbw: float, customary: float, machine: RooflineMachine) -> Iterator[str]:
    nics, share = machine.nics or 0, busbw / customary
    if busbw <= 3:
        yield "TCP sockets (they reach 0.5 to 3 GB/s without tuning)"
    for working in range(nics - 1, 0, -1):
        if nics <= 16 and abs(share * nics - working) <= 0.25:
            yield f"{working} of {nics} NICs carry the traffic"
            break
    if share <= 0.55:
        yield "no GPUDirect RDMA (data staged in host memory reaches at most half)"
    if busbw > 3 and share <= 0.35:
        yield "TCP sockets instead of RDMA"
    yield "a rail at a lower rate, or congestion"
