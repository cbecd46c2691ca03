"""Checks of a described job: pipeline, rings, context and sharding on the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.checks.job.layout import job_of, no_pipeline, plan_of, undescribed
from preflight.checks.job.layout_placement import (
    MEGATRON,
    crosses_spine,
    crossing,
    placed,
    rank_list,
    skip_if,
    spine_unknown,
    unplaced,
)
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.layout.job import RINGS
from preflight.layout.placement import RankPlacement
from preflight.layout.plan import Plan
from preflight.layout.traffic import neighbours
from preflight.model import Finding, all_of, check, failed, passed, some_of, unknown, verb, warned

#: Share of a step at which gradients over an oversubscribed spine warn (a judgement call).
GRADIENTS_COST = 0.03


def no_context(run: RunFacts, site: Site) -> Finding | None:
    """Skip a job without context parallelism."""
    return skip_if(job_of(run, site).parallel.context == 1, "the job has no context parallelism")


def _share(plan: Plan, axis: str) -> float | None:
    """Return the exposed share of a step that an axis takes; None if unknown."""
    if isinstance(plan.step, str):
        return None
    return sum(part.seconds for part in plan.step.parts if part.name == axis) / plan.step.seconds


@check(
    "layout.pipeline-rails",
    title="Neighbouring pipeline stages are on one rail",
    fault="Neighbouring pipeline stages are on different rails",
    impact="slows-job",
    owner="job",
    source=f"{MEGATRON}; NVIDIA DGX SuperPOD reference architecture (rail-optimised leaves)",
    fix="Choose sizes such that tensor x context x data is a multiple of the GPUs of a node, and start ranks node by "
    "node (`srun --distribution=block`).",
    action="fix-job",
    answers=("PA-08",),
    scope="run",
    needs=("layout",),
    unless=(undescribed, no_pipeline, unplaced),
)
def pipeline_rails(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check the path from each pipeline stage to the next.

    ## Why it matters
    In a rail-optimised fabric, NICs of one rail share a leaf. Stages on different rails are connected only through the
    spine, unless NCCL first sends the data over NVLink to the other rail.

    ## Verdicts
    The check warns if stages on different nodes are on different rails of a rail-optimised fabric, or if they cross an
    oversubscribed spine; the message states what that costs. If it is not known whether the fabric is rail-optimised,
    stages on different rails are *unknown*; if the oversubscription of the spine is not known, so are stages below
    different leaves.

    ## False alarms
    Fabrics with all NICs of a node under one leaf, and stages with small messages.
    """
    job, dense, _, place = placed(run, site)
    interleaved = job.parallel.virtual_stages > 1
    pairs = [(pair[0], pair[1]) for group in dense.groups("pp") for pair in neighbours(group, interleaved)]
    domain, unit = (list(map(where, range(job.gpus))) for where in (place.domain, place.unit))
    outside = [(a, b) for a, b in pairs if domain[a] != domain[b]]
    apart = [(a, b) for a, b in outside if place.rail(a) != place.rail(b)]
    fabric = place.hardware.fabric
    if apart and fabric.rail_optimised is not False:
        a, b = apart[0]
        message = (
            f"{some_of(len(apart), len(pairs), 'pair')} of pipeline neighbours {verb(len(apart), 'is')} on different "
            f"rails: rank {a} is on rail "
            f"{place.rail(a)} of {place.name(a)}, rank {b} on rail {place.rail(b)} of {place.name(b)}"
        )
        if fabric.rail_optimised:
            yield warned(message, found=f"{len(apart)} pairs", expected="one rail")
        else:
            yield unknown(f"{message}; it is not known whether a leaf connects the NICs of one rail",
                          fix='name the fabric: --on "..., rail-optimised"')  # fmt: skip
        return
    crossing = [(a, b) for a, b in outside if unit[a] is None or unit[a] != unit[b]]
    cross = "cross" if place.unit(0) is not None else "may cross"
    some = f"{some_of(len(crossing), len(pairs), 'pair')} of pipeline neighbours"
    many = f"{some} {cross} the spine"
    if crossing and (undecided := spine_unknown(place, many)) is not None:
        yield undecided
        return
    share = _share(plan_of(run, site), "pipeline")
    cost = f", which takes {share:.1%} of a step" if share is not None else ""
    if crossing and (fabric.oversubscription or 1) > 1:
        yield warned(
            f"{some} {'crosses' if len(crossing) == 1 else 'cross'} a spine that is oversubscribed "
            f"{fabric.oversubscription:g}:1{cost}",
            found=f"{len(crossing)} pairs", expected="stages below one leaf group",
            fix="place neighbouring stages below one group of leaves: use fewer nodes for a stage, or nodes of one "
            "unit",
        )  # fmt: skip
        return
    yield passed(
        f"{all_of(len(pairs), 'pair')} of pipeline neighbours {verb(len(pairs), 'is')} on one rail, in one domain or "
        "connected by a full spine"
    )


@check(
    "layout.ring-order",
    title="The ranks of a group are together on each node",
    fault="A group visits a node more than once",
    impact="slows-job",
    owner="job",
    source="PyTorch and Megatron-LM build rings in the order of ranks; srun(1), --distribution",
    fix="Start the ranks node by node: srun --distribution=block, or a hostfile that lists each node once.",
    action="fix-job",
    answers=("PA-06",),
    scope="run",
    needs=("layout",),
    unless=(undescribed, unplaced),
)
def ring_order(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check that the rings of data- and context-parallel groups visit each node once.

    ## Why it matters
    A ring in rank order that visits a node twice crosses the network more often than necessary. If ranks are
    distributed cyclically, it crosses the network at every hop.

    ## Verdicts
    A data-parallel group that visits a node again warns, since NCCL sorts its own rings by node. A context-parallel
    group that exchanges in a ring fails, since its ring follows rank order.

    ## False alarms
    Data-parallel groups whose rings NCCL sorts by node: the order of their ranks then costs nothing.
    """
    job, dense, _, placement = placed(run, site)
    returning = False
    for axis, what, grade in (("cp", "context-parallel", failed), ("dp", "data-parallel", warned)):
        if dense.sizes[axis] == 1 or (axis == "cp" and job.parallel.context_exchange != "p2p"):
            continue
        group = next((group for group in placement.distinct(dense.groups(axis)) if _returns(placement, group)), None)
        if group is not None:
            returning = True
            nodes = ", ".join(placement.name(rank) for rank in group[:4])
            yield grade(f"the {what} group of {rank_list(group)} returns to a node that it has left: it runs over "
                        f"{nodes}, …",
                        subject=what, expected="the ranks of a node together")  # fmt: skip
    if not returning:
        yield passed("data- and context-parallel groups visit each node once")


def _returns(placement: RankPlacement, group: Sequence[int]) -> bool:
    visited: set[int] = set()
    last = None
    for rank in group:
        node = placement.node(rank)
        if node != last and node in visited:
            return True
        visited.add(node)
        last = node
    return False


@check(
    "layout.context-domain",
    title="Context parallelism stays in an NVLink domain, or hides its exchange",
    fault="Context parallelism crosses nodes without hiding its exchange",
    impact="slows-job",
    owner="job",
    source="H. Liu et al., Ring Attention, arXiv 2310.01889; Megatron-LM --cp-comm-type",
    fix="Use --cp-comm-type p2p, which overlaps with attention, or a context-parallel size that fits a domain.",
    action="fix-job",
    answers=("PA-N3",),
    scope="run",
    needs=("layout",),
    unless=(undescribed, no_context, unplaced),
)
def context_domain(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check that context parallelism between nodes overlaps with attention.

    ## Why it matters
    All-gather and all-to-all of a sequence must finish before attention starts, so over NICs every layer waits
    for them. A ring exchanges one part while attention works on another.

    ## Verdicts
    A group that crosses an NVLink domain warns if its exchange is an all-gather or all-to-all.

    ## False alarms
    Short sequences, with little to exchange.
    """
    job, dense, _, placement = placed(run, site)
    parallel = job.parallel
    number, first = crossing(placement, dense.groups("cp", "tp"))
    if number and parallel.context_exchange not in RINGS:
        yield warned(
            f"context-parallel groups of {parallel.context} span several NVLink domains ({rank_list(first)}) "
            f"and exchange by {parallel.context_exchange}, which does not overlap with attention",
            found=parallel.context_exchange,
            expected="p2p, or groups inside a domain",
        )
        return
    yield passed(f"context-parallel groups of {parallel.context} are inside a domain, or exchange in a ring")


@check(
    "layout.sharding",
    title="The sharding of parameters fits the pipeline and the fabric",
    fault="The sharding of parameters does not fit the pipeline or the fabric",
    impact="slows-job",
    owner="job",
    source="https://www.deepspeed.ai/tutorials/pipeline/; PyTorch FSDP, HYBRID_SHARD",
    fix="Shard within a leaf group and replicate across (`HYBRID_SHARD`), or use ZeRO-1 with a pipeline.",
    action="fix-job",
    answers=("PA-09",),
    scope="run",
    needs=("layout",),
    unless=(undescribed, unplaced),
)
def sharding(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check the sharding policy of data parallelism.

    ## Why it matters
    Full sharding gathers the parameters of every layer. With a pipeline, it does so again for each microbatch; across
    an oversubscribed spine, it limits the step.

    ## Verdicts
    Sharded gradients or parameters (ZeRO-2, ZeRO-3) with a pipeline fail in DeepSpeed, which refuses them, and warn in
    other frameworks. Full sharding over more than one leaf group of an oversubscribed fabric warns, and so do gradients
    that take 3% of a step or more there. The result is *unknown* if the oversubscription of the spine is not known.

    ## False alarms
    FSDP with a pipeline that keeps gathered parameters between microbatches.
    """
    job, dense, _, placement = placed(run, site)
    policy, stages = job.parallel.sharding, job.parallel.pipeline
    origin = job.origins.get("sharding", "")
    over = placement.hardware.fabric.oversubscription
    if policy in ("gradients", "full") and stages > 1:
        grade = failed if "zero_optimization" in origin else warned
        yield grade(f"{policy} sharding ({origin}) with {stages} stages gathers or reduces for each microbatch",
                    found=policy, expected="none or optimizer")  # fmt: skip
        return
    groups = list(placement.distinct(dense.groups("dp")))
    spread = max(map(placement.spread, groups), key=lambda spread: spread.units or 0)
    crosses = any(crosses_spine(placement, group) for group in groups)
    many = f"full sharding over {spread.ranks} GPUs may cross the spine"
    if policy == "full" and crosses and (undecided := spine_unknown(placement, many)) is not None:
        yield undecided
        return
    if policy == "full" and crosses and (over or 1) > 1:
        yield warned(
            f"full sharding over {spread.ranks} GPUs crosses {spread.units} leaf groups and a spine that is "
            f"oversubscribed {over:g}:1",
            found=f"{spread.units} leaf groups",
            expected="one leaf group, with replicas in other groups (hybrid sharding)",
        )  # fmt: skip
        return
    share = _share(plan_of(run, site), "data")
    if crosses and (over or 1) > 1 and spread.units is not None and share is not None and share >= GRADIENTS_COST:
        yield warned(
            f"gradients cross a spine that is oversubscribed {over:g}:1, which takes {share:.1%} of a step",
            found=f"{share:.1%}", expected=f"below {GRADIENTS_COST:.0%}",
            fix="overlap the exchange (--overlap-grad-reduce), or use more pipeline stages and fewer replicas",
        )  # fmt: skip
        return
    yield passed(f"the sharding policy is {policy} ({origin})", found=policy)
