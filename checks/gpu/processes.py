"""What is running on the GPUs: processes, memory in use, utilisation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth

NVML_API = "https://docs.nvidia.com/deploy/nvml-api/"

#: Share of a GPU's memory in use at which the next allocation is likely to fail, percent.
PRESSURE_PCT = 95

#: Memory in use without a process that could own it, MiB; contexts of driver daemons need less.
ORPHANED_MIB = 1024


@check(
    "gpu.left-over-processes",
    title="No process holds a GPU before a job starts",
    fault="A process was left over on a GPU",
    impact="blocks-job",
    explains=(("gpu.memory-headroom", "part"), ("gpu.utilisation-visible", "part")),
    source=f"{NVML_API} (nvmlDeviceGetComputeRunningProcesses); gate of GCM's health_checks",
    fix="List their owners (`ps -fp PID`); end those that no job owns.",
    action="fix-job",
    answers=("PA-05",),
    unless=(no_gpu,),
)
def left_over_processes(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for compute processes on each GPU.

    ## Why it matters
    A process that a former job left behind keeps its memory, and takes its share of the GPU from the
    next job, which then fails with "out of memory" or runs slow on one rank.

    ## Verdicts
    It warns: whether the process belongs to a job that is meant to run cannot be seen from here.

    ## False alarms
    Preflight started while a job runs. In a container the processes of others are not visible at
    all.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        if not gpu.processes:
            return None
        processes = [
            f"{one.pid} {one.name or '?'}" + (f" {one.used_mib} MiB" if one.used_mib else "") for one in gpu.processes
        ]
        return warned(
            f"{len(processes)} compute processes hold it", found=", ".join(processes[:6]), expected="none before a job"
        )

    yield from each_gpu(node.gpu_health, judge, what="processes", good="no compute process", needs=("processes",))


@check(
    "gpu.process-per-gpu",
    title="Each training process holds one GPU",
    fault="A training process holds several GPUs, or shares one",
    impact="slows-job",
    explains=(("gpu.left-over-processes", "node"),),
    source="https://pytorch.org/docs/stable/notes/cuda.html (DistributedDataParallel instead of DataParallel)",
    fix="Start one process per GPU (torchrun --nproc-per-node=8) and call torch.cuda.set_device(LOCAL_RANK) first.",
    action="fix-job",
    answers=("NT-DDP-1",),
    unless=(no_gpu,),
)
def process_per_gpu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for compute processes that hold a context on more than one GPU of the node.

    ## Why it matters
    DataParallel drives all GPUs from one process: copies of the model and a Python lock in every step. A rank
    that forgot to choose its device leaves a context on GPU 0 beside its own.

    ## Verdicts
    It warns, and speaks only of what runs at this moment; on an idle node it does not apply.

    ## False alarms
    Inference servers and tensor-parallel engines that hold several GPUs from one process on purpose.
    """
    health = node.gpu_health
    held: dict[int, list[GpuHealth]] = defaultdict(list)
    for gpu in health.gpus:
        for process in gpu.processes or ():
            held[process.pid].append(gpu)
    if blind := [gpu for gpu in health.gpus if gpu.processes is None]:
        yield unknown(
            f"processes of {len(blind)} GPUs not reported: {blind[0].why('processes')}", evidence=health.evidence
        )
    elif not held:
        yield skipped(f"no compute process runs on the {len(health.gpus)} GPUs", evidence=health.evidence)
    elif many := {pid: gpus for pid, gpus in held.items() if len(gpus) > 1}:
        holders = ", ".join(f"{pid} on GPU {'+'.join(str(gpu.index) for gpu in gpus)}" for pid, gpus in many.items())
        yield warned(
            f"{len(many)} of {len(held)} processes hold several GPUs",
            found=holders, expected="one GPU each", evidence=health.evidence,
        )  # fmt: skip
    else:
        yield passed(f"{len(held)} processes hold one GPU each", evidence=health.evidence)


@check(
    "gpu.memory-headroom",
    title="GPU memory is free for the job",
    fault="GPU memory is not free for the job",
    impact="blocks-job",
    source=f"{NVML_API} (nvmlDeviceGetMemoryInfo_v2); 95 % and 1 GiB are judgements; the job's need: the cluster file",
    fix="nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv; if no process owns it, reset the GPU.",
    action="fix-job",
    answers=("PA-05", "NT-INF-7"),
    unless=(no_gpu,),
)
def memory_headroom(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's memory in use with its size, processes and job's need.

    ## Why it matters
    An allocator under pressure fragments, retries and finally fails in the middle of a step; a KV cache
    without room evicts and computes again.

    ## Verdicts
    Less free than thresholds.gpu_memory_gib of the cluster file fails: that is weights, optimizer and activations,
    which no node can know. 95 % in use warns; so does more than 1 GiB in use with no process to own it (a context
    that outlived its process). What the driver reserves for itself counts neither as used nor as free.

    ## False alarms
    Preflight started while a job runs. In a container the processes of others are not visible, so
    memory without an owner is normal there and is not reported.
    """
    need = site.threshold("gpu_memory_gib")

    def judge(gpu: GpuHealth) -> Finding | None:
        used, total = gpu.memory_used_mib or 0, gpu.memory_total_mib or 1
        free_gib = (total - used - (gpu.memory_reserved_mib or 0)) / 1024
        if need.value is not None and free_gib < need.value:
            return failed(
                f"{free_gib:.1f} GiB are free, the job needs {need.value:g}", found=f"{free_gib:.1f} GiB",
                expected=f"at least {need.value:g} GiB ({need.source})",
            )  # fmt: skip
        if used * 100 >= total * PRESSURE_PCT:
            return warned(
                f"{used} of {total} MiB are in use", found=f"{used} MiB", expected=f"less than {PRESSURE_PCT} %"
            )
        if used > ORPHANED_MIB and gpu.processes == () and not node.in_container:
            return warned(
                f"{used} MiB are in use by no process", found=f"{used} MiB", expected=f"at most {ORPHANED_MIB} MiB"
            )
        return None

    needs = ("memory_total_mib", "memory_used_mib")
    good = f"less than {PRESSURE_PCT} % of the memory in use"
    if need.value is not None:
        good += f", {need.value:g} GiB and more free"
    yield from each_gpu(node.gpu_health, judge, what="memory use", good=good, needs=needs)


@check(
    "gpu.utilisation-visible",
    title="GPU utilisation can be read",
    fault="GPU utilisation cannot be read, or shows load without a process",
    impact="drifts",
    source=f"{NVML_API} (nvmlDeviceGetUtilizationRates)",
    fix="Busy without a process: `dmesg | grep -i xid`. Under MIG read DCGM_FI_PROF_GR_ENGINE_ACTIVE instead.",
    action="monitor",
    answers=("FP-OBS-1",),
    unless=(no_gpu,),
)
def utilisation_visible(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the utilisation of each GPU; look for busy GPUs without a process.

    ## Why it matters
    What cannot be seen is not noticed when it drops: a cluster that waits for its network looks busy on the
    bill only. A GPU at 100 % without a process hangs in the driver.

    ## Verdicts
    The rate shows that a kernel ran in the last second, not that it did much: 100 % does not prove
    health. Busy without a process warns, and so does a driver that reports none, which it does with MIG on.

    ## False alarms
    The second in which a process ends, because the rate is an average over the last second; run it again. In a
    container, where other processes are not visible, it is normal and not reported.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        if (gpu.utilisation_pct or 0) >= 90 and gpu.processes == () and not node.in_container:
            return warned(f"{gpu.utilisation_pct} % busy without a process", found=gpu.utilisation_pct, expected="idle")
        return None

    health = node.gpu_health
    if cut := [gpu for gpu in health.gpus if gpu.mig and gpu.utilisation_pct is None]:
        yield warned(
            f"{len(cut)} GPUs are cut by MIG and report no utilisation",
            found="N/A", expected="a rate per GPU", evidence=health.evidence,
        )  # fmt: skip
        return
    rates = ", ".join(f"{gpu.utilisation_pct} %" for gpu in health.gpus)
    needs = ("utilisation_pct",)
    yield from each_gpu(node.gpu_health, judge, what="utilisation", good=f"utilisation reads {rates}", needs=needs)
