"""Check of nccl-tests runs between pairs of nodes, each against similar ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from preflight import bench
from preflight.checks.job.nccl_tests import PERFORMANCE, no_report, size_of
from preflight.checks.job.pair_messages import (
    MOST_LISTED,
    QUIETER,
    WAYS,
    WITHIN,
    label_of,
    listed,
    no_pairs,
    noise_if_blind,
    port_errors_during,
)
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, all_of, check, failed, passed, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.bench.comparison import ComparedRun, Comparison
    from preflight.bench.distance import RateLevel


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
    label = label_of(comparison)
    stopped = [held for held in comparison.held if not held.run.complete]
    for held in stopped[:MOST_LISTED]:
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
    runs = len(comparison.judged)
    if (below := _all_below_baseline(comparison)) is not None:
        yield warned(
            f"{label}: {all_of(runs, 'run')} {verb(runs, 'is')} slow, at {below:.0%} of the baseline",
            found=f"{below:.0%} of the baseline",
            expected="as fast as the baseline",
            evidence=keys,
            fix="Compare the driver, NCCL settings and NIC firmware with those of the baseline.",
        )
        return
    named = {place for cause in comparison.slow.named for place in cause.places}
    alone = [held for place, held in enumerate(comparison.held) if held.slow and place not in named]
    for held in islice(alone, MOST_LISTED):
        yield _slow(label, held, run)
    if (more := max(0, len(alone) - MOST_LISTED) + max(0, len(stopped) - MOST_LISTED)) > 0:
        yield warned(f"{label}: {more} more runs are slow or have failed", evidence=keys)
    if (blind := noise_if_blind(comparison)) is not None:
        yield unknown(f"{label}: with {blind:.0%} noise in these runs, a part at half its rate would go unnoticed",
                      found=f"noise {blind:.0%}", evidence=keys,
                      fix=QUIETER)  # fmt: skip
    elif not alone and not stopped and all(level.usual for level in comparison.levels):
        slow = sum(held.slow for held in comparison.held)
        low = sum(map(comparison.is_low, comparison.judged))
        explained = f"; {slow} more are slow because of a part that bench.factor names" if slow else ""
        if low and comparison.low:
            explained += f"; {low} more are low, and bench.factor names their node"
        elif low:
            names = listed([item.node for item in comparison.distant])
            explained += f"; {low} more are low due to distance: in alltoall, the ports of {names} are at full rate"
        yield passed(f"{label}: {_summary(comparison)}{explained}", evidence=keys,
                     found=f"{len(alone)} of {len(comparison.judged) - slow - low} slow")  # fmt: skip


def _all_below_baseline(comparison: Comparison) -> float | None:
    """Return the median share of the baseline if all runs are slow, else None."""
    slow = [held for held in comparison.judged if held.slow and held.reference is not None and held.reference.given]
    shares = [held.share for held in slow if held.share is not None]
    return median(shares) if len(shares) == len(comparison.judged) > 1 else None


def _slow(label: str, held: ComparedRun, run: RunFacts) -> Finding:
    assert held.bytes is not None
    assert held.reference is not None
    rate, usual = held.run.busbw[held.bytes], held.reference.busbw
    errors = port_errors_during(run, [held.run.source])
    return warned(
        f"{' and '.join(held.run.nodes)}: {label} at {size_of(held.bytes)} reaches {rate:.4g} of "
        f"{usual:.4g} GB/s; no part explains it together with the other runs{errors}",
        subject=" - ".join(held.run.nodes), found=f"{rate:.4g} GB/s",
        expected=f"about {usual:.4g} GB/s, like {'the baseline' if held.reference.given else 'similar pairs'}",
        evidence=[f"log:{held.run.source}"],
    )  # fmt: skip


def _apart(label: str, level: RateLevel, keys: Sequence[str]) -> Finding:
    blocks = "; ".join(listed(block) for block in level.blocks[:8])
    where = f": {blocks}" if blocks else ""
    return warned(
        f"{label}: the rate {WAYS[level.relation]} is {level.share:.0%} of the rate {WITHIN[level.relation]}{where}",
        found=f"{level.share:.0%} of the reference, {level.runs} runs, {level.bits:.1f} bits of evidence",
        expected="the same rate, unless the fabric is designed this way", evidence=keys,
        fix="Compare with the topology: count the active uplinks between these blocks.",
    )  # fmt: skip


def _summary(comparison: Comparison) -> str:
    first = next(held for held in comparison.judged)
    assert first.reference is not None
    assert first.bytes is not None
    sound = sum(not held.slow and not comparison.is_low(held) for held in comparison.judged)
    text = (f"{sound} runs, none slow: {first.reference.busbw:.4g} GB/s at {size_of(first.bytes)}, "
            f"noise {first.reference.sigma:.1%}")  # fmt: skip
    for level in comparison.levels:
        text += f"; {level.share:.0%} of this rate {WAYS[level.relation]}, due to distance"
        text += f" ({'; '.join(listed(block) for block in level.blocks)})" if level.blocks else ""
    return text
