"""Settings and lost links of one end of a cable, which is a switch's or a host's."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts import port_qos
from preflight.facts.counter_catalogue import CounterKind
from preflight.facts.counter_growth import PortGrowth
from preflight.facts.steps_in_window import seconds_since_1970
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import growth
from preflight.parsers.network.ethtool_module import parse_fec

#: Seconds that reading the counters of a switch takes at most, with its polling interval of a second.
_READING_S = 2.0


def pfc(net: Ethernet, end: CableEnd) -> tuple[frozenset[int] | None, str, str]:
    """Return the PFC priorities of an end, their record, and why they are unknown."""
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


def fec(net: Ethernet, end: CableEnd) -> str | None:
    """Return the FEC of an end: rs, fc or none; None if unknown."""
    if port := net.port(end):
        return port.fec
    host = net.host(end)
    try:
        text = host.node.parsed(f"cmd:ethtool --show-fec {host.netdev}", parse_fec) if host else ""
    except EvidenceError:
        return None
    return {"rs": "rs", "baser": "fc", "off": "none", "none": "none"}.get(text.lower())


def drained(net: Ethernet, end: CableEnd) -> bool:
    """Return whether all BGP sessions over a cable are shut down at one of its ends."""
    far = net.far_ends[end]
    return any(all(off) for off in (_sessions_off(net, end, far), _sessions_off(net, far, end)) if off)


def _sessions_off(net: Ethernet, here: CableEnd, there: CableEnd) -> list[bool]:
    switch = net.by_name.get(here.device)
    sessions = switch.bgp.values() if switch else ()
    return [session.off for session in sessions if without_domain(session.neighbour) == without_domain(there.device)]


def without_domain(name: str) -> str:
    """Return a device's name in lower case, without its domain."""
    return name.lower().partition(".")[0]


def lost(net: Ethernet, end: CableEnd) -> int | None:
    """Return how often an end lost its link in the window; None if not counted."""
    if end.is_switch:
        switch = net.by_name[end.device]
        if switch.second is None or switch.name in net.cleared:
            return None
        return growth(switch.first.link_changes.get(end.port), switch.second.link_changes.get(end.port))
    counted = grown(net, end)
    if counted is None or not any(own.counter.kind is CounterKind.FLAP for own in counted.growths):
        return None
    return max((own.grown for own in counted.grown(CounterKind.FLAP)), default=0)


@dataclass(frozen=True)
class Traffic:
    """Growth of one end's counters in its window; None if not counted."""

    seconds: float
    sent: int | None  # bytes
    received: int | None
    damaged: int | None  # frames received with an error
    dropped: int | None  # packets of a switch port, in both directions
    began: tuple[float, float] | None  # earliest and latest start of the window, seconds since 1970


def traffic(net: Ethernet, end: CableEnd) -> Traffic | None:
    """Return what an end counted; None if it was not read twice, or was reset."""
    if not end.is_switch:
        return _host_traffic(net, end)
    switch = net.by_name[end.device]
    second = switch.second
    if second is None or not switch.window_s or switch.name in net.cleared:
        return None
    before, after = switch.first.ports.get(end.port), second.ports.get(end.port)
    if before is None or after is None:
        return None
    sent, received, damaged, drops_in, drops_out = (
        growth(getattr(before, name), getattr(after, name))
        for name in ("out_octets", "in_octets", "in_errors", "in_discards", "out_discards")
    )
    dropped = None if drops_in is None and drops_out is None else (drops_in or 0) + (drops_out or 0)
    began = None if switch.began is None else (switch.began, switch.began + _READING_S)
    return Traffic(switch.window_s, sent, received, damaged, dropped, began)


def _host_traffic(net: Ethernet, end: CableEnd) -> Traffic | None:
    """Return what a host counted at its physical port.

    ``port_xmit_data`` of a RoCE port counts RDMA traffic alone, so it is a lower bound on what was sent.
    """
    counted, host = grown(net, end), net.host(end)
    if counted is None or host is None or not counted.seconds:
        return None
    sent, received = counted.named("tx_bytes_phy") or counted.named("port_xmit_data"), counted.named("rx_bytes_phy")
    damaged = [own.grown for own in counted.growths if own.counter.kind is CounterKind.LINK]
    evidence = host.node.evidence
    start = seconds_since_1970(evidence.collected_at)
    length = evidence.collector.get("seconds")
    began = None
    if start is not None and isinstance(length, (int, float)):
        began = (start, start + max(0.0, length - counted.seconds))
    return Traffic(counted.seconds, sent.grown if sent else None, received.grown if received else None,
                   max(damaged) if damaged else None, None, began)  # fmt: skip


def apart_s(near: Traffic, far: Traffic) -> float | None:
    """Return the maximum seconds that only one of two windows covers, or None."""
    if near.began is None or far.began is None:
        return None
    starts = [abs(a - b) for a in near.began for b in far.began]
    return 2 * max(starts) + abs(near.seconds - far.seconds) + _READING_S


def rdma_errors(net: Ethernet, end: CableEnd) -> dict[str, int]:
    """Return the counters of lost RDMA packets that grew at a host, by name."""
    counted = grown(net, end)
    lost = counted.frequent(CounterKind.LOSS) if counted else []
    return {own.counter.name: own.grown for own in lost if own.key.endswith("/hw_counters")}


def counts_losses(net: Ethernet, end: CableEnd) -> bool:
    """Return whether a host counted lost RDMA packets in a window."""
    counted = grown(net, end)
    return counted is not None and any(
        own.counter.kind is CounterKind.LOSS and own.key.endswith("/hw_counters") for own in counted.growths
    )


def grown(net: Ethernet, end: CableEnd) -> PortGrowth | None:
    """Return the growth of a host's counters; None if they were not read."""
    host = net.host(end)
    try:
        return host.node.port_growth.get(host.port.name) if host else None
    except EvidenceError:
        return None
