"""Check for a node, GPU, rail or leaf that explains slow runs between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from preflight import bench
from preflight.checks.job.nccl_tests import no_report
from preflight.checks.job.pair_messages import (
    MOST_LISTED,
    QUIETER,
    WAYS,
    label_of,
    listed,
    no_pairs,
    noise_if_blind,
    of_all,
    port_errors_during,
)
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, counted, failed, none_of, passed, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.bench.comparison import Comparison
    from preflight.bench.distance import LowNode
    from preflight.bench.explanation import FactorEvidence

#: Minimum number of slow nodes that, if they are half of all nodes, mean two kinds of nodes rather than that many
#: faults.
_MANY = 3

#: Number of GPUs of one node at which they are listed as one rival.
_ANY_GPU = 3


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
    covers them: the cluster has two kinds of nodes. The same applies to nodes at NIC rate if the other nodes exceed
    what NICs can carry. If leaves are unknown, a node is *unknown* if all of its runs are low: it lost a rail, or is on
    a different leaf from its peers. It is not reported if alltoall shows that its ports carry the usual rate.

    ## False alarms
    A part whose few runs all coincided with other traffic; repeat them. A rail that is slower by design: waive it by
    its subject (`rail 0000:9d:00`).
    """
    for comparison in run.pairwise:
        keys = list(run.nccl_tests)
        label = label_of(comparison)
        named = [(cause, "slow") for cause in comparison.slow.named if cause.factor.kind not in WAYS]
        named += [(cause, "unfinished") for cause in comparison.stopped.named]
        nodes = [cause for cause, effect in named if cause.factor.kind == bench.factors.NODE and effect == "slow"]
        measured = {node for held in comparison.judged for node in held.run.nodes}
        if outside := bench.nic_rates.without_nvlink(comparison, nodes):
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
        elif (blind := noise_if_blind(comparison)) is not None:
            yield unknown(f"{label}: these runs vary too much to judge any part: their noise is {blind:.0%}",
                          evidence=keys, fix=QUIETER)  # fmt: skip
        elif slow:
            yield unknown(
                f"{label}: {slow} of {counted(len(comparison.judged), 'run')} {verb(slow, 'is')} slow, and no part "
                "explains this with odds of 100 to 1",
                evidence=keys,
                fix="run the nodes of the slow pairs with other nodes",
            )
        elif all(level.usual for level in comparison.levels):
            yield passed(f"{label}: {none_of(len(comparison.judged), 'run')} is slow", evidence=keys)
        else:
            text = f"no part explains the slower of {len(comparison.judged)} runs; bench.pairs warns of their paths"
            yield passed(f"{label}: {text}", evidence=keys)


def _outside(
    label: str, nodes: Sequence[FactorEvidence], measured: int, comparison: Comparison, keys: Sequence[str]
) -> Finding:
    names = sorted(cause.factor.of for cause in nodes)
    rate = median(bench.nic_rates.rate_of(comparison, cause) for cause in nodes)
    return warned(
        f"{len(names)} of {measured} nodes ({listed(names)}) run {label} at {rate:.4g} GB/s, the other nodes at "
        "more than NICs can carry: these nodes are outside the NVLink domain of those, or do not reach it",
        found=f"{len(names)} nodes at the rate of NICs",
        expected="all nodes in one NVLink domain, or none",
        evidence=list(keys),
        fix="Compare ClusterUUID and CliqueId in `nvidia-smi -q`; if they are equal, check nvidia-imex on these nodes.",
    )


def _low(label: str, nodes: Sequence[LowNode], measured: int, keys: Sequence[str]) -> Iterator[Finding]:
    fix = "Pass the leaves ([leaves] in the cluster file, or a sweep); check the rate of each port of these nodes."
    if len(nodes) >= _MANY and 2 * len(nodes) >= measured:
        share = median(item.share for item in nodes)
        names = listed([item.node for item in nodes])
        yield unknown(
            f"all runs of {label} with {len(nodes)} of {measured} nodes ({names}) reach only {share:.0%} of the rate "
            "of the other runs: these nodes have different hardware or separate leaves",
            found=f"{len(nodes)} low nodes",
            evidence=keys,
            fix=fix,
        )
        return
    for item in nodes:
        yield unknown(
            f"node {item.node}: its {item.runs} runs of {label} all reach only {item.share:.0%} of the rate of other "
            "runs: the node is slow (losing one rail of eight costs an eighth) or on a different leaf; the leaves are "
            "not known",
            subject=f"node {item.node}", found=f"{item.share:.0%} of the rate of other runs", evidence=keys, fix=fix,
        )  # fmt: skip


def _two_kinds(label: str, nodes: Sequence[FactorEvidence], measured: int, keys: Sequence[str]) -> Finding:
    names = sorted(cause.factor.of for cause in nodes)
    return warned(
        f"{len(names)} of {measured} nodes are slow in {label}: {listed(names)}; different hardware or settings are "
        "likelier than that many faults",
        found=f"{len(names)} slow nodes",
        expected="fewer than half",
        evidence=list(keys),
        fix="Compare these nodes with the faster ones: GPUs, NICs and their rate, driver, firmware, NCCL.",
    )


def _named(label: str, cause: FactorEvidence, effect: str, comparison: Comparison, run: RunFacts) -> Finding:
    slow, others = cause.elsewhere
    more = "; even slower as messages grow" if effect == "slow" and _all_fall(cause, comparison) else ""
    more += f"; the cause may also be {' or '.join(_rivals(cause))}" if cause.alike else ""
    sources = dict.fromkeys(comparison.held[place].run.source for place in cause.places)
    own = cause.factor.node or (cause.factor.of if cause.factor.kind == bench.factors.NODE else "")
    return failed(
        f"{cause.factor}: {of_all(cause.slow, cause.runs)} of its runs of {label} are {effect}, and "
        f"{of_all(slow, others)} elsewhere ({cause.bits:.1f} bits of evidence)"
        f"{more}{port_errors_during(run, list(sources), own)}",
        subject=str(cause.factor),
        found=f"{cause.slow} of {cause.runs} runs {effect}",
        expected=f"as elsewhere, {slow} of {others}",
        evidence=[f"log:{source}" for source in islice(sources, MOST_LISTED)],
        fix=f"Next, run {bench.document.next_step(cause)}; then check the counters of its ports and switches.",
    ).from_cause(("*", own) if own and run.host(own) else ())


def _rivals(cause: FactorEvidence) -> list[str]:
    """Name the other possible causes; three or more GPUs of a node are one."""
    gpus = Counter(rival.node for rival in cause.alike if rival.kind == bench.factors.GPU)
    return list(dict.fromkeys(
        f"one of the {gpus[rival.node]} GPUs of {rival.node}, or its port"
        if rival.kind == bench.factors.GPU and gpus[rival.node] >= _ANY_GPU else str(rival)
        for rival in cause.alike
    ))  # fmt: skip


def _all_fall(cause: FactorEvidence, comparison: Comparison) -> bool:
    held = [comparison.held[place] for place in cause.places]
    return all(bench.comparison.falls_with_size(item, comparison.held) for item in held)
