"""Execution of one command in its own session, with bounded output and time."""

import os
import select
import signal
import threading
import time

from . import tools
from .processes import kernel, signal_group, state
from .records import Deadline, Record, refusal, text
from .spawn import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence

    from .spawn import Process

#: Initial seconds between checks for the end of a command; the interval grows.
_STEP_S = 0.0001
_GRACE_S = 0.3
_STUCK = {"T": "it was stopped (state T)", "D": "it was stuck in the kernel (state D)"}
_CHUNK = 65536
_closed = threading.Event()


def environment() -> "Dict[str, str]":
    """Return the environment of commands: the collector's, with the C locale.

    Tools then print English. PATH is the collector's search path.
    """
    return dict(os.environ, PATH=tools.search_path(), LC_ALL="C")


def close() -> None:
    """Prevent further commands from starting: the run is over."""
    _closed.set()


def execute(argv: "Sequence[str]", timeout_s: float, deadline: Deadline, cap: int, feed: bytes = b"") -> Record:
    """Run a command to its end, its time limit, or ``cap`` bytes of an output."""
    began = time.monotonic()
    if _closed.is_set():
        return {"status": "not-run", "why": "the run is over"}
    try:
        process = start(argv, environment(), bool(feed))
    except OSError as error:
        record = refusal(error, "{} could not be executed".format(argv[0]))
        if record["status"] == "missing":  # the file exists, but its interpreter does not
            record["status"] = "error"
        return record
    run = _Run(process, cap, feed)
    try:
        record = run.watch(began, timeout_s, deadline)
    finally:
        run.close()
    record["seconds"] = round(time.monotonic() - began, 3)
    record["out"], record["err"] = text(bytes(run.out)), text(bytes(run.err))
    return record


class _Run:
    """A running command and its output so far."""

    def __init__(self, process: "Process", cap: int, feed: bytes) -> None:
        self.process = process
        self.out, self.err = bytearray(), bytearray()
        self.full = False
        self._cap = cap
        self._feed = memoryview(feed)
        self._ended = False
        self._sinks: Dict[int, bytearray] = {}
        for stream, sink in ((process.stdout, self.out), (process.stderr, self.err)):
            if stream:
                self._sinks[stream.fileno()] = sink
        self._input: List[int] = [process.stdin.fileno()] if process.stdin else []
        for fd in self._input:
            os.set_blocking(fd, False)

    def watch(self, began: float, timeout_s: float, deadline: Deadline) -> Record:
        """Wait for the command's end, force it if necessary, and return the record."""
        ended = self._wait(min(began + timeout_s, deadline.at))
        if self.full:
            why = "longer than {0} bytes; the first {0} were saved, the command was ended".format(self._cap)
            return self._force({"status": "cut", "bytes": self._cap, "why": why}, deadline, term=False)
        if not ended:
            why = deadline.why if deadline.passed else "no end after {:g} s".format(timeout_s)
            return self._force({"status": "timeout", "why": why}, deadline, term=True)
        record: Record = {"status": "ok"}
        signal_group(self.process.pid, signal.SIGKILL)
        if self._sinks:
            self._drain()
            record["why"] = "a descendant held the output open after the command's end and "
            record["why"] += "is ended with the run" if self._sinks else "was ended"
            if self.full:
                record.update(status="cut", bytes=self._cap)
        record["rc"] = self.process.wait()
        return record

    def close(self) -> None:
        """Close the pipes."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    def _force(self, record: Record, deadline: Deadline, term: bool) -> Record:
        """End the process group, with SIGTERM first if ``term``; complete ``why``."""
        pid, group = str(self.process.pid), self.process.pid
        was = state(pid)
        if term and was != "T":
            signal_group(group, signal.SIGTERM)
            if self._wait(_until(deadline, 0.1), patient=False):
                return self._ended_by("; ended by SIGTERM", record)
            was = state(pid)
        if term:
            record["why"] += "; " + _STUCK.get(was, "ignored SIGTERM")
        refused = signal_group(group, signal.SIGKILL)
        if self._wait(_until(deadline, 0.25), patient=False):
            return self._ended_by(", killed with SIGKILL" if term else "", record)
        what = "cannot be killed by this user" if refused else "was not ended by SIGKILL"
        record["why"] += "; {} and still runs as process {}".format(what, pid)
        record.update(status="abandoned", kernel=kernel(pid))
        return record

    def _ended_by(self, what: str, record: Record) -> Record:
        signal_group(self.process.pid, signal.SIGKILL)
        self._drain()
        self.process.wait()
        record["why"] += what
        return record

    def _wait(self, until: float, patient: bool = True) -> bool:
        """Read until the command has ended and, if ``patient``, its output too.

        Return whether the command has ended. False means that the time or, if ``patient``, the cap was exceeded first.
        """
        step_s, over = _STEP_S, 0.0
        while True:
            if self._has_ended():
                over = over or time.monotonic() + _GRACE_S
                if not patient or not self._sinks or time.monotonic() >= over:
                    return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            moved = self._pump(min(step_s, left_s))
            if self.full and patient:
                return False
            step_s = _STEP_S if moved else min(step_s * 2, 0.05)

    def _drain(self) -> None:
        """Read the remaining output of an ended command."""
        until = time.monotonic() + 0.05
        while self._sinks and time.monotonic() < until:
            self._pump(0.01)

    def _pump(self, wait_s: float) -> bool:
        """Move data through the pipes; return whether any moved within ``wait_s``."""
        ready, writable, _ = select.select(list(self._sinks), self._input, [], wait_s)
        for fd in writable:
            try:
                self._feed = self._feed[os.write(fd, self._feed[:_CHUNK]) :]
            except OSError:  # the command does not read it; its message explains why
                self._feed = self._feed[:0]
            if not self._feed and self.process.stdin:
                self._input = []
                self.process.stdin.close()
        for fd in ready:
            sink = self._sinks[fd]
            piece = os.read(fd, min(_CHUNK, self._cap + 1 - len(sink)))
            sink += piece
            if not piece or len(sink) > self._cap:
                del self._sinks[fd]
            if len(sink) > self._cap:
                del sink[self._cap :]
                self.full = True
        return bool(ready or writable)

    def _has_ended(self) -> bool:
        """Return whether the command has ended.

        It is not reaped, because its zombie reserves the number of the process group.
        """
        if not self._ended:
            try:
                options = os.WEXITED | os.WNOHANG | os.WNOWAIT
                self._ended = os.waitid(os.P_PID, self.process.pid, options) is not None
            except ChildProcessError:
                self._ended = True
            except AttributeError:  # PyPy has no waitid
                self._ended = state(str(self.process.pid)) in ("Z", "X", "")
        return self._ended


def _until(deadline: Deadline, share_s: float) -> float:
    """Return the end of a grace period, at most shortly after the run's deadline."""
    return min(time.monotonic() + _GRACE_S, deadline.at + share_s)
