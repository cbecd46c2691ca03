"""A profiler's trace: what the steps of training wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, warned

TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

#: Judgements, each a share: of the steps' time that the data loader takes, and that the CPU waits for the GPU; of the
#: mean step, their standard deviation, and what the worst takes longer than the median.
LOADER, SYNCHRONISED, VARIATION, WORST = 0.10, 0.01, 0.10, 0.20
#: Share of a GPU's time below which waiting for others, which is part of communication, cannot matter.
HARDLY = 0.01
#: Steps below which their spread tells nothing, and steps below which nothing is said to happen in each.
ENOUGH_STEPS, FEW_STEPS = 5, 2
#: How far the 99th percentile of one collective's times may lie above its median.
SPREAD = 3.0
#: A second GPU that communicates less than this share of the others' time is waited for.
STRAGGLES = 0.5


def each(run: RunFacts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield of each trace its record key, what to call it, and its facts."""
    for key, trace in run.traces.items():
        facts = trace.document()
        rank = f" (rank {facts['rank']})" if facts["rank"] is not None else ""
        yield key, f"{key.removeprefix('log:')}{rank}", facts


@check(
    "torch.synchronisation",
    title="No step waits for the GPU on the CPU's side",
    impact="slows-job",
    source=f"{TUNING} (avoid unnecessary CPU-GPU synchronization)",
    fix="Keep losses on the GPU and read them every hundred steps; `.to(device, non_blocking=True)` of pinned memory.",
    action="fix-job",
    answers=("NT-TRN-3",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def synchronisation(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure, within the steps, how long calls made the CPU wait for the GPU (.item(), synchronize(), copies).

    ## Why it matters
    While the CPU waits it launches nothing: the GPU runs dry at the start of the next step, on every rank, and the
    slowest rank holds up all others.

    ## Verdicts
    From 1 % of the steps' time on it warns. CUDA's and HIP's calls count that return when the GPU is done:
    synchronisation of a stream, a device or an event, and copies that wait, as those of pageable memory do; of
    threads that launch kernels. .item() of a tensor on the CPU makes no such call and costs nothing. The profiler
    itself synchronises once, at its end.

    ## False alarms
    A wait at the end of a step while the GPU still has much to do; see torch.overlap for how long it is
    idle.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        steps = facts["steps"]["count"] if facts["steps"] else 0
        if facts["gpu"] is None or steps < FEW_STEPS or not facts["steps"]["total_ms"]:
            what = "no kernel of a GPU" if facts["gpu"] is None else f"{steps} steps"
            yield unknown(f"{name}: {what} in the trace", fix="profile at least 2 steps, with profiler.step()", **at)
            continue
        if not facts["gpu"]["launched"]:
            yield unknown(f"{name}: the trace holds no call of CUDA's runtime, so no wait of the CPU",
                          fix="profile ProfilerActivity.CPU too", **at)  # fmt: skip
            continue
        lost, total = facts["synchronised_ms"], facts["steps"]["total_ms"]
        calls = ", ".join(f"{one['name']} {one['count']} times" for one in facts["synchronisations"])
        message = f"{name}: the CPU waits for the GPU for {lost:g} ms of {steps} steps of {total:g} ms"
        message += f" ({calls})" if calls else ""
        if lost >= SYNCHRONISED * total:
            yield warned(message, found=f"{lost / total:.2%}", expected=f"less than {SYNCHRONISED:.0%}", **at)
        else:
            yield passed(message, found=f"{lost / total:.2%}", **at)


@check(
    "torch.data-loader",
    title="Steps do not wait for data",
    impact="slows-job",
    explains=(("torch.idle", "node"), ("torch.steps", "node")),
    source=f"{TUNING} (asynchronous data loading); the share of 10 % is a judgement",
    fix="More workers, pin_memory=True, persistent_workers=True; then the storage behind it (`preflight check`).",
    action="fix-job",
    answers=("NT-TRN-4",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def data_loader(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the time in which steps wait for the next batch with the time of all steps.

    ## Why it matters
    A rank that waits for its data comes late to every collective: on all others it looks as if NCCL were slow.

    ## Verdicts
    More than 10 % of the steps' time warns. Where the trace names no DataLoader nothing is known, unless the GPU is
    never idle for so long.

    ## False alarms
    The first step, whose workers only start; profile later ones.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        loader, gpu = facts["data_loader"], facts["gpu"]
        if loader is not None and loader["share_of_steps"] is not None:
            share = loader["share_of_steps"]
            message = f"{name}: {share:.1%} of the steps' time goes to waiting for {loader['count']} batches"
            if share > LOADER:
                yield warned(message, found=f"{share:.1%}", expected=f"at most {LOADER:.0%}", **at)
            else:
                yield passed(message, found=f"{share:.1%}", **at)
        elif gpu is not None and gpu["span_ms"] and gpu["idle_ms"] <= LOADER * gpu["span_ms"]:
            yield passed(f"{name}: the GPU is idle for {gpu['idle_ms'] / gpu['span_ms']:.1%} of its time", **at)
        else:
            fix = "profile the loop with profiler.step()"
            yield unknown(f"{name}: the trace names no DataLoader in a step", fix=fix, **at)


@check(
    "torch.steps",
    title="Steps take the same time",
    impact="slows-job",
    source="Judgement: a standard deviation of more than a tenth of the mean; at least 5 steps",
    fix="Compare with the other ranks' traces; look at checkpoints, `gc.freeze()`, the data loader, `nvidia-smi "
    "-q -d PERFORMANCE`.",
    action="fix-job",
    answers=("PA-21", "FP-OBS-8"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def steps(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure how much the times of the steps differ.

    ## Why it matters
    All ranks take as long as the slowest in each step: what one rank loses now and then, all lose often.

    ## Verdicts
    A standard deviation above 10 % of the mean warns, and so does a step that takes 20 % longer than the median.
    Fewer than 5 steps tell nothing.

    ## False alarms
    Sequences of different lengths, or a step that saves a checkpoint.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        sample = facts["steps"]
        if not sample:
            yield unknown(f"{name}: the trace marks no steps", fix="call profiler.step() after each", **at)
            continue
        message = (
            f"{name}: {sample['count']} steps of {sample['mean_ms']:g} ms on average, from {sample['min_ms']:g} to "
            f"{sample['max_ms']:g}"
        )
        yield passed(message, found=f"{sample['mean_ms']:g} ms", **at).about("FP-OBS-8")
        if sample["count"] < ENOUGH_STEPS:
            yield unknown(f"{name}: {sample['count']} steps are too few to tell their spread",
                          fix=f"profile at least {ENOUGH_STEPS} steps", **at).about("PA-21")  # fmt: skip
        elif sample["variation"] > VARIATION:
            yield warned(f"{message}: a spread of {sample['variation']:.0%}", found=f"{sample['variation']:.1%}",
                         expected=f"at most {VARIATION:.0%}", **at).about("PA-21")  # fmt: skip
        elif sample["max_ms"] > (1 + WORST) * sample["p50_ms"]:
            over = sample["max_ms"] / sample["p50_ms"] - 1
            yield warned(f"{message}: the worst takes {over:.0%} longer than the median of {sample['p50_ms']:g}",
                         found=f"{over:.1%}", expected=f"at most {WORST:.0%}", **at).about("PA-21")  # fmt: skip
        else:
            yield passed(f"{message}: a spread of {sample['variation']:.0%}", **at).about("PA-21")


@check(
    "torch.collective-times",
    title="A collective takes about the same time each time",
    impact="slows-job",
    source="Nearest-rank percentiles: p99 of at least 100, p99.9 of at least 1000; three times the median: a judgement",
    fix="Profile more ranks: one that comes late makes all others wait; then congestion: `preflight check "
    "--window 60`.",
    action="fix-job",
    answers=("FP-LAT-1",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def collective_times(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Tell the percentiles of the times of each collective and size, and compare p99 with the median.

    ## Why it matters
    Synchronisation takes as long as its slowest member: the tail of the distribution, not its mean, is the step time.

    ## Verdicts
    A p99 above three times the median warns. The kernel's time holds the waiting for other ranks. Too few samples for
    a p99 are unknown.

    ## False alarms
    Different sizes under one name, where the trace has no sizes (before PyTorch 2.2).
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        known = [one for one in facts["collectives"] if one.get("p99_ms") is not None]
        if not known:
            most = max((one["count"] for one in facts["collectives"] if "count" in one), default=0)
            yield unknown(f"{name}: at most {most} collectives of one kind and size: too few for a 99th percentile",
                          fix="profile more steps: 100 collectives for p99, 1000 for p99.9", **at)  # fmt: skip
            continue
        for one in known[:5]:
            last = f", p99.9 {one['p999_ms']:g}" if one["p999_ms"] is not None else ""
            size = f" of {one['bytes']} bytes" if one["bytes"] is not None else ""
            message = f"{name}: {one['name']}{size}: median {one['p50_ms']:g} ms, p99 {one['p99_ms']:g}{last}"
            if one["p50_ms"] and one["p99_ms"] > SPREAD * one["p50_ms"]:
                yield warned(message, found=f"{one['p99_ms'] / one['p50_ms']:.1f} times the median",
                             expected=f"at most {SPREAD:g} times", **at)  # fmt: skip
            else:
                yield passed(message, found=f"{one['p99_ms']:g} ms", **at)


@check(
    "torch.straggler",
    title="No rank is waited for by all others",
    impact="slows-job",
    source="Judgement: half of the others' median communication time; NCCL's kernels wait inside",
    fix="Look at that rank's node: clocks, throttling, its NIC and CPUs, its data (`preflight check --hosts NODE`).",
    answers=("PA-23", "NT-LENS-6"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def straggler(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the time that the kernels of NCCL take on each rank: who waits least is waited for.

    ## Why it matters
    A collective ends for all at once. The rank that comes to it last finds all others there and spends the least
    time in it; the others' time is waiting.

    ## Verdicts
    A rank with less than half of the median of the others warns. Sums over a whole trace hide a rank that is late in
    one kind of group, such as tensor or expert parallelism, and one that is late now and then: it passes only where
    all communication, and with it all waiting, is less than 1 % of each GPU's time, and is unknown else. Traces of two
    ranks of one job, at least, over the same steps.

    ## False alarms
    Pipeline stages and ranks with different work; compare those of one data-parallel group.
    """
    ranks = [(name, key, facts) for key, name, facts in each(run)]
    times = [(facts["gpu"]["communication_ms"], name, key) for name, key, facts in ranks
             if facts["gpu"] and facts["gpu"]["communication_ms"]]  # fmt: skip
    keys = [key for _, key, _ in ranks]
    if len(times) < 2:
        yield unknown(f"{len(times)} traces with kernels that communicate: it takes two ranks", evidence=keys,
                      fix="give the traces of several ranks: --log rank0.json --log rank1.json")  # fmt: skip
        return
    times.sort()
    least, name, key = times[0]
    others = sorted(time for time, _, _ in times[1:])
    median = others[len(others) // 2]
    message = f"{name} spends {least:g} ms in collectives, the others {median:g} (median of {len(others)})"
    most = max(facts["gpu"]["communication_share"] for _, _, facts in ranks if facts["gpu"])
    if least < STRAGGLES * median:
        yield warned(f"{message}: they wait for it", subject=name, found=f"{least / median:.0%}",
                     expected=f"at least {STRAGGLES:.0%}", evidence=[key])  # fmt: skip
    elif most <= HARDLY:
        yield passed(f"no rank is waited for: {message}, at most {most:.1%} of a GPU's time", evidence=keys)
    else:
        yield unknown(f"{message}; up to {most:.0%} of a GPU's time: how much of it is waiting, and for which rank, "
                      "these sums do not show", found=f"{least / median:.0%}", evidence=keys,
                      fix="compare when each rank starts the same collective, in the traces of all ranks")  # fmt: skip
