"""Check whether a campaign measured all of its nodes."""

from __future__ import annotations

from collections.abc import Iterator

from preflight import bench
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, all_of, check, counted, passed, skipped, unknown, verb, warned

#: Maximum number of nodes, or of leftovers, listed separately.
_MOST_LISTED = 40

#: Why a campaign ended before its last round.
_ENDS = {"": "it was killed", "budget": "its time limit was reached", "interrupted": "it was interrupted",
         "disk": "the disk is full", "nodes": "too few of its nodes are usable",
         "script": "its script has ended; `preflight bench --resume DIR --print sh` prints what is left"}  # fmt: skip


def no_campaign(run: RunFacts, site: Site) -> Finding | None:
    """Skip logs that are not from a `preflight bench` campaign."""
    if run.campaign is None:
        return skipped("the logs are not of a `preflight bench` campaign", evidence=list(run.logs)).about()
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
    launched = {end.node for launch in done.launches for end in done.ends(launch)}
    out = done.left_out
    for node in missing[:_MOST_LISTED]:
        without = "none of its runs succeeded" if node in launched else "no run with it was started"
        why = f"was excluded: {out[node]}" if node in out else f"was not measured: {without}"
        fix = "free the node, then resume the campaign: `preflight bench --resume DIR`" if node in out else ""
        yield unknown(f"{node} {why}", subject=node, found="not measured",
                      evidence=[bench.campaign.RECORD], fix=fix)  # fmt: skip
    if len(missing) > _MOST_LISTED:
        yield unknown(f"{len(missing) - _MOST_LISTED} more nodes were not measured", evidence=[bench.campaign.RECORD])
    if done.plan.baseline and not any(held.reference.given for comparison in run.pairwise for held in comparison.held
                                      if held.reference is not None):  # fmt: skip
        entry = done.plan.baseline[0]
        yield unknown(
            f"the baseline was not used: it is for other runs or other hardware ({entry.gpu}, NCCL {entry.nccl})",
            found="no comparison with the baseline",
            evidence=[bench.campaign.RECORD],
            fix="learn a baseline on this hardware: `preflight bench --learn FILE`",
        )
    complete = done.end == "complete" or (done.end == "script" and run.next_round is None)
    if not complete:
        yield unknown(f"the campaign ended after {counted(len(done.rounds), 'round')}: {_ENDS[done.end]}",
                      found=f"ended: {_ENDS[done.end]}",
                      expected="complete", evidence=[bench.campaign.RECORD])  # fmt: skip
    for line in done.left_behind[:_MOST_LISTED]:
        node, _, text = line.partition(": ")
        lead = "was " if text.startswith("not searched") else "had left-over processes: "
        text = text.replace("not searched", "not searched for leftovers", 1)
        yield warned(f"{node} {lead}{text}", subject=node, found=text, expected="nothing left behind",
                     evidence=[bench.campaign.RECORD], fix=f"Look at the processes and /tmp of {node}.")  # fmt: skip
    if not missing and complete and not done.left_behind:
        nodes = len(done.plan.nodes)
        text = f"{all_of(nodes, 'node')} {verb(nodes, 'was')} measured in {counted(len(done.rounds), 'round')}"
        swept = "nothing was left behind" if done.end == "complete" else "the nodes were not searched for leftovers"
        launches = counted(len(done.launches), "launch")
        yield passed(f"{text} and {launches}; {swept}", evidence=[bench.campaign.RECORD])
