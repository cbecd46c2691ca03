"""Collection on this machine.

As on remote nodes, a separate collector process is used, over three pipes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from preflight import collector
from preflight._startup import prestart
from preflight.collector import frame, spawn
from preflight.transport import payload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO, Any

    from preflight._startup.prestart import Forked
    from preflight.collector.spawn import Process

#: Seconds that the collector may take beyond its deadline, including its start.
SLACK_S = 1.0

_STDERR_BYTES = 4000
_CHUNK = 65536
_GRACE_S = 0.1
_PATIENCE_S = 0.5


def collect(
    plan: Mapping[str, Any], python: str = sys.executable, meanwhile: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Run a plan on this machine; always return an Evidence document.

    Without an answer within the plan's ``deadline_s`` and one second, it is a ``no_answer`` document with the phase
    ``start``, ``collect`` or ``read``. ``meanwhile`` is called once the plan is sent.
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    node = plan["node"] or os.uname().nodename
    try:
        started = _Collector(python, prestart.take() if python == sys.executable else None)
    except OSError as error:
        return _no_answer(node, at, "start", f"{python} could not be executed: {error.strerror}")
    streams, complete = _CollectorStreams(started.process), False
    try:
        complete = streams.run(started.request(plan), time.monotonic() + plan["deadline_s"] + SLACK_S, meanwhile)
        answer = _answered(streams.answer)  # while the collector ends
    finally:
        status = _end(started.process, _GRACE_S if complete else _PATIENCE_S)
    if isinstance(answer, dict):
        return answer
    if isinstance(answer, frame.NoFrame):
        how = f"no answer within {plan['deadline_s'] + SLACK_S:g} s" if streams.late else f"exit status {status}"
        output = " ".join((streams.stderr + b" " + streams.answer.noise).decode("utf-8", "backslashreplace").split())
        return _no_answer(node, at, "collect", f"{how}: {output}" if output else how)
    return _no_answer(node, at, "read", str(answer))


def _answered(answer: frame.FrameReader) -> dict[str, Any] | frame.FrameError:
    try:
        from preflight.evidence import json_limits

        return answer.document(json_limits.answer)
    except frame.FrameError as error:
        return error


class _Collector:
    """A collector that waits for its plan; raises OSError if it cannot start.

    This interpreter runs the installed collector. Another interpreter may be unable to read that folder (other
    namespace, other user), and gets the source, like a remote machine. ``forked`` is a collector that was started
    early.
    """

    def __init__(self, python: str, forked: Forked | None = None) -> None:
        if forked is not None:
            self.process: Process | Forked = forked
            self._installed = True
            return
        folder = os.path.dirname(collector.__path__[0])
        self._installed = python == sys.executable and os.path.isdir(collector.__path__[0])  # no archive
        options = [*payload.OPTIONS, payload.BOOT]
        if self._installed:
            options = [*_cache_options(), *payload.OPTIONS, payload.BOOT_INSTALLED, folder]
        self.process = spawn.start([python, *options], dict(os.environ), fed=True)

    def request(self, plan: Mapping[str, Any]) -> bytes:
        """Return the bytes to write to the collector's standard input."""
        return payload.plan_line(plan) if self._installed else payload.frames_for(plan, _carried())


def _carried() -> Mapping[str, bytes]:
    """Return the libraries inside the single-file build.

    A bare machine does not have them. Empty for other builds.
    """
    loader: Any = collector.__spec__ and collector.__spec__.loader
    archive = getattr(loader, "archive", "")
    try:
        return {"pynvml.py": type(loader)(archive).get_source("pynvml").encode()} if archive else {}
    except ImportError:
        return {}


def _cache_options() -> list[str]:
    """Return the options for the collector's byte-code cache, as for this process.

    The collector does not read our environment variables.
    """
    options = ["-B"] if sys.dont_write_bytecode else []
    return [*options, "-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else options


def _no_answer(node: str, at: str, phase: str, reason: str) -> dict[str, Any]:
    from preflight.evidence import document

    return document.to_document(document.no_answer(node, phase, reason, at))


class _CollectorStreams:
    """Both directions of the exchange, without waiting for end-of-file."""

    def __init__(self, process: Process | Forked) -> None:
        self.answer = frame.FrameReader()
        self.stderr = b""
        self.late = False
        self._stdin, self._stdout, self._stderr = _pipes(process)

    def run(self, request: bytes, until: float, meanwhile: Callable[[], object]) -> bool:
        """Write the request and read up to the end mark; return whether it arrived.

        Ends at the last byte or at ``until`` on the monotonic clock.
        """
        os.set_blocking(self._stdin.fileno(), False)
        rest = self._write(memoryview(request))
        meanwhile()
        poll, stdin, stderr = select.poll(), self._stdin.fileno(), self._stderr.fileno()
        poll.register(stdin, select.POLLOUT)
        watched = {stdin, self._stdout.fileno(), stderr}
        for fd in watched - {stdin}:
            poll.register(fd, select.POLLIN)
        over = False
        while watched:
            left_s = until - time.monotonic()
            if left_s <= 0:
                self.late = not over
                return False
            for fd, _ in poll.poll(1000 * left_s + 1):
                rest = self._write(rest) if fd == stdin else rest
                data = b"" if fd == stdin else os.read(fd, _CHUNK)
                if not (rest if fd == stdin else data):
                    poll.unregister(fd)
                    watched.remove(fd)
                if fd == stderr:
                    self.stderr = (self.stderr + data)[-_STDERR_BYTES:]
                elif fd == stdin:
                    continue
                elif self.answer.feed(data):
                    return True
                elif not data:  # its standard error is the reason
                    over, until = True, min(until, time.monotonic() + _GRACE_S)
        return False

    def _write(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._stdin.fileno(), rest[:_CHUNK]) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            return rest[:0]


def _pipes(process: Process | Forked) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise ValueError("the collector was started without pipes")
    return stdin, stdout, stderr


def _end(process: Process | Forked, patience_s: float) -> int | None:
    """Close the collector's standard input, then end its group; return its status.

    At end-of-file, the collector ends its children. A collector that hangs in the kernel is reaped later; its status
    is then None.
    """
    for stream in _pipes(process):
        stream.close()
    for wait_s in (patience_s, _GRACE_S):
        ended = _has_ended(process.pid, wait_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if ended:
            return process.wait()
    from threading import Thread

    Thread(target=process.wait, daemon=True).start()
    return None


def _has_ended(pid: int, patience_s: float) -> bool:
    """Wait for a child to end, without reaping it; return whether it ended.

    The number of its process group stays reserved.
    """
    until, step_s = time.monotonic() + patience_s, 0.0002
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        time.sleep(step_s)
        step_s = min(2 * step_s, 0.005)
    return True
