"""Comparison of nccl-tests runs over many pairs of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from preflight import bench
from preflight.checks.job.nccl_tests import PERFORMANCE, no_report, size_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.bench.comparison import ComparedRun, Comparison, LowNode, RateLevel
    from preflight.bench.explanation import FactorEvidence

#: Maximum number of pairs listed separately.
_MOST_LISTED = 40

#: What makes runs less noisy.
_QUIETER = "run more iterations of a larger message, without other jobs on these switches"

#: Slow nodes from which on half of all are two kinds of nodes, and not as many faults.
_MANY = 3

#: GPUs of one node that are listed as one rival from this number on.
_ANY_GPU = 3

#: Factors that describe how a fabric is built and are not parts.
_WAYS = {"different blocks": "between blocks of nodes", "different rails": "between different rails",
         "different leaves": "between leaves"}  # fmt: skip


def no_pairs(run: RunFacts, site: Site) -> Finding | None:
    """Report logs without runs over several groups of nodes to compare."""
    if not run.pairwise:
        return skipped("no runs of one collective over several groups of nodes", evidence=list(run.nccl_tests)).about()
    return None


@check(
    "bench.pairs",
    title="Every pair of nodes runs as fast as similar pairs",
    fault="A pair of nodes fails or is slower than similar pairs",
    impact="slows-job",
    owner="network",
    source=f"{PERFORMANCE}; NVIDIA/nccl #349: to find the slow node, run parts of the cluster",
    fix="Run the pair again, then each of its nodes with another node; run `preflight check` on the "
    "node that stays slow.",
    action="fix-site",
    scope="run",
    answers=("FP-LAT-2",),
    unless=(no_report, no_pairs),
)
def pairs(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare runs of one collective over many groups of nodes with each other.

    ## Why it matters
    A collective is as fast as its slowest link. Only a run of all pairs finds the one pair that is slow or does not
    run.

    ## Verdicts
    A run is slow below 0.95 of the median of similar pairs if leaves are known, else below 0.85, unless the noise
    estimated from the runs explains it. If a part explains several slow runs, `bench.factor` names it. A slow run
    without such a part warns, and so does a run that stopped, which is a different fault. Blocks of nodes between
    which all runs are slow warn as one. Wrong values fail. Fewer than 8 similar runs are *unknown*, as are runs so
    scattered that half of the rate would not be slow, and a few fast runs among 8 to 15. Nodes with other GPUs are
    compared with their like.

    ## False alarms
    A fabric designed that way: leaves with few uplinks, or rails that are separate fabrics.
    """
    for comparison in run.pairwise:
        yield from _pairs(comparison, list(run.nccl_tests))


def _pairs(comparison: Comparison, keys: Sequence[str]) -> Iterator[Finding]:
    label = _label(comparison)
    stopped = [held for held in comparison.held if not held.run.complete]
    for held in stopped[:_MOST_LISTED]:
        nodes = " and ".join(held.run.nodes)
        if held.run.outcome == bench.observation.WRONG:
            yield failed(f"{nodes}: {label} gives {held.run.why}", subject=" - ".join(held.run.nodes),
                         found="wrong values", expected="none", evidence=[f"log:{held.run.source}"],
                         why="A job on these nodes computes wrong numbers, without an error.")  # fmt: skip
            continue
        yield warned(f"{nodes}: {label} does not run: {held.run.why}", subject=f"{' - '.join(held.run.nodes)}",
                     found="does not run", expected="a complete run", evidence=[f"log:{held.run.source}"])  # fmt: skip
    if comparison.kind.load == bench.observation.SHARED:
        return  # bench.shared-uplinks compares them
    if not comparison.judged:
        yield unknown(f"{label}: {len(comparison.held)} runs are too few to compare", evidence=keys,
                      fix="run at least 8 pairs of nodes, each as a separate launch")  # fmt: skip
        return
    for level in comparison.levels:
        if not level.usual:
            yield _apart(label, level, keys)
    named = {place for cause in comparison.slow.named for place in cause.places}
    alone = [held for place, held in enumerate(comparison.held) if held.slow and place not in named]
    for held in islice(alone, _MOST_LISTED):
        yield _slow(label, held)
    if (more := max(0, len(alone) - _MOST_LISTED) + max(0, len(stopped) - _MOST_LISTED)) > 0:
        yield warned(f"{label}: {more} more runs are slow or do not run", evidence=keys)
    if (blind := _blind(comparison)) is not None:
        yield unknown(f"{label}: the noise of these runs is {blind:.0%}: a part at half its rate would not be seen",
                      found=f"noise {blind:.0%}", evidence=keys,
                      fix=_QUIETER)  # fmt: skip
    elif not alone and not stopped and all(level.usual for level in comparison.levels):
        slow = sum(held.slow for held in comparison.held)
        low = sum(map(comparison.is_low, comparison.judged))
        explained = f"; {slow} more are slow for a part that bench.factor names" if slow else ""
        explained += f"; {low} more are low, all runs of a node that bench.factor names" if low else ""
        yield passed(f"{label}: {_summary(comparison)}{explained}", evidence=keys,
                     found=f"{len(alone)} of {len(comparison.judged) - slow - low} slow")  # fmt: skip


def _blind(comparison: Comparison) -> float | None:
    """Return the noise of runs among which even half of the rate is not slow."""
    limits = [held.reference for held in comparison.judged if held.reference is not None]
    return next((limit.sigma for limit in limits if limit.limit < 0.5 * limit.busbw), None)


def _slow(label: str, held: ComparedRun) -> Finding:
    assert held.bytes is not None
    assert held.reference is not None
    rate, usual = held.run.busbw[held.bytes], held.reference.busbw
    return warned(
        f"{' and '.join(held.run.nodes)}: {label} at {size_of(held.bytes)} reaches {rate:.4g} of "
        f"{usual:.4g} GB/s; no part explains it together with the other runs",
        subject=" - ".join(held.run.nodes), found=f"{rate:.4g} GB/s",
        expected=f"about {usual:.4g} GB/s, as similar pairs",
        evidence=[f"log:{held.run.source}"],
    )  # fmt: skip


def _apart(label: str, level: RateLevel, keys: Sequence[str]) -> Finding:
    blocks = "; ".join(_listed(block) for block in level.blocks[:8])
    where = f": {blocks}" if blocks else ""
    return warned(
        f"{label}: {_WAYS[level.relation]} {level.share:.2g} of the rate within{where}",
        found=f"{level.share:.2g} of the reference, {level.runs} runs, {level.bits:.1f} bits",
        expected="the same rate, unless the fabric is designed this way", evidence=keys,
        fix="Compare with the topology: count the active uplinks between these blocks.",
    )  # fmt: skip


def _listed(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:12]) + (f" and {len(nodes) - 12} more" if len(nodes) > 12 else "")


def _summary(comparison: Comparison) -> str:
    first = next(held for held in comparison.judged)
    assert first.reference is not None
    assert first.bytes is not None
    sound = sum(not held.slow and not comparison.is_low(held) for held in comparison.judged)
    text = (f"{sound} runs, none is slow: {first.reference.busbw:.4g} GB/s at {size_of(first.bytes)}, "
            f"noise {first.reference.sigma:.1%}")  # fmt: skip
    for level in comparison.levels:
        text += f"; {_WAYS[level.relation]} {level.share:.2g} of it due to distance"
        text += f" ({'; '.join(_listed(block) for block in level.blocks)})" if level.blocks else ""
    return text


@check(
    "bench.factor",
    title="No node, GPU, rail or leaf explains slow runs between nodes",
    fault="A node, GPU, rail or leaf explains slow runs between nodes",
    impact="slows-job",
    owner="network",
    source="Bayes factors with Jeffreys' prior (H. Jeffreys, Theory of Probability, 1961); runs as in bench.pairs",
    fix="Run the pairs that it lists, then `preflight check --window 60` on their nodes: counters of the ports.",
    action="fix-site",
    scope="run",
    answers=("FP-LAT-2",),
    unless=(no_report, no_pairs),
)
def factor(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for a part that explains the slow runs between nodes.

    ## Why it matters
    A rail that is slow in a quarter of its runs slows pairs of any nodes. If only nodes are considered, good nodes are
    replaced and the fault remains.

    ## Verdicts
    For each part, the check computes the evidence in bits that a separate rate explains its slow runs better than
    chance, less the cost of selecting it among all parts. A part with at least 6.6 bits (100 to 1) and three slow runs
    fails. Parts that remain possible instead are listed with it, together with the runs that would separate them. Slow
    runs without such a part are *unknown*. Runs that stopped are judged separately. If half of the nodes or more are
    slow, they warn as one: the cluster has two kinds of nodes. So do nodes at the rate of NICs, if the rest are above
    what NICs carry. If leaves are unknown, a node all of whose runs are low is *unknown*: it lost a rail, or is on
    another leaf than the rest.

    ## False alarms
    A part whose few runs all coincided with other traffic; repeat them. A rail that is slower by design: waive it, by
    its subject (`rail 0000:9d:00`).
    """
    for comparison in run.pairwise:
        keys = list(run.nccl_tests)
        label = _label(comparison)
        named = [(cause, "slow") for cause in comparison.slow.named if cause.factor.kind not in _WAYS]
        named += [(cause, "without an end") for cause in comparison.stopped.named]
        nodes = [cause for cause, effect in named if cause.factor.kind == bench.factors.NODE and effect == "slow"]
        measured = {node for held in comparison.judged for node in held.run.nodes}
        if outside := bench.comparison.without_nvlink(comparison, nodes):
            yield _outside(label, outside, len(measured), comparison, keys)
        elif len(nodes) >= _MANY and 2 * len(nodes) >= len(measured):
            yield _two_kinds(label, nodes, len(measured), keys)
            outside = tuple(nodes)
        for cause, effect in named:
            if effect != "slow" or cause not in outside:
                yield _named(label, cause, effect, comparison)
        yield from _low(label, comparison.low, len(measured), keys)
        if named or comparison.low or comparison.kind.load == bench.observation.SHARED:
            continue
        slow = sum(held.slow for held in comparison.held)
        if not comparison.judged:
            yield unknown(f"{label}: {len(comparison.held)} runs are too few to compare", evidence=keys,
                          fix="run at least 8 pairs of nodes, each as a launch of its own")  # fmt: skip
        elif (blind := _blind(comparison)) is not None:
            yield unknown(f"{label}: the noise of these runs is {blind:.0%}: no part can be judged", evidence=keys,
                          fix=_QUIETER)  # fmt: skip
        elif slow:
            yield unknown(
                f"{label}: {slow} of {len(comparison.judged)} runs are slow, and no part explains them 100 to 1",
                evidence=keys,
                fix="run the nodes of the slow pairs with other nodes",
            )
        elif all(level.usual for level in comparison.levels):
            yield passed(f"{label}: no slow run among {len(comparison.judged)}", evidence=keys)
        else:
            text = f"no part explains the {len(comparison.judged)} runs; bench.pairs warns of the paths between them"
            yield passed(f"{label}: {text}", evidence=keys)


def _outside(
    label: str, nodes: Sequence[FactorEvidence], measured: int, comparison: Comparison, keys: Sequence[str]
) -> Finding:
    names = sorted(cause.factor.of for cause in nodes)
    rate = median(bench.comparison.rate_of(comparison, cause) for cause in nodes)
    return warned(
        f"{len(names)} of {measured} nodes run at {rate:.4g} GB/s in {label}, and the rest above what NICs carry: "
        f"these nodes are outside the NVLink domain of the rest, or do not reach it: {_listed(names)}",
        found=f"{len(names)} nodes at the rate of NICs", expected="all nodes in one NVLink domain, or none",
        evidence=list(keys),
        fix="Compare ClusterUUID and CliqueId in `nvidia-smi -q`; if they are equal, check nvidia-imex on these nodes.",
    )  # fmt: skip


def _low(label: str, nodes: Sequence[LowNode], measured: int, keys: Sequence[str]) -> Iterator[Finding]:
    fix = "Give the leaves ([leaves] in the cluster file, or a sweep); check the rate of each port of these nodes."
    if len(nodes) >= _MANY and 2 * len(nodes) >= measured:
        share = median(item.share for item in nodes)
        names = _listed([item.node for item in nodes])
        yield unknown(
            f"{len(nodes)} of {measured} nodes reach {share:.2g} of the other runs in all of theirs, in {label}: other "
            f"hardware, or leaves of their own: {names}",
            found=f"{len(nodes)} low nodes", evidence=keys, fix=fix,
        )  # fmt: skip
        return
    for item in nodes:
        yield unknown(
            f"node {item.node}: all of its {item.runs} runs of {label} are low, {item.share:.2g} of the other runs: "
            "it is slow (one rail of eight is an eighth), or on another leaf than the rest: leaves are not known",
            subject=f"node {item.node}", found=f"{item.share:.2g} of the other runs", evidence=keys, fix=fix,
        )  # fmt: skip


def _two_kinds(label: str, nodes: Sequence[FactorEvidence], measured: int, keys: Sequence[str]) -> Finding:
    names = sorted(cause.factor.of for cause in nodes)
    return warned(
        f"{len(names)} of {measured} nodes are slow in {label}: other hardware or another setting is likelier than as "
        f"many faults: {_listed(names)}",
        found=f"{len(names)} slow nodes", expected="fewer than half", evidence=list(keys),
        fix="Compare these nodes with the faster ones: GPUs, NICs and their rate, driver, firmware, NCCL.",
    )  # fmt: skip


def _named(label: str, cause: FactorEvidence, effect: str, comparison: Comparison) -> Finding:
    slow, others = cause.elsewhere
    rivals = f"; not separated from: {', '.join(_rivals(cause))}" if cause.alike else ""
    falling = effect == "slow" and _all_fall(cause, comparison)
    sources = dict.fromkeys(f"log:{comparison.held[place].run.source}" for place in cause.places)
    return failed(
        f"{cause.factor}: {cause.slow} of its {cause.runs} runs of {label} are {effect}, {slow} of {others} elsewhere: "
        f"{cause.bits:.1f} bits{'; even slower as messages grow' if falling else ''}{rivals}",
        subject=str(cause.factor),
        found=f"{cause.slow} of {cause.runs} runs {effect}",
        expected=f"as elsewhere, {slow} of {others}",
        evidence=list(islice(sources, _MOST_LISTED)),
        fix=f"Next, run {bench.document.next_step(cause)}; then check the counters of its ports and switches.",
    )


def _rivals(cause: FactorEvidence) -> list[str]:
    """Return the rivals as text; the GPUs of a node that all its runs use are one."""
    gpus = Counter(rival.node for rival in cause.alike if rival.kind == bench.factors.GPU)
    return list(dict.fromkeys(
        f"one of {gpus[rival.node]} GPUs of {rival.node}, or its port"
        if rival.kind == bench.factors.GPU and gpus[rival.node] >= _ANY_GPU else str(rival)
        for rival in cause.alike
    ))  # fmt: skip


def _all_fall(cause: FactorEvidence, comparison: Comparison) -> bool:
    held = [comparison.held[place] for place in cause.places]
    return all(bench.comparison.falls_with_size(item, comparison.held) for item in held)


def _label(comparison: Comparison) -> str:
    kind = comparison.kind
    models = f" ({', '.join(comparison.models)})" if comparison.models else ""
    return f"{kind.collective} over {kind.ranks} GPUs on {kind.nodes} node{'s' * (kind.nodes != 1)}{models}"


def no_campaign(run: RunFacts, site: Site) -> Finding | None:
    """Report logs that no campaign of `preflight bench` made."""
    if run.campaign is None:
        return skipped("no campaign of preflight bench", evidence=list(run.logs)).about()
    return None


@check(
    "bench.coverage",
    title="A campaign measured all its nodes, and left nothing behind",
    fault="A campaign did not measure all its nodes, or left something behind",
    impact="drifts",
    source="plan and journal of the campaign, as `preflight bench` wrote them; NVIDIA/nccl-tests",
    fix="Continue it with `preflight bench --resume DIR`; free the nodes that were left out first.",
    action="fix-site",
    scope="run",
    unless=(no_campaign,),
)
def coverage(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the nodes of a campaign with those that its runs measured.

    ## Why it matters
    A campaign without findings shows nothing of nodes that were busy, did not answer, or did not get their turn.

    ## Verdicts
    It passes where each node took part in a run that ended well. A node that was left out, or of which no run ended
    well, is *unknown*, and so is a campaign that ended before its last round. What was still on a node after the end
    of the launches warns: it was killed, or the node could not be examined.

    ## False alarms
    A node that was busy for a moment when its round began, and free again after it.
    """
    done = run.campaign
    assert done is not None
    measured = {node for comparison in run.pairwise for held in comparison.held
                if held.run.complete for node in held.run.nodes}  # fmt: skip
    missing = [node for node in done.plan.nodes if node not in measured]
    out = done.left_out
    for node in missing[:_MOST_LISTED]:
        why = f"it was left out: {out[node]}" if node in out else "no run with it ended well"
        yield unknown(f"{node} was not measured: {why}", subject=node, found="not measured",
                      evidence=[bench.campaign.RECORD])  # fmt: skip
    if len(missing) > _MOST_LISTED:
        yield unknown(f"{len(missing) - _MOST_LISTED} more nodes were not measured", evidence=[bench.campaign.RECORD])
    complete = done.end == "complete" or (done.end == "script" and run.next_round is None)
    if not complete:
        yield unknown(f"the campaign ended after {len(done.rounds)} rounds: {_ENDS[done.end]}", found=done.end or "cut",
                      expected="complete", evidence=[bench.campaign.RECORD])  # fmt: skip
    for line in done.left_behind[:_MOST_LISTED]:
        yield warned(f"left behind: {line}", subject=line.partition(":")[0], found=line, expected="nothing",
                     evidence=[bench.campaign.RECORD], fix="Look at the processes and /tmp of that node.")  # fmt: skip
    if not missing and complete and not done.left_behind:
        text = f"{len(measured)} of {len(done.plan.nodes)} nodes measured in {len(done.rounds)} rounds"
        swept = "; nothing left behind" if done.end == "complete" else "; the nodes were not searched after its script"
        yield passed(f"{text}, {len(done.launches)} launches{swept}", evidence=[bench.campaign.RECORD])


#: Why a campaign ended before its last round.
_ENDS = {"": "it was killed", "budget": "its time was used up", "interrupted": "it was interrupted",
         "disk": "the disk took no more", "nodes": "too few of its nodes may be used",
         "script": "its script has ended; `preflight bench --resume DIR --print sh` prints what is left"}  # fmt: skip
