"""Values of one node for a cluster file; unread ones are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from preflight._startup.lightclass import dataclass
from preflight._startup.lightclass import field as declare
from preflight.checks.comparison.electorate import failing
from preflight.checks.gpu import part as gpu_part
from preflight.checks.gpu import presence
from preflight.checks.rdma import devices as rdma
from preflight.checks.rdma import ip_rails, verbs
from preflight.checks.rdma import ports as rdma_port
from preflight.checks.roce import fleet
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.expectations.catalogue import Part
from preflight.facts import congestion, inventory, port_qos, system_settings
from preflight.facts.network_mounts import MOUNTS
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port, natural

T = TypeVar("T")

#: Mount points that are valid in a TOML comment and key.
_PLACE = re.compile(r"/[\w./+@:-]{0,400}")

#: The probe that lists checkpoints (``preflight.probes.declared``): its directory is in the key.
_CHECKPOINTS = re.compile(r"cmd:find -H (/[\w./+@:-]{1,400}) -maxdepth 2 -printf '%T@ %y %P\\n'")


@dataclass(frozen=True)
class NodeValues:
    """One node in the terms of a cluster file; absent or unread values are None."""

    node: str
    part: Part | None
    gpus: int
    gpu_ids: str  # PCI ids of its GPUs, if no part is recognised
    devices: int  # RDMA devices that the kernel registered
    compute: tuple[str, ...] | None
    known_from: str  # how the compute ports were identified; empty if they were not
    link_layer: str | None = None
    rate_gbps: float | None = None
    mtu: int | None = None
    netdev_mtu: int | None = None
    point_to_point: bool | None = None
    pfc: tuple[int, ...] | None = None  # priorities with PFC, the same on every rail
    ecn: bool | None = None  # on for the priority with PFC, in both directions
    trust: str | None = None
    dcbx: str | None = None
    checkpoints: str | None = None
    interval_min: float | None = None
    where: str = ""
    memory_gib: float | None = None
    cpus: int | None = None
    smt: bool | None = None
    numa_nodes: int | None = None
    nvme: int | None = None
    swap: bool | None = None
    mounts: Mapping[str, tuple[str, bool]] = declare(default_factory=dict)  # mount point -> type, writable
    missed: Mapping[str, tuple[str, ...]] = declare(default_factory=dict)  # key -> failed checks of the node


def read_node(node: NodeFacts, site: Site) -> NodeValues:
    """Return the values of a node; ``site`` is that of an empty cluster file."""
    gpus = _try(lambda: node.gpus_on_bus) or ()
    devices = _try(lambda: node.rdma_devices) or ()
    roles = _try(lambda: site.roles(node)) if devices else None
    ports = [port for port in roles.compute if port.active] if roles else []
    roce = [port for port in ports if port.roce and port.netdev]
    directory, interval_min = _checkpoints(node)
    ids = sorted({f"{gpu.vendor}:{gpu.device}" for gpu in gpus})
    return NodeValues(
        node.node, site.part, len(gpus), " ".join(ids), len(devices),
        compute=tuple(sorted({port.device for port in ports}, key=natural)) or None,
        known_from=roles.known_from if roles else "",
        link_layer=_same(port.link_layer for port in ports),
        rate_gbps=_same(port.rate_gbps for port in ports),
        mtu=_same(port.active_mtu for port in ports),
        netdev_mtu=_try(lambda: _same(node.netdevs[port.netdev or ""].mtu for port in roce)),
        point_to_point=_try(lambda: _point_to_point(node, roce)),
        pfc=_try(lambda: _same(tuple(sorted(port_qos.pfc(node.evidence, port.netdev or "").value)) for port in roce)),
        ecn=_try(lambda: _ecn(node, roce)),
        trust=_try(lambda: _same(_trust(node, port) for port in roce)),
        dcbx=_try(lambda: _same(port_qos.dcbx(node.evidence, port.netdev or "").value for port in roce)),
        checkpoints=directory, interval_min=interval_min, where=str(node.evidence.collector.get("where", "")),
        missed=_missed(node, site),
        **(_host(node) if not node.in_container else {}),
    )  # fmt: skip


def _host(node: NodeFacts) -> dict[str, Any]:
    """Return the values of the server; must not be called in a container."""
    states = _try(lambda: [state for _, state in inventory.nvme_drives(node.evidence)])
    smt = _try(lambda: node.parsed(inventory.SMT, inventory.smt))
    swap = _try(lambda: node.parsed(inventory.SWAPS, inventory.swap))
    table = _try(lambda: node.parsed(MOUNTS, inventory.lasting)) or {}
    return {
        "memory_gib": _try(lambda: node.parsed(system_settings.MEMINFO, system_settings.memory_gib)),
        "cpus": _try(lambda: int(node.parsed(inventory.ONLINE, inventory.cpus))),
        "smt": None if smt is None else smt == "on",
        "numa_nodes": node.cpu_nodes or None,
        "nvme": states.count("live") or None if states else None,
        "swap": None if swap is None else swap == "on",
        "mounts": {place: (mount.kind, not mount.read_only) for place, mount in table.items()
                   if inventory.is_network(mount) and _PLACE.fullmatch(place)},
    }  # fmt: skip


def _missed(node: NodeFacts, site: Site) -> dict[str, tuple[str, ...]]:
    """Return the failed checks by key; the node does not vote on these keys."""
    chain = {"netdev_mtu": ("MTU", "active MTU"), "pfc": ("PFC",), "ecn": ("ECN",), "trust": ("trust",),
             "dcbx": ("DCBX",)}  # fmt: skip
    by = {
        "gpus": (presence.count, gpu_part.same_model), "hcas": (rdma.device_count, rdma.registered),
        "compute": (rdma.device_count, rdma.registered), "link_layer": (rdma_port.link_layer,),
        "rate_gbps": (rdma_port.port_rate,), "mtu": (verbs.active_mtu,), "point_to_point": (ip_rails.subnets,),
    }  # fmt: skip
    found = {key: failing(checks, node, site) for key, checks in by.items()}
    for key, links in chain.items():
        found[key] = _try(lambda links=links: fleet.breaks(*links)(node, site)) or ()  # type: ignore[misc]
    return {key: checks for key, checks in found.items() if checks}


def _trust(node: NodeFacts, port: Port) -> str:
    return port_qos.trust(node.evidence, port.netdev or "", empty_is_pcp=False).value


def _try(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (EvidenceError, KeyError):
        return None


def _same(values: Iterable[T | None]) -> T | None:
    """Return the common value of all ports; None if they differ or one has none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _point_to_point(node: NodeFacts, ports: Sequence[Port]) -> bool | None:
    found = [one for port in ports for one in node.addresses.ipv4(port.netdev or "")]
    return all(one.network.prefixlen >= 30 for one in found) if found else None


def _ecn(node: NodeFacts, ports: Sequence[Port]) -> bool | None:
    """Return whether the only PFC priority of each port has ECN in both directions.

    None if a port has no such priority or has several, or if the ports differ.
    """
    found = set()
    for port in ports:
        enabled = port_qos.pfc(node.evidence, port.netdev or "").value
        if len(enabled) != 1:
            return None
        (priority,) = enabled
        one = congestion.ecn(node.evidence, port.netdev or "", priority)
        found.add(one.notification_point and one.reaction_point)
    return found.pop() if len(found) == 1 else None


def _checkpoints(node: NodeFacts) -> tuple[str | None, float | None]:
    """Return the directory of checkpoints, and the median minutes between checkpoints.

    Each is None if unknown.
    """
    for key in node.evidence.records:
        if not (match := _CHECKPOINTS.fullmatch(key)):
            continue
        try:
            text = node.evidence.text(key)
        except EvidenceError:
            continue
        times = sorted(
            float(time) for time in re.findall(r"^([0-9]{1,12}(?:\.[0-9]{1,12})?) [a-z] [^/\n]+$", text, re.M)
        )
        gaps = [(later - sooner) / 60 for sooner, later in pairwise(times)]
        usual = round(median(gaps)) if gaps else 0
        return match[1], float(usual) if usual >= 1 else None
    return None, None
