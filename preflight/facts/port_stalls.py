"""Stalls of a port in a window: Ethernet pauses, missing InfiniBand credits.

Sources: counters.rst of mlx5 (``rx_prioN_pause_duration`` counts microseconds; the counters of a priority exist only
while PFC is on for it); IEEE 802.1Qbb (a pause lasts at most 65535 quanta of 512 bit times); InfiniBand PortXmitWait
(ticks of no fixed length).
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.facts.counter_growth import PortGrowth

#: Longest pause that one pause frame can request, in bit times.
_LONGEST_PAUSE = 65535 * 512

#: Factor by which a duration may exceed the window, because the counters are not read exactly at the recorded time.
_SKEW = 1.2

#: Counters that only a physical function has: if they exist without pause counters, pauses are off.
_PRIORITIES = "rx_prio[0-7]_(bytes|packets)"

PAUSES = "([rt]x)_(prio[0-7]|global)_pause"


@dataclass(frozen=True)
class Held:
    """The longest stall of a port in one direction, as a share of the window.

    ``share`` is None if it cannot be computed.
    """

    way: str  # rx: the switch paused this port; tx: this port paused the switch
    what: str  # the counter, with its growth
    counters: tuple[str, ...]
    share: float | None
    why: str = ""  # why the share is unknown
    bound: bool = False  # the share is an upper bound


def held(port: PortGrowth) -> tuple[Held, ...]:
    """Return the longest stall in each direction; empty for EFA, or if pauses are off."""
    if port.port.efa:
        return ()
    if not port.port.roce:
        return (_credits(port),)
    vague = [one for one in port.unclear if re.fullmatch(f"{PAUSES}(_duration)?", one.counter.name)]
    if vague:
        names = tuple(one.counter.name for one in vague)
        return (Held("rx", names[0], names, None, f"{names[0]} {vague[0].why}"),)
    pauses = port.matching(PAUSES)
    if not pauses:
        if port.matching(_PRIORITIES):
            return ()
        return (Held("rx", "pauses", (), None, "this function has no pause counters"),)
    return tuple(paused(port, way) for way in ("rx", "tx") if any(one.counter.name.startswith(way) for one in pauses))


def paused(port: PortGrowth, way: str, counters: str = PAUSES) -> Held:
    """Return the longest stall of the priorities whose counters match.

    Priorities are paused at the same time, so their stalls are not added. A stall that cannot be computed is returned
    instead of the longest.
    """
    longest = Held(way, f"{way} pauses +0", (), 0.0)
    for one in port.matching(counters):
        name = one.counter.name
        if not name.startswith(way):
            continue
        length = port.named(f"{name}_duration")
        names = (name, length.counter.name) if length else (name,)
        what = f"{name} +{one.grown}"
        if length is not None:
            share = length.grown / (length.seconds * 1e6)
            found = Held(way, f"{what}, {length.grown / 1e6:.3g} s", names, share)
            if share > _SKEW:
                found = Held(way, what, names, None, f"{length.counter.name} grew by more than the window is long")
        elif port.port.rate_gbps:
            most = one.grown * _LONGEST_PAUSE / (port.port.rate_gbps * 1e9) / one.seconds
            found = Held(way, what, names, min(most, 1.0), "", bound=bool(one.grown))
        else:
            why = "neither the rate of the port nor the duration of its pauses is known"
            found = Held(way, what, names, None if one.grown else 0.0, why)
        if found.share is None:
            return found
        if found.share >= (longest.share or 0.0):
            longest = found
    return longest


def _credits(port: PortGrowth) -> Held:
    name = "port_xmit_wait"
    if (waits := port.named(name)) is None:
        why = next((f"{name} {one.why}" for one in port.unclear if one.counter.name == name), f"there is no {name}")
        return Held("rx", name, (), None, why)
    if waits.grown:
        return Held("rx", f"{name} +{waits.grown} ticks", (name,), None, f"{name} counts ticks of no fixed length")
    return Held("rx", f"{name} +0", (name,), 0.0)
