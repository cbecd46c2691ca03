"""Check of runs in which all pairs of nodes use the uplinks at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import bench
from preflight.checks.job.campaign_coverage import no_campaign
from preflight.checks.job.nccl_tests import PERFORMANCE, size_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, clause, counted, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.bench.shared_uplinks import SharedRuns

#: Fraction of the bandwidth of one pair that all pairs at once reach if the uplinks suffice; a judgement call.
_ENOUGH = 0.90

#: Fewest runs of one pair at a time for a reference.
_FEWEST = 3

#: Minimum fraction of the longest run during which all runs must be active.
_TOGETHER = 0.7


def no_shared_uplinks(run: RunFacts, site: Site) -> Finding | None:
    """Skip campaigns without runs over shared uplinks."""
    if run.shared_uplinks is None:
        return skipped("the campaign did not load all uplinks at once (`preflight bench --load-spines`)",
                       evidence=[bench.campaign.RECORD]).about()  # fmt: skip
    return None


@check(
    "bench.shared-uplinks",
    title="All pairs at once are as fast as one pair",
    fault="All pairs at once are slower than one pair",
    impact="slows-job",
    owner="network",
    source=f"{PERFORMANCE}; with static ECMP, 8 flows on 8 uplinks put 2.6 on the fullest on average (simulated)",
    fix="Compare with the links of each leaf (`fabric.oversubscription`, `ethernet.oversubscription`) and the balance "
    "of its uplinks while the pairs run.",
    action="fix-site",
    scope="run",
    gating=False,
    answers=("FP-BW-3",),
    unless=(no_campaign, no_shared_uplinks),
)
def shared_uplinks(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare runs of all pairs between leaves with runs of one pair at a time.

    ## Why it matters
    One pair has the uplinks of its leaf to itself. A job does not: it runs on all nodes of a leaf at once.

    ## Verdicts
    Each leaf is paired with one other. The check passes if the pairs of every two such leaves reach 0.90 of the
    bandwidth of one pair, and all nodes took part at the same time. Below that it warns: the leaves have fewer uplinks
    than ports, or flows met on one uplink. Fewer than 3 runs of one pair, nodes that took no part, a single pair
    between two leaves, and runs that hardly overlapped are *unknown*.

    ## False alarms
    A fabric that is oversubscribed by design, and other jobs on the spine.
    """
    assert run.campaign is not None
    assert run.shared_uplinks is not None
    shared, at_once = run.shared_uplinks, run.campaign.plan.at_once
    evidence = [bench.campaign.RECORD]
    if shared.busbw is None or shared.alone < _FEWEST:
        yield unknown(f"{clause(shared.alone, 'run', 'was')} of a single pair, too few to compare with all pairs at "
                      "once", evidence=evidence, expected=f"at least {_FEWEST}")  # fmt: skip
        return
    alone = f"{shared.busbw:.4g} GB/s of one pair at {size_of(run.campaign.plan.bytes)}"
    low = [pair for pair in shared.pairs if pair.share < _ENOUGH]
    if low:
        worst = min(low, key=lambda pair: pair.share)
        others = f", and less than {_ENOUGH:.0%} between {len(low)} of {len(shared.pairs)} pairs of leaves"
        yield warned(
            f"all pairs at once reach {worst.share:.0%} of the {alone} between {' and '.join(worst.leaves)}"
            f"{others if len(shared.pairs) > 1 else ''}: the leaves have too few uplinks, or flows share one",
            found=f"{worst.share:.0%} of one pair", expected=f"at least {_ENOUGH:.0%}", evidence=evidence,
        )  # fmt: skip
    elif why := _incomplete(shared, at_once):
        yield unknown(f"the runs of all pairs at once do not show whether they reach the {alone}: {why}",
                      evidence=evidence, fix="run `preflight bench --goal links --load-spines --at-once N` again, "
                      "with N at least half of the nodes")  # fmt: skip
    else:
        least = min(pair.share for pair in shared.pairs)
        count = sum(pair.runs for pair in shared.pairs)
        yield passed(f"{count} pairs at once reach at least {least:.0%} of the {alone}",
                     found=f"{least:.0%} of one pair", evidence=evidence)  # fmt: skip


def _incomplete(shared: SharedRuns, at_once: int) -> str:
    """Return why runs do not show that the uplinks suffice; empty if they do."""
    if not shared.pairs:
        return "no two leaves have a completed run between them"
    if shared.stopped:
        return f"{clause(shared.stopped, 'run', 'has')} failed"
    if shared.absent:
        return f"{counted(len(shared.absent), 'node')} took no part, such as {shared.absent[0]}"
    if any(pair.runs < 2 for pair in shared.pairs):
        return "there was only one pair between some leaves"
    if shared.largest > at_once:
        return f"only {clause(at_once, 'run', 'was')} started side by side (--at-once)"
    if shared.together < _TOGETHER:
        return f"all pairs were active at once for only {shared.together:.0%} of the time"
    return ""
