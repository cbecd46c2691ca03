"""Helpers for judges of network outputs: uncertain faults, long lists."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from preflight._startup.lightclass import replace
from preflight.model import Finding, Status, unknown
from preflight.recognition.judges import Judge, PastedValue

#: Maximum number of findings per check and part; the rest is one more.
MOST_FINDINGS = 8
#: Names in a list.
MOST_NAMED = 20


def unsure(message: str, **details: object) -> Finding:
    """Report a port's fault as unknown, because the text does not show its use."""
    fix = (
        "Run `preflight check` on the node, which knows the job's ports, or check whether the port "
        "is spare or for storage."
    )
    return unknown(f"{message}; the text does not show whether a job uses it", **{"fix": fix, **details})


def limited(judge: Callable[[PastedValue], Iterator[Finding]]) -> Judge:
    """Return a judge that summarises all but its first findings."""

    @functools.wraps(judge)
    def shortened(part: PastedValue) -> Iterator[Finding]:
        first: dict[Status, Finding] = {}
        names: dict[Status, list[str]] = defaultdict(list)
        counts = Counter[Status]()
        for number, finding in enumerate(judge(part)):
            if number < MOST_FINDINGS or finding.status is Status.PASS:
                yield finding
                continue
            first.setdefault(finding.status, finding)
            counts[finding.status] += 1
            if len(names[finding.status]) < MOST_NAMED:
                names[finding.status].append(finding.subject)
        for status, finding in first.items():
            more = "" if counts[status] <= MOST_NAMED else ", …"
            message = f"{counts[status]} more: {', '.join(names[status])}{more}; the first: {finding.message}"
            yield replace(finding, message=message, subject="")

    return shortened
