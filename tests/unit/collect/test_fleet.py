"""Many nodes at once, over a transport that hangs, lies, crashes or is interrupted."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from preflight.collect import scheduler
from preflight.collect.progress import ProgressLine
from preflight.collect.scheduler import Limits, NodeEvent, gather, interruptible
from preflight.evidence.document import Evidence, no_answer, to_document
from tests.support.stopwatch import Stopwatch

AT = "2026-11-21T03:00:00Z"


class FakeTransport:
    """Answers as ``behave`` decides, in the thread of the caller."""

    def __init__(self, behave: Callable[[str, float], dict[str, Any] | None] | None = None) -> None:
        self._behave = behave
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.contacted: list[str] = []

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        with self._lock:
            self.contacted.append(host)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return (self._behave(host, until) if self._behave else None) or answer(host)
        finally:
            with self._lock:
                self.now -= 1


def answer(host: str, size: int = 0) -> dict[str, Any]:
    return to_document(Evidence(host, AT, {"file:/x": {"status": "ok", "out": "x" * size}}))


def unresolved(host: str) -> dict[str, Any]:
    return to_document(no_answer(host, "resolve", "the name does not resolve", AT))


def plan_for(host: str, deadline_s: float) -> dict[str, Any]:
    return {"node": host, "deadline_s": deadline_s}


def hosts(number: int) -> list[str]:
    return [f"n{index:04d}" for index in range(number)]


def reasons(evidences: list[Evidence]) -> dict[str, str]:
    """Return the phase of each node without an answer, and its reason."""
    return {e.node: f"{e.no_answer['phase']}: {e.no_answer['reason']}" for e in evidences if e.no_answer}


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_every_node_ends_as_one_document() -> None:
    transport = FakeTransport()
    found = list(gather(hosts(200), transport, plan_for, Limits(fanout=7, node_s=5, run_s=10)))
    assert sorted(e.node for e in found) == hosts(200)
    assert all(e.answered for e in found)
    assert transport.most <= 7


def test_no_node_and_a_node_named_twice() -> None:
    assert list(gather([], FakeTransport(), plan_for)) == []
    assert [e.node for e in gather(["a", "a"], FakeTransport(), plan_for)] == ["a"]


def test_answers_come_as_they_arrive() -> None:
    arrived = threading.Event()
    late: list[bool] = []
    slow = FakeTransport(lambda host, until: late.append(arrived.wait(60)) if host == "n0000" else None)
    order = []
    for e in gather(hosts(5), slow, plan_for, Limits(node_s=90, run_s=90)):
        order.append(e.node)
        if len(order) == 4:
            arrived.set()
    assert order[-1] == "n0000"
    assert late == [True], "four came before it"


def test_a_node_gets_its_deadline() -> None:
    seen: list[float] = []

    def plan(host: str, deadline_s: float) -> dict[str, Any]:
        seen.append(deadline_s)
        return plan_for(host, deadline_s)

    watch = Stopwatch()
    list(gather(["a"], FakeTransport(), plan, Limits(node_s=30, run_s=100)))
    list(gather(["a"], FakeTransport(), plan, Limits(node_s=30, run_s=5)))
    of_a_node, of_the_run = seen
    assert 28 - watch.elapsed <= of_a_node <= 28
    assert 4 - watch.elapsed <= of_the_run <= 4


def test_a_transport_that_does_not_come_back_costs_one_node_and_no_worker() -> None:
    stuck = FakeTransport(lambda host, until: wait(20) if host in ("n0000", "n0001") else None)
    watch = Stopwatch()
    found = list(gather(hosts(20), stuck, plan_for, Limits(fanout=2, node_s=1, run_s=60)))
    assert watch.seconds < 3
    late = "collect: the transport did not come back by the node's deadline"
    assert reasons(found) == {"n0000": late, "n0001": late}
    assert len(found) == 20


def test_the_deadline_of_a_run_names_the_nodes_still_queued() -> None:
    slow = FakeTransport(lambda host, until: wait(0.2))
    watch = Stopwatch()
    found = list(gather(hosts(50), slow, plan_for, Limits(fanout=2, node_s=5, run_s=1)))
    assert watch.seconds < 2
    assert len(found) == 50
    queued = set(reasons(found).values())
    assert queued == {"queue: its turn did not come within 1 s, 2 nodes at once: raise --deadline or --fanout"}
    assert 2 <= 50 - len(reasons(found)) <= 2 * (5 + 1), "those whose turn came, and five turns are a second"


def test_a_crash_and_a_lie_cost_one_node() -> None:
    def behave(host: str, until: float) -> dict[str, Any] | None:
        if host == "n0001":
            raise RuntimeError("boom")
        return {"n0002": {"schema": "other"}, "n0003": answer("n0004", 3)}.get(host)

    found = {e.node: e for e in gather(hosts(5), FakeTransport(behave), plan_for)}
    assert sorted(found) == hosts(5)
    assert reasons(list(found.values())) == {
        "n0001": "collect: preflight itself failed: RuntimeError: boom",
        "n0002": "read: n0002 has schema 'other'; this version reads 'preflight.evidence/1'",
    }
    assert found["n0003"].text("file:/x") == "xxx"  # a node that reports another name is stored under its own


def test_a_slow_reader_slanders_no_node() -> None:
    found = []
    for evidence in gather(hosts(60), FakeTransport(), plan_for, Limits(fanout=60, node_s=1, run_s=60)):
        found.append(evidence)
        wait(0.03)
    assert reasons(found) == {}


def test_stop_yields_what_is_in_hand() -> None:
    stop = threading.Event()
    slow = FakeTransport(lambda host, until: wait(5) if host >= "n0010" else None)
    found, watch = [], Stopwatch()
    for evidence in gather(hosts(40), slow, plan_for, Limits(fanout=20), stop=stop):
        found.append(evidence)
        if len(found) == 10:
            stop.set()
    assert watch.seconds < 1
    assert sorted(e.node for e in found) == hosts(40)
    assert reasons(found) == dict.fromkeys(hosts(40)[10:], "interrupted: interrupted")


def test_a_keyboard_interrupt_yields_what_is_in_hand() -> None:
    slow = FakeTransport(lambda host, until: wait(5) if host != "n0000" else None)
    timer = threading.Timer(1, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    found = list(gather(hosts(9), slow, plan_for))
    timer.join()
    assert [e.node for e in found] == hosts(9)
    assert reasons(found) == dict.fromkeys(hosts(9)[1:], "interrupted: interrupted")


def test_the_second_signal_is_not_held_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_stops_listening_leaves_no_worker_waiting() -> None:
    before = threading.active_count()
    answers = gather(hosts(500), FakeTransport(), plan_for, Limits(fanout=30))
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < until:
        wait(0.02)
    assert threading.active_count() <= before


ENDS = """
import sys, threading, time
from preflight.evidence.document import to_document, no_answer
from preflight.collect.scheduler import Limits, gather, interruptible

class Stuck:
    def collect(self, host, plan, until):
        time.sleep(600)

with interruptible() as stop:
    print("asking", flush=True)
    for e in gather(["a", "b"], Stuck(), lambda host, s: {}, Limits(node_s=%s, run_s=%s), stop=stop):
        print(e.node, e.no_answer["reason"], flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_process_ends_at_a_signal_even_if_a_node_hangs(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDS % (99, 99)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "asking\n"
        time.sleep(0.3)
        watch = Stopwatch()
        os.kill(process.pid, number)
        assert sorted(process.stdout.read().splitlines()) == ["a interrupted", "b interrupted"]
        assert process.wait(60) == 0
        assert watch.seconds < 2


def test_the_process_ends_at_the_deadline_even_if_a_node_hangs() -> None:
    watch = Stopwatch()
    ran = subprocess.run([sys.executable, "-c", ENDS % (1, 1)], capture_output=True, text=True, check=True)
    assert watch.seconds < 4
    assert sorted(line.split()[0] for line in ran.stdout.splitlines()) == ["a", "asking", "b"]


def test_five_thousand_names_take_bounded_time_and_memory() -> None:
    """4,990 names that do not resolve, 10 nodes that answer with 1 MB each; no answer stays in memory."""

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


def test_answers_are_not_piled_up_for_a_slow_reader() -> None:
    transport = FakeTransport()
    answers = gather(hosts(1000), transport, plan_for, Limits(fanout=8))
    next(answers)
    wait(0.5)
    assert len(transport.contacted) <= scheduler._ROOM + 8 + 2
    assert len(list(answers)) == 999


# --- what a terminal shows ---------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def events(progress: ProgressLine) -> None:
    silent = no_answer("n3", "connect", "refused", AT)
    for event in (
        NodeEvent("n1", 1),
        NodeEvent("n2", 1),
        NodeEvent("n3", time.monotonic()),
        NodeEvent("n4", time.monotonic()),
    ):
        progress(event)
    progress(NodeEvent("n1", 2, Evidence("n1", AT, {"file:/x": {}})))
    progress(NodeEvent("n3", 2, silent))


def test_progress_shows_answered_failed_waiting_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = ProgressLine(6, io.StringIO())
    events(progress)
    line = progress.line()
    assert line.startswith("1 of 6 answered, 1 without an answer, 4 waiting; slowest: n2 ")
    assert "n4" not in line


def test_progress_is_for_terminals_only() -> None:
    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        with ProgressLine(6, stream) as progress:
            events(progress)
            until = time.monotonic() + (60 if shown else 0.3)
            while "1 of 6 answered" not in stream.getvalue() and time.monotonic() < until:
                wait(0.02)
        assert ("1 of 6 answered" in stream.getvalue()) is shown


@pytest.fixture(autouse=True)
def no_signal_handler_left() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
