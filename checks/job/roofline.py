"""Checks of fabric limits above a node: fat-tree levels, batch sizes."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.job.bus_bandwidth import nics_of
from preflight.expectations import Site
from preflight.expectations.roofline import batch
from preflight.expectations.roofline.datasheets import BF16_FLOPS
from preflight.expectations.roofline.fat_tree import FatTree, Level, seconds
from preflight.expectations.roofline.machine import RooflineMachine, machine_of
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, failed, passed, unknown, warned

SCALING = "https://jax-ml.github.io/scaling-book/gpus"

_DESCRIBE = (
    "Describe it in the cluster file: `[class.NAME.tree]` with unit_nodes, unit_leaves, units, spines and "
    "links_per_spine"
)

_DECLARE = "declare the nodes in the cluster file: part, hcas and ports.rate_gbps of [class.NAME]"

GIB = 2**30

#: Capacity of the NVSwitches of a node, GB/s: four of 64 ports of 25 GB/s for Hopper, two of 72 of 50 for Blackwell
#: (checklist documents, table of generations).
NVSWITCHES = {"Hopper": 6400.0, "Blackwell": 7200.0}


def machine(site: Site) -> RooflineMachine | str:
    """Return the machine of a site, or the reason why it is unknown."""
    if site.part is None:
        return "the part is not known"
    nics, gpus = nics_of(site, site.gpus.value), site.gpus.value
    if gpus == 0 or nics == 0:
        return f"the cluster file expects no {'GPU' if gpus == 0 else 'compute NIC'}"
    built = machine_of(site.part, gpus, nics, site.rate_of_each(nics or 0, gpus or 0).value)
    if built is None:
        return f"{site.part.name}: NVLink does not connect its GPUs"
    return built if built.node_nics is not None else "the rate of the NICs is not known"


def levels(site: Site, built: RooflineMachine) -> tuple[Level, ...]:
    """Return the levels that the cluster file describes; empty if none."""
    tree = site.members.tree
    if tree.unit_nodes is None or tree.unit_leaves is None or built.nic is None or built.nics is None:
        return ()
    return FatTree(
        gpus=built.gpus,
        nvlink=built.nvlink,
        nic=built.nic,
        nics=built.nics,
        unit_nodes=tree.unit_nodes,
        unit_leaves=tree.unit_leaves or 1,
        units=tree.units or 1,
        spines=tree.spines or 1,
        links_per_spine=tree.links_per_spine or 1,
        nvswitches=NVSWITCHES.get(built.gpu.generation) if built.nvswitch and built.gpus == 8 else None,
        switch=tree.switch_gbytes_s,
        uplink=tree.uplink_gbps / 8 if tree.uplink_gbps is not None else None,
    ).levels()


def _level_text(level: Level) -> str:
    switches = f"{level.switches / 1000:g} TB/s by switches" if level.switches is not None else "switches unknown"
    return (
        f"{level.name} {level.per_gpu:.4g} GB/s per GPU ({level.gpus} GPUs, limited by its {level.binds}: "
        f"{level.links / 1000:g} TB/s by links, {switches})"
    )


@check(
    "scale.fat-tree",
    title="Each level of the fat tree carries the traffic of the level below",
    fault="A level of the fat tree cannot carry the traffic of the level below",
    impact="slows-job",
    owner="network",
    source=SCALING,
    fix=_DESCRIBE,
    action="fix-site",
    answers=("GS-2",),
    scope="run",
    gating=False,
)
def fat_tree(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the fat tree's capacity per GPU, level by level.

    ## Why it matters
    A collective over many nodes runs at the pace of its thinnest level, which a measurement of one node or unit cannot
    show.

    ## Verdicts
    The capacity of a level is the smaller of its links' and its switches'. A spine with less capacity per GPU than the
    leaf warns, unless the cluster file declares the oversubscription; a higher oversubscription than declared fails.
    The check never gates a job.

    ## False alarms
    A switch capacity copied from a data sheet in bits, or for both directions.
    """
    built = machine(site)
    if isinstance(built, str):
        yield unknown(f"{built}, so the levels of the fat tree cannot be computed", fix=_DECLARE)
        return
    found = levels(site, built)
    if not found:
        yield unknown("the fat tree above the nodes is not declared", fix=_DESCRIBE)
        return
    summary = "; ".join(_level_text(level) for level in found)
    leaf = found[1]
    if len(found) == 2:
        yield passed(f"the fat tree has one unit; {summary}", found=f"{leaf.per_gpu:.4g} GB/s per GPU")
        return
    spine = found[2]
    ratio, declared = leaf.per_gpu / spine.per_gpu, site.members.tree.oversubscription
    if ratio <= (declared or 1) * 1.001:
        yield passed(f"{summary}; the oversubscription is {ratio:.2f}", found=f"{ratio:.2f}")
        return
    grade = failed if declared is not None else warned
    yield grade(
        f"the spine carries {spine.per_gpu:.4g} GB/s for each GPU, but the leaf {leaf.per_gpu:.4g} GB/s; {summary}",
        found=f"{ratio:.2f}",
        expected=f"at most {declared:g}" if declared is not None else "1, or the declared oversubscription",
        fix="add spines or links between leaves and spines, or declare oversubscription = ... in the cluster file",
    )


@check(
    "scale.batch",
    title="The batch per GPU is large enough to hide communication",
    fault="The batch per GPU is too small to hide communication",
    impact="slows-job",
    source=SCALING,
    fix="Raise `tokens_per_gpu` (micro-batch x sequence), accumulate gradients, or shard less.",
    action="fix-job",
    answers=("GS-4",),
    scope="run",
    gating=False,
)
def smallest_batch(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the declared tokens per GPU with the minimum to hide communication.

    ## Why it matters
    Below that number, GPUs wait for the network, and more GPUs do not make the job faster.

    ## Verdicts
    The minimum is computed for dense bfloat16 over the thinnest level of the fabric, and doubled without in-network
    reduction. A mixture of experts needs more by the ratio of all experts to active ones, and less if expert_ways
    shares them across GPUs. Fewer tokens warn. If expert_ways is not declared, fewer than the minimum without sharing
    are unknown; if sharding is not declared, fewer than FSDP's minimum are unknown. A layer that is split over more
    GPUs than its width allows warns. The check never gates a job.

    ## False alarms
    FP8 arithmetic, which is faster, or compressed communication.
    """
    model, built = site.members.model, machine(site)
    if isinstance(built, str):
        yield unknown(f"{built}, so no batch size can be computed", fix=_DECLARE)
        return
    flops = BF16_FLOPS.get(built.gpu.name)
    if flops is None:
        yield unknown(f"the arithmetic of {built.gpu.name} is not in the catalogue")
        return
    rate, where = _all_reduce(site, built)
    plain, sharded = batch.data_parallel(flops, rate * 1e9), batch.fully_sharded(flops, rate * 1e9)
    bounds = (
        f"{batch.too_few(plain)} with data parallelism or {batch.too_few(sharded)} with FSDP, "
        f"at an all-reduce of {rate:.0f} GB/s ({where})"
    )
    if model.tokens_per_gpu is None:
        yield unknown(
            f"the number of tokens per GPU is not declared; it must exceed {bounds}",
            fix="declare it in the cluster file: [class.NAME.model] tokens_per_gpu = ...",
        )
        return
    full = model.sharding == "fsdp"
    least = batch.least(flops, rate * 1e9, sharded=full)
    if model.experts is not None and model.active_experts is not None:
        ways = model.expert_ways or 1
        shared, level = _all_reduce(site, built, ways)
        least = batch.least(flops, rate * 1e9, sharded=full, experts=model.experts, active=model.active_experts,
                            speedup=shared / rate)  # fmt: skip
        bounds += f", times {model.experts}/{model.active_experts} (all experts over active ones)"
        bounds += f", divided by {shared / rate:.3g} (experts shared by {ways} GPUs: {level})" if ways > 1 else ""
    found = f"{model.tokens_per_gpu} tokens"
    message = (
        f"a step has {model.tokens_per_gpu} tokens per GPU, and needs more than {batch.too_few(least)} to keep the GPU "
        f"busy; the limit is {bounds}"
    )
    enough = model.tokens_per_gpu >= least * (1 - 1e-9)
    if enough and model.sharding is None and model.tokens_per_gpu < least * sharded / plain * (1 - 1e-9):
        wanted = batch.too_few(least * sharded / plain)
        yield unknown(f"{message}; with FSDP, it is {wanted}", found=found,
                      fix='declare it in the cluster file: [class.NAME.model] sharding = "data" or "fsdp"')  # fmt: skip
    elif enough:
        yield passed(message, found=found)
    elif model.experts is not None and model.expert_ways is None:
        yield unknown(f"{message}, unless several GPUs share the experts", found=found,
                      fix="declare it in the cluster file: [class.NAME.model] expert_ways = ...")  # fmt: skip
    else:
        yield warned(message, found=found)
    if model.tensor_ways is not None and model.feed_forward is not None:
        most = batch.tensor_ways(flops, built.nvlink * 1e9, model.feed_forward, built.gpus)
        fits = model.tensor_ways <= most and model.tensor_ways <= built.domain
        grade = passed if fits else warned
        yield grade(
            f"a feed-forward layer of {model.feed_forward} is split over {model.tensor_ways} GPUs; at most "
            f"{min(most, built.domain):.3g} stay busy in an NVLink domain of {built.domain} GPUs",
            found=f"{model.tensor_ways} ways",
        )


def _all_reduce(site: Site, built: RooflineMachine, ways: int = 1) -> tuple[float, str]:
    """Return the bandwidth of an all-reduce over all GPUs in GB/s, and its limit.

    The array may be sharded over ``ways`` neighbouring GPUs.
    """
    found = levels(site, built)
    if found:
        time, level = seconds("all_reduce", GIB, found, in_network=site.members.tree.sharp is True, ways=ways)
        reduced = "switches reduce" if site.members.tree.sharp else "no in-network reduction"
        return GIB / time / 1e9, f"{level.name} level, {reduced}"
    nics = (built.node_nics or 0.0) * max(1.0, ways / built.gpus)
    halved = 1 if site.members.tree.sharp else 2
    return min(built.nvlink * ways, nics) / halved, f"{built.nics} NICs of {built.nic_gbps:g} Gb/s of a node"
