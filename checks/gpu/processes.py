"""Checks of GPU processes, memory in use and utilisation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import (
    Finding,
    all_of,
    check,
    counted,
    each_of,
    failed,
    passed,
    processes,
    skipped,
    some_of,
    unknown,
    verb,
    warned,
)

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth

NVML_API = "https://docs.nvidia.com/deploy/nvml-api/"

#: Memory in use, in percent, at which the next allocation is likely to fail.
PRESSURE_PCT = 95

#: Tolerated memory in use without a process that could own it, in MiB; contexts of driver daemons need less.
ORPHANED_MIB = 1024


@check(
    "gpu.left-over-processes",
    title="No process uses a GPU before a job starts",
    fault="A left-over process uses a GPU",
    impact="blocks-job",
    explains=(
        ("gpu.memory-headroom", "part"),
        ("gpu.utilisation-visible", "part"),
        *((effect, on, "*", "*out of memory*") for effect, on in IN_LOGS),
    ),
    source=f"{NVML_API} (nvmlDeviceGetComputeRunningProcesses); gate of GCM's health_checks",
    fix="List the owners (`ps -fp PID`); end processes that no job owns.",
    action="fix-job",
    answers=("PA-05",),
    unless=(no_gpu,),
)
def left_over_processes(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for compute processes on each GPU.

    ## Why it matters
    A process left behind by an earlier job keeps its GPU memory and compute time; the next job fails with "out of
    memory" or has one slow rank.

    ## Verdicts
    A compute process warns, because preflight cannot see whether it belongs to a running job.

    ## False alarms
    A run of preflight during a job. In a container, processes outside it are not visible.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        if not gpu.processes:
            return None
        shown = [
            f"{one.pid} {one.name or '?'}" + (f" {one.used_mib} MiB" if one.used_mib else "") for one in gpu.processes
        ]
        return warned(
            f"{counted(len(shown), 'compute process uses', 'compute processes use')} it",
            found=", ".join(shown[:6]),
            expected="none before a job",
        ).with_parts(*processes(process.pid for process in gpu.processes or ()))

    yield from each_gpu(node.gpu_health, judge, what="processes", good="runs no compute process", needs=("processes",))


@check(
    "gpu.process-per-gpu",
    title="Each training process uses one GPU",
    fault="A training process uses several GPUs",
    impact="slows-job",
    explains=(("gpu.left-over-processes", "node"),),
    source="https://pytorch.org/docs/stable/notes/cuda.html (DistributedDataParallel instead of DataParallel)",
    fix="Start one process per GPU (torchrun --nproc-per-node=8) and call torch.cuda.set_device(LOCAL_RANK) first.",
    action="fix-job",
    answers=("NT-DDP-1",),
    unless=(no_gpu,),
)
def process_per_gpu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for compute processes with a context on more than one GPU of the node.

    ## Why it matters
    DataParallel drives all GPUs from one process, with model copies and lock contention in every step. A rank that
    does not select its device has a second context on GPU 0.

    ## Verdicts
    A process that uses several GPUs now warns; on an idle node, the check does not apply.

    ## False alarms
    Inference servers and tensor-parallel engines that use several GPUs from one process on purpose.
    """
    health = node.gpu_health
    held: dict[int, list[GpuHealth]] = defaultdict(list)
    for gpu in health.gpus:
        for process in gpu.processes or ():
            held[process.pid].append(gpu)
    if blind := [gpu for gpu in health.gpus if gpu.processes is None]:
        yield unknown(
            f"the processes of {counted(len(blind), 'GPU')} are not reported: {blind[0].why('processes')}",
            evidence=health.evidence,
        )
    elif not held:
        yield skipped(f"no compute process runs on {all_of(len(health.gpus), 'GPU')}", evidence=health.evidence)
    elif many := {pid: gpus for pid, gpus in held.items() if len(gpus) > 1}:
        holders = ", ".join(f"{pid} on GPU {'+'.join(str(gpu.index) for gpu in gpus)}" for pid, gpus in many.items())
        yield warned(
            f"{some_of(len(many), len(held), 'compute process')} {verb(len(many), 'uses')} several GPUs",
            found=holders, expected="one GPU each", evidence=health.evidence,
        )  # fmt: skip
    else:
        yield passed(f"{each_of(len(held), 'compute process')} uses one GPU", evidence=health.evidence)


@check(
    "gpu.memory-headroom",
    explains=IN_LOGS,
    title="GPU memory is free for the job",
    fault="GPU memory is not free for the job",
    impact="blocks-job",
    source=f"{NVML_API} (nvmlDeviceGetMemoryInfo_v2); 95% and 1 GiB are judgements; the job's need: the cluster file",
    fix="Run `nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv`; if no process owns the "
    "memory, reset the GPU.",
    action="fix-job",
    answers=("PA-05", "NT-INF-7"),
    unless=(no_gpu,),
)
def memory_headroom(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's used memory with its size, processes and the job's need.

    ## Why it matters
    An allocator short of memory fragments, retries and finally fails in the middle of a step; a KV cache short of
    memory evicts entries and recomputes them.

    ## Verdicts
    Less free memory than thresholds.gpu_memory_gib in the cluster file fails; that value is the job's need for weights,
    optimizer and activations. 95% in use warns, and so does more than 1 GiB in use without a process (a context that
    outlived its process). Memory reserved by the driver is neither used nor free.

    ## False alarms
    A run of preflight during a job. In a container, processes outside it are not visible, so memory without an owner is
    normal and not reported.
    """
    need = site.threshold("gpu_memory_gib")

    def judge(gpu: GpuHealth) -> Finding | None:
        used, total = gpu.memory_used_mib or 0, gpu.memory_total_mib or 1
        free_gib = (total - used - (gpu.memory_reserved_mib or 0)) / 1024
        if need.value is not None and free_gib < need.value:
            return failed(
                f"{free_gib:.1f} GiB are free, but the job needs {need.value:g} GiB", found=f"{free_gib:.1f} GiB",
                expected=f"at least {need.value:g} GiB ({need.source})",
            ).with_parts(*processes(process.pid for process in gpu.processes or ()))  # fmt: skip
        if used * 100 >= total * PRESSURE_PCT:
            return warned(
                f"{used} of {total} MiB are in use", found=f"{used} MiB", expected=f"less than {PRESSURE_PCT}%"
            ).with_parts(*processes(process.pid for process in gpu.processes or ()))
        if used > ORPHANED_MIB and gpu.processes == () and not node.in_container:
            return warned(
                f"{used} MiB are in use by no process", found=f"{used} MiB", expected=f"at most {ORPHANED_MIB} MiB"
            )
        return None

    needs = ("memory_total_mib", "memory_used_mib")
    good = f"has less than {PRESSURE_PCT}% of the memory in use"
    if need.value is not None:
        good += f" and at least {need.value:g} GiB free"
    yield from each_gpu(node.gpu_health, judge, what="memory use", good=good, needs=needs)


@check(
    "gpu.utilisation-visible",
    title="GPU utilisation can be read",
    fault="GPU utilisation cannot be read, or shows load without a process",
    impact="drifts",
    source=f"{NVML_API} (nvmlDeviceGetUtilizationRates)",
    fix="For a GPU that is busy without a process, run `dmesg | grep -i xid`. Under MIG, read "
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE in place of the utilisation.",
    action="monitor",
    answers=("FP-OBS-1",),
    unless=(no_gpu,),
)
def utilisation_visible(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the utilisation of each GPU, and look for busy GPUs without a process.

    ## Why it matters
    Without utilisation, no one notices when GPUs wait for the network. A GPU at 100% without a process hangs in the
    driver.

    ## Verdicts
    Utilisation shows that a kernel ran in the last second, not how much work it did: 100% does not prove health. A
    busy GPU without a process warns, and so does a GPU in MIG mode, for which the driver reports no utilisation.

    ## False alarms
    A process that ended within the last second, which the average covers; run the check again. In a container, where
    other processes are not visible, this is normal and not reported.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        if (gpu.utilisation_pct or 0) >= 90 and gpu.processes == () and not node.in_container:
            return warned(f"{gpu.utilisation_pct}% busy without a process", found=f"{gpu.utilisation_pct}%",
                          expected="idle")  # fmt: skip
        return None

    health = node.gpu_health
    if cut := [gpu for gpu in health.gpus if gpu.mig and gpu.utilisation_pct is None]:
        yield warned(
            f"the driver reports no utilisation for {counted(len(cut), 'GPU')} in MIG mode",
            found="N/A", expected="a percentage for each GPU", evidence=health.evidence,
        )  # fmt: skip
        return
    rates = sorted({gpu.utilisation_pct for gpu in health.gpus if gpu.utilisation_pct is not None})
    good = "reports a utilisation of " + " to ".join(f"{rate}%" for rate in (rates[:1] + rates[1:][-1:]))
    yield from each_gpu(health, judge, what="utilisation", good=good, needs=("utilisation_pct",))
