"""Headroom of a lossless port: the bytes that still arrive after it sends a pause.

Sources: IEEE 802.1Q annex O and 802.3 31B.3.7 (response time of the peer), SONiC's headroom design and
``cfgmgr/buffer_headroom_mellanox.lua``.
"""

from __future__ import annotations

import math

from preflight._startup.lightclass import dataclass

#: Signal speed in metres per second, in fibre and in copper.
LIGHT = 1.98e8

#: Time in pause quanta of 512 bits until a peer stops, by speed in Gb/s.
QUANTA = {10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905, 800: 905}

#: Bytes of the largest frame that a switch of a training fabric forwards, and of a lossless frame in SONiC's headroom
#: design (``mtu`` of LOSSLESS_TRAFFIC_PATTERN).
FRAME, ROCE_FRAME = 9216, 1024


@dataclass(frozen=True)
class Headroom:
    """Bytes that a lossless buffer must hold beyond its pause threshold."""

    in_flight: int  # on the cable, in both directions
    minimum: int  # the same, and the frame that the peer is sending
    worst: int  # also the peer's response time and the frame in transmission here


def needed(speed_gbps: float, cable_m: float, frame: int = FRAME) -> Headroom | None:
    """Return the headroom of a port.

    None for a speed without a standard response time.
    """
    quanta = QUANTA.get(round(speed_gbps))
    if quanta is None:
        return None
    flight = 2 * cable_m * speed_gbps * 1e9 / LIGHT / 8
    return Headroom(
        math.ceil(flight), math.ceil(flight + frame), math.ceil(flight + frame + ROCE_FRAME + quanta * 64)
    )  # fmt: skip
