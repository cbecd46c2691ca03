"""Transport through a system program: one child per node, three pipes.

``ssh`` and ``kubectl`` differ in their command line and in their error messages; the exchange, its deadline and the end
of all processes are the same, and are implemented here.
"""

from __future__ import annotations

import os
import random
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, cast

from preflight.errors import PreflightError
from preflight.transport.bootstrap_protocol import OPENING, CollectorProtocol, request
from preflight.transport.errors import NoAnswer, utc_now
from preflight.transport.local.process import has_ended, kill_group, pipes

#: Number of attempts for connections that end immediately, and the range of growing pauses in seconds.
_ATTEMPTS, _PAUSE_S, _LONGEST_PAUSE_S = 8, 0.3, 3.0

#: Seconds of a node's time reserved for returning the answer, and for a normal exit of the program.
_RETURN_S, _GRACE_S = 1.0, 0.3

_CHUNK, _STDERR_BYTES = 65536, 8000


class ConnectionRejected(PreflightError):
    """The connection ended before any output; ``answer`` applies if no retry succeeds."""

    def __init__(self, answer: NoAnswer) -> None:
        super().__init__(str(answer))
        self.answer = answer


class PipedTransport:
    """Transport over child processes; methods are thread-safe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Set the environment of the children; no child is started yet."""
        self.warnings: tuple[str, ...] = ()
        self.through_openssh: dict[str, str] = {}
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._processes: set[subprocess.Popen[bytes]] = set()

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan on a node and return its Evidence document.

        ``until`` is the deadline on the monotonic clock. Any failure is a ``no_answer`` document. If connecting took
        long, the collector gets less time than the plan allows.
        """
        at = utc_now()
        for attempt in range(_ATTEMPTS):
            try:
                return self._once(host, plan, until)
            except ConnectionRejected as rejected:
                pause_s = min(_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)
                last = rejected.answer
                if attempt == _ATTEMPTS - 1 or time.monotonic() + pause_s + _RETURN_S > until:
                    break
                self._closed.wait(pause_s)
            except NoAnswer as answer:
                last = answer
                break
        return last.document(host, at)

    def close(self) -> None:
        """End all running children; their processes on nodes end as well."""
        self._closed.set()
        with self._lock:
            for process in self._processes:
                kill_group(process)

    def _once(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Try a node once; raise NoAnswer, or ConnectionRejected for a retry."""
        raise NotImplementedError

    def _converse(
        self, command: Sequence[str], plan: Mapping[str, Any], until: float, notices: re.Pattern[bytes]
    ) -> tuple[ChildChannel, int | None]:
        """Run the exchange with the collector behind a child.

        Return the channel and the exit status, None if the child did not end by itself. ``notices`` are messages of
        the program on standard error, as opposed to the node's output.
        """
        process = self._start(command)
        channel = ChildChannel(process, plan, until, notices)
        try:
            channel.run()
        finally:
            status = self._end(process, _GRACE_S if channel.heard_out else 0.0)
        if self._closed.is_set() and not channel.protocol.complete:
            raise NoAnswer("collect", "interrupted")
        return channel, status

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed.is_set():
                raise NoAnswer("connect", "interrupted")
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                    start_new_session=True, env=self._environment,
                )  # fmt: skip
            except OSError as error:
                raise NoAnswer("connect", f"{command[0]} could not be executed: {error.strerror}") from None
            self._processes.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes], patience_s: float) -> int | None:
        """End a child and its group; return its exit status, None if it was killed."""
        by_itself = has_ended(process.pid, patience_s)
        with self._lock:
            self._processes.discard(process)
            kill_group(process)
        for stream in pipes(process):
            stream.close()
        status = process.wait()
        return status if by_itself else None


class ChildChannel:
    """Both directions of the exchange through one child, up to a deadline."""

    def __init__(
        self, process: subprocess.Popen[bytes], plan: Mapping[str, Any], until: float, notices: re.Pattern[bytes]
    ) -> None:
        """Prepare the exchange with a started child; ``notices`` as in ``_converse``."""
        self.protocol = CollectorProtocol()
        self.stderr = b""
        self.late = self.heard_out = False
        self._plan, self._until, self._notices = plan, until, notices
        self._stdin, self._stdout, self._stderr = pipes(process)
        self._to_write = memoryview(OPENING)
        self._requested = False

    def run(self) -> None:
        """Run until the answer is complete, the child has ended, or time is up."""
        os.set_blocking(self._stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdin, selectors.EVENT_WRITE)
            reading = [self._stdout, self._stderr]
            for stream in reading:
                selector.register(stream, selectors.EVENT_READ)
            while reading and not self.protocol.over:
                left_s = self._until - time.monotonic()
                if left_s <= 0:
                    self.late = True
                    return
                for key, _ in selector.select(left_s):
                    if key.fileobj is not self._stdin and not self._read(key.fd):
                        selector.unregister(key.fileobj)
                        reading.remove(cast("IO[bytes]", key.fileobj))
                self._write(selector)
            self.heard_out = not reading

    def _write(self, selector: selectors.BaseSelector) -> None:
        """Write as much as the pipe accepts; watch it only while data remain."""
        if self.protocol.announced and not self._requested:
            left_s = self._until - time.monotonic() - _RETURN_S
            deadline_s = max(0.1, min(self._plan["deadline_s"], left_s))
            wanted = request({**self._plan, "deadline_s": deadline_s})
            self._to_write, self._requested = memoryview(bytes(self._to_write) + wanted), True
        watched = self._stdin in selector.get_map()
        try:
            while self._to_write:
                self._to_write = self._to_write[os.write(self._stdin.fileno(), self._to_write[:_CHUNK]) :]
        except BlockingIOError:
            if not watched:
                selector.register(self._stdin, selectors.EVENT_WRITE)
            return
        except BrokenPipeError:
            self._to_write = self._to_write[:0]
        if watched:
            selector.unregister(self._stdin)

    def _read(self, fd: int) -> bool:
        data = os.read(fd, _CHUNK)
        if fd == self._stdout.fileno():
            self.protocol.hear(data)
        else:
            self.protocol.hear_error(self._notices.sub(b"", data))
            self.stderr = (self.stderr + data)[-_STDERR_BYTES:]
        return bool(data)
