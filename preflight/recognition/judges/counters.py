"""Judges of counters: what one reading of them proves."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.rdma import counter_totals
from preflight.model import Finding
from preflight.parsers.counter_list import CounterList
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.lists import limited


def _totals(check: str) -> Judge:
    def report(part: PastedValue) -> Iterator[Finding]:
        listed: CounterList = part.value
        yield from counter_totals.judge_totals(check, listed.by_place(), part.evidence, part.complete)

    return limited(report)


def _congestion(part: PastedValue) -> Iterator[Finding]:
    listed: CounterList = part.value
    yield from counter_totals.judge_congestion(listed.by_place(), part.evidence)


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

JUDGES: Judges = dict.fromkeys(("perfquery", "hw_counters", "ethtool -S"), _COUNTERS)
