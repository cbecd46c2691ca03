"""Node evidence of the later layers: locked memory, GIDs, routes, PCIe paths."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from preflight import facts
from preflight.evidence.document import EvidenceError
from preflight.facts.addresses import ROUTES
from preflight.facts.kernel import (
    DMA_BUF,
    MODULES,
    NVIDIA_VERSION,
    PEER_MODULES,
    RELEASE,
    TRANSLATED,
    iommu_types,
    release,
)
from preflight.facts.nccl_environment import strtoll
from preflight.facts.nccl_root_cause.connection_evidence import DEVICE, HCA, remote_gid
from preflight.facts.nccl_root_cause.device_evidence import names, selected_ports, value
from preflight.facts.nccl_root_cause.model import SILENT, NodeEvidence
from preflight.parsers.nvidia.driver_version import open_modules

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.facts.node import NodeFacts
    from preflight.parsers.nccl_log import LogLine

_INDEX = re.compile(r"\blocal GID index (\d{1,3})(?!\d)")


def memlock(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Read the limit of locked memory; CAP_IPC_LOCK lifts it."""
    limit, key = node.memlock_bytes, facts.host.LIMITS
    try:
        lifted = node.parsed(facts.host.STATUS, facts.host.may_lock_memory)
    except EvidenceError:
        lifted = False
    if math.isinf(limit) or lifted:
        return NodeEvidence(
            False, "locked memory is unlimited" if not lifted else "CAP_IPC_LOCK lifts the limit", (key,)
        )
    return NodeEvidence(True, f"locked memory is limited to {facts.host.size_text(limit)}", (key,))


# --- addresses --------------------------------------------------------------------------------------


def gid(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look up the row of the GID table that the connection used.

    The cause is confirmed if the row is empty, or is not a RoCE v2 entry with an IP address.
    """
    message = line.message if line else ""
    device, index = DEVICE.search(message), _INDEX.search(message)
    row = int(index[1]) if index else strtoll(value(node, host, "NCCL_IB_GID_INDEX") or "-1")
    if row is None or row not in facts.gids.COLLECTED_INDEXES:
        return SILENT
    ports = [p for p in node.rdma_ports if p.roce and p.active]
    if device:
        ports = [p for p in node.rdma_ports if p.device == device[1] and p.number == int(device[2]) and p.roce]
    bad, keys = [], list[str]()
    for port in ports:
        found = facts.gids.gid(node.evidence, port.device, port.number, row)
        keys += facts.gids.keys(port.device, port.number, row)
        if found.empty:
            bad.append(f"row {row} of {port.name} is empty")
        elif found.type != "RoCE v2" or found.address.is_link_local:
            bad.append(f"row {row} of {port.name} is {found.shown}")
    if bad:
        return NodeEvidence(True, "in the GID table, " + names(bad), tuple(keys[:4]))
    if not ports:
        return SILENT
    own = names([port.name for port in ports])
    return NodeEvidence(False, f"row {row} of the GID table has a RoCE v2 address on {own}", tuple(keys[:4]))


def no_route(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for a route from the port's interface to the peer's address.

    The interface's subnets are searched first, and then the main routing table.
    """
    message = line.message if line else ""
    device, peer = DEVICE.search(message) or HCA.search(message), remote_gid(message)
    remote = peer.ipv4_mapped if peer else None
    if not device or remote is None:
        return SILENT
    interface = next((port.netdev for port in node.rdma_ports if port.device == device[1] and port.roce), None)
    if interface is None:
        return SILENT
    keys = (node.addresses.evidence, ROUTES)
    if any(remote in own.network for own in node.addresses.ipv4(interface)):
        return NodeEvidence(False, f"{remote} is in a subnet of {interface}", keys)
    if any(remote in to for over, to in node.parsed(ROUTES, facts.addresses.routes) if over == interface):
        return NodeEvidence(False, f"there is a route from {interface} to {remote}", keys)
    own = ", ".join(str(address) for address in node.addresses.ipv4(interface)) or "no address"
    return NodeEvidence(True, f"the main routing table has no route from {interface} ({own}) to {remote}", keys)


# --- between GPU and NIC ----------------------------------------------------------------------------


def no_peer_memory(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for a peer-memory module, or for the requirements of DMA-BUF."""
    if loaded := [name for name in PEER_MODULES if name in node.modules]:
        return NodeEvidence(False, f"{loaded[0]} is loaded", (MODULES,))
    is_open, (major, minor) = node.parsed(NVIDIA_VERSION, open_modules), node.parsed(RELEASE, release)
    keys = (MODULES, NVIDIA_VERSION, RELEASE)
    if not is_open:
        return NodeEvidence(True, "nvidia_peermem is not loaded, and the proprietary driver has no DMA-BUF", keys)
    if (major, minor) >= DMA_BUF:
        return NodeEvidence(False, f"open kernel modules on kernel {major}.{minor} offer DMA-BUF", keys)
    # distributions backport DMA-BUF; NCCL's detection decides
    return NodeEvidence(True, f"nvidia_peermem is not loaded, and kernel {major}.{minor} has no DMA-BUF", keys)


def _devices(node: NodeFacts, host: HostStatements) -> list[str]:
    return list(dict.fromkeys(port.device for port in selected_ports(node, host) if port.active))


def near_port_down(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for GPUs whose near ports are all down, so that a far NIC serves them."""
    ports = selected_ports(node, host)
    up = {port.device for port in ports if port.active}
    pairs = node.gpu_nic_pairs({port.device for port in ports})
    if not pairs:
        return SILENT
    near = {pair.gpu: pair for pair in pairs if pair.near}
    lost = [near[pair.gpu] for pair in node.gpu_nic_pairs(up) if not pair.near and pair.gpu in near]
    if not lost:
        return NodeEvidence(False, "no port near a GPU is down", pairs[0].evidence)
    states = {port.device: port for port in ports if not port.active}
    down = [f"{port.name} near {pair.gpu} is {port.state_shown}" for pair in lost if (port := states.get(pair.nic))]
    return NodeEvidence(True, names(down), lost[0].evidence) if down else SILENT


def distance(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for GPUs without a NIC below their own PCIe host bridge."""
    pairs = node.gpu_nic_pairs(_devices(node, host))
    if not pairs:
        return SILENT
    far = [f"{pair.name} {pair.code}" for pair in pairs if not pair.near]
    if far:
        return NodeEvidence(True, f"NICs are far from their GPUs ({names(far)})", pairs[0].evidence)
    return NodeEvidence(False, f"all {len(pairs)} GPU-NIC pairs are near each other", pairs[0].evidence)


def acs(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Read ACS of the bridges between each GPU and its near NIC."""
    if node.in_virtual_machine:
        return SILENT
    pairs = [pair for pair in node.gpu_nic_pairs(_devices(node, host)) if pair.near]
    functions = node.pci_configuration
    bridges = sorted({bridge for pair in pairs for bridge in pair.bridges})
    read = [functions[bridge] for bridge in bridges if bridge in functions and not functions[bridge].denied]
    key = (facts.lspci.LSPCI,)
    if bad := [function for function in read if function.redirects]:
        on = " ".join(f"{name}+" for name in sorted(bad[0].redirects))
        which = f"{len(bad)} bridges between GPUs and NICs" if len(bad) > 1 else f"bridge {bad[0].address}"
        return NodeEvidence(True, f"ACS redirects peer-to-peer traffic on {which} ({on})", key)
    if not read or len(read) < len(bridges):
        return SILENT
    return NodeEvidence(False, f"ACS redirects nothing on {len(read)} bridges between GPUs and NICs", key)


def iommu(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Read the IOMMU domain of each GPU and NIC."""
    patterns = ("file:/sys/bus/pci/drivers/nvidia/*/iommu_group/type",
                "file:/sys/class/infiniband/*/device/iommu_group/type")  # fmt: skip
    types = iommu_types(node.evidence, patterns)
    bad = [key for key, word in types.items() if word in TRANSLATED]
    if bad:
        which = f"all {len(bad)}" if len(bad) == len(types) else f"{len(bad)} of {len(types)}"
        return NodeEvidence(True, f"the IOMMU translates addresses for {which} GPUs and NICs", (bad[0],))
    if not types:
        return SILENT
    return NodeEvidence(False, f"the IOMMU is in passthrough mode for {len(types)} GPUs and NICs", tuple(types)[:1])
