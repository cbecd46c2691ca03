"""Checks of a rank's CPU and memory allocator, based on its trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from preflight.checks.job.torch_collectives import listed
from preflight.checks.job.torch_trace import each
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.pauses import ENOUGH_STEPS, PAUSED
from preflight.model import Finding, check, passed, unknown, warned

#: Judgement calls: microseconds below which a kernel takes about as long as its launch; share of the steps in which the
#: GPU is idle because the CPU launched nothing.
SHORT_US, STARVED = 10.0, 0.10
#: Judgement calls: share of the reserved memory that is never used, and its minimum in bytes.
FRAGMENTED, WORTH_BYTES = 0.20, 1 << 30
#: Maximum number of steps listed individually.
_LISTED = 8


@check(
    "torch.launch-bound",
    title="The CPU launches kernels faster than the GPU runs them",
    fault="The GPU waits for the CPU's launches",
    impact="slows-job",
    explains=(("torch.idle", "node"),),
    source="A launch takes 2 to 10 µs of the CPU (CUDA graphs, NVIDIA developer blog); shares are judgements",
    fix='Use `torch.compile(mode="reduce-overhead")`, CUDA graphs, larger batches or fused optimizers (`fused=True`).',
    action="fix-job",
    answers=("PA-20",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def launch_bound(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the length of the kernels with that of their launches.

    The check combines the median length of compute kernels with the time that the GPU is idle for lack of work.

    ## Why it matters
    The CPU launches one kernel after another, in a few microseconds each. Where kernels are shorter than that, a faster
    GPU changes nothing: the job runs at the pace of one CPU thread, and each of its delays is idle time.

    ## Verdicts
    The check warns if the median kernel takes less than 10 µs and the GPU is idle for more than 10% of the steps
    because nothing had been launched. Short kernels alone pass: the CPU may be far ahead. A trace without CUDA calls,
    or without a kernel, is unknown.

    ## False alarms
    A profile with Python stacks (`with_stack=True`): recording them slows the CPU down.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        gpu = facts["gpu"]
        budget = run.step_budget(key)
        if gpu is None or gpu["kernel_us"] is None or not budget:
            yield unknown(f"{name}: no compute kernel is in the trace", fix="profile ProfilerActivity.CUDA", **at)
            continue
        if not gpu["launched"]:
            yield unknown(f"{name}: the trace contains no CUDA runtime call, so no launch",
                          fix="profile ProfilerActivity.CPU too", **at)  # fmt: skip
            continue
        starved = budget["idle_host"]
        length = f"{gpu['kernel_us']:.3g}" if gpu["kernel_us"] < 100 else f"{gpu['kernel_us']:.0f}"
        message = f"{name}: the median kernel takes {length} µs, and the GPU is idle for "
        message += f"{starved:.0%} of the step time because the CPU launched nothing"
        found = f"{length} µs, {starved:.1%} idle"
        if gpu["kernel_us"] < SHORT_US and starved > STARVED:
            expected = f"kernels of {SHORT_US:g} µs, or at most {STARVED:.0%} idle"
            yield warned(message, found=found, expected=expected, **at)
        else:
            yield passed(message, found=found, **at)


@check(
    "torch.pauses",
    title="The CPU runs without pauses",
    fault="The CPU pauses in some steps",
    impact="slows-job",
    explains=(("torch.steps", "node"), ("torch.idle", "node")),
    source="Judgement: stretches of 5 ms in which no thread runs an operator; Python's gc module (`gc.freeze`)",
    fix="If garbage collection is the cause, call `gc.disable()`, and `gc.collect()` every few hundred steps, on all "
    "ranks in the same step. Otherwise, profile with with_stack=True, which names the function.",
    action="fix-job",
    answers=("NT-TRN-4", "PA-21"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def pauses(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Find steps in which the CPU runs no operator for unusually long.

    Typical causes are Python's garbage collection, writing a checkpoint and flushing a log.

    ## Why it matters
    A pause of one rank is a pause of all ranks: they wait for it in the next collective. Each rank pauses at a
    different time, so with a hundred ranks nearly every step has a pause.

    ## Verdicts
    The check compares the longest stretch of each step in which no thread runs an operator or calls CUDA, leaving out
    waits for a data loader. A stretch of at least 5 ms that is three times the median of all steps is a pause; in a
    step in which one rank has a pause, half as long is enough on its peers. The check warns if the pauses of the ranks
    that pause in the same steps take more than 1% of the steps' time beyond that median. If the profile contains Python
    stacks, the finding names the function. Fewer than 5 steps are unknown. The idle time of a GPU during pauses that
    warn is judged only here, and not by torch.idle, torch.data-loader, torch.synchronisation and torch.steps.

    ## False alarms
    A step that saves a checkpoint or evaluates the model, in a profile that is shorter than the interval between them.
    """
    same: dict[tuple[int, ...], list[tuple[str, str, int | None]]] = {}
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        paused = run.trace_pauses.get(key)
        if paused is None:
            yield unknown(f"{name}: the trace has fewer than {ENOUGH_STEPS} steps with CPU operators",
                          fix=f"profile {ENOUGH_STEPS} steps of the CPU, with profiler.step()", **at)  # fmt: skip
        elif paused.named:
            same.setdefault(paused.numbers, []).append((key, name, facts["rank"]))
        else:
            yield passed(f"{name}: the CPU pauses for at most {paused.most_ms:.3g} ms in a step, usually "
                         f"{paused.usual_ms:.2g}", **at)  # fmt: skip
    for traces in same.values():
        yield _paused(run, traces)


def _paused(run: RunFacts, traces: Sequence[tuple[str, str, int | None]]) -> Finding:
    """Report the ranks that pause in the same steps."""
    every = [run.trace_pauses[key] for key, _, _ in traces]
    first = every[0]
    longest = max((pause for each in every for pause in each.long), key=lambda pause: pause["ms"])
    where = f", in {longest['function']}" if longest["function"] else ""
    which = f"{'step' if len(first.long) == 1 else 'steps'} {_numbers(first.numbers)}"
    ranks = sorted(rank for _, _, rank in traces if rank is not None)
    who = traces[0][1] if len(traces) == 1 else f"ranks {listed(ranks)}" if ranks else f"{len(traces)} traces"
    lost = f"{fmean(each.lost for each in every):.1%}"
    usual = max(each.usual_ms for each in every)
    return warned(
        f"{who}: in {len(first.long)} of {first.steps} steps ({which}), no thread runs an operator for up to "
        f"{longest['ms']:.3g} ms{where}, usually for {usual:.2g}; the pauses take {lost} of the steps' time",
        subject=who, evidence=[key for key, _, _ in traces], found=f"{lost} of the step time",
        expected=f"at most {PAUSED:.0%}",
    )  # fmt: skip


def _numbers(steps: Sequence[int]) -> str:
    more = f" and {len(steps) - _LISTED} more" if len(steps) > _LISTED else ""
    return ", ".join(map(str, steps[:_LISTED])) + more


@check(
    "torch.memory",
    title="Reserved GPU memory is in use",
    fault="Reserved GPU memory is not in use",
    impact="drifts",
    source="PyTorch, CUDA semantics: memory management (expandable_segments); a fifth and 1 GiB are judgements",
    fix="Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, and use the same shapes in each step.",
    action="fix-job",
    answers=("NT-PIT-6",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def memory(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the memory that PyTorch reserves with its peak use.

    ## Why it matters
    Memory that is reserved in pieces of the wrong size is lost to the job. The job ends with "out of memory" although
    enough is free, or synchronises in every step to free its cache.

    ## Verdicts
    The check warns if more than a fifth of the largest reserved amount, and more than 1 GiB, is not in use even at the
    peak of the profile. A trace without the allocator's events is unknown: `profile_memory=True` adds them.

    ## False alarms
    A profile that does not contain the moment of the peak, such as the first step, or an evaluation.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        if not facts["memory"]:
            yield unknown(f"{name}: the trace contains no event of a GPU's memory allocator",
                          fix="profile with profile_memory=True", **at)  # fmt: skip
        for peak in facts["memory"]:
            reserved, allocated = peak["reserved_bytes"], peak["allocated_bytes"]
            unused = reserved - allocated
            share = unused / reserved if reserved else 0.0
            message = f"{name}: GPU {peak['device']} reserves {reserved / 2**30:.3g} GiB, of which at most "
            message += f"{allocated / 2**30:.3g} are in use"
            if share > FRAGMENTED and unused > WORTH_BYTES:
                yield warned(message, found=f"{share:.0%} unused", expected=f"at most {FRAGMENTED:.0%}", **at)
            else:
                yield passed(message, found=f"{share:.0%} unused", **at)


@check(
    "torch.data-parallel",
    title="Each process computes on one GPU",
    fault="One process computes on several GPUs",
    impact="slows-job",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html (use DistributedDataParallel)",
    fix="Use torch.nn.parallel.DistributedDataParallel, with one process for each GPU (`torchrun`).",
    action="fix-job",
    answers=("NT-DDP-1",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def data_parallel(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Count the GPUs that the process of a trace computes on.

    ## Why it matters
    torch.nn.DataParallel runs all GPUs from one Python process: it copies the model in each step and gathers results on
    the first GPU, while its peers wait.

    ## Verdicts
    Several GPUs in one trace, with the functions of DataParallel that scatter, broadcast or gather, warn. Several GPUs
    without them are unknown: a model may be spread over them. One GPU passes. A trace without a GPU kernel is unknown.

    ## False alarms
    An evaluation with DataParallel alongside distributed training.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        gpus = facts["gpu"]["gpus"] if facts["gpu"] else 0
        if gpus > 1 and facts["data_parallel"]:
            yield warned(f"{name}: one process computes on {gpus} GPUs, with torch.nn.DataParallel", found=gpus,
                         expected=1, **at)  # fmt: skip
        elif gpus > 1:
            yield unknown(f"{name}: one process computes on {gpus} GPUs, without a function of DataParallel",
                          found=gpus, expected=1, fix="check whether the model is spread over them", **at)  # fmt: skip
        elif gpus:
            yield passed(f"{name}: the process computes on one GPU", found=1, **at)
        else:
            yield unknown(f"{name}: no GPU kernel is in the trace", fix="profile ProfilerActivity.CUDA", **at)
