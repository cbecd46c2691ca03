"""The facts of a complete trace: steps, GPUs, collectives, waiting, pauses.

Times in the document are milliseconds; those that are compared with other ranks are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.torch.collective_calls import CallKey, CallSeries, ordered
from preflight.parsers.torch.gpu_work import COMPUTE, GpuWork
from preflight.parsers.torch.gradient_buckets import buckets
from preflight.parsers.torch.host_activity import QuietStretch
from preflight.parsers.torch.intervals import Coverage, Spans, Stretch, clipped, total, united
from preflight.parsers.torch.kernel_times import KernelTally, KernelTimes
from preflight.parsers.torch.launches import BackwardPass
from preflight.parsers.torch.samples import rounded, sample_of
from preflight.parsers.torch.step_budget import BusyTime, QuietIdle, StepBudget, budget
from preflight.parsers.torch.step_shades import StepShades, shades

if TYPE_CHECKING:
    from preflight.parsers.torch.profiler_trace import Trace


#: Maximum overlap of two successive steps, as a fraction of the later one.
_ROUNDING = 0.01
#: Minimum length of a stored gap in microseconds, more than that between two kernels; maximum number of gaps.
_LEAST_GAP_US, _MOST_GAPS = 10.0, 100_000


@dataclass(frozen=True)
class TraceSummary:
    """A trace's document, and the values that are compared with other ranks."""

    document: dict[str, Any]
    calls: Sequence[tuple[CallKey, CallSeries]]
    bare: Coverage  # communication while no kernel computes, microseconds
    steps: Mapping[int, Stretch]  # by number, microseconds
    compute: Mapping[int, float]  # with sends or receives: compute time of each step by number, microseconds
    kernels: Mapping[int, KernelTimes]  # with sends or receives: those of compute kernels
    tails: Sequence[Stretch]  # for each step with a backward pass, the time from its end to the optimizer
    shades: Mapping[int, StepShades]  # by step number
    gaps: Spans  # with sends or receives: long times in which the GPU is idle, microseconds


def summarize(trace: Trace) -> TraceSummary:
    """Return the facts of a complete trace."""
    steps = sorted(trace.steps)
    spans = {trace.numbers[begin]: (begin, end) for begin, end in steps if begin in trace.numbers}
    calls = _calls_in_steps(trace, spans)
    busy = {}
    for device, work in trace.work.items():
        work.order()
        if work.kernels():
            busy[device] = BusyTime(work)
    passes = {device: trace.launches.backward_passes(trace.work[device], steps) for device in busy}
    document = _document(trace, steps, calls, busy, passes)
    if len(busy) != 1:  # if a process uses several GPUs, the GPU of a rank is unknown
        return TraceSummary(document, (), Coverage(()), spans, {}, {}, (), {}, Spans())
    ((device, only),) = busy.items()
    staged = any(key.kind in ("send", "recv") for key, _ in calls)
    computed, kernels = _computed(trace, trace.work[device], spans) if staged else ({}, {})
    tails = [(each.end, each.until) for each in passes[device]]
    gaps = _gaps(only) if staged else Spans()
    return TraceSummary(
        document, calls, Coverage(only.bare), spans, computed, kernels, tails, shades(spans, only), gaps
    )


def _gaps(busy: BusyTime) -> Spans:
    """Return a GPU's longer idle intervals; of very many, only the longest."""
    least, gaps = _LEAST_GAP_US, Spans()
    for gap in busy.gaps([(busy.begin, busy.end)]):
        if gap[1] - gap[0] >= least:
            gaps.add(*gap)
        if len(gaps) > _MOST_GAPS:
            least *= 2
            gaps = Spans((begin, end) for begin, end in gaps if end - begin >= least)
    return gaps


def _computed(
    trace: Trace, work: GpuWork, spans: Mapping[int, Stretch]
) -> tuple[dict[int, float], dict[int, KernelTimes]]:
    """Return the time of the compute kernels of each step, and of each kernel.

    The CPU may be steps ahead of the GPU.
    """
    steps, numbers = _numbered(trace, spans)
    computed = dict.fromkeys(spans, 0.0)
    tally = KernelTally(work, trace.kernels, len(steps))
    until = float("-inf")
    launches = trace.launches.begun.launches(work.correlations)
    columns = zip(work.begins, work.ends, work.kinds, work.numbers, launches, strict=True)
    for begin, end, kind, number, (launch, _) in columns:
        if kind != COMPUTE:
            continue
        place = steps.place(launch if launch == launch else begin)
        if place >= 0:
            tally.add(number, numbers[place], end - begin)
            computed[numbers[place]] += max(0.0, end - max(begin, until))
        until = max(until, end)
    return computed, tally.times()


def _numbered(trace: Trace, spans: Mapping[int, Stretch]) -> tuple[Spans, list[int]]:
    """Return the steps in time order, and their numbers."""
    steps = Spans(sorted(spans.values()))
    return steps, [trace.numbers[begin] for begin in steps.begins]


def _calls_in_steps(trace: Trace, spans: Mapping[int, Stretch]) -> Sequence[tuple[CallKey, CallSeries]]:
    """Assign the collective calls to their steps; return them in time order."""
    calls = ordered(trace.calls)
    steps, numbers = _numbered(trace, spans)
    for _, series in calls:
        for begin, correlation in zip(series.begins, series.correlations, strict=True):
            launched = trace.launches.begun.begin(correlation)
            at = steps.place(begin if launched is None else launched)
            series.steps.append(numbers[at] if at >= 0 else -1)
    return calls


def _document(
    trace: Trace, steps: Sequence[Stretch], calls: Sequence[tuple[CallKey, CallSeries]],
    busy: Mapping[Any, BusyTime], passes: Mapping[Any, Sequence[BackwardPass]],
) -> dict[str, Any]:  # fmt: skip
    about = trace.about
    lengths = [(end - begin) / 1000 for begin, end in steps]
    waits = trace.launches.waits()
    loaders = [own for thread, own in trace.loads.items() if trace.launches.launching(thread)]
    loads = united(sorted(stretch for own in loaders for stretch in own.joined()))
    span = (trace.end - trace.begin) / 1000 if trace.end > trace.begin else None
    quiet = trace.host.pauses(_apart(steps), loads)
    gpu, idle = _gpu(trace, steps, calls, busy, passes, loads, waits, quiet or ())
    return {
        "rank": _number(about.get("rank")), "world_size": _number(about.get("world_size")),
        "backend": about.get("backend"), "backend_config": about.get("backend_config"),
        "nccl_version": about.get("nccl_version"), "host": about.get("host_name"),
        "devices": about.get("devices") or [], "device_count": about.get("device_count"),
        "events": trace.events, "span_ms": rounded(span),
        "steps": sample_of(lengths), "later_steps": sample_of(lengths[1:]), "first_step_ms": _first(lengths),
        "long_steps_every": _every(lengths),
        "gpu": gpu,
        "collectives": [
            {"name": name, "bytes": size, **(sample_of([one / 1000 for one in sample]) or {})}
            for (name, size), sample in sorted(trace.collectives.items(), key=lambda item: -sum(item[1]))[:100]
        ],
        "pauses": None if quiet is None else _pauses(trace, steps, quiet, idle), "memory": trace.memory.document(),
        "matrix_product": trace.products.largest(), "memory_copies": trace.copies.document(),
        "data_parallel": trace.data_parallel,
        "collective_backends": dict(sorted(trace.backends.items())),
        "synchronisations": [
            {"name": name, "count": len(sample), "total_ms": rounded(sum(sample) / 1000),
             "per_step": round(len(sample) / len(steps), 3) if steps else None}
            for name, sample in sorted(trace.waits.items())
        ],
        "synchronised_ms": rounded(total(clipped(waits, steps)) / 1000) if steps else None,
        "data_loader": None if not loads else {
            "count": sum(map(len, loaders)), "total_ms": rounded(total(loads) / 1000),
            "longest_ms": rounded(max(end - begin for begin, end in loads) / 1000),
            "share_of_steps": round(total(loads) / 1000 / sum(lengths), 4) if sum(lengths) else None,
        },
    }  # fmt: skip


def _first(lengths: Sequence[float]) -> float | None:
    return rounded(lengths[0]) if lengths else None


def _every(lengths: Sequence[float]) -> int | None:
    """Return the number of steps between regularly recurring long steps, or None."""
    long = [at for at, length in enumerate(lengths) if length > 1.1 * median(lengths)]
    apart = {later - earlier for earlier, later in pairwise(long)}
    if len(long) < 3 or len(apart) != 1:
        return None
    (every,) = apart
    return every if every > 1 and long[0] < every and len(lengths) - long[-1] <= every else None


def _gpu(
    trace: Trace, steps: Sequence[Stretch], calls: Sequence[tuple[CallKey, CallSeries]], busy: Mapping[Any, BusyTime],
    passes: Mapping[Any, Sequence[BackwardPass]], loads: Spans, waits: Spans, quiet: Sequence[QuietStretch],
) -> tuple[dict[str, Any] | None, Sequence[Mapping[str, float]]]:  # fmt: skip
    """Return the totals of all GPUs in the trace, None without a kernel.

    Also return their idle time in each of the ``quiet`` stretches: parts of the budget, as fractions of the steps.
    """
    if not busy:
        return None, ()
    compute = talk = exposed = span = copied = 0.0
    parts: list[StepBudget] = []
    windows = _apart(steps)
    tails: list[float] = []
    idle = QuietIdle(Spans((stretch.begin, stretch.end) for stretch in quiet))
    for device, times in busy.items():
        span += times.end - times.begin
        compute, talk, exposed = compute + total(times.compute), talk + total(times.talk), exposed + total(times.bare)
        copied += total(times.copying)
        activities = trace.launches.activities(trace.work[device])
        parts.append(budget(windows or [(times.begin, times.end)], times, activities, loads, waits, idle))
        bare = Coverage(times.bare)
        tails += [bare.within(each.end, each.until) for each in passes[device]]
    longest = max((trace.work[device] for device in busy), key=lambda work: work.computed())
    numbers = [trace.numbers[begin] for begin, _ in steps]
    totals = {
        "kernels": sum(trace.work[device].kernels() for device in busy), "launched": trace.launches.count,
        "gpus": len(busy), "span_ms": rounded(span / 1000),
        "compute_ms": rounded(compute / 1000), "communication_ms": rounded(talk / 1000),
        "overlapped_ms": rounded((talk - exposed) / 1000), "exposed_ms": rounded(exposed / 1000),
        "idle_ms": rounded(max(0.0, span - compute - exposed - copied) / 1000), "copies_ms": rounded(copied / 1000),
        "budget": _shares(parts),
        "overlap": round(1 - exposed / talk, 4) if talk else None,
        "exposed_share": round(exposed / span, 4) if span and talk else None,
        "communication_share": round(talk / span, 4) if span else None,
        "tail": sample_of([tail / 1000 for tail in tails]),
        "buckets": buckets(calls, next(iter(passes.values())), numbers) if len(busy) == 1 else None,
        "kernel_us": rounded(longest.median_us()),
    }  # fmt: skip
    everything = sum(part.all for part in parts) or 1.0
    return totals, [{part: round(time / everything, 6) for part, time in parts.items()} for parts in idle.parts]


def _pauses(
    trace: Trace, steps: Sequence[Stretch], quiet: Sequence[QuietStretch], idle: Sequence[Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Return each step's longest time without an operator, with its idle time."""
    marked = _apart(steps)
    begun = Spans(steps)
    return [
        {"step": stretch.step, "number": trace.numbers[begun.begins[begun.place(begin)]],
         "ms": rounded(stretch.length_us / 1000), "function": stretch.function,
         "step_ms": rounded((end - begin) / 1000), "idle": parts}
        for (begin, end), stretch, parts in zip(marked, quiet, idle or [{}] * len(quiet), strict=True)
    ]  # fmt: skip


def _apart(steps: Sequence[Stretch]) -> list[Stretch]:
    """Return the steps, without those that largely overlap an earlier returned step.

    Times are rounded, so a step may seem to begin before the one before has ended.
    """
    apart: list[Stretch] = []
    for begin, end in steps:
        latest = apart[-1][1] if apart else begin
        if latest - begin < _ROUNDING * (end - begin):
            apart.append((max(begin, latest), end))
    return apart


def _shares(parts: Sequence[StepBudget]) -> dict[str, float] | None:
    """Return the parts of the steps' time on all GPUs as fractions, or None."""
    sums = StepBudget(*map(sum, zip(*parts, strict=True)))
    if not sums.all:
        return None
    return {name: round(part / sums.all, 6) for name, part in zip(sums._fields[1:], sums[1:], strict=True)}


def _number(value: object) -> int | None:
    return value if type(value) is int else None
