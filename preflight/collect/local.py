"""Collection from this node: one evidence document, even after a failure."""

from __future__ import annotations

import gc
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from preflight.collect.options import DEADLINE_S
from preflight.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from preflight.collect.request import CollectRequest
    from preflight.evidence.document import Evidence


def collect(request: CollectRequest, meanwhile: Callable[[], object]) -> Evidence:
    """Collect from this node.

    ``meanwhile`` is called while the collector runs, to prepare for its answer.
    """
    from preflight.transport.local import node

    (name,) = request.nodes
    plan = request.plans()(name, request.options.limits(DEADLINE_S))
    document = node.collect(plan, meanwhile=meanwhile)
    gc.freeze()  # garbage collection need not scan imported modules
    gc.enable()
    from preflight.evidence.document import DocumentError, from_document

    try:
        return from_document(document, name)
    except DocumentError as error:
        return _unanswered(name, "read", str(error))


def collect_interruptibly(request: CollectRequest, meanwhile: Callable[[], object] = lambda: None) -> Evidence:
    """Collect from this node; Ctrl-C or SIGTERM yields a node without an answer."""
    (name,) = request.nodes
    try:
        with _sigterm_interrupts(), progress(f"collecting from {name}"):
            return collect(request, meanwhile)
    except KeyboardInterrupt:
        return _unanswered(name, "collect", "interrupted")


def _unanswered(name: str, phase: str, reason: str) -> Evidence:
    from preflight.evidence.document import no_answer

    return no_answer(name, phase, reason, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that a scheduler's time limit still gets a report."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
