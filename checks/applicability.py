"""Functions for a check's ``unless=``, and helpers for them.

*Skip* needs positive evidence: the PCI bus was read, it has no such device, and none is expected. If one is expected,
the check that counts the devices fails and the rest are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from preflight._startup.lightclass import fields
from preflight.evidence.document import COURSE, EvidenceError
from preflight.expectations import Roles, Site
from preflight.facts.container import GPU_NODES, gpu_nodes, in_pod
from preflight.facts.gpudirect import NEAR
from preflight.facts.kernel import NVIDIA_VERSION
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.facts.pci import ROOT as PCI
from preflight.facts.rdma_ports import ROOT as IB
from preflight.facts.rdma_ports import Port, all_efa, is_software
from preflight.model import Finding, Status, counted, failed, skipped, unknown

PCI_BUS = f"dir:{PCI}"
RDMA_CLASS = f"dir:{IB}"


#: PCI class of NVSwitches: an NVIDIA bridge.
_BRIDGE = 0x0680

#: Message for a machine with nothing to judge, and the start of the message for a switch.
NOTHING, SWITCH = "no GPU, no RDMA NIC", "network switch"


def nothing(node: NodeFacts, site: Site) -> Finding | None:
    """Return a finding if a machine has nothing to judge, or may have lost its GPUs.

    A machine with neither GPU nor RDMA NIC looks like a node that lost them, so it does not pass unless the cluster
    file declares that it has none. `hcas = 0` does not declare the number of GPUs; `gpus = 0` is enough: a machine
    without GPUs often has no RDMA NIC.
    """
    if site.gpus.value is not None or node.gpus_on_bus:
        return None
    traces = gpu_traces(node)
    signs = ", ".join(traces.values())
    evidence = list(dict.fromkeys((PCI_BUS, RDMA_CLASS, *traces)))
    if not (site.hcas.value or site.members.ports.compute or node.rdma_nics_on_bus or node.rdma_devices):
        lost = f"; {signs}: it may have lost its GPUs" if signs else ""
        return unknown(
            f"the node has neither an NVIDIA GPU nor an RDMA NIC, and is not declared to have none{lost}",
            found=NOTHING,
            expected="a GPU or an RDMA NIC, or a class declared to have none",
            evidence=evidence,
            fix=f"If it is a GPU node, run `lspci -d 10de:` and power-cycle it. Otherwise declare {site.gpus.key} = 0, "
            f"{site.hcas.key} = 0. `preflight demo` shows an example report.",
        )
    if not signs:
        return None
    return unknown(
        f"no NVIDIA GPU on the PCI bus, although {signs}: the node may have lost its GPUs",
        found="0",
        expected="the GPUs that these records suggest, or a class declared to have none",
        evidence=evidence,
        fix=f"Run `lspci -d 10de:` and power-cycle the node. If it should have none, declare {site.gpus.key} = 0.",
    )


def gpu_traces(node: NodeFacts) -> dict[str, str]:
    """Return records that suggest GPUs on a node whose PCI bus has none.

    Maps each record to a description. Empty in a container.
    """
    found: dict[str, str] = {}
    if node.in_container:
        return found
    with suppress(EvidenceError):
        if node.evidence.exists(NVIDIA_VERSION):
            found[NVIDIA_VERSION] = "the NVIDIA driver is loaded"
    with suppress(EvidenceError):
        if any(re.fullmatch(r"nvidia[0-9]+", name) for name in node.parsed(GPU_NODES, gpu_nodes)):
            found[GPU_NODES] = "/dev has device nodes of GPUs"
    with suppress(EvidenceError):
        if any(device.vendor == "10de" and device.class_code >> 8 == _BRIDGE for device in node.pci):
            found[PCI_BUS] = "NVSwitches are on the bus"
    with suppress(EvidenceError):
        found |= dict.fromkeys(_xids(node), "the kernel log has Xids")
    with suppress(EvidenceError):
        found.update(_server(node))
    with suppress(EvidenceError):
        if any(str(metric).startswith("gpu.") for metric in node.evidence.value(COURSE)):
            found[COURSE] = "earlier runs in the history found GPUs"
    return found


def _server(node: NodeFacts) -> dict[str, str]:
    """Return the record of the server's model if that is sold only with GPUs."""
    from preflight.expectations.catalogue import is_gpu_server  # start-up: most nodes have GPUs
    from preflight.facts.system_settings import DMI

    key = f"{DMI}/product_name"
    product = node.evidence.text(key).strip()
    return {key: f"the server is a {product}, sold only with GPUs"} if is_gpu_server(product, node.pci) else {}


def _xids(node: NodeFacts) -> list[str]:
    """Return the key of the kernel log if it has Xids of GPUs; else nothing."""
    from preflight.facts.kernel_log import DMESG  # start-up: most nodes have GPUs
    from preflight.facts.xid import events

    with_nvidia = "NVRM: " in node.evidence.record(DMESG).out
    return [DMESG] if with_nvidia and events(node.kernel_log.lines).gpus else []


def network_switch(node: NodeFacts, site: Site) -> Finding | None:
    """Return the finding for a network switch among the nodes; None for a server."""
    if node.network_switch is None:
        return None
    name, key = node.network_switch
    return unknown(
        f"this is a network switch ({name}), not a node that runs jobs",
        found=f"{SWITCH} ({name})",
        expected="a node that runs jobs",
        evidence=[key],
        fix="Leave the switch out of --hosts. Checks of the nodes judge what switches announce (switch.pfc, "
        "switch.mtu).",
    )


#: Keys of ``[class.X.host]`` with their own checks; `node.expected` compares all others.
OWN_CHECKS = ("mounts", "services", "may_fail", "forbidden_processes", "forbidden_users")


def no_mount_declared(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a container, and a node without a declared mount."""
    if not site.members.host.mounts:
        return Finding(Status.SKIP, "the cluster file declares no mount for this node")
    return _on_the_host(node, "mounts", "file:/proc/self/mountinfo")


def no_service_declared(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a container, and a node without a declared service."""
    if not site.members.host.services:
        return Finding(Status.SKIP, "the cluster file declares no service for this node")
    return _on_the_host(node, "services", "env:process")


def nothing_forbidden(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a container, and a node where no process or user is forbidden."""
    if not site.members.host.forbidden_processes and not site.members.host.forbidden_users:
        return Finding(Status.SKIP, "the cluster file forbids no process and no user on this node")
    return _on_the_host(node, "processes", "file:/proc/self/status")


def own_file_systems(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a container, which has its own file systems."""
    return _on_the_host(node, "mounts", "file:/proc/self/mountinfo")


def no_systemd(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a container, and a node that does not run systemd."""
    if inside := _on_the_host(node, "services", "env:process"):
        return inside
    from preflight.parsers.host.services import FAILED  # start-up: most nodes run systemd

    if node.evidence.exists(FAILED):
        return None
    return skipped("systemd does not run this node", evidence=[FAILED])


def outside_container(node: NodeFacts, site: Site) -> Finding | None:
    """Skip the check unless preflight runs in a container."""
    return None if node.in_container else skipped("not in a container", evidence=[PCI_BUS])


def outside_pod(node: NodeFacts, site: Site) -> Finding | None:
    """Skip the check unless preflight runs in a Kubernetes pod."""
    return None if in_pod(node.environment) else skipped("not in a Kubernetes pod", evidence=[PROCESS])


def _on_the_host(node: NodeFacts, what: str, key: str) -> Finding | None:
    if not node.in_container:
        return None
    return skipped(
        f"a container has its own {what}: to judge the node's, collect outside the container", evidence=[key]
    )


def nothing_declared(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node for which no versions, firmware or settings are declared."""
    tables = (
        site.members.versions,
        site.members.firmware,
        site.members.gpu_settings,
        site.members.host,
        site.members.nvlink,
    )
    set_keys = any(
        getattr(table, key.name) is not None for table in tables for key in fields(table) if key.name not in OWN_CHECKS
    )
    ports, qos = site.members.ports, site.members.qos
    beside = (ports.gid_index, ports.acs, ports.max_read_request_bytes, ports.peer_memory, qos.dscp_map, qos.dcqcn)
    if set_keys or site.members.rails or site.members.nccl or any(value is not None for value in beside):
        return None
    return Finding(Status.SKIP, "the cluster file declares no version, firmware or setting for this node")


def no_gpu(node: NodeFacts, site: Site) -> Finding | None:
    """Return the finding for a node without GPUs; None if it has one."""
    if node.gpus_on_bus:
        return None
    if site.gpus.value:
        return unknown("the PCI bus has no NVIDIA GPU (see gpu.count)", evidence=[PCI_BUS])
    return skipped("the PCI bus has no NVIDIA GPU", evidence=[PCI_BUS])


def no_nvswitch(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without an NVSwitch on its bus; those of B200 and newer are hidden."""
    from preflight.expectations.catalogue import NVSWITCH_IDS  # start-up: most nodes have none

    if any(device.vendor == "10de" and device.device in NVSWITCH_IDS for device in node.pci):
        return None
    return skipped("the PCI bus has no NVSwitch", evidence=[PCI_BUS])


def no_rdma(node: NodeFacts, site: Site) -> Finding | None:
    """Return the finding for a node without RDMA; None if it has RDMA."""
    if node.rdma_devices:
        return None
    if site.hcas.value or site.members.ports.compute:
        return unknown("the kernel has no RDMA device (see rdma.device-count)", evidence=[RDMA_CLASS])
    if nics := node.rdma_nics_on_bus:
        return unknown(
            f"the kernel has no RDMA device, but the PCI bus has {counted(len(nics), 'RDMA NIC')}",
            evidence=[RDMA_CLASS, PCI_BUS],
            fix="see rdma.registered",
        )
    return skipped("the kernel has no RDMA device, and the PCI bus has no RDMA NIC", evidence=[RDMA_CLASS, PCI_BUS])


def lacks_rdma(node: NodeFacts, site: Site) -> bool:
    """Return whether a node has no RDMA device or NIC, and none is expected."""
    absent = no_rdma(node, site)
    return absent is not None and absent.status is Status.SKIP


def no_compute_port(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without a compute port."""
    if absent := no_rdma(node, site):
        return absent
    if site.roles(node).compute:
        return None
    return unknown(
        "this node has no port of the compute fabric",
        evidence=[RDMA_CLASS],
        fix=f"see rdma.device-count, or correct class.{site.class_name}.ports.compute",
    )


def no_pci_nic(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node whose compute devices are not on the PCI bus."""
    if absent := no_rdma(node, site):
        return absent
    devices = {port.device for port in site.roles(node).compute}
    if devices and all(is_software(node.evidence, device) for device in devices):
        names = ", ".join(sorted(devices))
        return skipped(f"{names}: software devices, not on the PCI bus", evidence=[RDMA_CLASS])
    return None


def is_efa_node(node: NodeFacts) -> bool:
    """Return whether all RDMA devices of a node are AWS EFA.

    False if their ports could not be read.
    """
    try:
        return all_efa(node.rdma_ports)
    except EvidenceError:
        return False


def efa_only(ports: Sequence[Port], why: str) -> Finding | None:
    """Skip a check that does not apply to AWS EFA, if all ports are EFA."""
    if not all_efa(ports):
        return None
    return skipped(f"EFA devices: {why}", evidence=[f"file:{IB}/{ports[0].device}/ports/{ports[0].number}/link_layer"])


def fewer_nics(node: NodeFacts, site: Site) -> bool:
    """Return whether the cluster file declares fewer compute NICs than GPUs.

    GPUs then share NICs.
    """
    wanted = len(site.members.ports.compute or ()) or site.hcas.value or 0
    return 0 < wanted < len(node.gpus_on_bus)


def flattened(node: NodeFacts, codes: Collection[str], evidence: Iterable[str]) -> Finding | None:
    """Return a finding if a hypervisor hides the PCIe switches, else None.

    ``codes`` are the matrix entries between the GPUs and the NICs in question. If no pair in a virtual machine shares a
    switch, the machine sees no switches at all. PHB everywhere means the same, even in a container that cannot detect
    the virtual machine around it.
    """
    if set(codes) & set(NEAR) or not (node.in_virtual_machine or (len(codes) > 1 and set(codes) == {"PHB"})):
        return None
    far = ", ".join(sorted(set(codes)))
    setting = _topology_file(node)
    return unknown(
        f"every GPU is equally far from its NIC ({far}): the PCI bus looks flattened by a hypervisor"
        if far == "PHB"
        else f"no GPU is near a NIC ({far}): the hypervisor hides the switches of the PCI bus",
        found=far,
        evidence=evidence,
        fix=f"NCCL reads the distances from {setting}; compare that file with the provider's"
        if setting
        else "give NCCL the provider's topology file (NCCL_TOPO_FILE)",
    )


def _topology_file(node: NodeFacts) -> str:
    try:
        setting = node.nccl_env.get("NCCL_TOPO_FILE")
    except EvidenceError:
        return ""
    return setting.text if setting else ""


def failing(roles: Roles, site: Site) -> Callable[..., Finding]:
    """Return the constructor of findings for a faulty port: *fail* or *unknown*.

    *Unknown* if the roles of ports are not declared: the same state is normal on a storage or management port, or on a
    cloud's function behind eth0.
    """
    if roles.known_from:
        return failed

    def unsure(message: str, **details: Any) -> Finding:
        details["fix"] = f"name the job's HCAs: class.{site.class_name}.ports.compute = [...]"
        return unknown(f"{message}, and it is not known whether jobs use it", **details)

    return unsure
