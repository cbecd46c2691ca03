"""Checks of GPU topology: NVLink between GPUs, and the nearest NIC of each GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass
from preflight.checks.applicability import PCI_BUS, fewer_nics, flattened, no_gpu, no_rdma
from preflight.expectations import Site
from preflight.expectations.catalogue import MESH
from preflight.facts.node import TOPO, NodeFacts
from preflight.model import Finding, check, counted, failed, passed, skipped, some_of, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.parsers.nvidia.topology import Topology

SOURCE = "https://docs.nvidia.com/multi-node-nvlink-systems/ and the legend of `nvidia-smi topo -m`"


def no_nvlink_pair(node: NodeFacts, site: Site) -> Finding | None:
    """Skip nodes with a single GPU, or with cards whose NVLinks are optional."""
    if len(node.gpus_on_bus) < 2:
        return skipped("there is only one GPU, so there is no pair", evidence=[PCI_BUS])
    if site.part is None or site.part.gpu.sxm:
        return None
    return skipped(f"{site.part.name} has no NVLink, or no optional NVLink bridges", evidence=[PCI_BUS])


@check(
    "topology.nvlink",
    title="All NVLinks between the GPUs are up",
    fault="NVLinks between GPUs are down",
    impact="slows-job",
    source="NVIDIA A100/H100 whitepapers (links per GPU); legend of `nvidia-smi topo -m`",
    fix="Run `nvidia-smi nvlink -s` and `nvidia-smi -q | grep -A4 Fabric`; restart the fabric manager or reset the "
    "GPUs.",
    action="reset",
    answers=("PA-02", "GS-1"),
    unless=(no_gpu, no_nvlink_pair),
)
def nvlink(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the NVLinks of every pair of GPUs with the part's wiring.

    For unknown parts, GPUs are compared with each other.

    ## Why it matters
    All tensor-parallel traffic of a node runs at the pace of its slowest pair; a GPU that fell back to PCIe makes every
    collective much slower without any message.

    ## Verdicts
    On a board with NVSwitches, every pair has all links of a GPU. Without a switch, and on boards missing from the
    catalogue, each GPU's total number of links is compared with its peers'; if all GPUs of the board lost the same
    number, the check does not detect it. Fewer links fail. In pasted `amd-smi topology` or `rocm-smi --showtopo`, pairs
    without XGMI in a group that XGMI connects warn, and so do groups of different size. No real output with a lost link
    has been seen.

    ## False alarms
    None known. In a healthy mesh without a switch (DGX-1), pairs differ by design, so each GPU's total is compared. In
    a virtual machine with some GPUs of such a mesh the totals differ too, and the result is unknown. Cards that bridges
    join in pairs pass; nvlink.links names those without a bridge.
    """
    wanted = site.part.gpu.nvlinks if site.part is not None and site.part.nvswitch else 0
    source = f"{site.part.name}: {site.part.gpu.source}" if site.part is not None else ""
    fix = f'declare it in the cluster file: class.{site.class_name}.part = "..."'
    yield from judge_topology(node.topology, Wiring(wanted, source, fix), [TOPO])


@dataclass(frozen=True)
class Wiring:
    """Expected NVLinks of a machine."""

    wanted: int = 0  # links of each pair behind NVSwitches; 0: unknown
    source: str = ""
    fix: str = "Compare with `nvidia-smi nvlink -s`, or with an identical machine."  # used if no pair has an NVLink
    pasted: bool = False  # text may be truncated, and no other check names cards without a bridge


def judge_topology(topology: Topology, wiring: Wiring, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the NVLinks of every pair of GPUs whose matrix rows are complete."""
    gpus = [gpu for gpu in topology.gpus if gpu in topology.links]
    cut = [gpu for gpu in topology.gpus if gpu in topology.cut_rows] if wiring.pasted else topology.cut_rows
    pairs = [
        (one, other, topology.nvlinks(one, other))
        for one in gpus
        for other in topology.gpus
        if one != other and (other not in gpus or gpus.index(one) < gpus.index(other))
    ]
    if cut or not pairs:
        rows = f"rows of the matrix are truncated: {', '.join(cut)}"
        yield unknown(rows if cut else "the matrix has no pair of GPUs", evidence=evidence)
        if not wiring.pasted:
            return
    if not pairs:
        return
    if wiring.wanted:
        weak = [(one, other, links) for one, other, links in pairs if links < wiring.wanted]
        if weak:
            yield _blame(topology, weak, wiring, evidence)
        else:
            good = f"all {len(pairs)} pairs of GPUs have NV{wiring.wanted}"
            yield passed(good, found=f"NV{wiring.wanted}", evidence=evidence)
        return
    yield from _mesh(topology, pairs, wiring, evidence)


def _mesh(
    topology: Topology, pairs: list[tuple[str, str, int]], wiring: Wiring, evidence: Sequence[str]
) -> Iterator[Finding]:
    """Compare each GPU's total number of NVLinks with its peers'.

    Single pairs are not compared: without a switch, they differ in a healthy mesh (DGX-1).
    """
    gpus = [gpu for gpu in topology.gpus if gpu in topology.links]
    totals = {gpu: sum(links for *pair, links in pairs if gpu in pair) for gpu in gpus}
    most = max(totals.values())
    if not most:
        none = "no pair of GPUs has an NVLink, and it is not known whether this machine should have any"
        yield unknown(none, evidence=evidence, fix=wiring.fix)
        return
    weak = [gpu for gpu in gpus if totals[gpu] < most]
    if weak and topology.bridged and all(totals[gpu] in (0, most) for gpu in gpus):
        joined = f"bridges join {len(totals) - len(weak)} of {len(totals)} GPUs, with {most} NVLinks each"
        if not wiring.pasted:
            yield passed(joined, found=str(most), evidence=evidence)
        else:
            yield warned(
                f"{joined}; {', '.join(weak)} {'has' if len(weak) == 1 else 'have'} none", found=0,
                expected=f"{most}, or no bridge by design", evidence=evidence,
                fix="Check whether the cards were sold with bridges; if so, reseat them.",
            )  # fmt: skip
        return
    best = max(links for *_, links in pairs)
    lower = [{one, other} for one, other, links in pairs if links < best]
    if weak and len(totals) < MESH and len(lower) > 1 and not set.intersection(*lower):
        found = ", ".join(f"{gpu} {totals[gpu]}" for gpu in gpus)
        yield unknown(f"the GPUs have different numbers of NVLinks to each other ({found}), so they may belong to "
                      "a mesh with GPUs outside this machine",
                      found=found, evidence=evidence,
                      fix="compare with `nvidia-smi nvlink -s` on an identical node")  # fmt: skip
        return
    if not weak:
        if len(gpus) < len(topology.gpus):
            return
        yield passed(f"each of {len(totals)} GPUs has {most} NVLinks to its peers", found=str(most), evidence=evidence)
        return
    if len(weak) == 1 and (counts := _alike(pairs, weak[0])):
        own, usual = counts
        yield failed(
            f"{weak[0]} has {f'NV{own}' if own else 'no NVLink'} to its peers, which have NV{usual} to each other",
            subject=weak[0], found=f"NV{own}" if own else "no NVLink", expected=f"NV{usual}", evidence=evidence,
        )  # fmt: skip
        return
    yield failed(
        f"{', '.join(weak)} {'has' if len(weak) == 1 else 'have'} fewer than {most} NVLinks to the other GPUs",
        subject=weak[0] if len(weak) == 1 else "",
        found=", ".join(f"{gpu} {totals[gpu]}" for gpu in weak),
        expected=f"{most}, like the other GPUs of this node",
        evidence=evidence,
    )


def _alike(pairs: list[tuple[str, str, int]], gpu: str) -> tuple[int, int] | None:
    """Return the NVLinks of a GPU's pairs and of all other pairs; None if they vary."""
    own = {links for *pair, links in pairs if gpu in pair}
    usual = {links for *pair, links in pairs if gpu not in pair}
    return (own.pop(), usual.pop()) if len(own) == len(usual) == 1 else None


def _blame(topology: Topology, weak: list[tuple[str, str, int]], wiring: Wiring, evidence: Sequence[str]) -> Finding:
    """Report the pairs with too few NVLinks.

    The subject is the GPU that all of them have in common, if there is one.
    """
    often = Counter(gpu for one, other, _ in weak for gpu in (one, other))
    culprit, times = often.most_common(1)[0]
    subject = culprit if times == len(weak) and len(weak) > 1 else ""
    those = f"{subject} has" if subject else counted(len(weak), "pair of GPUs has", "pairs of GPUs have")
    one, other, _ = weak[0]
    return failed(
        f"{those} less than NV{wiring.wanted}: {one}-{other} is {topology.links[one][other]}",
        subject=subject,
        found=", ".join(f"{a}-{b} {topology.links[a][b]}" for a, b, _ in weak[:8]),
        expected=f"NV{wiring.wanted} ({wiring.source})",
        evidence=evidence,
    )


def nics_on_cpu(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a part whose NICs are attached to the CPU by design."""
    if site.part is None or not site.part.nic_on_cpu:
        return None
    return skipped(f"{site.part.name}: the NICs are attached to the CPU by design", evidence=[PCI_BUS])


@check(
    "topology.nearest-nic",
    title="Every GPU has a NIC behind its own PCIe switch",
    fault="A GPU has no NIC behind its own PCIe switch",
    impact="slows-job",
    explains=(("gpudirect.path", "part"),),
    source="NCCL user guide, NCCL_NET_GDR_LEVEL (default PXB); legend of `nvidia-smi topo -m`",
    fix="Compare the slots (`lspci -tv`) with the server's manual; a virtual machine needs an NCCL_TOPO_FILE.",
    action="fix-site",
    answers=("FP-BW-2", "NT-FAB-2", "PA-01", "PA-04", "PA-16"),
    unless=(no_gpu, no_rdma, nics_on_cpu),
)
def nearest_nic(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Find each GPU's nearest NIC in the matrix of `nvidia-smi topo -m`.

    PIX or PXB is close enough.

    ## Why it matters
    NCCL uses GPUDirect RDMA only up to PXB by default. If the nearest NIC is behind the CPU, a GPU stages every byte
    through host memory. If the NIC is behind the other socket, the bytes also cross the inter-socket link.

    ## Verdicts
    SYS fails, and PHB and NODE warn. On a PCIe server in which each NIC is near one GPU and serves more GPUs of its
    socket, those other GPUs are unknown, or pass if the cluster file declares fewer NICs than GPUs. SYS only warns for
    PCIe cards, whose slots the integrator chooses, and on nodes with more than two NUMA nodes (NPS4), where the NIC may
    be on the same socket. Ports that the cluster file reserves for storage or management do not count. Pairs are read
    from the matrix, never derived from indexes, because real machines number devices in any order. GPUs that share a
    NIC are listed but pass: cheaper boards are built that way. On boards with one NIC for every two GPUs, the second
    GPU reaches it over NVLink with NCCL's PXN.

    ## False alarms
    A virtual machine that hides the switches shows PHB, NODE or SYS everywhere: the distance is unknown, and NCCL
    reads it from a topology file. The check does not apply to Grace, whose NICs are attached to the CPU by design.
    """
    topology = node.topology
    if not topology.nics:
        yield unknown(
            "the matrix has no NIC rows",
            evidence=[TOPO],
            fix="run preflight where /sys/class/infiniband is visible, for example outside the container",
        )
        return
    nics = _of_the_fabric(topology, site)
    codes = {gpu: topology.nearest_nics(gpu, nics) for gpu in topology.gpus if gpu in topology.links}
    every = [topology.links[gpu][nic] for gpu in codes for nic in nics]
    if every and (hidden := flattened(node, every, [TOPO])):
        yield hidden
        return
    fewer = fewer_nics(node, site)
    yield from judge_nearest_nics(codes, topology.lenders(nics, fewer), _sys_reporter(node, site),
                                  sharers=topology.sharers(nics), declared=fewer)  # fmt: skip
    if topology.cut_rows:
        yield unknown(f"rows of the matrix are truncated: {', '.join(topology.cut_rows)}", evidence=[TOPO])


def _of_the_fabric(topology: Topology, site: Site) -> tuple[str, ...]:
    """Return the NICs that the cluster file does not reserve for other traffic.

    All NICs if none is left.
    """
    ports = site.members.ports
    aside = {*(ports.storage or ()), *(ports.management or ())}
    named = [nic for nic in topology.nics if nic not in aside and (ports.compute is None or nic in ports.compute)]
    return tuple(named) or topology.nics


def _sys_reporter(node: NodeFacts, site: Site) -> tuple[Callable[..., Finding], str]:
    """Return the constructor of SYS findings, and where the NIC is.

    It is on the other socket, or in another NUMA node that may be on the same socket.
    """
    several = (node.cpu_nodes or 0) > 2
    cards = site.part is not None and not site.part.gpu.sxm
    return (warned if several or cards else failed, "in another NUMA node" if several else "on the other socket")


def judge_nearest_nics(
    codes: Mapping[str, tuple[str, tuple[str, ...]]],
    lenders: Mapping[str, tuple[str, ...]],
    sys: tuple[Callable[..., Finding], str],
    evidence: Sequence[str] = (TOPO,),
    sharers: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    declared: bool = False,
) -> Iterator[Finding]:
    """Judge the nearest NIC of each GPU.

    ``codes`` has the best code of each GPU and the NICs with it; ``lenders`` has the GPUs that use another GPU's NIC by
    design. ``sys`` is the constructor of findings for a NIC at SYS, and the text of its location. ``sharers`` has the
    GPUs that use another GPU's NIC over the CPU, which is unknown unless ``declared``.
    """
    near = {gpu: nics for gpu, (code, nics) in codes.items() if code in ("PIX", "PXB")}
    if near:
        users = Counter(nic for nics in near.values() for nic in nics)
        shared = sorted(nic for nic, number in users.items() if number > 1)
        pairs = ", ".join(f"{gpu} {'+'.join(nics)}" for gpu, nics in near.items())
        yield passed(
            f"{some_of(len(near), len(codes), 'GPU')} {verb(len(near), 'has')} a NIC behind "
            f"{'its' if len(near) == 1 else 'their'} own PCIe switch"
            + (f"; several GPUs share {', '.join(shared)}" if shared else "")
            + (f"; by design, {', '.join(lenders)} use another GPU's NIC over NVLink" if lenders else ""),
            found=pairs,
            evidence=evidence,
        )
    if sharers:
        shown = ", ".join(f"{gpu} {'+'.join(nics)} ({codes[gpu][0]})" for gpu, nics in sharers.items())
        message = f"{', '.join(sharers)} share the NIC of another GPU over the CPU ({shown})"
        if declared:
            yield passed(f"{message}, by design", found=shown, evidence=evidence)
        else:
            yield unknown(
                f"{message}: usual in PCIe servers with fewer NICs than GPUs, where NCCL uses host memory for them",
                found=shown, expected="PIX or PXB, unless the server is built this way", evidence=evidence,
                fix="Compare the slots with the server's manual; NCCL_NET_GDR_LEVEL=SYS lets NCCL try GPUDirect RDMA.",
            )  # fmt: skip
    for gpu, (code, nics) in codes.items():
        if gpu in near or gpu in lenders or gpu in sharers:
            continue
        details: dict[str, Any] = {
            "subject": gpu,
            "found": f"{code} to {', '.join(nics)}",
            "expected": "PIX or PXB",
            "evidence": evidence,
        }
        if code in ("SYS", "SOC"):
            report, where = sys
            yield report(f"{gpu}'s nearest NIC is {where} ({code})", **details)
        else:
            yield warned(f"{gpu}'s nearest NIC is behind the CPU ({code})", **details)
