"""Checks of NUMA placement: CPUs and memory close to the GPUs and NICs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from preflight import facts
from preflight.checks.applicability import PCI_BUS, no_gpu
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.host import STATUS
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.model import Finding, all_of, check, counted, failed, passed, some_of, unknown, verb, warned
from preflight.textprep.plain_text import fold_ids

if TYPE_CHECKING:
    from preflight.facts.pci import PciDevice


@check(
    "numa.affinity",
    title="The allowed CPUs include every GPU's NUMA node",
    fault="The allowed CPUs exclude a GPU's NUMA node",
    impact="slows-job",
    source="https://docs.kernel.org/ABI/testing/sysfs-bus-pci (local_cpulist); NCCL user guide, CPU affinity",
    fix="Widen the job's CPU mask (`--cpus-per-task`, `--cpu-bind=none`, cpuset) or bind each rank near its GPU.",
    action="fix-job",
    answers=("PA-04", "NT-LENS-6"),
    unless=(no_gpu,),
)
def affinity(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the CPUs of this process with those local to each of its GPUs.

    ## Why it matters
    A rank that cannot run close to its GPU copies every byte over the inter-socket link, and ranks confined to a few
    CPUs starve their NCCL proxies and data loaders. Both look like a slow network.

    ## Verdicts
    Run the check where the job runs, inside the allocation or container. A mask that excludes a GPU's node fails; one
    that excludes the node of a GPU's NIC warns, and so do fewer CPUs than GPUs. If preflight runs as one of several
    ranks (`srun preflight check`), only that rank's own GPU is judged: a mask on the far socket fails; fewer than four
    CPUs, or no binding, warns. The GPU is identified by CUDA_VISIBLE_DEVICES and the local rank.

    If the kernel reports no NUMA node for a device (-1) on a machine with several nodes, the distance is unknown.

    ## False alarms
    A run in a login shell or a batch script, whose mask differs from that of the job's ranks.
    """
    allowed, gpus = node.allowed_cpus, node.own_gpus
    # For a device without a node (-1), the kernel calls all CPUs local, which is true only with one node.
    placed = [gpu for gpu in gpus if gpu.local_cpus and (gpu.numa_node is not None or (node.cpu_nodes or 0) <= 1)]
    near = [gpu for gpu in placed if gpu.local_cpus and gpu.local_cpus & allowed]
    details: dict[str, Any] = {"found": f"CPUs {fold_ids(allowed)}", "evidence": [STATUS, PCI_BUS]}
    if far := [gpu for gpu in placed if gpu not in near]:
        cpus = fold_ids(frozenset().union(*(gpu.local_cpus or () for gpu in far)))
        yield failed(
            f"{some_of(len(far), len(gpus), 'GPU')} {verb(len(far), 'has')} no local CPU among the allowed CPUs "
            f"{fold_ids(allowed)}",
            subject=far[0].address if len(far) == 1 else "",
            expected=f"some of {cpus}, near {', '.join(gpu.address for gpu in far)}",
            **details,
        )
    elif worry := _few_cpus(node, details) or _unbound(node, near, details) or _far_nics(node, site, details):
        yield worry
    elif near:
        yield passed(
            f"the allowed CPUs {fold_ids(allowed)} include local CPUs of {all_of(len(near), 'GPU')}",
            evidence=[STATUS, PCI_BUS],
        )
    if silent := [gpu.address for gpu in gpus if gpu not in placed]:
        yield unknown(
            f"the CPUs nearest to {', '.join(silent)} are unknown",
            evidence=[PCI_BUS],
            fix="if the node is a virtual machine (numa_node -1), give it the NUMA topology of its host",
        )


def _one_of_several(node: NodeFacts) -> bool:
    """Return whether this process is one of several ranks on the node."""
    return node.rank is not None and (node.rank.local_size or 1) > 1


def _few_cpus(node: NodeFacts, details: Mapping[str, Any]) -> Finding | None:
    number, gpus = len(node.allowed_cpus), len(node.own_gpus)
    if number < gpus:
        message = (
            f"only {counted(number, 'CPU is', 'CPUs are')} allowed for {counted(gpus, 'GPU')}, so the proxies and data "
            "loaders of all ranks share them"
        )
        return warned(message, expected=f"at least {gpus} CPUs", **details)
    if _one_of_several(node) and number < 4:
        message = f"only {counted(number, 'CPU is', 'CPUs are')} allowed for this rank, its proxies and data loaders"
        return warned(message, expected="at least 4 CPUs", **details)
    return None


def _unbound(node: NodeFacts, near: Sequence[PciDevice], details: Mapping[str, Any]) -> Finding | None:
    if not near or not _one_of_several(node) or len(node.own_gpus) != 1:
        return None
    if not node.allowed_cpus >= frozenset().union(*(numa.cpus for numa in node.numa_nodes)):
        return None
    return warned(
        "this rank is not bound to CPUs, so it may run on the far socket",
        expected=f"CPUs of {fold_ids(near[0].local_cpus or frozenset())}, near {near[0].address}",
        fix="Bind the ranks (`--cpu-bind=map_ldom`, `--bind-to numa`); NCCL binds only its own threads.",
        **details,
    )


def _far_nics(node: NodeFacts, site: Site, details: Mapping[str, Any]) -> Finding | None:
    if not (nics := _nics_out_of_reach(node, site)):
        return None
    return warned(
        f"none of the allowed CPUs {fold_ids(node.allowed_cpus)} is local to {', '.join(nics[:4])}",
        subject=nics[0] if len(nics) == 1 else "",
        expected="some CPUs of the NIC's NUMA node: NCCL's proxies ring its doorbells",
        **details,
    )


def _nics_out_of_reach(node: NodeFacts, site: Site) -> list[str]:
    """Return the NICs of this process's GPUs that are local to none of its CPUs.

    Empty if the distance is unknown.
    """
    try:
        devices = [port.device for port in site.roles(node).compute]
        mine = {node.gpu_name(gpu) for gpu in node.own_gpus}
        used = dict.fromkeys(pair.nic for pair in node.gpu_nic_pairs(devices) if pair.gpu in mine)
        functions = facts.gpudirect.nic_functions(node.evidence, node.pci, used)
    except EvidenceError:
        return []
    return [name for name, nic in functions.items() if nic.local_cpus and not nic.local_cpus & node.allowed_cpus]


@check(
    "numa.memory",
    title="Memory can be allocated on every GPU's NUMA node",
    fault="Memory cannot be allocated on a GPU's NUMA node",
    impact="slows-job",
    source="cpuset(7), Mems_allowed; numa(7)",
    fix="Widen cpuset.mems (`--mem-bind`, the kubelet's memory manager) to the GPUs' NUMA nodes.",
    action="fix-job",
    answers=("NT-LENS-6",),
    unless=(no_gpu,),
)
def memory(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the allowed NUMA nodes for memory with those of the process's GPUs.

    ## Why it matters
    Pinned buffers on the far socket send every copy between host and GPU over the inter-socket link, even if the CPUs
    are bound correctly.

    ## Verdicts
    If a GPU's NUMA node is not allowed, the check warns. A GPU's node is that of its PCI function.

    ## False alarms
    None known: Grace's GPU memory, which is a separate NUMA node, is not required.
    """
    allowed, gpus = node.allowed_memory_nodes, node.own_gpus
    if node.cpu_nodes == 1 and all(gpu.numa_node is None for gpu in gpus):
        yield passed("all CPUs belong to one NUMA node", found=f"nodes {fold_ids(allowed)}", evidence=[STATUS, PCI_BUS])
        return
    silent = [gpu.address for gpu in gpus if gpu.numa_node is None]
    far = [gpu for gpu in gpus if gpu.numa_node is not None and gpu.numa_node not in allowed]
    if far:
        nodes = sorted({gpu.numa_node for gpu in far if gpu.numa_node is not None})
        yield warned(
            f"memory cannot be allocated on the NUMA node of {some_of(len(far), len(gpus), 'GPU')}",
            subject=far[0].address if len(far) == 1 else "",
            found=f"nodes {fold_ids(allowed)}",
            expected=f"node {', '.join(map(str, nodes))} too, near {', '.join(gpu.address for gpu in far)}",
            evidence=[STATUS, PCI_BUS],
        )
    elif len(silent) < len(gpus):
        yield passed(f"memory can be allocated on the NUMA node of {all_of(len(gpus) - len(silent), 'GPU')}",
                     found=f"nodes {fold_ids(allowed)}", evidence=[STATUS, PCI_BUS])  # fmt: skip
    if silent:
        yield unknown(f"the NUMA node of {', '.join(silent)} is unknown", evidence=[PCI_BUS],
                      fix="if the node is a virtual machine (numa_node -1), give it the NUMA topology of its "
                          "host")  # fmt: skip


@check(
    "numa.nccl-affinity",
    title="NCCL_IGNORE_CPU_AFFINITY suits the CPU mask",
    fault="NCCL_IGNORE_CPU_AFFINITY does not suit the CPU mask",
    impact="slows-job",
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ignore-cpu-affinity",
    fix="If the launcher binds correctly, run `unset NCCL_IGNORE_CPU_AFFINITY`; otherwise correct its "
    "mask (`--cpu-bind`).",
    action="fix-job",
    answers=("NT-ENV-12",),
    reads=("nvml:gpus", "cmd:nvidia-smi --query-gpu=*"),
    unless=(no_gpu,),
)
def nccl_affinity(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare NCCL_IGNORE_CPU_AFFINITY with the inherited CPU mask.

    ## Why it matters
    With this variable, NCCL's threads ignore the mask and run near the GPU. This helps if a launcher binds to a wrong
    core, and harms if the mask separates several jobs on one node.

    ## Verdicts
    Unset or 0 passes, and so does 1 without a mask to ignore or with a mask away from the GPU. With a mask that
    includes the GPU's node, 1 warns, because it slows other jobs on the node.

    ## False alarms
    A node that runs one job at a time.
    """
    setting = node.nccl_env.get("NCCL_IGNORE_CPU_AFFINITY")
    if setting is None or not node.nccl_env.integer(setting.name):
        yield passed("NCCL_IGNORE_CPU_AFFINITY is not set, so NCCL keeps to the CPU mask", evidence=[PROCESS])
        return
    allowed = node.allowed_cpus
    everywhere = allowed >= frozenset().union(*(numa.cpus for numa in node.numa_nodes))
    reached = [gpu for gpu in node.own_gpus if gpu.local_cpus and gpu.local_cpus & allowed]
    if everywhere or not reached:
        near = "no CPU is masked" if everywhere else "no allowed CPU is near a GPU"
        why = f"does no harm, because {near}"
        yield passed(f"{setting.text} {why}", found=f"CPUs {fold_ids(allowed)}", evidence=[setting.source, STATUS])
        return
    yield warned(
        f"{setting.text} in {setting.where} lets NCCL leave the CPU mask {fold_ids(allowed)}",
        subject=setting.name,
        found=setting.value,
        expected="unset: the mask includes the GPUs' nodes",
        evidence=[setting.source, STATUS],
        quote=setting.text,
    )
