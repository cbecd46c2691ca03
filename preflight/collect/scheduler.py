"""Collection from many nodes at once, with deadlines.

A bounded number of threads calls the transport. This module schedules the nodes; each yields exactly one document, even
after a hang or an interrupt.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import FrameType
from typing import Any, Protocol

from preflight.evidence.document import DocumentError, Evidence, from_document, no_answer
from preflight.evidence.self_judged import SelfJudged

#: Default number of nodes queried in parallel.
FANOUT = 64

#: Part of a node's time that is reserved for starting and for returning the answer: a fraction, and a maximum in
#: seconds.
_RETURN_SHARE, _RETURN_MOST_S = 0.2, 2.0

#: Seconds after the deadline at which a node is abandoned if its transport does not return.
_OVERDUE_S = 0.5

#: Remaining seconds below which no further node is started.
_LEAST_S = 0.2

#: Seconds between checks of the clock; maximum number of waiting documents.
_TICK_S, QUEUE_SIZE = 0.1, 16

_FIX = "raise --deadline or --fanout"


class NodeTransport(Protocol):
    """The part of ``preflight.transport`` that ``gather`` needs."""

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Run a plan on a node and return an Evidence document.

        ``until`` is the deadline on the monotonic clock.
        """


@dataclass(frozen=True)
class Limits:
    """Limits of a run: nodes in parallel, and seconds for one node and for all.

    A node's time includes its connection.
    """

    fanout: int = FANOUT
    node_s: float = 60.0
    run_s: float = 600.0


@dataclass(frozen=True)
class NodeEvent:
    """Start (``evidence`` is None) or end of one node's collection.

    ``at`` is on the monotonic clock.
    """

    host: str
    at: float
    evidence: Evidence | SelfJudged | None = None


#: Makes a node's plan from its name and its collector's time limit in seconds.
PlanFor = Callable[[str, float], Mapping[str, Any]]


def gather(
    hosts: Sequence[str],
    transport: NodeTransport,
    plan_for: PlanFor,
    limits: Limits = Limits(),
    *,
    on_event: Callable[[NodeEvent], None] | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Evidence]:
    """Collect from every node; yield one document for each, as they end.

    All documents are yielded soon after ``limits.run_s`` seconds at the latest; a node that was not started is a
    ``no_answer`` of phase ``queue``. Once ``stop`` is set, or at a KeyboardInterrupt, finished nodes are yielded, and
    all others as ``no_answer`` with the reason ``interrupted``. Unfinished nodes continue in daemon threads: close the
    transport to end them.
    """
    crew = _Crew(hosts, transport, plan_for, limits, on_event or (lambda event: None))
    try:
        try:
            yield from crew.answers(stop or threading.Event())
        except KeyboardInterrupt:
            yield from crew.rest("interrupted", "interrupted")
    finally:
        crew.dismiss()


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Set the yielded event at the first Ctrl-C or SIGTERM.

    The second one raises KeyboardInterrupt. A report is thus still written after a scheduler's time limit, which
    SIGTERM announces. Only the main thread can use this.
    """
    stop = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Turn:
    """A node being collected by a worker, and its deadline."""

    host: str
    until: float


class _Crew:
    """Worker threads of one run, and the state shared with the main thread."""

    def __init__(
        self,
        hosts: Sequence[str],
        transport: NodeTransport,
        plan_for: PlanFor,
        limits: Limits,
        on_event: Callable[[NodeEvent], None],
    ) -> None:
        self._transport, self._plan_for, self._limits, self._on_event = transport, plan_for, limits, on_event
        self._until = time.monotonic() + limits.run_s
        self._owed = dict.fromkeys(hosts)  # not yet yielded
        self._lock = threading.Lock()  # guards the next three attributes, and calls of on_event
        self._waiting = deque(self._owed)
        self._turns: set[_Turn] = set()
        self._arriving = 0  # documents that a worker holds
        self._done: queue.Queue[Evidence] = queue.Queue(QUEUE_SIZE)
        self._dismissed = threading.Event()
        for _ in range(min(limits.fanout, len(self._owed))):
            self._hire()

    def answers(self, stop: threading.Event) -> Iterator[Evidence]:
        """Yield documents until every node has ended, time is up, or ``stop`` is set."""
        while self._owed:
            if stop.is_set():
                yield from self.rest("interrupted", "interrupted")
                return
            with contextlib.suppress(queue.Empty):
                yield self._paid(self._done.get(timeout=_TICK_S))
            now = time.monotonic()
            for turn in self._overdue(now):
                yield self._ended(turn.host, "collect", "the transport did not return by the node's deadline")
                self._hire()
            if now > self._until:
                yield from self._unbegun()

    def rest(self, phase: str, reason: str) -> Iterator[Evidence]:
        """Yield finished documents, then one without an answer for every other node."""
        with self._lock:
            self._waiting.clear()
            self._turns.clear()
        while self._arriving or not self._done.empty():
            with contextlib.suppress(queue.Empty):
                yield self._paid(self._done.get(timeout=_TICK_S))
        for host in list(self._owed):
            yield self._ended(host, phase, reason)

    def dismiss(self) -> None:
        """Release the workers without waiting for them."""
        self._dismissed.set()
        with self._lock:
            self._waiting.clear()
            self._turns.clear()

    # --- in the workers ---

    def _hire(self) -> None:
        threading.Thread(target=self._work, daemon=True, name="preflight-node").start()

    def _work(self) -> None:
        while (turn := self._next()) and self._deliver(turn, self._collect(turn)):
            continue

    def _next(self) -> _Turn | None:
        now = time.monotonic()
        with self._lock:
            if not self._waiting or self._until - now < _LEAST_S:
                return None
            turn = _Turn(self._waiting.popleft(), min(now + self._limits.node_s, self._until))
            self._turns.add(turn)
            self._on_event(NodeEvent(turn.host, now))
            return turn

    def _collect(self, turn: _Turn) -> Evidence:
        left_s = turn.until - time.monotonic()
        deadline_s = left_s - min(left_s * _RETURN_SHARE, _RETURN_MOST_S)
        try:
            plan = self._plan_for(turn.host, deadline_s)
            answer = from_document(self._transport.collect(turn.host, plan, turn.until), turn.host)
            return replace(answer, node=turn.host)  # a node must not answer for another one
        except DocumentError as error:
            return _silent(turn.host, "read", str(error))
        except Exception as error:  # a bug may cost one node, never its peers
            return _silent(turn.host, "collect", f"preflight itself failed: {type(error).__name__}: {error}")

    def _deliver(self, turn: _Turn, evidence: Evidence) -> bool:
        """Deliver a document unless the node was abandoned; return whether to continue."""
        with self._lock:
            if turn not in self._turns:
                return False
            self._turns.discard(turn)
            self._arriving += 1
            self._on_event(NodeEvent(turn.host, time.monotonic(), evidence))
        while not self._dismissed.is_set():
            try:
                self._done.put(evidence, timeout=_TICK_S)
            except queue.Full:
                continue
            with self._lock:
                self._arriving -= 1
            return True
        return False

    # --- in the thread that consumes the documents ---

    def _overdue(self, now: float) -> list[_Turn]:
        """Return the nodes with overdue workers, and abandon those workers."""
        with self._lock:
            late = [turn for turn in self._turns if now > turn.until + _OVERDUE_S]
            self._turns.difference_update(late)
        return late

    def _unbegun(self) -> Iterator[Evidence]:
        with self._lock:
            hosts = list(self._waiting)
            self._waiting.clear()
        limits = self._limits
        reason = f"it was not started within {limits.run_s:g} s, with {limits.fanout} nodes in parallel: {_FIX}"
        for host in hosts:
            yield self._ended(host, "queue", reason)

    def _paid(self, evidence: Evidence) -> Evidence:
        self._owed.pop(evidence.node, None)
        return evidence

    def _ended(self, host: str, phase: str, reason: str) -> Evidence:
        evidence = _silent(host, phase, reason)
        with self._lock:
            self._on_event(NodeEvent(host, time.monotonic(), evidence))
        return self._paid(evidence)


def _silent(host: str, phase: str, reason: str) -> Evidence:
    return no_answer(host, phase, reason, datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
