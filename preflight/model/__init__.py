"""Statuses, findings and checks, and how to write a check.

A check is a pure function that yields findings::

    @check("rdma.port-rate", title="RDMA ports run at the expected rate", source="...", fix="...",
           answers=("NT-FAB-3",))
    def port_rate(node: NodeFacts, site: Site) -> Iterator[Finding]:
        ...

The decorator returns a frozen :class:`Check`; nothing registers itself on import.
"""

from preflight.model.checks import (
    FALSE_ALARMS,
    RELATIONS,
    SOURCES,
    VERDICTS,
    WHAT,
    WHY,
    Applicability,
    Check,
    CheckFunction,
    Relation,
    Scope,
    check,
    docstring,
)
from preflight.model.findings import (
    ACTIONS,
    IMPACTS,
    OWNERS,
    PROCESS,
    ROLL_UP,
    SHADOW,
    Finding,
    Status,
    compare,
    failed,
    passed,
    processes,
    skipped,
    unknown,
    warned,
    worst,
)
from preflight.textprep.agreement import agreed, all_of, clause, counted, each_of, none_of, some_of, times, verb

__all__ = [
    "ACTIONS",
    "FALSE_ALARMS",
    "IMPACTS",
    "OWNERS",
    "PROCESS",
    "RELATIONS",
    "ROLL_UP",
    "SHADOW",
    "SOURCES",
    "VERDICTS",
    "WHAT",
    "WHY",
    "Applicability",
    "Check",
    "CheckFunction",
    "Finding",
    "Relation",
    "Scope",
    "Status",
    "agreed",
    "all_of",
    "check",
    "clause",
    "compare",
    "counted",
    "docstring",
    "each_of",
    "failed",
    "none_of",
    "passed",
    "processes",
    "skipped",
    "some_of",
    "times",
    "unknown",
    "verb",
    "warned",
    "worst",
]
