"""Comparison of two jobs by their traces, or by the step lines of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from preflight.facts.job import RunFacts
from preflight.facts.step_times import timed
from preflight.facts.trace.pauses import PART
from preflight.facts.training_run import throughput

#: Judgement calls: fraction by which a step must be longer to be worse; smallest share of a step that is printed.
LONGER, SHOWN = 0.05, 0.01
#: Printed part of a step -> its parts in the budget of a trace.
_PARTS = {
    "computing": ("compute",), "exposed communication": ("communication",), "copies": ("copies",),
    "idle: CPU": ("idle_host",), "idle: synchronisation": ("idle_sync",), "idle: data": ("idle_data",),
    "idle: start of kernels": ("idle_other",), "idle: pauses": (PART,),
}  # fmt: skip


def compare_jobs(before: RunFacts, after: RunFacts) -> dict[str, Any]:
    """Return the figures of two jobs, and whether a step takes longer."""
    earlier, later = _figures(before), _figures(after)
    figures = [
        {"name": name, "before": round(earlier[name], 4), "after": round(later[name], 4), "unit": unit}
        for name, unit in _units(earlier, later)
    ]
    step = next((figure for figure in figures if figure["name"] == "step"), None)
    grown = later["step"] / earlier["step"] - 1 if step is not None and earlier["step"] else None
    status = 3 if grown is None else 1 if grown > LONGER else 0
    late = {side: [straggler.rank for straggler in facts.job_trace.stragglers] if facts.traces else []
            for side, facts in (("before", before), ("after", after))}  # fmt: skip
    return {"schema": "preflight.diff-jobs/1", "step_grown": None if grown is None else round(grown, 4),
            "figures": figures, "late_ranks": late, "exit_status": status}  # fmt: skip


def _units(earlier: Mapping[str, float], later: Mapping[str, float]) -> list[tuple[str, str]]:
    step = max(earlier.get("step", 0.0), later.get("step", 0.0))
    names = [name for name in earlier if name in later]
    shown = [name for name in names if name not in _PARTS or max(earlier[name], later[name]) >= SHOWN * step]
    return [
        (name, "ms" if name in _PARTS or name in ("step", "p99 of steps") else name.partition(" ")[2]) for name in shown
    ]


def _figures(facts: RunFacts) -> dict[str, float]:
    """Return the figures of a job, times in milliseconds; parts are means over ranks."""
    figures: dict[str, float] = {}
    documents = [trace.document for trace in facts.traces.values()]
    lengths = [document["steps"]["p50_ms"] for document in documents if document["steps"]]
    lengths = [length for length in lengths if length]
    if lengths:
        figures["step"] = median(lengths)
        budgets = [budget for key in facts.traces if (budget := facts.step_budget(key))]
        for name, parts in _PARTS.items():
            if budgets:
                figures[name] = figures["step"] * fmean(
                    sum(budget.get(part, 0.0) for part in parts) for budget in budgets
                )
        return figures
    for run in facts.training.values():
        steps = max((own for _, own in run.logs), key=lambda own: len(own.steps)).steps[1:]
        times = sorted(1000 * time for time, step in timed(steps) if step.step_time_s)
        if times:
            figures["step"] = median(times)
        if len(times) >= 100:
            figures["p99 of steps"] = times[-(len(times) // 100) - 1]
        if (rate := throughput(run)) is not None:
            figures[f"throughput {rate.unit}"] = rate.value
    return figures


def render_jobs(comparison: Mapping[str, Any]) -> str:
    """Return the figures as text, the step first."""
    grown = comparison["step_grown"]
    if grown is None:
        return "UNKNOWN: the step time of both jobs is needed\n"
    verdict = "WORSE" if comparison["exit_status"] else "OK"
    lines = [f"{verdict}: a step takes {abs(grown):.1%} {'longer' if grown > 0 else 'less'}"]
    for figure in comparison["figures"]:
        change = figure["after"] - figure["before"]
        lines.append(
            f"  {figure['name']:<24}{figure['before']:>12.4g} -> {figure['after']:.4g} {figure['unit']} ({change:+.3g})"
        )
    late = comparison["late_ranks"]
    for rank in sorted(set(late["after"]) - set(late["before"])):
        lines.append(f"  new: its peers wait for rank {rank}")
    for rank in sorted(set(late["before"]) - set(late["after"])):
        lines.append(f"  gone: its peers no longer wait for rank {rank}")
    return "\n".join(lines) + "\n"
