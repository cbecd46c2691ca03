"""Checks of nccl-tests runs over many pairs of nodes, and of their campaign."""

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
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.bench.comparison import ComparedRun, Comparison, LowNode, RateLevel
    from preflight.bench.explanation import FactorEvidence
    from preflight.facts.campaign_ports import PortErrors

#: Maximum number of pairs listed separately.
_MOST_LISTED = 40

#: Maximum number of ports in a message.
_MOST_PORTS = 3

#: Advice for runs with less noise.
_QUIETER = "run more iterations of a larger message, without other jobs on these switches"

#: Minimum number of slow nodes that, if they are half of all nodes, mean two kinds of nodes rather than that many
#: faults.
_MANY = 3

#: Number of GPUs of one node from which they are listed as one rival.
_ANY_GPU = 3

#: Factors that describe the design of a fabric, not its parts, with their text in messages.
_WAYS = {"different blocks": "between blocks of nodes", "different rails": "between different rails",
         "different leaves": "between leaves"}  # fmt: skip


def no_pairs(run: RunFacts, site: Site) -> Finding | None:
    """Skip logs without runs over several groups of nodes to compare."""
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
    without such a part warns, and so does a run that stopped, which is a different fault. If all runs between two
    blocks of nodes are slow, one warning covers them. Wrong values fail. Fewer than 8 similar runs are *unknown*, as
    are runs so scattered that a run at half the rate would go unnoticed, and a few fast runs among 8 to 15. Nodes are
    only compared with nodes that have the same GPUs.

    ## False alarms
    A fabric designed that way: leaves with few uplinks, or rails that are separate fabrics.
    """
    for comparison in run.pairwise:
        yield from _pairs(comparison, list(run.nccl_tests), run)


def _pairs(comparison: Comparison, keys: Sequence[str], run: RunFacts) -> Iterator[Finding]:
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
    if (below := _all_below_baseline(comparison)) is not None:
        yield warned(
            f"{label}: all {len(comparison.judged)} runs are slow, {below:.2g} of the baseline",
            found=f"{below:.2g} of the baseline",
            expected="as in the baseline",
            evidence=keys,
            fix="Compare the driver, NCCL settings and NIC firmware with those of the baseline.",
        )
        return
    named = {place for cause in comparison.slow.named for place in cause.places}
    alone = [held for place, held in enumerate(comparison.held) if held.slow and place not in named]
    for held in islice(alone, _MOST_LISTED):
        yield _slow(label, held, run)
    if (more := max(0, len(alone) - _MOST_LISTED) + max(0, len(stopped) - _MOST_LISTED)) > 0:
        yield warned(f"{label}: {more} more runs are slow or have failed", evidence=keys)
    if (blind := _blind(comparison)) is not None:
        yield unknown(f"{label}: the noise of these runs is {blind:.0%}: a part at half its rate would go unnoticed",
                      found=f"noise {blind:.0%}", evidence=keys,
                      fix=_QUIETER)  # fmt: skip
    elif not alone and not stopped and all(level.usual for level in comparison.levels):
        slow = sum(held.slow for held in comparison.held)
        low = sum(map(comparison.is_low, comparison.judged))
        explained = f"; {slow} more are slow because of a part that bench.factor names" if slow else ""
        explained += f"; {low} more are low: all runs of a node that bench.factor names" if low else ""
        yield passed(f"{label}: {_summary(comparison)}{explained}", evidence=keys,
                     found=f"{len(alone)} of {len(comparison.judged) - slow - low} slow")  # fmt: skip


def _all_below_baseline(comparison: Comparison) -> float | None:
    """Return the median share of the baseline if all runs are slow, else None."""
    slow = [held for held in comparison.judged if held.slow and held.reference is not None and held.reference.given]
    shares = [held.share for held in slow if held.share is not None]
    return median(shares) if len(shares) == len(comparison.judged) > 1 else None


def _blind(comparison: Comparison) -> float | None:
    """Return the noise if a run at half the rate would go unnoticed, else None."""
    limits = [held.reference for held in comparison.judged if held.reference is not None]
    return next((limit.sigma for limit in limits if limit.limit < 0.5 * limit.busbw), None)


def _slow(label: str, held: ComparedRun, run: RunFacts) -> Finding:
    assert held.bytes is not None
    assert held.reference is not None
    rate, usual = held.run.busbw[held.bytes], held.reference.busbw
    return warned(
        f"{' and '.join(held.run.nodes)}: {label} at {size_of(held.bytes)} reaches {rate:.4g} of "
        f"{usual:.4g} GB/s; no part explains it together with the other runs{_errors(run, [held.run.source])}",
        subject=" - ".join(held.run.nodes), found=f"{rate:.4g} GB/s",
        expected=f"about {usual:.4g} GB/s, like {'the baseline' if held.reference.given else 'similar pairs'}",
        evidence=[f"log:{held.run.source}"],
    )  # fmt: skip


def _apart(label: str, level: RateLevel, keys: Sequence[str]) -> Finding:
    blocks = "; ".join(_listed(block) for block in level.blocks[:8])
    where = f": {blocks}" if blocks else ""
    return warned(
        f"{label}: the rate {_WAYS[level.relation]} is {level.share:.2g} of that within{where}",
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
    text = (f"{sound} runs, none slow: {first.reference.busbw:.4g} GB/s at {size_of(first.bytes)}, "
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
    fix="Run the listed pairs; then run `preflight check --window 60` on their nodes for the counters of their ports.",
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
    fails. Alternative parts are listed with it, together with the runs that would separate them. Slow runs without such
    a part are *unknown*. Runs that stopped are judged separately. If half of the nodes or more are slow, one warning
    covers them: the cluster has two kinds of nodes. The same applies to nodes at NIC rate if the rest exceed what NICs
    can carry. If leaves are unknown, a node all of whose runs are low is *unknown*: it lost a rail, or is on a
    different leaf from the rest.

    ## False alarms
    A part whose few runs all coincided with other traffic; repeat them. A rail that is slower by design: waive it by
    its subject (`rail 0000:9d:00`).
    """
    for comparison in run.pairwise:
        keys = list(run.nccl_tests)
        label = _label(comparison)
        named = [(cause, "slow") for cause in comparison.slow.named if cause.factor.kind not in _WAYS]
        named += [(cause, "unfinished") for cause in comparison.stopped.named]
        nodes = [cause for cause, effect in named if cause.factor.kind == bench.factors.NODE and effect == "slow"]
        measured = {node for held in comparison.judged for node in held.run.nodes}
        if outside := bench.comparison.without_nvlink(comparison, nodes):
            yield _outside(label, outside, len(measured), comparison, keys)
        elif len(nodes) >= _MANY and 2 * len(nodes) >= len(measured):
            yield _two_kinds(label, nodes, len(measured), keys)
            outside = tuple(nodes)
        for cause, effect in named:
            if effect != "slow" or cause not in outside:
                yield _named(label, cause, effect, comparison, run)
        yield from _low(label, comparison.low, len(measured), keys)
        if named or comparison.low or comparison.kind.load == bench.observation.SHARED:
            continue
        slow = sum(held.slow for held in comparison.held)
        if not comparison.judged:
            yield unknown(f"{label}: {len(comparison.held)} runs are too few to compare", evidence=keys,
                          fix="run at least 8 pairs of nodes, each as a separate launch")  # fmt: skip
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
        f"{len(names)} of {measured} nodes run at {rate:.4g} GB/s in {label}, and the rest at more than "
        f"NICs can carry: these nodes are outside the NVLink domain of the rest, or do not reach it: {_listed(names)}",
        found=f"{len(names)} nodes at the rate of NICs",
        expected="all nodes in one NVLink domain, or none",
        evidence=list(keys),
        fix="Compare ClusterUUID and CliqueId in `nvidia-smi -q`; if they are equal, check nvidia-imex on these nodes.",
    )


def _low(label: str, nodes: Sequence[LowNode], measured: int, keys: Sequence[str]) -> Iterator[Finding]:
    fix = "Pass the leaves ([leaves] in the cluster file, or a sweep); check the rate of each port of these nodes."
    if len(nodes) >= _MANY and 2 * len(nodes) >= measured:
        share = median(item.share for item in nodes)
        names = _listed([item.node for item in nodes])
        yield unknown(
            f"all runs of {len(nodes)} of {measured} nodes reach only {share:.2g} of the rate of the other runs "
            f"of {label}: different hardware, or separate leaves: {names}",
            found=f"{len(nodes)} low nodes",
            evidence=keys,
            fix=fix,
        )
        return
    for item in nodes:
        yield unknown(
            f"node {item.node}: all of its {item.runs} runs of {label} are low, {item.share:.2g} of the other runs: "
            "it is slow (losing one rail of eight costs an eighth), or on a different leaf; the leaves are not known",
            subject=f"node {item.node}", found=f"{item.share:.2g} of the other runs", evidence=keys, fix=fix,
        )  # fmt: skip


def _two_kinds(label: str, nodes: Sequence[FactorEvidence], measured: int, keys: Sequence[str]) -> Finding:
    names = sorted(cause.factor.of for cause in nodes)
    return warned(
        f"{len(names)} of {measured} nodes are slow in {label}: different hardware or settings are "
        f"likelier than that many faults: {_listed(names)}",
        found=f"{len(names)} slow nodes",
        expected="fewer than half",
        evidence=list(keys),
        fix="Compare these nodes with the faster ones: GPUs, NICs and their rate, driver, firmware, NCCL.",
    )


def _named(label: str, cause: FactorEvidence, effect: str, comparison: Comparison, run: RunFacts) -> Finding:
    slow, others = cause.elsewhere
    more = "; even slower as messages grow" if effect == "slow" and _all_fall(cause, comparison) else ""
    more += f"; not separated from: {', '.join(_rivals(cause))}" if cause.alike else ""
    sources = dict.fromkeys(comparison.held[place].run.source for place in cause.places)
    own = cause.factor.node or (cause.factor.of if cause.factor.kind == bench.factors.NODE else "")
    return failed(
        f"{cause.factor}: {cause.slow} of its {cause.runs} runs of {label} are {effect}, {slow} of {others} elsewhere: "
        f"{cause.bits:.1f} bits{more}{_errors(run, list(sources), own)}",
        subject=str(cause.factor),
        found=f"{cause.slow} of {cause.runs} runs {effect}",
        expected=f"as elsewhere, {slow} of {others}",
        evidence=[f"log:{source}" for source in islice(sources, _MOST_LISTED)],
        fix=f"Next, run {bench.document.next_step(cause)}; then check the counters of its ports and switches.",
    ).from_cause(("*", own) if own and run.host(own) else ())


def _errors(run: RunFacts, sources: Sequence[str], node: str = "") -> str:
    """Describe ports that counted errors during the runs, of one node or of all."""
    if run.campaign is None or not run.port_errors:
        return ""
    # import-at-use: only campaigns have readings of ports
    from preflight.facts.campaign_ports import of_runs, total

    ports: dict[str, list[PortErrors]] = {}
    for errors in of_runs(run.campaign, run.port_errors, sources):
        if node in ("", errors.node):
            ports.setdefault(f"{errors.node} {errors.port}", []).append(errors)
    listed = [f"{port} counted {total(own)}" for port, own in islice(ports.items(), _MOST_PORTS)]
    return f"; meanwhile {', '.join(listed)}" if listed else ""


def _rivals(cause: FactorEvidence) -> list[str]:
    """Return the rivals as text; three or more GPUs of a node are listed as one."""
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
    """Skip logs that are not from a `preflight bench` campaign."""
    if run.campaign is None:
        return skipped("no campaign of preflight bench", evidence=list(run.logs)).about()
    return None


@check(
    "bench.coverage",
    title="A campaign measured all of its nodes, and left nothing behind",
    fault="A campaign did not measure all of its nodes, or left something behind",
    impact="drifts",
    source="plan and journal of the campaign, as `preflight bench` wrote them; NVIDIA/nccl-tests",
    fix="Continue the campaign with `preflight bench --resume DIR`; free the omitted nodes first.",
    action="fix-site",
    scope="run",
    unless=(no_campaign,),
)
def coverage(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the nodes of a campaign with those that its runs measured.

    ## Why it matters
    A campaign without findings proves nothing about nodes that were busy, did not answer, or were never reached.

    ## Verdicts
    The check passes if each node took part in a successful run. A node that was left out, or that had no successful
    run, is *unknown*, and so is a campaign that ended before its last round. Leftovers on a node after the end of the
    launches warn, and so does a node that could not be examined for them.

    ## False alarms
    A node that was only briefly busy when its round began.
    """
    done = run.campaign
    assert done is not None
    measured = {node for comparison in run.pairwise for held in comparison.held
                if held.run.complete for node in held.run.nodes}  # fmt: skip
    missing = [node for node in done.plan.nodes if node not in measured]
    out = done.left_out
    for node in missing[:_MOST_LISTED]:
        why = f"it was left out: {out[node]}" if node in out else "no run with it was successful"
        yield unknown(f"{node} was not measured: {why}", subject=node, found="not measured",
                      evidence=[bench.campaign.RECORD])  # fmt: skip
    if len(missing) > _MOST_LISTED:
        yield unknown(f"{len(missing) - _MOST_LISTED} more nodes were not measured", evidence=[bench.campaign.RECORD])
    if done.plan.baseline and not any(held.reference.given for comparison in run.pairwise for held in comparison.held
                                      if held.reference is not None):  # fmt: skip
        entry = done.plan.baseline[0]
        yield unknown(
            f"the baseline was not used: it is for other runs or other hardware ({entry.gpu}, NCCL {entry.nccl})",
            found="no comparison with the baseline",
            evidence=[bench.campaign.RECORD],
            fix="learn a baseline on this hardware: preflight bench --learn FILE",
        )
    complete = done.end == "complete" or (done.end == "script" and run.next_round is None)
    if not complete:
        yield unknown(f"the campaign ended after {counted(len(done.rounds), 'round')}: {_ENDS[done.end]}",
                      found=done.end or "cut",
                      expected="complete", evidence=[bench.campaign.RECORD])  # fmt: skip
    for line in done.left_behind[:_MOST_LISTED]:
        yield warned(f"left behind: {line}", subject=line.partition(":")[0], found=line, expected="nothing",
                     evidence=[bench.campaign.RECORD], fix="Look at the processes and /tmp of that node.")  # fmt: skip
    if not missing and complete and not done.left_behind:
        text = f"{len(measured)} of {len(done.plan.nodes)} nodes measured in {counted(len(done.rounds), 'round')}"
        swept = "; nothing left behind" if done.end == "complete" else "; the nodes were not searched after its script"
        yield passed(f"{text}, {len(done.launches)} launches{swept}", evidence=[bench.campaign.RECORD])


#: Why a campaign ended before its last round.
_ENDS = {"": "it was killed", "budget": "its time limit was reached", "interrupted": "it was interrupted",
         "disk": "the disk is full", "nodes": "too few of its nodes are usable",
         "script": "its script has ended; `preflight bench --resume DIR --print sh` prints what is left"}  # fmt: skip
