"""Node evidence of the first layers: settings, NICs, device nodes, libraries.

The HCA filter, the ports and the network plug-in are included.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from preflight import facts
from preflight.evidence.document import EvidenceError
from preflight.facts.nccl_environment import RAILS, NcclEnvironment, Selection, Setting, strtoll
from preflight.facts.nccl_root_cause.model import SILENT, NodeEvidence
from preflight.parsers.nccl_log.model import is_tcp

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.facts.node import NodeFacts
    from preflight.facts.rdma_ports import Port
    from preflight.parsers.nccl_log import LogLine

_DEV, _DEVINFO = facts.rdma_ports.DEVICE_NODES, facts.rdma_ports.DEVINFO
_CLASS = f"dir:{facts.rdma_ports.ROOT}"
_BUS = f"dir:{facts.pci.ROOT}"

#: Maximum number of names in one clause.
_SHOWN = 4


def names(found: list[str] | tuple[str, ...]) -> str:
    """Join at most four names with commas; state how many more there are."""
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def setting(node: NodeFacts, name: str) -> Setting | None:
    """Return a variable from a node's ranks, or else from NCCL's environment there.

    That is the process environment and NCCL's files. None if no readable source has it.
    """
    environments: list[NcclEnvironment] = []
    with suppress(EvidenceError):
        environments += [rank.settings for rank in node.nccl_ranks.environments]
    with suppress(EvidenceError):
        environments.append(node.nccl_env)
    return next((found for one in environments if (found := one.get(name)) is not None), None)


def value(node: NodeFacts | None, host: HostStatements, name: str) -> str | None:
    """Return a variable's value from NCCL's log, or else from the node; None if unset."""
    if (read := host.variable(name)) is not None:
        return read.value
    found = setting(node, name) if node is not None else None
    return found.value if found else None


# --- settings ---------------------------------------------------------------------------------------


def switched_off(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for NCCL_IB_DISABLE, or for NCCL_NET set to TCP, on the node."""
    for name, off in (("NCCL_IB_DISABLE", lambda text: strtoll(text) != 0), ("NCCL_NET", is_tcp)):
        found = setting(node, name)
        if found is not None and found.value and off(found.value):
            return NodeEvidence(True, f"{found.text} is set in {found.where}", (found.source,))
    return NodeEvidence(False, "no file of the node sets it, so the job's environment does") if line else SILENT


def gpudirect_off(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for NCCL_NET_GDR_LEVEL set to LOC on the node."""
    found = setting(node, "NCCL_NET_GDR_LEVEL")
    if found is not None and found.value in ("LOC", "0"):
        return NodeEvidence(True, f"{found.text} is set in {found.where}", (found.source,))
    return NodeEvidence(False, "no file of the node sets it, so the job's environment does") if line else SILENT


# --- NICs and their device nodes --------------------------------------------------------------------


def no_nic(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for RDMA NICs on the PCI bus."""
    devices, nics = node.rdma_devices, node.rdma_nics_on_bus
    if devices or nics:
        return NodeEvidence(False, f"the node has {max(len(devices), len(nics))} RDMA NICs", (_CLASS, _BUS))
    return NodeEvidence(True, "the PCI bus has no RDMA NIC", (_CLASS, _BUS))


def not_registered(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for registered RDMA devices of the NICs that are on the bus."""
    devices, nics = node.rdma_devices, node.rdma_nics_on_bus
    if devices:
        return NodeEvidence(False, f"{len(devices)} RDMA devices are registered", (_CLASS,))
    if not nics:
        return SILENT
    sees = " in this container" if node.in_container else ""
    return NodeEvidence(
        True, f"{len(nics)} RDMA NICs are on the PCI bus, but the kernel has registered none{sees}", (_CLASS, _BUS)
    )


def device_nodes(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for an accessible device node of each device that NCCL may use.

    It uses devices with an active port, of those that NCCL_IB_HCA selects.
    """
    selected, devices = _selected(node, host)
    if not devices:
        return SILENT
    if not node.evidence.exists(_DEV):
        return NodeEvidence(True, f"/dev/infiniband is missing for {len(selected)} RDMA devices", (_DEV, _CLASS))
    refused = re.search(r"open device (\S+)", line.message) if line else None
    if refused and (named := refused[1].partition(":")[0]) in selected:
        devices = tuple(dict.fromkeys((*devices, named)))
    nodes, uverbs = node.evidence.listing(_DEV), node.uverbs
    shut = []
    for device in devices:
        entry = nodes.get(uverbs.get(device, ""))
        if entry is not None and entry.get("access") is None:
            return SILENT
        if entry is None or entry["access"] != "rw":
            shut.append(device)
    if shut and (len(shut) == len(devices) or (refused and refused[1].partition(":")[0] in shut)):
        return NodeEvidence(True, f"{names(shut)} cannot be opened: no usable node in /dev/infiniband", (_DEV,))
    good = len(devices) - len(shut)
    return NodeEvidence(False, f"{good} of {len(devices)} RDMA devices can be opened", (_DEV,))


def _selected(node: NodeFacts, host: HostStatements) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the selected devices, and those of them with an active port.

    If none has an active port, both are the same.
    """
    ports: list[Port] = []
    with suppress(EvidenceError):
        ports = selected_ports(node, host)  # none: the filter is at fault
    selected = tuple(dict.fromkeys(port.device for port in ports)) or node.rdma_devices
    return selected, tuple(dict.fromkeys(port.device for port in ports if port.active)) or selected


def no_verbs(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for the verbs library in the result of ibv_devinfo, which needs it."""
    record = node.evidence.record(_DEVINFO)
    if not record.ok:
        return SILENT
    if "libibverbs" in record.err and "loading shared libraries" in record.err:
        return NodeEvidence(True, "ibv_devinfo finds no libibverbs.so.1", (_DEVINFO,))
    if "hca_id:" in record.out:
        return NodeEvidence(
            False, f"ibv_devinfo lists {record.out.count('hca_id:')} HCAs with this library", (_DEVINFO,)
        )
    return SILENT


# --- filter, ports, plug-in -------------------------------------------------------------------------


def selection(node: NodeFacts | None, host: HostStatements) -> Selection | None:
    """Return NCCL_IB_HCA as NCCL parses it; None if it selects everything."""
    text = value(node, host, "NCCL_IB_HCA") or ""
    version = tuple(int(part) for part in re.findall(r"\d{1,4}", host.log.nccl_version or ""))
    found = Selection.parse(text, empty_port_is_any=not version or version >= RAILS)
    return found if found.items or found.exclude else None


def selected_ports(node: NodeFacts, host: HostStatements) -> list[Port]:
    """Return the ports that NCCL_IB_HCA selects, active or not.

    Raises EvidenceError.
    """
    chosen = selection(node, host)
    return [port for port in node.rdma_ports if chosen is None or chosen.matches(port.device, port.number)]


def hca_filter(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Compare NCCL_IB_HCA with the ports of the node."""
    text, ports = value(node, host, "NCCL_IB_HCA"), node.rdma_ports
    if not ports or selection(node, host) is None:
        return SILENT
    found = selected_ports(node, host)
    if not found:
        return NodeEvidence(
            True, f"NCCL_IB_HCA={(text or '')[:120]} selects none of {names(node.rdma_devices)}", (_CLASS,)
        )
    return NodeEvidence(False, f"NCCL_IB_HCA selects {names([port.name for port in found])}", (_CLASS,))


def ports_down(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Check the state of the ports that NCCL may use."""
    ports = selected_ports(node, host)
    if not ports:
        return SILENT
    up = [port for port in ports if port.active]
    keys = ports[0].evidence[:2]
    if up:
        return NodeEvidence(False, f"{len(up)} of {len(ports)} RDMA ports are active", keys)
    states = sorted({f"{port.state}/{port.physical_state}" for port in ports})
    which = "the only RDMA port is" if len(ports) == 1 else f"all {len(ports)} RDMA ports are"
    return NodeEvidence(True, f"{which} {' or '.join(states)}", keys)


def no_plugin(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Look for a network plug-in in the loader's usual directories."""
    found = sorted({library.path for library in node.libraries if library.name.startswith("libnccl-net")})
    key = facts.versions.LIBRARIES
    if found:
        return NodeEvidence(False, f"{names(found)} is installed", (key,))
    return NodeEvidence(True, "no libnccl-net*.so is in the loader's usual directories", (key,))
