"""Check of the PCIe path between each GPU and its NIC: distance and ACS."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.applicability import PCI_BUS, RDMA_CLASS, fewer_nics, flattened, no_gpu, no_rdma
from preflight.checks.gpu.gpudirect_host import GUIDE
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, clause, counted, failed, passed, skipped, some_of, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.facts.gpudirect import GpuNicPair
    from preflight.parsers.pci.lspci import PciFunction


@check(
    "gpudirect.path",
    title="Each GPU has a direct PCIe path to its compute NIC",
    fault="A GPU has no direct PCIe path to its compute NIC",
    impact="slows-job",
    explains=(("nccl.gpudirect-rdma", "log"),),
    source=f"{GUIDE} (ACS); NCCL_NET_GDR_LEVEL, default PXB; pciutils ls-ecaps.c",
    fix="Disable ACS in the firmware, or on each bridge with `setpci -s BRIDGE ECAP_ACS+6.w=0000` after every boot.",
    action="fix-site",
    answers=("NT-GDR-1", "PA-04", "NT-FAB-2"),
    reads=("file:/sys/class/infiniband/*/hca_type",),
    unless=(no_gpu, no_rdma),
)
def path(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the distance from each GPU to its nearest NIC, and ACS on the path.

    ## Why it matters
    NCCL uses GPUDirect RDMA only below a PCIe host bridge (PIX, PXB). With ACS redirect, each bridge on that path sends
    the traffic to the CPU and back: the path looks short but is slow.

    ## Verdicts
    A GPU whose nearest NIC is behind the CPU warns. ReqRedir, CmpltRedir or UpstreamFwd on a bridge of the path fails;
    SrcValid alone is a leftover of the kernel's default and warns. Only root sees the ACS bits; without root they are
    unknown.

    ## False alarms
    Grace's NICs are attached to the CPU by design and are judged by their NUMA node. A virtual machine needs ACS (with
    ATS), which is not judged there; it may show a flattened bus, which is unknown. Root ports are ignored.
    """
    devices = [port.device for port in site.roles(node).compute]
    pairs = node.gpu_nic_pairs(devices)
    if not pairs:
        yield unknown("no compute NIC is a PCI function, so there is no path to judge", evidence=[RDMA_CLASS, PCI_BUS])
    elif site.part is not None and site.part.nic_on_cpu:
        yield from _by_numa_node(site.part.name, pairs)
    elif hidden := flattened(node, _codes(node, devices, pairs), pairs[0].evidence):
        yield hidden
    else:
        borrowers = _borrowers(node, site, devices)
        yield from _by_distance(node, [pair for pair in pairs if pair.gpu not in borrowers])
        if near := [pair for pair in pairs if pair.near]:
            yield from _by_acs(node, near)


def _by_distance(node: NodeFacts, pairs: Iterable[GpuNicPair]) -> Iterator[Finding]:
    forced = _forced(node)
    for pair in pairs:
        if pair.near:
            continue
        why = "NCCL stages its traffic through host memory"
        if forced:
            why = f"with {forced}, NCCL still uses GPUDirect RDMA, through the CPU"
        yield warned(
            f"{pair.name} has no direct path, because the NIC is behind the CPU ({pair.code}); {why}",
            subject=pair.name,
            found=pair.code,
            expected="PIX or PXB",
            evidence=pair.evidence,
            fix="Compare the slots with the server's manual; a GPU without a close NIC can use another GPU's "
            "over NVLink. "
            "Where the board has no PCIe switch, measure NCCL_NET_GDR_LEVEL=PHB.",
        )


def _codes(node: NodeFacts, devices: Iterable[str], pairs: Iterable[GpuNicPair]) -> list[str]:
    """Return the codes of `nvidia-smi topo -m` between all GPUs and these NICs.

    Without that matrix, returns the code of each pair.
    """
    try:
        links = node.topology.links
    except EvidenceError:
        return [pair.code for pair in pairs]
    named = set(devices)
    found = [code for gpu in node.topology.gpus for nic, code in links.get(gpu, {}).items() if nic in named]
    return found or [pair.code for pair in pairs]


def _borrowers(node: NodeFacts, site: Site, devices: Iterable[str]) -> Collection[str]:
    """Return the GPUs that use another GPU's NIC over NVLink by design.

    Empty if the topology is not known.
    """
    try:
        topology = node.topology
    except EvidenceError:
        return ()
    return topology.lenders([device for device in devices if device in topology.nics], fewer_nics(node, site))


def _forced(node: NodeFacts) -> str:
    """Return the setting that allows GPUDirect RDMA beyond PXB, else an empty string."""
    try:
        value = node.nccl_env.text("NCCL_NET_GDR_LEVEL") or ""
    except EvidenceError:
        return ""
    far = value in ("PHB", "NODE", "SYS") or (value[:1].isdigit() and (facts.nccl_environment.strtoll(value) or 0) >= 3)
    return f"NCCL_NET_GDR_LEVEL={value}" if far else ""


def _by_numa_node(part: str, pairs: Iterable[GpuNicPair]) -> Iterator[Finding]:
    pairs = tuple(pairs)
    for pair in pairs:
        if pair.same_node is False:
            yield warned(
                f"{pair.name}: the nearest NIC is on the other CPU",
                subject=pair.name,
                found=pair.code,
                expected="a NIC on the GPU's own NUMA node",
                evidence=[*pair.evidence, PCI_BUS],
            )
    good = [pair for pair in pairs if pair.same_node]
    if good:
        names = ", ".join(pair.name for pair in good)
        yield passed(f"{part}: {some_of(len(good), len(pairs), 'GPU')} {verb(len(good), 'has')} a NIC on the same CPU",
                     found=names,
                     evidence=[PCI_BUS])  # fmt: skip
    if silent := [pair.name for pair in pairs if pair.same_node is None]:
        yield unknown(f"the NUMA node of {', '.join(silent)} is unknown", evidence=[PCI_BUS])


def _by_acs(node: NodeFacts, pairs: list[GpuNicPair]) -> Iterator[Finding]:
    if node.in_virtual_machine:
        message = f"{clause(len(pairs), 'GPU-NIC pair', 'has')} a short path"
        yield passed(message, found=_named(pairs), evidence=pairs[0].evidence).about("PA-04", "NT-FAB-2")
        yield skipped("in a virtual machine, the host controls ACS", evidence=pairs[0].evidence).about("NT-GDR-1")
        return
    near = f"{clause(len(pairs), 'GPU-NIC pair', 'has')} a short path"
    try:
        configuration = node.pci_configuration
    except EvidenceError as error:
        yield passed(near, found=_named(pairs), evidence=pairs[0].evidence).about("PA-04", "NT-FAB-2")
        yield unknown(
            f"ACS on the paths between GPUs and NICs could not be read: {error}", evidence=[facts.lspci.LSPCI]
        ).about("NT-GDR-1")
        return
    hidden: list[GpuNicPair] = []
    redirected: list[GpuNicPair] = []
    left: list[GpuNicPair] = []
    for pair in pairs:
        functions = [configuration.get(bridge) for bridge in pair.bridges]
        if any(function and function.redirects for function in functions):
            redirected.append(pair)
        elif not functions or any(function is None or function.denied for function in functions):
            hidden.append(pair)
        elif any(function and function.acs for function in functions):
            left.append(pair)
    if redirected:
        yield _redirected(redirected, len(pairs), configuration)
    if left:
        yield warned(
            f"ACS {_controls(left, configuration)} is still set on the path of {counted(len(left), 'GPU-NIC pair')}, "
            f"but redirects nothing",
            found=_named(left),
            expected="every ACSCtl bit off",
            evidence=[facts.lspci.LSPCI],
        )
    if hidden:
        yield passed(near, found=_named(pairs), evidence=pairs[0].evidence).about("PA-04", "NT-FAB-2")
        yield unknown(
            f"ACS on the path of {counted(len(hidden), 'GPU-NIC pair')} could not be read: lspci shows it to root only",
            found=_named(hidden),
            evidence=[facts.lspci.LSPCI],
            fix="run as root, or with --sudo",
        ).about("NT-GDR-1")
    elif not redirected and not left:
        yield passed(f"{near}, and ACS redirects nothing on the bridges between them", found=_named(pairs),
                     evidence=[*pairs[0].evidence, facts.lspci.LSPCI])  # fmt: skip


def _redirected(pairs: list[GpuNicPair], of: int, configuration: Mapping[str, PciFunction]) -> Finding:
    bridges = sorted({b for pair in pairs for b in pair.bridges if b in configuration and configuration[b].redirects})
    alone = pairs[0].name if len(pairs) == 1 else ""
    return failed(
        f"{alone or some_of(len(pairs), of, 'GPU-NIC pair')}: ACS redirects the traffic through the CPU "
        f"({_controls(pairs, configuration)} on {', '.join(bridges[:4])}{', …' if bridges[4:] else ''})",
        subject=alone,
        found=_named(pairs),
        expected="ReqRedir-, CmpltRedir- and UpstreamFwd- on every bridge between GPU and NIC",
        evidence=[facts.lspci.LSPCI],
        quote="\n".join(f"{b}: {_on(configuration[b].acs or ())}" for b in bridges[:8]),
    )


def _controls(pairs: list[GpuNicPair], configuration: Mapping[str, PciFunction]) -> str:
    return _on(
        {name for pair in pairs for b in pair.bridges if b in configuration for name in configuration[b].acs or ()}
    )


def _on(controls: Iterable[str]) -> str:
    return " ".join(f"{name}+" for name in sorted(controls))


def _named(pairs: Iterable[GpuNicPair]) -> str:
    return ", ".join(f"{pair.name} {pair.code}" for pair in pairs)
