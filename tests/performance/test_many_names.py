"""Thousands of names that do not resolve: bounded time and memory."""

from __future__ import annotations

import resource
import threading
from typing import Any

from preflight.collect.scheduler import gather
from preflight.evidence.document import no_answer, to_document
from tests.support import fake_transport
from tests.support.fake_transport import AT, FakeTransport, answer, hosts, plan_for
from tests.support.stopwatch import Stopwatch

no_signal_handler_left = fake_transport.no_signal_handler_left


def unresolved(host: str) -> dict[str, Any]:
    return to_document(no_answer(host, "resolve", "the name does not resolve", AT))


def test_five_thousand_names_take_bounded_time_and_memory() -> None:
    """4,990 names do not resolve and 10 nodes answer with 1 MB each; no answer stays in memory."""

    def behave(host: str, until: float) -> dict[str, Any]:
        return answer(host, 1_000_000) if host < "n0010" else unresolved(host)

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    watch, seen, silent = Stopwatch(), 0, set()
    for evidence in gather(hosts(5000), FakeTransport(behave), plan_for):
        seen += 1
        if evidence.no_answer:
            silent.add(tuple(evidence.no_answer.values()))
    assert seen == 5000
    assert silent == {("resolve", "the name does not resolve")}
    assert watch.seconds < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 60_000
    assert threading.active_count() < 200
