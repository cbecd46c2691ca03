"""Judges of counters that were read once."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.rdma import counter_totals
from preflight.model import Finding, passed, unknown
from preflight.parsers.counter_list import CounterList
from preflight.parsers.infiniband import ibqueryerrors
from preflight.parsers.infiniband.ibqueryerrors import Errors
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.lists import limited


def _totals(check: str) -> Judge:
    def report(part: PastedValue) -> Iterator[Finding]:
        listed: CounterList = part.value
        yield from counter_totals.judge_totals(check, listed.by_place(), part.evidence, part.in_full)

    return limited(report)


def _congestion(part: PastedValue) -> Iterator[Finding]:
    listed: CounterList = part.value
    yield from counter_totals.judge_congestion(listed.by_place(), part.evidence)
    yield from counter_totals.judge_priority_pauses(listed.by_place(), part.evidence, part.in_full)


def _stalls(part: PastedValue) -> Iterator[Finding]:
    listed: CounterList = part.value
    yield from counter_totals.judge_stalls(listed.by_place(), part.evidence)


def _marking(part: PastedValue) -> Iterator[Finding]:
    listed: CounterList = part.value
    yield from counter_totals.judge_marking(listed.by_place(), part.evidence)


_COUNTERS = (
    *((check, _totals(check)) for check in counter_totals.CHECKS),
    ("counters.congestion", limited(_congestion)),
    ("counters.traffic-class", _marking),
    ("counters.receiver", _stalls),
)


def _fabric_totals(check: str) -> Judge:
    def report(part: PastedValue) -> Iterator[Finding]:
        errors: Errors = part.value
        yield from counter_totals.judge_totals(check, ibqueryerrors.by_place(errors), part.evidence, part.complete)

    return limited(report)


def _fabric_queries(part: PastedValue) -> Iterator[Finding]:
    errors: Errors = part.value
    if errors.unanswered:
        yield unknown(f"{errors.unanswered} counter queries were not answered", found=errors.unanswered,
                      expected="0", evidence=part.evidence,
                      fix="Run `ibqueryerrors` again, and `saquery` for these nodes.")  # fmt: skip
    elif not errors.counters and errors.nodes and part.complete:
        yield passed(f"{errors.nodes} nodes of the fabric answered, and no port has errors", evidence=part.evidence)


JUDGES: Judges = {
    **dict.fromkeys(("perfquery", "hw_counters", "ethtool -S"), _COUNTERS),
    "ibqueryerrors": (
        *((check, _fabric_totals(check)) for check in counter_totals.CHECKS), ("fabric.link-errors", _fabric_queries),
    ),
}  # fmt: skip
