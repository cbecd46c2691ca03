"""Graph of pauses, and the origin of each chain of pauses.

A port that receives pauses of a lossless priority may not send, so its device waits for the device at the other end.
The chain is followed to a device that is not paused itself, which is the origin. For a switch that counts no pauses,
the counters at the other ends of its cables are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass
from preflight.facts import port_stalls
from preflight.facts.switch import cable_ends
from preflight.facts.switch.ethernet import CableEnd, Ethernet, EthernetCable
from preflight.facts.switch.model import PortCounters, SwitchFacts, SwitchPort, growth

#: Share of the window at which a port counts as paused; share of its rate at which an egress port counts as full;
#: for a storm, minimum share of the window paused, and maximum load. Only the last two have a source (SIGCOMM 2016,
#: 4.3).
PAUSED, FULL, STORM, IDLE = 0.001, 0.9, 0.5, 0.05

#: Longest time that one pause frame can request, in bit times: 65,535 quanta of 512 bits (IEEE 802.3 annex 31B).
_LONGEST_BITS = 65_535 * 512

RECEIVER, NIC_STORM, CYCLE, INCAST, UPLINK, THRESHOLDS, UNKNOWN = (
    "slow receiver", "storm", "cycle", "incast", "uplink", "thresholds", "unknown",
)  # fmt: skip


@dataclass(frozen=True)
class PauseRoot:
    """Where a chain of pauses begins.

    ``where`` is a device, a port, or the devices of a cycle; ``waiting`` are the devices that wait for it.
    """

    kind: str
    where: str
    waiting: tuple[str, ...]
    share: float  # largest share of the window for which a port was paused
    bound: bool = False  # the share is an upper bound: only frames are counted, not their time


@dataclass(frozen=True)
class PausedPort:
    """A port that was paused, and for which share of the window."""

    end: CableEnd
    share: float
    bound: bool


def roots(net: Ethernet, priority: int | None) -> list[PauseRoot]:
    """Return the origins of the pauses in a window, each once."""
    waits = _waits(net, priority)
    reach = {device: _reached(device, waits) for device in waits}
    waiting_for: dict[tuple[str, str], set[str]] = {}
    for device, reached in reach.items():
        if device in reached:
            ring = {other for other in reached if device in reach.get(other, ())}
            waiting_for.setdefault((CYCLE, ", ".join(sorted(ring))), set()).update(ring)
        for last in reached:
            if last not in waits:
                for kind, where in _ends_at(net, last, waits):
                    waiting_for.setdefault((kind, where), set()).add(device)
    made = []
    for (kind, where), waiting in sorted(waiting_for.items()):
        ports = [port for device in waiting for ports in waits.get(device, {}).values() for port in ports]
        worst = max(ports, key=lambda port: port.share)
        made.append(PauseRoot(kind, where, tuple(sorted(waiting)), worst.share, worst.bound))
    return made


#: Device -> the devices that it waits for, each with the ports that were paused.
_Waits = Mapping[str, Mapping[str, list[PausedPort]]]


def _waits(net: Ethernet, priority: int | None) -> _Waits:
    waits: dict[str, dict[str, list[PausedPort]]] = {}

    def add(waiting: str, stopped_by: str, port: PausedPort) -> None:
        waits.setdefault(waiting, {}).setdefault(stopped_by, []).append(port)

    for switch in net.switches:
        for end, received, sent in paused_ports(switch, net, priority):
            far = net.far_ends.get(end)
            if received:
                add(switch.name, far.device if far else _stranger(switch, end.port), received)
            if sent and far and not counts_pauses(net, far):
                add(far.device, switch.name, sent)
    for cable in net.cables:
        if not cable.other.is_switch and not counts_pauses(net, cable.near):
            for way, waiting, stopped_by in (("tx", cable.near, cable.other), ("rx", cable.other, cable.near)):
                if counted := _at_host(net, cable, way, priority):
                    add(waiting.device, stopped_by.device, counted)
    return waits


def counts_pauses(net: Ethernet, end: CableEnd) -> bool:
    """Return whether an end is a switch port that shows for how long it was paused."""
    port = net.port(end)
    counters = net.by_name[end.device].first.ports.get(end.port) if port else None
    return port is not None and port.pfc is not None and all(is_measured(port, counters, n) for n in port.pfc)


def is_measured(port: SwitchPort, counters: PortCounters | None, priority: int) -> bool:
    """Return whether the time of pauses, or an upper bound, is known."""
    if counters is None:
        return False
    return counters.paused_us[priority] is not None or bool(port.speed_gbps and counters.pfc_rx[priority] is not None)


def _at_host(net: Ethernet, cable: EthernetCable, way: str, priority: int | None) -> PausedPort | None:
    """Return the pauses that a host counted; ``tx`` are those that it sent."""
    counted = cable_ends.grown(net, cable.other)
    number = "[0-7]" if priority is None else priority
    held = port_stalls.paused(counted, way, f"{way}_prio{number}_pause") if counted else None
    if held is None or held.share is None or held.share < PAUSED:
        return None
    return PausedPort(cable.near, min(held.share, 1.0), held.bound)


def all_known(net: Ethernet, switch: SwitchFacts) -> bool:
    """Return whether all pauses that a switch received are counted.

    The switch counts them, or the other ends of its cables.
    """
    ports = [CableEnd(switch.name, port.name, True) for port in switch.ports.values() if port.up is not False]
    return all(counts_pauses(net, end) or _counted_beyond(net, net.far_ends.get(end)) for end in ports)


def _counted_beyond(net: Ethernet, far: CableEnd | None) -> bool:
    """Return whether a device counts the pauses that it sent."""
    if far is None:
        return False
    if not far.is_switch:
        counted = cable_ends.grown(net, far)
        return counted is not None and bool(counted.matching("tx_prio[0-7]_pause"))
    port, sent = net.port(far), net.by_name[far.device].first.ports.get(far.port)
    if port is None or port.pfc is None or sent is None or not port.speed_gbps:
        return False
    return all(sent.pfc_tx[n] is not None for n in port.pfc)


def _stranger(switch: SwitchFacts, port: str) -> str:
    """Return a name, after a question mark, for the device at a port without a cable."""
    heard = switch.ports[port].heard
    return f"?{heard.system_name}" if heard and heard.system_name else f"?the device at {switch.name} {port}"


def paused_ports(
    switch: SwitchFacts, net: Ethernet, priority: int | None
) -> Iterator[tuple[CableEnd, PausedPort | None, PausedPort | None]]:
    """Yield the ports with pauses in the window, with the pauses in each direction.

    The first is the pause of the port itself, the second the pause of its peer by this port; one may be None.
    """
    if switch.second is None or not switch.window_s:
        return
    for name, after in switch.second.ports.items():
        port, before = switch.ports.get(name), switch.first.ports.get(name)
        if port is None or before is None or port.pfc is None:
            continue
        end = CableEnd(switch.name, name, True)
        received = sent = None
        for number in net.priorities(port, priority):
            time_us = growth(before.paused_us[number], after.paused_us[number])
            frames = growth(before.pfc_rx[number], after.pfc_rx[number])
            share = time_us / 1e6 / switch.window_s if time_us is not None else _bound(frames, port.speed_gbps, switch)
            if share is not None and share >= PAUSED and (received is None or share > received.share):
                received = PausedPort(end, min(share, 1.0), time_us is None)
            out = _bound(growth(before.pfc_tx[number], after.pfc_tx[number]), port.speed_gbps, switch)
            if out is not None and out >= PAUSED and (sent is None or out > sent.share):
                sent = PausedPort(end, min(out, 1.0), True)
        if received or sent:
            yield end, received, sent


def _bound(frames: int | None, speed_gbps: float | None, switch: SwitchFacts) -> float | None:
    """Return the largest share of the window for which frames can stop a port.

    None if unknown.
    """
    if frames is None or not speed_gbps or not switch.window_s:
        return None
    return frames * _LONGEST_BITS / (speed_gbps * 1e9) / switch.window_s


def _reached(device: str, waits: _Waits) -> set[str]:
    """Return the devices that a device waits for, directly or through others."""
    reached: set[str] = set()
    left = list(waits.get(device, ()))
    while left:
        here = left.pop()
        if here not in reached:
            reached.add(here)
            left += waits.get(here, ())
    return reached


def _ends_at(net: Ethernet, device: str, waits: _Waits) -> Iterator[tuple[str, str]]:
    """Yield kind and place of the reason why an unpaused device pauses others."""
    if device.startswith("?"):
        yield UNKNOWN, device[1:]
        return
    switch = net.by_name.get(device)
    if switch is None:
        stopped = [port for others in waits.values() for port in others.get(device, ())]
        idle = any(port.share >= STORM and not port.bound and _is_idle(net, port.end) for port in stopped)
        yield (NIC_STORM if idle else RECEIVER), device
        return
    if not all_known(net, switch):
        yield UNKNOWN, device
        return
    loads = {name: load(switch, name) for name, port in switch.ports.items() if port.up is not False}
    full = {name: share for name, share in loads.items() if share is not None and share >= FULL}
    if not full:
        yield UNKNOWN if None in loads.values() else THRESHOLDS, device
        return
    port = max(full, key=lambda name: full[name])
    far = net.far_ends.get(CableEnd(device, port, True))
    yield (UPLINK if far is not None and far.is_switch else INCAST), f"{device} {port}"


def _is_idle(net: Ethernet, end: CableEnd) -> bool:
    share = load(net.by_name[end.device], end.port)
    return share is not None and share < IDLE


def load(switch: SwitchFacts, port: str) -> float | None:
    """Return the share of a port's rate that it sent in the window; None if unknown."""
    before, after = switch.first.ports.get(port), switch.second.ports.get(port) if switch.second else None
    speed = switch.ports[port].speed_gbps
    if before is None or after is None or not speed or not switch.window_s:
        return None
    octets = growth(before.out_octets, after.out_octets)
    return None if octets is None else octets * 8 / switch.window_s / (speed * 1e9)
