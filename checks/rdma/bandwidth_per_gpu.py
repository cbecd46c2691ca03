"""Check of NIC bandwidth per GPU."""

from __future__ import annotations

from collections.abc import Iterator

from preflight._startup.lightclass import replace
from preflight.checks.applicability import PCI_BUS, no_compute_port, no_gpu
from preflight.checks.rdma.devices import SYSFS, gpu_lost
from preflight.expectations import Roles, Site
from preflight.facts.gpudirect import nic_link
from preflight.facts.nic_bandwidth import NicAdapter, cards
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import EFA_PLACEHOLDER_GBPS, all_efa
from preflight.model import Finding, Status, check, compare, counted, unknown


@check(
    "rdma.bandwidth-per-gpu",
    title="Each GPU has enough NIC bandwidth",
    fault="GPUs have too little NIC bandwidth",
    impact="slows-job",
    source=f"{SYSFS}; sysfs-bus-pci; expected bandwidth: the cluster file, else the part catalogue",
    fix="`ibstat` and `lspci -vv -s NIC` show ports and links below their rate. For a node with less "
    "by design, declare the needs of its jobs: thresholds.nic_gbps_per_gpu.",
    action="fix-site",
    answers=("FP-BW-1",),
    gating=False,  # a design, not a fault; port checks report port faults
    unless=(no_gpu, no_compute_port),
)
def bandwidth_per_gpu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the compute ports' total rate per GPU with the rate that a GPU needs.

    ## Why it matters
    With four ports of 400 Gb/s for eight GPUs, each collective between nodes takes twice as long, although all counts
    and rates are as ordered.

    ## Verdicts
    The lower of an adapter's PCIe rate and its ports' rate is used; a bond is counted once, and so are the virtual
    functions of an adapter. A node with less than `thresholds.nic_gbps_per_gpu` fails. Without that key, less than is
    usual for the part warns, and a part without a figure in the catalogue is unknown, even if the cluster file declares
    the number of NICs. The ratio to NVLink is reported but not judged.

    ## False alarms
    Nodes that run only single-node jobs, or share NICs on purpose: declare what their jobs need in that key.
    """
    roles = site.roles(node)
    active = [port for port in roles.compute if port.active]
    silent = [port for port in active if port.rate_gbps is None]
    if silent or not active:
        what = f"{silent[0].name} is active at an unknown speed" if silent else "no compute port is active"
        yield unknown(f"{what}, so the bandwidth for each GPU is unknown", subject=silent[0].name if silent else "",
                      evidence=(silent or list(roles.compute))[0].evidence)  # fmt: skip
        return
    gpus, found = max(len(node.gpus_on_bus), site.gpus.value or 0), cards(node.evidence, active)
    total = sum(card.gbps for card in found)
    bound = [card.ports[0].device for card in found if card.bound_by_pcie]
    evidence = [port.evidence[-1] for port in active[:3]] + [
        key for name in bound[:1] if (link := nic_link(node.evidence, name)) for key in link.evidence[:3:2]
    ]
    judged = compare(
        total / gpus, site.nic_gbps_per_gpu, 
        what=f"NIC bandwidth for each of {counted(gpus, 'GPU')}",
        at_least=True, unit="Gb/s", evidence=[*evidence, PCI_BUS],
        why=f"{total:g} Gb/s in total; PCIe limits {', '.join(bound)}" if bound else "",
    )  # fmt: skip
    judged = replace(judged, message=judged.message + _nvlink(site, total / gpus))
    doubt = _doubt(node, site, roles, found) if judged.status in (Status.FAIL, Status.WARN) else ""
    if doubt:
        yield unknown(f"{judged.message}; {doubt}", found=judged.found, expected=judged.expected,
                      evidence=judged.evidence)  # fmt: skip
    else:
        yield judged


def _nvlink(site: Site, share: float) -> str:
    """Return the comparison with NVLink bandwidth, both in one direction."""
    nvlink = site.part.gpu.nvlink_gbytes_s * 8 if site.part else 0
    return f"; NVLink has {nvlink:g} Gb/s, {nvlink / share:.1f} times as much" if nvlink else ""


def _doubt(node: NodeFacts, site: Site, roles: Roles, found: tuple[NicAdapter, ...]) -> str:
    """Return why the true bandwidth may be higher; empty if it cannot be."""
    ports = [port for card in found for port in card.ports]
    if node.in_container:
        return "a container may see only some of its host's NICs"
    if not roles.known_from:
        return "the ports that jobs use are not known"
    if roles.of_near_gpus and gpu_lost(node, site):
        return "the compute NICs are identified by close GPUs, and a GPU is lost: see gpu.count"
    if (
        site.members.ports.rate_gbps is None
        and all_efa(ports)
        and {port.rate_gbps for port in ports} == {EFA_PLACEHOLDER_GBPS}
    ):
        return f"an old efa driver reports {EFA_PLACEHOLDER_GBPS} Gb/s for any device"
    if bonds := [port.device for port in ports if "bond" in port.device]:
        return f"the rate of {bonds[0]} may be that of one of its links"
    return ""
