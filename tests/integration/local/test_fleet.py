"""Many nodes at once, in real time: deadlines, signals, nodes that hang, slow readers."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from preflight.collect import scheduler
from preflight.collect.progress import ProgressLine
from preflight.collect.scheduler import Limits, gather
from tests.support import fake_transport
from tests.support.fake_transport import FakeTransport, events, hosts, plan_for, reasons
from tests.support.stopwatch import Stopwatch

no_signal_handler_left = fake_transport.no_signal_handler_left


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


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


def test_a_transport_that_does_not_come_back_costs_one_node_and_no_worker() -> None:
    stuck = FakeTransport(lambda host, until: wait(20) if host in ("n0000", "n0001") else None)
    watch = Stopwatch()
    found = list(gather(hosts(20), stuck, plan_for, Limits(fanout=2, node_s=1, run_s=60)))
    assert watch.seconds < 3
    late = "collect: the transport did not return by the node's deadline"
    assert reasons(found) == {"n0000": late, "n0001": late}
    assert len(found) == 20


def test_the_deadline_of_a_run_names_the_nodes_still_queued() -> None:
    slow = FakeTransport(lambda host, until: wait(0.2))
    watch = Stopwatch()
    found = list(gather(hosts(50), slow, plan_for, Limits(fanout=2, node_s=5, run_s=1)))
    assert watch.seconds < 2
    assert len(found) == 50
    queued = set(reasons(found).values())
    assert queued == {"queue: it was not started within 1 s, with 2 nodes in parallel: raise --deadline or --fanout"}
    assert 2 <= 50 - len(reasons(found)) <= 2 * (5 + 1), "those whose turn came, and five turns are a second"


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


def test_answers_are_not_piled_up_for_a_slow_reader() -> None:
    transport = FakeTransport()
    answers = gather(hosts(1000), transport, plan_for, Limits(fanout=8))
    next(answers)
    wait(0.5)
    assert len(transport.contacted) <= scheduler.QUEUE_SIZE + 8 + 2
    assert len(list(answers)) == 999


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_progress_is_for_terminals_only() -> None:
    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        with ProgressLine(6, stream) as progress:
            events(progress)
            until = time.monotonic() + (60 if shown else 0.3)
            while "1 of 6 answered" not in stream.getvalue() and time.monotonic() < until:
                wait(0.02)
        assert ("1 of 6 answered" in stream.getvalue()) is shown
