"""Checks of a described job: the links that each parallel group crosses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from preflight.checks.job.layout import job_of, no_cluster, plan_of, undescribed
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.job_description import RECORD
from preflight.layout.job import TrainingJob
from preflight.layout.placement import RankPlacement
from preflight.layout.rank_map import RankMap
from preflight.layout.step import SEGMENT
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, verb, warned

MEGATRON = "D. Narayanan et al., arXiv 2104.04473: tensor parallelism inside a node, pipeline parallelism between nodes"


def rank_list(group: Sequence[int]) -> str:
    """Format the ranks of a group."""
    if len(group) > 1 and group[-1] - group[0] == len(group) - 1:
        return f"ranks {group[0]}-{group[-1]}"
    shown = ", ".join(str(rank) for rank in group[:4])
    return f"ranks {shown}{', …' if len(group) > 4 else ''}"


def crossing(placement: RankPlacement, groups: Iterator[Sequence[int]]) -> tuple[int, Sequence[int]]:
    """Return how many groups cross NVLink domains, and the first of them."""
    number, first = 0, ()  # type: int, Sequence[int]
    for group in groups:
        if placement.spread(group).domains > 1:
            first = first or group
            number += 1
    return number, first


def _crossing_failure(
    placement: RankPlacement, what: str, size: int, groups: Iterator[Sequence[int]]
) -> Finding | None:
    """Return a failure if groups cross an NVLink domain; None if none does."""
    number, first = crossing(placement, groups)
    if not number:
        return None
    domain = placement.hardware.domain
    nodes = list(dict.fromkeys(placement.name(rank) for rank in first))
    shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    message = (
        f"{number} of the {what} groups of {size} {verb(number, 'spans')} several NVLink domains: {rank_list(first)} "
        f"are on {shown}"
    )
    fix = ""
    if size > domain:
        message += f"; a domain has {domain} GPUs"
    elif placement.hardware.order:
        message += "; the hostfile or the job does not keep the ranks of a node together"
        fix = "list the slots of each node together in the hostfile, or start the job with srun --distribution=block"
    elif placement.scattered:
        message += f"; the ranks of a node are not consecutive ({placement.hardware.distribution} distribution)"
        fix = "start the ranks node by node: `srun --distribution=block`, `mpirun --map-by slot`"
    return failed(message, found=counted(number, "group"), expected=f"groups inside {domain} GPUs", fix=fix)


def _domain(placement: RankPlacement) -> str:
    """Describe the NVLink domain of a job, with the assumption about racks."""
    hardware = placement.hardware
    assumed = f" (segments of {hardware.domain // hardware.each} trays of a rack are assumed)"
    return f"an NVLink domain of {hardware.domain}{assumed if hardware.machine.domain in SEGMENT.values() else ''}"


def no_tensor(run: RunFacts, site: Site) -> Finding | None:
    """Skip a job without tensor parallelism."""
    return skip_if(job_of(run, site).parallel.tensor == 1, "the job has no tensor parallelism")


def no_experts(run: RunFacts, site: Site) -> Finding | None:
    """Skip a model without experts, or with all experts on each rank."""
    job = job_of(run, site)
    if not job.model.experts:
        return skip_if(True, "the model has no experts")
    return skip_if(job.parallel.expert * job.parallel.expert_tensor == 1, "the experts are not distributed over ranks")


def skip_if(absent: bool, message: str) -> Finding | None:
    """Return a skipped finding with the message if ``absent``, else None."""
    return skipped(message, evidence=[RECORD]) if absent else None


def unplaced(run: RunFacts, site: Site) -> Finding | None:
    """Return *unknown* if the placement of the ranks is unknown, else None."""
    plan = plan_of(run, site)
    return no_cluster(plan) if plan.placement is None else None


def crosses_spine(placement: RankPlacement, group: Sequence[int]) -> bool:
    """Return whether a group may cross the spine.

    If leaf groups are unknown, any group in several NVLink domains may cross it.
    """
    spread = placement.spread(group)
    return spread.domains > 1 and (spread.units is None or spread.units > 1)


def _units_known(placement: RankPlacement) -> bool:
    return placement.unit(0) is not None


def spine_unknown(placement: RankPlacement, what: str) -> Finding | None:
    """Return *unknown* if the oversubscription or the leaf groups are not known."""
    fabric = placement.hardware.fabric
    if fabric.oversubscription is not None and (fabric.oversubscription <= 1 or _units_known(placement)):
        return None
    absent = "whether the spine is oversubscribed" if fabric.oversubscription is None else "which nodes share leaves"
    fix = (
        'state it: --on "..., 1:1", or `oversubscription` in [class.NAME.tree]' if fabric.oversubscription is None
        else 'state it: --on "..., units of 32 nodes", or describe the tree in [class.NAME.tree]'
    )  # fmt: skip
    return unknown(f"{what}, and {absent} is not stated", fix=fix)


class Placed(NamedTuple):
    """A job, its rank maps (dense and for experts) and its placement."""

    job: TrainingJob
    dense: RankMap
    experts: RankMap
    placement: RankPlacement


def placed(run: RunFacts, site: Site) -> Placed:
    """Return the job on its cluster; `unless` guarantees that both are known."""
    plan = plan_of(run, site)
    assert plan.job is not None
    assert plan.dense is not None
    assert plan.experts is not None
    assert plan.placement is not None
    return Placed(plan.job, plan.dense, plan.experts, plan.placement)


@check(
    "layout.tensor-domain",
    title="Each tensor-parallel group is inside one NVLink domain",
    fault="A tensor-parallel group crosses an NVLink domain",
    impact="slows-job",
    owner="job",
    explains=(("layout.ring-order", "node"),),
    source=MEGATRON,
    fix="Use a `--tensor-model-parallel-size` that divides the GPUs of a domain, and start ranks node by node "
    "(`srun --distribution=block`).",
    action="fix-job",
    answers=("PA-07", "PA-N3"),
    scope="run",
    needs=("layout",),
    unless=(undescribed, no_tensor, unplaced),
)
def tensor_domain(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check that tensor parallelism stays on NVLink.

    ## Why it matters
    Each layer exchanges its activations four times or more in a tensor-parallel group. Over NICs, that takes many times
    as long as over NVLink, and nothing overlaps with it.

    ## Verdicts
    The check fails if a group has GPUs in two NVLink domains, because it is larger than a domain or does not divide it,
    or because ranks are distributed cyclically over the nodes.

    ## False alarms
    Inference of a model that does not fit one domain.
    """
    job, dense, _, placement = placed(run, site)
    size = job.parallel.tensor
    yield _crossing_failure(placement, "tensor-parallel", size, dense.groups("tp")) or passed(
        f"all tensor-parallel groups of {size} are inside {_domain(placement)}",
        found=f"{size} GPUs",
    )


@check(
    "layout.expert-domain",
    title="Expert-parallel groups stay inside an NVLink domain where possible",
    fault="An expert-parallel group crosses an NVLink domain",
    impact="slows-job",
    owner="job",
    explains=(("layout.ring-order", "node"),),
    source="DeepSeek-V3 technical report, 3.2.2 (node-limited routing); judgement: a group that fits is in a domain",
    fix="Use an expert-parallel size that fits a domain, or node-limited routing (--moe-router-group-topk).",
    action="fix-job",
    answers=("PA-10", "PA-N3"),
    scope="run",
    needs=("layout",),
    unless=(undescribed, no_experts, unplaced),
)
def expert_domain(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check which links the experts' all-to-all uses.

    ## Why it matters
    Each layer with experts sends every token to other ranks and back, four times a step. A group that leaves its NVLink
    domain sends the larger part over NICs, and the uplinks of the leaves carry all of it.

    ## Verdicts
    The check fails if a group that would fit into one domain spans several, or if a larger group crosses the spine of
    an oversubscribed fabric. A group that is larger than a domain warns, unless the routing limits the nodes of a
    token. The message states the share of tokens that leave the domain. If the oversubscription of the spine is not
    known, the result is *unknown*.

    ## False alarms
    Dispatchers that overlap the exchange with other work.
    """
    job, _, experts, placement = placed(run, site)
    size, domain = job.parallel.expert * job.parallel.expert_tensor, placement.hardware.domain
    finding = _crossing_failure(placement, "expert-parallel", size, experts.groups("ep", "tp"))
    if finding is None:
        yield passed(f"all expert-parallel groups of {size} are inside {_domain(placement)}")
        return
    if size <= domain:
        yield finding
        return
    spine = any(crosses_spine(placement, group) for group in experts.groups("ep", "tp"))
    over = placement.hardware.fabric.oversubscription
    outside = 1 - domain / size
    message = f"expert-parallel groups of {size} span NVLink domains of {domain}: about {outside:.0%} of the tokens"
    if spine and (undecided := spine_unknown(placement, f"{message} leave the domain")) is not None:
        yield undecided
    elif spine and over is not None and over > 1:
        yield failed(f"{message} leave the domain, over a spine that is oversubscribed {over:g}:1", found=f"{over:g}:1",
                     expected="groups below one leaf group, or 1:1")  # fmt: skip
    elif (limit := plan_of(run, site).described.values.get("group_topk")) is not None:
        yield passed(f"{message} would leave the domain; the routing limits a token to {limit} groups")
    else:
        parts, ways = job.parallel.expert_tensor, job.parallel.expert
        fits = f"Use --expert-tensor-parallel-size 1 (it is {parts}): groups of {ways} fit a domain."
        yield warned(f"{message} leave the domain", found=f"{size} GPUs", expected=f"at most {domain}",
                     fix=fits if parts > 1 and domain % ways == 0 else "")  # fmt: skip
