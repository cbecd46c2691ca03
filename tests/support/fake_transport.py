"""A transport with answers from a test, and its nodes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from preflight.collect.progress import ProgressLine
from preflight.collect.scheduler import NodeEvent
from preflight.evidence.document import Evidence, no_answer, to_document

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


def plan_for(host: str, deadline_s: float) -> dict[str, Any]:
    return {"node": host, "deadline_s": deadline_s}


def hosts(number: int) -> list[str]:
    return [f"n{index:04d}" for index in range(number)]


def reasons(evidences: list[Evidence]) -> dict[str, str]:
    """Return the phase and the reason of each node without an answer."""
    return {e.node: f"{e.no_answer['phase']}: {e.no_answer['reason']}" for e in evidences if e.no_answer}


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


@pytest.fixture(autouse=True)
def no_signal_handler_left() -> Iterator[None]:
    """Check that a test leaves the SIGINT handler unchanged; a test module assigns it to use it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
