"""Settings and lost links of one end of a cable, which is a switch's or a host's."""

from __future__ import annotations

from preflight.evidence.document import EvidenceError
from preflight.facts import port_qos
from preflight.facts.counter_catalogue import CounterKind
from preflight.facts.counter_growth import PortGrowth
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import growth, went_back


def pfc(net: Ethernet, end: CableEnd) -> tuple[frozenset[int] | None, str, str]:
    """Return the PFC priorities of an end, their record, and the reason for none."""
    if port := net.port(end):
        switch = net.by_name[end.device]
        return port.pfc, switch.key("pfc"), switch.gaps.get("pfc", "")
    host = net.host(end)
    assert host
    try:
        reading = port_qos.pfc(host.node.evidence, host.netdev)
    except EvidenceError as error:
        return None, f"{end.device} {error.key}", error.why
    return reading.value, f"{end.device} {reading.evidence}", ""


def mtu(net: Ethernet, end: CableEnd) -> int | None:
    """Return the MTU of an end, without Ethernet header; None if unknown."""
    if port := net.port(end):
        return port.mtu
    host = net.host(end)
    assert host
    try:
        netdev = host.node.netdevs.get(host.netdev)
    except EvidenceError:
        return None
    return netdev.mtu if netdev else None


def speed(net: Ethernet, end: CableEnd) -> float | None:
    """Return the speed of an end in Gb/s; None if unknown."""
    if port := net.port(end):
        return port.speed_gbps
    host = net.host(end)
    return host.port.rate_gbps if host else None


def lost(net: Ethernet, end: CableEnd) -> int | None:
    """Return how often an end lost its link in the window; None if not counted."""
    if end.is_switch:
        switch = net.by_name[end.device]
        if switch.second is None or went_back(switch.first, switch.second):
            return None
        return growth(switch.first.link_changes.get(end.port), switch.second.link_changes.get(end.port))
    counted = grown(net, end)
    if counted is None or not any(own.counter.kind is CounterKind.FLAP for own in counted.growths):
        return None
    return max((own.grown for own in counted.grown(CounterKind.FLAP)), default=0)


def grown(net: Ethernet, end: CableEnd) -> PortGrowth | None:
    """Return the growth of a host's counters; None if they were not read."""
    host = net.host(end)
    try:
        return host.node.port_growth.get(host.port.name) if host else None
    except EvidenceError:
        return None
