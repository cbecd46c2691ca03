"""The Ethernet fabric as a graph of the same form as an InfiniBand subnet."""

from __future__ import annotations

from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.parsers.infiniband.ibnetdiscover import FabricDevice, FabricLink, Net


def network(net: Ethernet) -> Net:
    """Return the switches, the hosts' ports, and the cables between them."""
    devices = {switch.name: FabricDevice(switch.name, "switch", switch.name, len(switch.ports))
               for switch in net.switches}  # fmt: skip
    numbers = {
        CableEnd(switch.name, port, True): number
        for switch in net.switches
        for number, port in enumerate(switch.ports, 1)
    }
    links = []
    for cable in net.cables:
        if not cable.other.is_switch:
            devices[_guid(cable.other)] = FabricDevice(_guid(cable.other), "hca", str(cable.other), 1)
        port = net.port(cable.near)
        near, far = ((_guid(end), numbers.get(end, 1)) for end in cable.ends)
        links.append(FabricLink((near, far), "", port.speed_gbps if port else None))
    for switch in net.switches:
        for port in switch.ports.values():
            end = CableEnd(switch.name, port.name, True)
            if end not in net.far_ends and port.heard and net.is_like_hosts(port.heard.system_name):
                guid = f"{switch.name} {port.name}"  # a host without evidence
                devices[guid] = FabricDevice(guid, "hca", port.heard.system_name, 1)
                links.append(FabricLink(((switch.name, numbers[end]), (guid, 1)), "", port.speed_gbps))
    return Net(devices, tuple(links), None, {})


def rails(net: Ethernet) -> dict[str, dict[str, str]]:
    """Return the hosts' ports with a cable, by interface and host."""
    ports: dict[str, dict[str, str]] = {}
    for cable in net.cables:
        if not cable.other.is_switch:
            ports.setdefault(cable.other.port, {})[cable.other.device] = _guid(cable.other)
    return ports


def _guid(end: CableEnd) -> str:
    """Return the key of a device; no switch has a space in its name."""
    return end.device if end.is_switch else f"{end.device} {end.port}"
