"""Progress of a collection: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from preflight.reports.sanitize import visible
from preflight.terminal import print_text

if TYPE_CHECKING:
    from preflight.collect.scheduler import NodeEvent

_PER_SECOND = 4

#: Seconds before the first line in a log, and maximum interval; each interval is twice the last one.
_FIRST_S, _MOST_S = 10.0, 60.0


class ProgressLine:
    """Show the progress of ``scheduler.gather``, without control characters in a log."""

    def __init__(
        self, nodes: int, stream: TextIO | None = None, through_openssh: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Expect the events of ``nodes`` nodes; ``stream`` defaults to standard error.

        ``through_openssh`` lists the hosts reached with the system's ``ssh``, and grows during the run.
        """
        self._nodes, self._stream = nodes, stream or sys.stderr
        self._through_openssh = through_openssh
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._answered = self._silent = 0
        self._live: Live | None = None
        self._over = threading.Event()

    def __call__(self, event: NodeEvent) -> None:
        """Record an event, from any thread."""
        with self._lock:
            if event.evidence is None:
                self._begun[event.host] = event.at
                return
            self._begun.pop(event.host, None)
            if event.evidence.no_answer is None:
                self._answered += 1
            else:
                self._silent += 1

    def __enter__(self) -> ProgressLine:
        if self._stream.isatty():
            self._live = Live(
                console=Console(file=self._stream), refresh_per_second=_PER_SECOND, transient=True,
                redirect_stdout=False, redirect_stderr=False, get_renderable=lambda: Text(self.line()),
            )  # fmt: skip
            self._live.start()
        else:
            threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def _print_lines(self) -> None:
        wait_s = _FIRST_S
        while not self._over.wait(wait_s):
            print_text(f"{visible(self.line())}\n", self._stream)
            wait_s = min(2 * wait_s, _MOST_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        if self._live:
            self._live.stop()

    def line(self) -> str:
        """Return the progress line.

        For example ``51 of 60 answered, 4 gave no answer, 5 waiting; slowest: gpu013 4 s, gpu017 3 s``.
        """
        with self._lock:
            begun, answered, silent = dict(self._begun), self._answered, self._silent
        parts = [f"{answered} of {self._nodes} answered"]
        if silent:
            parts.append(f"{silent} gave no answer")
        if waiting := self._nodes - answered - silent:
            parts.append(f"{waiting} waiting")
        if self._through_openssh:
            parts.append(f"{len(self._through_openssh)} through the system's ssh")
        return ", ".join(parts) + _slowest(begun, time.monotonic())


def _slowest(begun: Mapping[str, float], now: float) -> str:
    """List up to three nodes that have been running for more than two seconds."""
    slow = sorted((at, host) for host, at in begun.items() if now - at >= 2)[:3]
    return "; slowest: " + ", ".join(f"{host} {now - at:.0f} s" for at, host in slow) if slow else ""
