"""Checks of training steps, in a profiler trace or a job's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.checks.job.training_log import judge_training
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.pauses import PART
from preflight.model import Finding, check, passed, times, unknown, warned
from preflight.parsers.torch.samples import sample_of

TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

#: Judgement calls, as fractions: of the steps' time, for the data loader and for the CPU waiting for the GPU; of the
#: mean step, for the standard deviation; of the median step, for the worst step.
LOADER, SYNCHRONISED, VARIATION, WORST = 0.10, 0.01, 0.10, 0.20
#: Number of steps at which their variation becomes meaningful, and at which an event counts as recurring.
ENOUGH_STEPS, FEW_STEPS = 5, 2
#: Minimum length of a stretch in which the CPU runs nothing, which is known to a millisecond.
QUIET_MS = 2.0


def each(run: RunFacts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield for each trace its record key, display name and facts."""
    for key, trace in run.traces.items():
        facts = trace.document
        rank = f" (rank {facts['rank']})" if facts["rank"] is not None else ""
        yield key, f"{key.removeprefix('log:')}{rank}", facts


def idle_besides_pauses(budget: Mapping[str, float]) -> float:
    """Return the share of the steps in which the GPU is idle, besides pauses."""
    return sum(share for part, share in budget.items() if part.startswith("idle_") and part != PART)


@check(
    "torch.synchronisation",
    title="No step makes the CPU wait for the GPU",
    fault="A step makes the CPU wait for the GPU",
    impact="slows-job",
    explains=(("torch.idle", "part"),),
    source=f"{TUNING} (avoid unnecessary CPU-GPU synchronization)",
    fix="Keep losses on the GPU and read them every hundred steps; use `.to(device, non_blocking=True)` with "
    "pinned memory.",
    action="fix-job",
    answers=("NT-TRN-3",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def synchronisation(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure how long the CPU waited for the GPU within steps.

    The CPU waits in .item(), synchronize() and copies, for example.

    ## Why it matters
    While the CPU waits, it launches no kernels: the GPU is idle at the start of the next step on every rank, and the
    slowest rank delays all others.

    ## Verdicts
    The check warns if the waits cost at least 1% of the steps' time. This means that the CPU waits for this long, and
    that the GPU is idle for this long, during or after the wait or because nothing was launched. A wait for a GPU that
    stays busy costs nothing, as at the end of a step that logs its loss. CUDA and HIP calls that block until the GPU is
    done are counted in threads that launch kernels: synchronisation of a stream, device or event, and blocking copies
    such as those of pageable memory. .item() of a CPU tensor makes no such call. The profiler itself synchronises once,
    at its end. Idle time that torch.pauses or torch.straggler reports does not count.

    ## False alarms
    A CPU that is slow for another reason and also waits for the GPU.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        steps = facts["steps"]["count"] if facts["steps"] else 0
        if facts["gpu"] is None or steps < FEW_STEPS or not facts["steps"]["total_ms"]:
            what = "no GPU kernel" if facts["gpu"] is None else f"{steps} steps"
            yield unknown(f"{name}: {what} in the trace", fix="profile at least 2 steps, with profiler.step()", **at)
            continue
        if not facts["gpu"]["launched"]:
            yield unknown(f"{name}: the trace has no CUDA runtime call, so no CPU wait",
                          fix="profile ProfilerActivity.CPU too", **at)  # fmt: skip
            continue
        lost, total = facts["synchronised_ms"], facts["steps"]["total_ms"]
        calls = ", ".join(f"{one['name']} {times(one['count'])}" for one in facts["synchronisations"])
        message = f"{name}: the CPU waits {lost:g} ms for the GPU in {steps} steps of {total:g} ms in total"
        message += f" ({calls})" if calls else ""
        budget = run.step_budget(key)
        idle = budget["idle_sync"] + budget["idle_host"] if budget else 1.0
        if elsewhere := _idle_of_a_late_stage(run, key, facts):
            idle = max(0.0, idle - elsewhere)
            message += "; its idle time while the CPU runs nothing is that of torch.straggler"
        cost = min(lost / total, idle)
        message += f"; the GPU is idle for {idle:.2%} of that time for lack of work" if budget and lost else ""
        if cost >= SYNCHRONISED:
            yield warned(message, found=f"{cost:.2%}", expected=f"less than {SYNCHRONISED:.0%}", **at)
        else:
            yield passed(message, found=f"{cost:.2%}", **at)


def _idle_of_a_late_stage(run: RunFacts, key: str, facts: Mapping[str, Any]) -> float:
    """Return the share of idle time that torch.straggler reports for a stage."""
    if not any(straggler.idle and run.job_trace.ranks[straggler.rank].key == key
               for straggler in run.job_trace.stragglers):  # fmt: skip
        return 0.0
    quiet = [pause["idle"] for pause in facts["pauses"] or () if pause["ms"] >= QUIET_MS]
    return sum(float(parts.get(part, 0.0)) for parts in quiet for part in ("idle_sync", "idle_host"))


@check(
    "torch.data-loader",
    title="Steps do not wait for data",
    fault="Steps wait for data",
    impact="slows-job",
    explains=(("torch.idle", "node"), ("torch.steps", "node")),
    source=f"{TUNING} (asynchronous data loading); the share of 10% is a judgement",
    fix="Use more workers, pin_memory=True and persistent_workers=True; then check the storage (`preflight check`).",
    action="fix-job",
    answers=("NT-TRN-4",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def data_loader(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the time that steps wait for the next batch with their total.

    ## Why it matters
    A rank that waits for data is late in every collective; on all other ranks it looks as if NCCL were slow.

    ## Verdicts
    Waits in threads that launch kernels are counted while the GPU is idle: a wait hidden by queued work costs nothing.
    More than 10% of the steps' time warns. If the trace has no DataLoader, the check warns if the GPU is idle for this
    long before a step's first copy to the GPU is launched, passes if the GPU is never idle for this long, and is
    unknown otherwise.

    ## False alarms
    The first step, while the workers start; profile later steps.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        loader, gpu = facts["data_loader"], facts["gpu"]
        budget = run.step_budget(key) if facts["steps"] else None
        if loader is not None and loader["share_of_steps"] is not None:
            waited = loader["share_of_steps"]
            idle = idle_besides_pauses(budget) if budget else 1.0
            share = min(waited, idle)
            message = f"{name}: {waited:.1%} of the steps' time is spent waiting for {loader['count']} batches"
            message += f", while the GPU is idle for {idle:.1%}" if budget else ""
            if share > LOADER:
                yield warned(message, found=f"{share:.1%}", expected=f"at most {LOADER:.0%}", **at)
            else:
                yield passed(message, found=f"{share:.1%}", **at)
        elif budget and budget["idle_data"] > LOADER:
            share = budget["idle_data"]
            yield warned(f"{name}: for {share:.1%} of the steps' time, the GPU is idle until the first copy of a step "
                         "to it is launched", found=f"{share:.1%}", expected=f"at most {LOADER:.0%}", **at)  # fmt: skip
        elif budget and budget.get(PART) and (idle := idle_besides_pauses(budget)) <= LOADER:
            yield passed(f"{name}: the GPU is idle for {idle:.1%} of the steps' time, besides pauses", **at)
        elif gpu is not None and gpu["span_ms"] and gpu["idle_ms"] <= LOADER * gpu["span_ms"]:
            yield passed(f"{name}: the GPU is idle for {gpu['idle_ms'] / gpu['span_ms']:.1%} of its time", **at)
        else:
            fix = "profile the loop with profiler.step()"
            yield unknown(f"{name}: the trace names no DataLoader in a step", fix=fix, **at)


@check(
    "torch.steps",
    title="Steps take the same time",
    fault="Steps take different times",
    impact="slows-job",
    source="Judgement: a standard deviation of more than a tenth of the mean; at least 5 steps",
    fix="Compare with the traces of other ranks; check checkpoints, `gc.freeze()`, the data loader and "
    "`nvidia-smi -q -d PERFORMANCE`.",
    action="fix-job",
    answers=("PA-21", "FP-OBS-8"),
    scope="run",
    gating=False,
    needs=("trace", "steps"),
)
def steps(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure how much the times of the steps differ.

    ## Why it matters
    In each step, all ranks wait for the slowest one, so occasional delays on single ranks become frequent delays of the
    job.

    ## Verdicts
    A standard deviation above 10% of the mean warns, and so does a step that takes 20% longer than the median. If the
    long steps occur at regular intervals, the finding names the interval. A first step of the profile that takes
    longer is reported, but not judged. Fewer than 5 steps are unknown.

    The step lines of a job's log are those of Megatron-LM, DeepSpeed, Hugging Face, Lightning, NeMo, torchtitan, and
    programs that print `step`, `loss` and a time. The first step is not judged, nor the first after a restart, at which
    the number of the step falls. Steps above twice the median warn if they take more than 1% of the time; so do steps
    above 1.2 times the median that recur at regular intervals or among otherwise even times. The check warns if all
    steps after some point take 1.5 times as long, or if times grow by more than 5% from the first to the last quarter
    of 20 steps or more. A standard deviation above 15%, without the slowest tenth, is unknown: sequences may differ in
    length. So is a median MFU below 15%. A loss that is not a number fails; one that doubles, or a gradient that is not
    a number, warns. Fewer than 8 steps only pass if none takes twice as long as another. If several ranks print lines,
    each rank is judged. Steps that recur and take less than 1% of the time are named in the pass.

    A progress bar shows averages, from which the time of each step is computed if every state of the bar is in the
    log. Lightning's bar shows a mean since its start, so only its full seconds are used: steps of 20 s or more are
    judged alone, and shorter ones by means over 20 s. Even means are unknown, because a single long step may be hidden.

    ## False alarms
    Sequences of different lengths, a step that saves a checkpoint, or micro-steps between optimizer steps that
    are profiled as steps. A curriculum that lengthens sequences is growth by design. A line that averages many steps
    hides a long one.
    """
    yield from judge_training(run)
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        sample = facts["steps"]
        if not sample:
            yield unknown(f"{name}: the trace marks no steps", fix="call profiler.step() after each step", **at)
            continue
        first, later = facts["first_step_ms"], facts["later_steps"]
        paused = run.trace_pauses.get(key)
        without = later and later["count"] >= ENOUGH_STEPS - 1 and first > (1 + WORST) * later["p50_ms"]
        sample = later if without else sample
        message = (
            f"{name}: {sample['count']} steps of {sample['mean_ms']:g} ms on average, from {sample['min_ms']:g} to "
            f"{sample['max_ms']:g}"
        )
        message += f", after a first step of {first:g} ms" if without else ""
        yield passed(message, found=f"{sample['mean_ms']:g} ms", **at).about("FP-OBS-8")
        if facts["steps"]["count"] < ENOUGH_STEPS:
            yield unknown(f"{name}: {sample['count']} steps are too few to judge their spread",
                          fix=f"profile at least {ENOUGH_STEPS} steps", **at).about("PA-21")  # fmt: skip
        elif paused and paused.named and (even := _even(paused.lengths(facts["pauses"]))) is not None:
            yield passed(f"{message}: a spread of {even:.0%} without the steps that torch.pauses reports",
                         found=f"{even:.1%}", **at).about("PA-21")  # fmt: skip
        elif sample["variation"] > VARIATION:
            every = facts["long_steps_every"]
            which = f"; one in {every} is long: the accumulation of gradients, or a pause" if every else ""
            yield warned(f"{message}: a spread of {sample['variation']:.0%}{which}", found=f"{sample['variation']:.1%}",
                         expected=f"at most {VARIATION:.0%}", **at).about("PA-21")  # fmt: skip
        elif sample["max_ms"] > (1 + WORST) * sample["p50_ms"]:
            over = sample["max_ms"] / sample["p50_ms"] - 1
            yield warned(f"{message}: the worst takes {over:.0%} longer than the median of {sample['p50_ms']:g}",
                         found=f"{over:.1%}", expected=f"at most {WORST:.0%}", **at).about("PA-21")  # fmt: skip
        else:
            yield passed(f"{message}: a spread of {sample['variation']:.0%}", **at).about("PA-21")


def _even(lengths: Sequence[float]) -> float | None:
    """Return the variation of steps after a long first one; None if it is much."""
    if len(lengths) < ENOUGH_STEPS:
        return None
    first, later = lengths[0], sample_of(lengths[1:])
    sample = later if later and first > (1 + WORST) * later["p50_ms"] else sample_of(lengths)
    if not sample or sample["variation"] > VARIATION or sample["max_ms"] > (1 + WORST) * sample["p50_ms"]:
        return None
    return float(sample["variation"])
