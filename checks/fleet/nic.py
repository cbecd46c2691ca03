"""Checks of RDMA devices across nodes: names, PCI addresses, paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight import facts
from preflight.checks.comparison.compare import compare
from preflight.checks.comparison.electorate import Trait
from preflight.checks.comparison.values import compute, several
from preflight.checks.gpu import gpudirect_host, gpudirect_path
from preflight.checks.rdma import devices, pcie
from preflight.checks.rdma import ports as rdma_port
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT, device_path, natural
from preflight.model import Finding, check
from preflight.parsers.nvidia.driver_version import open_modules


def _places(node: NodeFacts, site: Site) -> str | None:
    """Return the name and PCI address of each RDMA device.

    None in a container, where names are numbered in order and thus not compared.
    """
    if node.in_container or not node.rdma_devices:
        return None
    found = []
    for device in sorted(node.rdma_devices, key=natural):
        path = device_path(node.evidence, device)
        found.append(f"{device} at {path[-1]}" if path else f"{device} (virtual)")
    return ", ".join(found)


def _link_layer(node: NodeFacts, site: Site) -> str | None:
    return several(port.link_layer for port in compute(node, site))


def _acs(node: NodeFacts, site: Site) -> str | None:
    """Return the ACS controls that are on in bridges between GPUs and their NICs.

    "off" if all are off; None without such a bridge.
    """
    ports = compute(node, site)
    if not ports or not node.gpus_on_bus:
        return None
    on: set[str] = set()
    seen = False
    for pair in node.gpu_nic_pairs({port.device for port in ports}):
        for bridge in pair.bridges:
            function = node.pci_configuration.get(bridge)
            if function is None:
                continue
            if function.denied:
                raise EvidenceError(facts.lspci.LSPCI, "shows capabilities to root only")
            seen = True
            on |= function.acs or set()
    return (" ".join(sorted(on)) or "off") if seen else None


def _max_read_request(node: NodeFacts, site: Site) -> str | None:
    ports = compute(node, site)
    if not ports:
        return None
    functions = facts.gpudirect.nic_functions(node.evidence, node.pci, {port.device for port in ports})
    found = []
    for function in functions.values():
        configuration = node.pci_configuration.get(function.address)
        if configuration is None or configuration.max_read_request_bytes is None:
            raise EvidenceError(facts.lspci.LSPCI, f"does not show MaxReadReq of {function.address}")
        found.append(f"{configuration.max_read_request_bytes} bytes")
    return several(found)


def _peer_memory(node: NodeFacts, site: Site) -> str | None:
    """Return how RDMA reaches GPU memory on this node: a module, or DMA-BUF.

    "none" if neither is available; None without GPUs or RDMA.
    """
    if not node.gpus_on_bus or not node.rdma_devices:
        return None
    ways = [name for name in facts.kernel.PEER_MODULES if name in node.modules]
    if ways:
        return ", ".join(ways)
    release = node.parsed(facts.kernel.RELEASE, facts.kernel.release)
    by_dma_buf = release >= facts.kernel.DMA_BUF and node.parsed(facts.kernel.NVIDIA_VERSION, open_modules)
    return "DMA-BUF" if by_dma_buf else "none"


NIC = (
    Trait("RDMA devices and their PCI addresses", f"dir:{ROOT}", _places, breaks=True, items=", ",
          judged_by=(devices.device_count, devices.registered), expects="rails.*.pci", form="at {}".format),
    Trait("link layer of the compute ports", f"file:{ROOT}/*/ports/*/link_layer", _link_layer, breaks=True,
          judged_by=(rdma_port.link_layer,)),
    Trait("ACS between GPUs and NICs", facts.lspci.LSPCI, _acs, judged_by=(gpudirect_path.path,), expects="ports.acs"),
    Trait("MaxReadReq of the compute NICs", facts.lspci.LSPCI, _max_read_request, judged_by=(pcie.max_read_request,),
          expects="ports.max_read_request_bytes", form="{} bytes".format),
    Trait("path to GPU memory", facts.kernel.MODULES, _peer_memory, judged_by=(gpudirect_host.peer_memory,),
          expects="ports.peer_memory"),
)  # fmt: skip


@check(
    "fleet.nic-settings",
    title="The RDMA devices of all nodes have the same names, addresses and settings",
    fault="A node's RDMA devices have different names, addresses or settings",
    impact="slows-job",
    explains=(("fleet.mtu-equal", "node", "link layer*"),),
    source="NCCL user guide, NCCL_IB_HCA (one list of names for all ranks); majority of at least 3 nodes and 60%",
    fix="If names differ, use the same udev rules (60-rdma-persistent-naming) and slots; if settings differ, compare "
    "`setpci` commands, module options and kernels.",
    action="fix-site",
    scope="fleet",
)
def nic_settings(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare RDMA device names and addresses, link layer, ACS and MaxReadReq.

    The path to GPU memory (a module or DMA-BUF) is compared as well.

    ## Why it matters
    All ranks share one NCCL_IB_HCA list and one topology file. If mlx5_3 is a different card on one node, that node
    silently uses its storage port or crosses rails.

    ## Verdicts
    Different names, addresses or link layers fail; other differences warn. In containers, names are numbered in order
    and not compared. A node without the expected value does not vote on it. fleet.rails compares rates and subnets,
    fleet.rail-leaf compares leaves, and fleet.roce-equal compares RoCE settings.

    ## False alarms
    Two server models with different slot addresses in one class; give each model its own class.
    """
    yield from compare(nodes, sites, NIC)
