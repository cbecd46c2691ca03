"""A node's topology as data for a picture: GPUs, switches, NICs, NUMA, NVLink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from preflight.evidence.document import EvidenceError
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port, device_path, natural
from preflight.parsers.network import lldp
from preflight.parsers.network.lldp import LLDP, Neighbour


def picture(node: NodeFacts, compute: frozenset[str] = frozenset()) -> dict[str, Any] | None:
    """Return ``{numa: [...], nvlink: [...]}``; None without any GPU or NIC."""
    gpus, nics = _gpus(node), _nics(node, compute)
    if not gpus and not nics:
        return None
    numa: dict[int | None, dict[str, dict[str, Any]]] = {}
    for kind, devices in (("gpus", gpus), ("nics", nics)):
        for device in devices:
            switches = numa.setdefault(device.pop("numa"), {})
            name = device.pop("switch")
            switch = switches.setdefault(name, {"name": name, "gpus": [], "nics": []})
            switch[kind].append(device)
    return {
        "numa": [
            {"node": number, "switches": sorted(switches.values(), key=_first)}
            for number, switches in sorted(numa.items(), key=lambda item: (item[0] is None, item[0] or 0))
        ],
        "nvlink": _nvlink(node),
    }


def _first(switch: dict[str, Any]) -> Any:
    return natural((switch["gpus"] or switch["nics"])[0]["name"])


def _gpus(node: NodeFacts) -> list[dict[str, Any]]:
    try:
        bus = node.gpus_on_bus
    except EvidenceError:
        return []
    try:
        named = {gpu.address: gpu for gpu in node.driver.gpus}
    except EvidenceError:
        named = {}
    found = []
    for device in bus:
        gpu = named.get(device.address)
        found.append(
            {
                "name": f"GPU{gpu.index}" if gpu else device.address,
                "model": gpu.name if gpu else "",
                "address": device.address,
                "answers": gpu is not None,
                "numa": device.numa_node,
                "switch": _switch(device.parents, device.address),
            }
        )
    return sorted(found, key=lambda gpu: natural(str(gpu["name"])))


def _nics(node: NodeFacts, compute: frozenset[str]) -> list[dict[str, Any]]:
    try:
        ports = node.rdma_ports
        numa = {device.address: device for device in node.pci}
    except EvidenceError:
        return []
    heard = _neighbours(node)
    found = []
    for port in ports:
        try:
            path = device_path(node.evidence, port.device)
        except EvidenceError:
            path = ()
        device = numa.get(path[-1]) if path else None
        neighbour = heard.get(port.netdev or "")
        found.append(
            {
                "name": port.name if port.number != 1 else port.device,
                "address": path[-1] if path else "",
                "state": port.state,
                "label": _label(port),
                "compute": port.device in compute,
                **({"netdev": port.netdev} if port.netdev else {}),
                **({"leaf": neighbour.switch, "leaf_port": neighbour.port} if neighbour else {}),
                "numa": device.numa_node if device else None,
                "switch": _switch(path[:-1], path[-1]) if path else "",
            }
        )
    return found


def _neighbours(node: NodeFacts) -> Mapping[str, Neighbour]:
    """Return the LLDP neighbour of each interface; empty if LLDP was not read."""
    try:
        return node.parsed(LLDP, lldp.parse) if LLDP in node.evidence else {}
    except EvidenceError:
        return {}


def _label(port: Port) -> str:
    layer = "EFA" if port.efa else port.link_layer
    return f"{layer} {port.state.lower()}" if port.rate_gbps is None else f"{layer} {port.rate_gbps:g} Gb/s"


def _switch(parents: tuple[str, ...], own: str) -> str:
    """Return the PCIe switch above a device, named by its upstream or root port."""
    if len(parents) >= 3:
        return parents[-2]
    return parents[0] if parents else own


def _nvlink(node: NodeFacts) -> list[dict[str, Any]]:
    try:
        topology = node.topology
    except EvidenceError:
        return []
    pairs = [
        (a, b, topology.links[a][b])
        for a, b in combinations(topology.gpus, 2)
        if a in topology.links and b in topology.links
    ]
    codes = Counter(code for *_, code in pairs)
    return [{"code": code, "pairs": [[a, b] for a, b, c in pairs if c == code]} for code, _ in codes.most_common()]
