"""The JSON document of a plan: ``preflight.layout/1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from preflight.expectations.roofline.batch import too_few
from preflight.layout.arithmetic import parameters
from preflight.layout.costs import INPUTS, costs, level_batches
from preflight.layout.description import CLUSTER
from preflight.layout.job import LayoutError, TrainingJob
from preflight.layout.links import link_loads
from preflight.layout.memory import GIB, PARTS
from preflight.layout.placement import RankPlacement
from preflight.layout.plan import Plan
from preflight.layout.search import Candidate
from preflight.layout.step import Step, active_stages, assumptions, bubble_share, joined
from preflight.layout.traffic import exchanges

if TYPE_CHECKING:
    from preflight.facts.trace.job import JobTrace
    from preflight.facts.training_run import TrainingRun

SCHEMA = "preflight.layout/1"

#: Maximum product of stages and microbatches for which the timeline of a pipeline is computed.
_MOST_CELLS = 4096

#: Maximum number of nodes listed for a group.
_MOST_NODES = 64

#: Names of a layout's group sizes.
_SIZES = ("tensor", "context", "expert", "pipeline", "virtual_stages")


def document(
    plan: Plan,
    report: Mapping[str, Any],
    candidates: Sequence[Candidate] | None,
    trace: JobTrace | None = None,
    trainings: Mapping[str, TrainingRun] | None = None,
) -> dict[str, Any]:
    """Return the document of a plan.

    ``trace`` has the joined profiles of the running job, and ``trainings`` its logs. An unknown part is null, and
    ``unknown`` has the reason.
    """
    job, hardware = plan.job, plan.hardware
    shown: dict[str, Any] = {
        "schema": SCHEMA,
        "exit_status": report["exit_status"],
        "cluster": None if hardware is None else {
            "part": hardware.part, "nodes": hardware.nodes, "gpus": hardware.gpus, "source": hardware.source,
            "nvlink_domain": hardware.machine.domain, "memory_gib": hardware.memory_gib,
        },
        "settings": {
            name: {"value": value, "origin": plan.described.origins.get(name, "")}
            for name, value in sorted(plan.described.values.items())
        },
        "missing": list(plan.described.missing),
        "gaps": [*plan.described.gaps, *_assumed(plan), *plan.ignored, *plan.unused],
        "measured": dict(plan.measured),
        "rates": [],
        "job": None,
        "memory": None,
        "step": None,
        "axes": [],
        "links": [],
        "pipeline": None,
        "batches": [],
        "costs": [],
        "compared": None,
        "unknown": [],
        "findings": report["findings"],
        "search": None,
    }  # fmt: skip
    if hardware is None:
        shown["unknown"].append(plan.no_hardware)
    if job is None:
        shown["unknown"].append(plan.why_no_job)
        return shown
    count = parameters(job.model)
    shown["job"] = {
        "gpus": job.gpus, "parameters": count.total, "active_parameters": count.active, "data": job.data,
        "microbatches": job.microbatches, "tokens": job.tokens,
        **{name: getattr(job.parallel, name) for name in _SIZES},
    }  # fmt: skip
    if plan.memory is not None:
        shown["memory"] = {f"{name}_gib": getattr(plan.memory, name) / GIB for name in (*PARTS, "total")}
    if isinstance(plan.step, str):
        if plan.step not in shown["unknown"]:
            shown["unknown"].append(plan.step)
    else:
        shown["step"] = _step(plan.step, job.tokens)
    if plan.placement is not None:
        moved = exchanges(job, plan.placement)
        shown["axes"] = [
            {
                "axis": exchange.axis, "collective": exchange.collective, "ranks": exchange.spread.ranks,
                "nodes": exchange.spread.nodes, "crosses": exchange.spread.level, "bytes": exchange.size,
                "count": exchange.count, "bytes_of_step": exchange.moved,
                "group": _group(plan.placement, exchange.spread.group),
            }
            for exchange in moved
        ]  # fmt: skip
        seconds = None if isinstance(plan.step, str) else plan.step.seconds
        shown["links"] = [
            {
                "link": own.link, "bytes_of_step": own.moved, "gbytes_s": own.rate, "largest": own.largest,
                "busy": own.busy(seconds) if seconds else None,
            }
            for own in link_loads(plan.placement.hardware, moved)
        ]  # fmt: skip
    shown["pipeline"] = _pipeline(job)
    if hardware is not None:
        shown["rates"] = [
            {"name": name, "value": value, "origin": origin} for name, value, origin in assumptions(job, hardware)
        ]
        shown["batches"] = [
            {
                "level": own.level, "least_tokens": own.least, "too_few_tokens": too_few(own.least),
                "tokens": own.tokens, "busy": own.busy,
                "all_reduce_gbytes_s": own.bandwidth,
            }
            for own in level_batches(job, hardware)
        ]  # fmt: skip
    shown["costs"] = [
        {"name": own.name, "value": own.value, "unit": own.unit, "origin": own.origin,
         "missing": {name: INPUTS[name] for name in own.missing}}
        for own in costs(plan.described.values, job.gpus)
    ]  # fmt: skip
    if trace is not None or trainings:
        shown["compared"] = _compared(plan, trace, trainings or {})
    if candidates is not None:
        shown["search"] = [
            {
                "seconds": own.step.seconds, "memory_gib": own.memory_gib, "mfu": own.step.mfu,
                "difference": own.difference(job),
            }
            for own in candidates
        ]  # fmt: skip
    return shown


def _group(placement: RankPlacement, ranks: Sequence[int]) -> list[dict[str, Any]]:
    """Return the nodes of a group, with their GPUs, NVLink domain and unit."""
    nodes = list(placement.nodes_of(ranks).values())
    return [
        {
            "node": placement.name(own[0]), "gpus": [placement.gpu(rank) for rank in own],
            "domain": placement.domain(own[0]), "unit": placement.unit(own[0]),
        }
        for own in nodes[:_MOST_NODES]
    ]  # fmt: skip


def _assumed(plan: Plan) -> list[str]:
    """Return notes about settings that the job does not define."""
    values, notes = plan.described.values, []
    if "layers" not in values and "flavor" in values:
        origin = plan.described.origins["flavor"]
        notes.append(f"{origin}: {values['flavor']!r} does not define the model's shape; pass its config.json as well")
    if plan.described.origins.get("gpus") != CLUSTER:
        return notes
    return [*notes, f"the job does not state its number of GPUs; all {values['gpus']:,} of the cluster are used"]


def _compared(plan: Plan, trace: JobTrace | None, trainings: Mapping[str, TrainingRun]) -> dict[str, Any] | None:
    """Return the measured step beside the planned one; None if not comparable."""
    # import-at-use: only with a profile or a log
    from preflight.layout.comparison import compare, logged

    try:
        measured_step = compare(plan, trace) if trace is not None else logged(plan, trainings)
    except LayoutError:
        return None  # `layout.measured` states the reason
    return {
        "ranks": measured_step.ranks, "seconds": measured_step.seconds, "idle": measured_step.idle,
        "late": list(measured_step.late),
        "parts": [
            {"name": part.name, "planned": part.planned, "measured": part.measured, "waiting": part.waiting}
            for part in measured_step.parts
        ],
    }  # fmt: skip


def _pipeline(job: TrainingJob) -> dict[str, Any] | None:
    """Return the bubble of a pipeline, with a timeline if that is short, or None."""
    stages, microbatches = job.parallel.pipeline, job.microbatches
    if stages == 1:
        return None
    active = active_stages(stages, microbatches) if stages * microbatches <= _MOST_CELLS else []
    return {
        "stages": stages, "microbatches": microbatches, "active": active,
        "bubble_share": bubble_share(stages, job.parallel.virtual_stages, microbatches),
        "busy": sum(active) / len(active) / stages if active else None,
    }  # fmt: skip


def _step(step: Step, tokens: int) -> dict[str, Any]:
    return {
        "seconds": step.seconds, "low": step.low, "high": step.high, "tokens_per_second": tokens / step.seconds,
        "flops_per_gpu": step.flops, "mfu": step.mfu, "bubble": step.bubble,
        "parts": [
            {
                "name": part.name, "seconds": part.seconds, "hidden": part.hidden, "busbw_gbytes_s": part.busbw,
                "basis": part.basis, "crosses": part.level,
            }
            for part in joined(step.parts)
        ],
    }  # fmt: skip
