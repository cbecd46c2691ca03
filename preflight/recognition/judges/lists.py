"""What the judges of network outputs share: faults of ports that a job may not use, and long lists."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator

from preflight._startup.lightclass import replace
from preflight.model import Finding, Status, unknown
from preflight.recognition.judges import Judge, PastedValue

#: Findings of one check and part; the rest is one more.
MOST_FINDINGS = 8
#: Names in a list.
MOST_NAMED = 20


def unsure(message: str, **details: object) -> Finding:
    """Report a fault of a port that a job uses; the text does not show whether one does."""
    fix = "`preflight check` on the node knows the job's ports; or see whether it is spare, or for storage."
    return unknown(f"{message}; the text does not show whether a job uses it", **{"fix": fix, **details})


def limited(judge: Callable[[PastedValue], Iterator[Finding]]) -> Judge:
    """Return a judge that summarises all but its first findings."""

    @functools.wraps(judge)
    def shortened(part: PastedValue) -> Iterator[Finding]:
        rest: dict[Status, list[Finding]] = defaultdict(list)
        for number, finding in enumerate(judge(part)):
            if number < MOST_FINDINGS or finding.status is Status.PASS:
                yield finding
            else:
                rest[finding.status].append(finding)
        for findings in rest.values():
            names = ", ".join(finding.subject for finding in findings[:MOST_NAMED])
            more = "" if len(findings) <= MOST_NAMED else ", …"
            message = f"{len(findings)} more: {names}{more}; the first: {findings[0].message}"
            yield replace(findings[0], message=message, subject="")

    return shortened
