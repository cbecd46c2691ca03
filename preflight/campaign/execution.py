"""Execution of the launches of a round, in parallel and with time limits.

A launcher leads a process group, and ends with preflight. Its ranks and daemons have leases on each node
(``command_lines``), so they end even if preflight cannot reach the node again.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from preflight.bench.campaign import BROKE, CUT, OK, TIMEOUT, BenchLaunch
from preflight.campaign.command_lines import WATCH_S, LaunchCommand
from preflight.campaign.folder import OUTPUT_LIMIT

#: Seconds between checks of the clock, and seconds that a launcher has to end after SIGTERM.
_TICK_S, _END_S = 0.1, 5.0

#: Exit statuses of ``timeout`` on a node after the limit: SIGTERM or SIGKILL ended the rank.
_LEASE_ENDED = (124, 137)

#: Number of bytes at the end of an output that are searched for the reason of a failure.
_TAIL = 16384

#: Lines with the reason of a failure, from ORTE, ssh, Slurm, PMIx, the loader, MPI or the lease.
_REASON = re.compile(
    r".*(?:ORTE (?:was unable|has lost|does not know)|^ssh: |Could not resolve|Permission denied|Host key verification"
    r"|srun: error|slurmstepd.*error|error while loading shared libraries|not found|No such file|failed to execute"
    r"|There are not enough slots|PMIX? ERROR|not built with|unable to find|MPI_ERR|lost communication).*"
)


class _Running:
    """A running launcher, and the file for its output."""

    def __init__(self, launch: BenchLaunch, command: LaunchCommand, output: Path, until: float) -> None:
        self.launch, self.until = launch, until
        self.began = time.monotonic()
        self.status, self.killed = "", 0.0
        self.tail = b""
        self._room = OUTPUT_LIMIT
        self._file: IO[bytes] = output.open("wb", buffering=0)
        words = list(command.argv)
        if shutil.which("setpriv"):
            words = ["setpriv", "--pdeathsig", "TERM", *words]
        try:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
                start_new_session=True, env=dict(command.environment), cwd="/",
            )  # fmt: skip
        except OSError:
            self._file.close()
            raise
        assert self.process.stdout is not None
        self.stream = self.process.stdout
        os.set_blocking(self.stream.fileno(), False)

    def pass_on(self) -> bool:
        """Copy output to the file; return whether more may follow. Raises OSError."""
        try:
            data = self.stream.read(65536)
        except BlockingIOError:
            return True
        if data is None:
            return True
        self.tail = (self.tail + data)[-_TAIL:]
        left = data[: self._room]
        self._room -= len(left)
        while left:
            left = left[self._file.write(left) or 0 :]
        return bool(data)

    def end(self, status: str) -> None:
        """End a launcher, which then has this status; kill it if that takes too long."""
        if not self.killed:
            self.status, self.killed = status, time.monotonic() + _END_S
            self._signal(signal.SIGTERM)
        elif time.monotonic() > self.killed:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Kill the process group, and close all files."""
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.stream.close()
        self._file.close()

    def ended(self) -> BenchLaunch:
        """Return the launch with its outcome."""
        code = self.process.returncode
        seconds = time.monotonic() - self.began
        status, why = self.status, ""
        if not status and code is not None and code < 0:
            status, why = CUT, f"its launcher was ended by signal {-code}, which preflight did not send"
        elif not status and code in _LEASE_ENDED and seconds >= self.until - self.began - WATCH_S - 1:
            status = TIMEOUT
        status = status or (OK if code == 0 else BROKE)
        if status == TIMEOUT:
            why = f"no end within {self.until - self.began - WATCH_S:.0f} s"
        elif status == BROKE:
            why = self._reason() or f"its launcher exited with status {code}"
        return BenchLaunch(self.launch.number, self.launch.round, self.launch.run, status, code, seconds, why)

    def _reason(self) -> str:
        lines = self.tail.decode("utf-8", "replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip("- \t")), "")
        reason = next((match[0].strip() for line in lines if (match := _REASON.match(line))), last)
        return "".join(sign if sign.isprintable() else "?" for sign in reason)[:200]


def run(
    launches: Sequence[BenchLaunch], command_of: Callable[[BenchLaunch], LaunchCommand],
    output_of: Callable[[BenchLaunch], Path], at_once: int, limit_s: float, until: float, stop: threading.Event,
    started: Callable[[BenchLaunch], None], cancel: Callable[[BenchLaunch], None],
) -> Iterator[BenchLaunch]:  # fmt: skip
    """Run launches in parallel; yield each when it has ended. Raises OSError.

    ``limit_s`` is the limit of each launch on its nodes, and ``until`` the end of the campaign (monotonic clock).
    ``started`` is called before a launch starts, and ``cancel`` for each that had to be ended. Launches that still run
    when the iteration ends are also ended.
    """
    waiting = list(reversed(launches))
    running: list[_Running] = []
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < at_once and not stop.is_set() and time.monotonic() < until:
                    launch = waiting.pop()
                    started(launch)
                    watch = time.monotonic() + limit_s + WATCH_S
                    running.append(_Running(launch, command_of(launch), output_of(launch), watch))
                    selector.register(running[-1].stream, selectors.EVENT_READ, running[-1])
                if not running:
                    return
                for key, _ in selector.select(_TICK_S):
                    if not key.data.pass_on():
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                for current in list(running):
                    if stop.is_set() or now > until:
                        current.end(CUT)
                    elif now > current.until:
                        current.end(TIMEOUT)
                    if current.process.poll() is None:
                        continue
                    if current.stream in (key.fileobj for key in selector.get_map().values()):
                        while current.stream and current.pass_on():
                            if not _more(current):
                                break
                        selector.unregister(current.stream)
                    running.remove(current)
                    current.close()
                    result = current.ended()
                    if result.status in (TIMEOUT, CUT):
                        cancel(result)
                    yield result
        finally:
            _end_all(running, cancel)


def _more(launcher: _Running) -> bool:
    """Return whether more output is waiting; a leftover child may hold the pipe open."""
    with selectors.DefaultSelector() as selector:
        selector.register(launcher.stream, selectors.EVENT_READ)
        return bool(selector.select(0))


def _end_all(running: Sequence[_Running], cancel: Callable[[BenchLaunch], None]) -> None:
    """End all running launchers, with SIGTERM first and then with SIGKILL."""
    for launcher in running:
        launcher.end(CUT)
    until = time.monotonic() + _END_S
    while any(launcher.process.poll() is None for launcher in running) and time.monotonic() < until:
        time.sleep(_TICK_S / 2)
    for launcher in running:
        launcher.close()
        cancel(launcher.launch)
