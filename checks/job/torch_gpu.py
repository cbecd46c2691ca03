"""Checks of GPU time in a profiler trace: compute, communication, idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from preflight.checks.job.torch_trace import each, idle_besides_pauses
from preflight.expectations import Site
from preflight.facts.host import size_text
from preflight.facts.job import RunFacts
from preflight.facts.trace.pauses import PART
from preflight.facts.trace.pipelines import between_stages
from preflight.model import Finding, check, passed, unknown, warned
from preflight.parsers.torch.intervals import united

DDP = "https://docs.pytorch.org/docs/stable/notes/ddp.html"

#: Judgement calls, as fractions: exposed communication of a GPU's busy time; exposed communication after the last
#: backward kernel of a step; idle time of a GPU.
EXPOSED, TAIL, IDLE = 0.10, 0.10, 0.10
#: Judgement calls: share of the backward pass after which the first bucket is late, bytes below which a bucket is
#: small, and number of small buckets per step that warns; minimum exposed share of a step.
LATE, SMALL_BYTES, MANY, MATTERS = 0.50, 1 << 20, 32, 0.01


@check(
    "torch.overlap",
    title="Communication overlaps with computation",
    fault="Communication does not overlap with computation",
    impact="slows-job",
    source=f"{DDP}; shares of 10% are judgements; an NCCL kernel starts when its rank reaches it",
    fix="Find the exposed collective in the trace; then set `bucket_cap_mb` (DDP), `forward_prefetch` (FSDP) or "
    "`--overlap-grad-reduce` (Megatron).",
    action="fix-job",
    answers=("NT-TRN-1", "PA-22", "NT-LENS-1", "NT-TRN-2", "NT-DDP-2"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def overlap(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare a GPU's exposed communication time with its busy time.

    The tail of each step is judged as well.

    ## Why it matters
    Exposed communication adds to every step: at 30% of the time, a third of the GPU time is spent waiting.

    ## Verdicts
    More than 10% of a GPU's busy time in exposed communication warns; so does more than 10% of a step, added up, after
    the last kernel of its backward pass (the last buckets' tail). If a GPU is idle for more than 10% of its time,
    little exposed communication is unknown instead of a pass, because the idle time has another cause. A trace without
    a communication kernel, or without a backward pass in a step, is unknown. In a single trace, waiting for a slower
    rank counts as communication; with the matched collectives of several ranks, it does not. If only messages between
    pipeline stages that could not be matched raise it above 10%, the result is unknown. torch.bucket-start judges when
    the first bucket starts.

    ## False alarms
    Inference with tensor parallelism: its layers wait for each other by design.
    """
    items = ("NT-TRN-1", "PA-22", "NT-LENS-1")
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        gpu = facts["gpu"]
        if gpu is None or not gpu["communication_ms"]:
            what = "no GPU kernel" if gpu is None else "no communication kernel"
            yield unknown(
                f"{name}: the trace has {what}", fix="profile ProfilerActivity.CUDA on a rank of the job", **at
            )
            continue
        busy = gpu["span_ms"] - gpu["idle_ms"]
        waited = _waited(run, key)
        share = max(0.0, gpu["exposed_ms"] - (waited or 0.0)) / busy
        idle = _idle(run, key)
        message = (
            f"{name}: {gpu['communication_ms']:g} ms of communication, {gpu['overlap']:.0%} of it overlapped "
            f"with computation; it is exposed for {share:.0%} of the GPU's busy time, and the GPU is idle for "
            f"{idle:.0%} of the total{_besides(run, key)}"
        )
        if waited is not None:
            message += f"; {waited / busy:.0%} more waits for other ranks"
        elif share > EXPOSED:
            message += "; only the traces of other ranks show how much of it is waiting for them"
        found = f"{share:.1%} exposed, {idle:.1%} idle"
        messages = _unmeasured(run, key) / busy
        if EXPOSED < share <= EXPOSED + messages:
            yield unknown(
                f"{message}; messages of pipeline stages, which wait by design, are {messages:.0%}", found=found,
                fix="pass the traces of all stages, of PyTorch 2.6 or later", **at,
            ).about(*items)  # fmt: skip
        elif share > EXPOSED:
            yield warned(message, found=found, expected=f"at most {EXPOSED:.0%} exposed", **at).about(*items)
        elif idle > IDLE:
            yield unknown(f"{message}: this measure does not show what the GPU waits for", found=found,
                          fix="see torch.data-loader and torch.synchronisation; compare the traces of several ranks",
                          **at).about(*items)  # fmt: skip
        else:
            yield passed(message, found=found, **at).about(*items)
        yield from _tail(name, facts, at, _tail_waited(run, key))


def _rank(run: RunFacts, key: str) -> int | None:
    """Return the rank of a trace that was compared with others; None if it was not."""
    return next((rank for rank in run.job_trace.compared if run.job_trace.ranks[rank].key == key), None)


def _besides(run: RunFacts, key: str) -> str:
    """Return words if idle time is counted without pauses, which torch.pauses judges."""
    return " besides pauses of the CPU" if (run.step_budget(key) or {}).get(PART) else ""


def _idle(run: RunFacts, key: str) -> float:
    """Return the share of time in which a GPU is idle, besides pauses in steps."""
    gpu, budget = run.traces[key].document["gpu"], run.step_budget(key)
    return idle_besides_pauses(budget) if budget and budget.get(PART) else float(gpu["idle_ms"] / gpu["span_ms"])


def _waited(run: RunFacts, key: str) -> float | None:
    """Return the exposed waiting time of a trace's rank in ms; None if unknown."""
    rank = _rank(run, key)
    waited = None if rank is None else run.job_trace.waited(rank)
    return None if waited is None else waited / 1000


def _unmeasured(run: RunFacts, key: str) -> float:
    """Return the exposed time of unmatched messages between stages, in ms."""
    rank, trace = _rank(run, key), run.traces[key]
    if any(rank in group.ranks and "sendrecv" in group.kinds for group in run.job_trace.waits.groups):
        return 0.0
    messages = [series for call, series in trace.calls if call.kind in ("send", "recv") and between_stages(call)]
    times = united(sorted(call for series in messages for call in zip(series.begins, series.ends, strict=True)))
    return sum(trace.bare.within(*call) for call in times) / 1000


def _tail_waited(run: RunFacts, key: str) -> float:
    """Return the waiting time in the median tail of a trace in ms; 0 if unknown."""
    rank = _rank(run, key)
    waited = [] if rank is None else run.job_trace.tails_waited(rank)
    return median(waited) / 1000 if waited else 0.0


def _tail(name: str, facts: Mapping[str, Any], at: Mapping[str, Any], waited: float) -> Iterator[Finding]:
    tail, steps = facts["gpu"]["tail"], facts["steps"]
    if not steps or not steps["p50_ms"]:
        yield unknown(f"{name}: the trace marks no steps", fix="call profiler.step() after each step", **at).about(
            "NT-TRN-2", "NT-DDP-2")  # fmt: skip
        return
    if not tail:
        yield unknown(f"{name}: no step has a known kernel of a backward pass, so no tail",
                      fix="profile ProfilerActivity.CPU too, in training", **at).about(
            "NT-TRN-2", "NT-DDP-2")  # fmt: skip
        return
    bare = max(0.0, tail["p50_ms"] - waited)
    share = bare / steps["p50_ms"]
    message = f"{name}: after the last kernel of the backward pass, a step only communicates for {bare:.4g} of "
    message += f"{steps['p50_ms']:g} ms (median of {tail['count']})"
    if waited:
        message += f", and waits for other ranks for {waited:.3g}"
    found = f"{share:.1%} of a step"
    if share > TAIL:
        yield warned(message, found=found, expected=f"at most {TAIL:.0%}", **at).about("NT-TRN-2", "NT-DDP-2")
    else:
        yield passed(message, found=found, **at).about("NT-TRN-2", "NT-DDP-2")


@check(
    "torch.idle",
    title="The GPU is busy while the job runs",
    fault="The GPU is idle while the job runs",
    impact="slows-job",
    source="Judgement: idle for a tenth of its time; Kineto's kernels, all streams of a GPU combined",
    fix="Find the cause: see torch.data-loader, torch.synchronisation and torch.overlap; for small kernels, try "
    "`torch.compile` or CUDA graphs.",
    action="fix-job",
    answers=("PA-20",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def idle(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the idle time of a GPU in the trace with a limit of 10%.

    The time runs from the GPU's first kernel to its last.

    ## Why it matters
    An idle GPU costs as much as a busy one. The driver's utilisation counts a second as busy if any kernel ran in it,
    and a single reading shows nothing about a job.

    ## Verdicts
    More than 10% idle warns. A GPU that only copies memory is not idle; that share is reported separately. The
    finding also states the cause of idle time: data, if the CPU is in a DataLoader or a step begins with a copy to the
    GPU; synchronisation, if the GPU becomes idle while the CPU waits for it; the CPU, if no kernel was launched. A
    trace without GPU kernels is unknown.

    ## False alarms
    A profile that begins before the job, or includes a pause such as a checkpoint.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        gpu = facts["gpu"]
        if gpu is None or not gpu["span_ms"]:
            yield unknown(f"{name}: the trace has no GPU kernel", fix="profile ProfilerActivity.CUDA", **at)
            continue
        share = _idle(run, key)
        message = f"{name}: the GPU is idle for {gpu['idle_ms'] / gpu['span_ms']:.0%} of {gpu['span_ms']:g} ms"
        message += _of_the_steps(run.step_budget(key))
        message += f"; for {share:.0%}{besides}" if (besides := _besides(run, key)) else ""
        if share > IDLE:
            yield warned(message, found=f"{share:.1%}", expected=f"at most {IDLE:.0%}", **at)
        else:
            yield passed(message, found=f"{share:.1%}", **at)


#: Names of the parts of idle time in a finding.
_IDLE_PARTS = {
    PART: "pauses",
    "idle_host": "CPU",
    "idle_sync": "synchronisation",
    "idle_data": "data",
    "idle_other": "start of kernels",
}


def _of_the_steps(budget: Mapping[str, float] | None) -> str:
    """Describe how the time of the steps is spent; empty if unknown."""
    if budget is None:
        return ""
    causes = [f"{label} {budget[part]:.0%}" for part, label in _IDLE_PARTS.items() if budget.get(part, 0.0) >= 0.005]
    copies = f", copies {budget['copies']:.0%}" if budget["copies"] >= 0.005 else ""
    idle = sum(budget.get(part, 0.0) for part in _IDLE_PARTS)
    due = f" ({', '.join(causes)})" if causes else ""
    return (f"; of the steps: computing {budget['compute']:.0%}, exposed communication {budget['communication']:.0%}"
            f"{copies}, idle {idle:.0%}{due}")  # fmt: skip


@check(
    "torch.bucket-start",
    title="Gradients are reduced while the backward pass runs",
    fault="Gradients are reduced late, or in many small pieces",
    impact="slows-job",
    explains=(("torch.overlap", "part"), ("torch.exposed-collectives", "node")),
    source=f"{DDP} (bucketing); half of the pass, 1 MiB and 32 buckets are judgements",
    fix="If they start late, use a smaller `bucket_cap_mb` (DDP) or `--overlap-grad-reduce` (Megatron); if they are "
    "small, use a larger one, or flatten parameters.",
    action="fix-job",
    answers=("NT-DDP-2",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def bucket_start(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure when the first gradients are reduced, and in what bucket sizes.

    ## Why it matters
    A bucket is sent as soon as its gradients are ready. One large bucket starts after the backward pass, so nothing
    overlaps; each of many small buckets adds the latency of a collective.

    ## Verdicts
    Gradients are all-reduces and reduce-scatters of at least 64 KiB that never run before a step's last backward pass.
    If communication is exposed for more than 1% of the steps, the check warns in two cases: the first of these
    collectives starts in the second half of that pass, or a step has more than 32 of them, with a median size below 1
    MiB. Stages of a pipeline, and traces without such a collective, are unknown.

    ## False alarms
    A model with most of its parameters in the last layers, which the backward pass reaches first.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        gpu = facts["gpu"]
        if gpu is None or not gpu["buckets"] or not gpu["budget"]:
            yield unknown(f"{name}: no reduction of gradients is known in the backward pass of a step",
                          fix="profile ProfilerActivity.CPU and CUDA with profiler.step(); PyTorch 2.2 or later", **at
                          )  # fmt: skip
            continue
        pieces, exposed = gpu["buckets"], gpu["budget"]["communication"]
        size = f", {size_text(pieces['median_bytes'])} each (median)" if pieces["median_bytes"] is not None else ""
        buckets = f"{pieces['per_step']:g} bucket{'' if pieces['per_step'] == 1 else 's'}"
        message = f"{name}: {buckets} per step{size}; the first starts when {pieces['first']:.0%} of the backward pass "
        message += f"is over; communication is exposed for {exposed:.0%} of the step time"
        small = pieces["median_bytes"] is not None and pieces["median_bytes"] < SMALL_BYTES
        if exposed > MATTERS and pieces["first"] > LATE:
            yield warned(message, found=f"{pieces['first']:.0%}", expected=f"at most {LATE:.0%}", **at)
        elif exposed > MATTERS and small and pieces["per_step"] > MANY:
            yield warned(message, found=f"{pieces['per_step']:g} buckets", expected=f"at most {MANY} this small", **at)
        else:
            yield passed(message, found=f"{pieces['first']:.0%}", **at)
