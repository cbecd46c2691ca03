"""Check of waivers that have expired."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped


def no_waiver(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without a waiver."""
    return None if site.waivers else skipped("the cluster file has no waiver for this node", evidence=[])


@check(
    "site.waivers",
    title="No waiver of the cluster file has expired",
    fault="A waiver of the cluster file has expired",
    impact="drifts",
    source="the cluster file: [[waiver]]",
    fix="Fix the waived fault and delete the waiver, or have its owner set a new date; then run `preflight lint FILE`.",
    action="fix-site",
    unless=(no_waiver,),
)
def expired(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the last day of each waiver of this node with the evidence's date.

    Both are in UTC.

    ## Why it matters
    An expired waiver may stand for a forgotten fault that still affects this node's jobs.

    ## Verdicts
    A waiver fails from the day after ``until``. An expired waiver has no effect, so the waived fault is reported as
    well.

    ## False alarms
    A fault that was fixed without deleting the waiver; delete it.
    """
    from datetime import date

    try:
        today = date.fromisoformat(node.evidence.collected_at[:10])
    except ValueError:
        raise EvidenceError("collected_at", f"{node.evidence.collected_at[:40]!r} is not a time") from None
    for waiver in site.waivers:
        subject = f"{waiver.check} {waiver.subject}" if waiver.subject else waiver.check or ""
        if waiver.expired(today):
            yield failed(
                f"the waiver for {subject} expired on {waiver.until}; its owner is {waiver.owner} ({waiver.reason})",
                subject=subject,
                found=str(waiver.until),
                expected=f"{today} or later",
            )
        else:
            yield passed(f"{subject} is {waiver.words}", subject=subject, found=str(waiver.until))
