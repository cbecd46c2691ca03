"""Many simultaneous nodes, over a transport that returns wrong answers or crashes."""

from __future__ import annotations

import io
import signal
import time
from typing import Any

import pytest

from preflight.collect.progress import ProgressLine
from preflight.collect.scheduler import Limits, gather, interruptible
from tests.support import fake_transport
from tests.support.fake_transport import FakeTransport, answer, events, hosts, plan_for, reasons
from tests.support.stopwatch import Stopwatch

no_signal_handler_left = fake_transport.no_signal_handler_left


def test_every_node_ends_as_one_document() -> None:
    transport = FakeTransport()
    found = list(gather(hosts(200), transport, plan_for, Limits(fanout=7, node_s=5, run_s=10)))
    assert sorted(e.node for e in found) == hosts(200)
    assert all(e.answered for e in found)
    assert transport.most <= 7


def test_no_node_and_a_node_named_twice() -> None:
    assert list(gather([], FakeTransport(), plan_for)) == []
    assert [e.node for e in gather(["a", "a"], FakeTransport(), plan_for)] == ["a"]


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


def test_a_crash_and_a_lie_cost_one_node() -> None:
    def behave(host: str, until: float) -> dict[str, Any] | None:
        if host == "n0001":
            raise RuntimeError("boom")
        return {"n0002": {"schema": "other"}, "n0003": answer("n0004", 3)}.get(host)

    found = {e.node: e for e in gather(hosts(5), FakeTransport(behave), plan_for)}
    assert sorted(found) == hosts(5)
    assert reasons(list(found.values())) == {
        "n0001": "collect: preflight itself failed: RuntimeError: boom",
        "n0002": "read: n0002 has schema 'other'; this version reads 'preflight.evidence/1' and 'preflight.evidence/2'",
    }
    assert found["n0003"].text("file:/x") == "xxx"  # a node that reports another name is stored under its own


def test_the_second_signal_is_not_held_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


# --- what a terminal shows ---------------------------------------------------------------------------


def test_progress_shows_answered_failed_waiting_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = ProgressLine(6, io.StringIO())
    events(progress)
    line = progress.line()
    assert line.startswith("1 of 6 answered, 1 gave no answer, 4 waiting; slowest: n2 ")
    assert "n4" not in line


def test_progress_in_a_log_is_plain_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.collect.progress._FIRST_S", 0.01)
    stream = io.StringIO()
    with ProgressLine(6, stream) as progress:
        events(progress)
        until = time.monotonic() + 60
        while stream.getvalue().count("1 of 6 answered, 1 gave no answer, 4 waiting") < 3 and time.monotonic() < until:
            time.sleep(0.01)
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 3
    assert all(line.isprintable() for line in lines)
