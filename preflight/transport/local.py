"""Collects on this very machine, over the same path that another machine takes."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import IO, Any

from preflight import evidence
from preflight.collector import frame
from preflight.transport import ship

#: Seconds that the collector may take beyond its own deadline, its start included.
SLACK_S = 1.0

_STDERR_KEPT = 4000
_CHUNK = 65536
_GRACE_S = 0.1
_PATIENCE_S = 0.5


def collect(plan: Mapping[str, Any], python: str = sys.executable) -> dict[str, Any]:
    """Carry out a plan on this machine; always return an Evidence document.

    Without an answer within the plan's ``deadline_s`` and one second it is a ``no_answer`` document
    whose phase is ``start``, ``collect`` or ``read``.
    """
    at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    node = plan["node"] or os.uname().nodename
    try:
        process = subprocess.Popen(
            [python, *ship.OPTIONS, ship.BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        return _no_answer(node, at, "start", f"{python} could not be executed: {error.strerror}")
    talk, complete = _Talk(process), False
    try:
        complete = talk.run(ship.frames_for(plan), time.monotonic() + plan["deadline_s"] + SLACK_S)
    finally:
        status = _end(process, _GRACE_S if complete else _PATIENCE_S)
    try:
        return talk.answer.document()
    except frame.NoFrame:
        how = f"no answer within {plan['deadline_s'] + SLACK_S:g} s" if talk.late else f"exit status {status}"
        said = " ".join((talk.stderr + b" " + talk.answer.noise).decode("utf-8", "backslashreplace").split())
        return _no_answer(node, at, "collect", f"{how}: {said}" if said else how)
    except frame.FrameError as error:
        return _no_answer(node, at, "read", str(error))


def _no_answer(node: str, at: str, phase: str, reason: str) -> dict[str, Any]:
    return evidence.to_document(evidence.no_answer(node, phase, reason, at))


class _Talk:
    """Both directions of the conversation with a collector, without ever waiting for an end of file."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.answer = frame.Reader()
        self.stderr = b""
        self.late = False
        self._stdin, self._stdout, self._stderr = _pipes(process)

    def run(self, request: bytes, until: float) -> bool:
        """Write the request and read up to the end mark; tell whether it came.

        Ends at the last byte or at ``until`` on the monotonic clock.
        """
        rest = memoryview(request)
        os.set_blocking(self._stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdin, selectors.EVENT_WRITE)
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stderr, selectors.EVENT_READ)
            over = False
            while selector.get_map():
                left_s = until - time.monotonic()
                if left_s <= 0:
                    self.late = not over
                    return False
                for key, _ in selector.select(left_s):
                    if key.fileobj is self._stdin:
                        rest = self._write(rest)
                        if not rest:
                            selector.unregister(self._stdin)
                        continue
                    data = os.read(key.fd, _CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    if key.fileobj is self._stderr:
                        self.stderr = (self.stderr + data)[-_STDERR_KEPT:]
                    elif self.answer.feed(data):
                        return True
                    elif not data:  # what it says on the other stream is the reason
                        over, until = True, min(until, time.monotonic() + _GRACE_S)
        return False

    def _write(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._stdin.fileno(), rest[:_CHUNK]) :]
        except BrokenPipeError:
            return rest[:0]


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise ValueError("the collector was started without pipes")
    return stdin, stdout, stderr


def _end(process: subprocess.Popen[bytes], patience_s: float) -> int | None:
    """Close the collector's standard input, at which it ends what it started; then end its group.

    A collector that the kernel holds is not waited for: it is reaped when it is let go.
    """
    for stream in _pipes(process):
        stream.close()
    for wait_s in (patience_s, _GRACE_S):
        ended = _has_ended(process.pid, wait_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if ended:
            return process.wait()
    threading.Thread(target=process.wait, daemon=True).start()
    return None


def _has_ended(pid: int, patience_s: float) -> bool:
    """Wait for the end of a child without reaping it, so that its group's number stays taken."""
    until = time.monotonic() + patience_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True
