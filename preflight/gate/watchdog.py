"""Deadline of a hook: a thread that ends the process in time.

It waits for the deadline, SIGTERM, SIGINT and SIGHUP. The main thread may hang on a dead file server, where Python's
signal handlers never run. The kernel kills such a thread when the process ends, so a second thread can report the
verdict and exit. slurmd sends SIGKILL 10 ms after SIGTERM. Imported before every job.
"""

from __future__ import annotations

import _thread
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    from preflight.gate.result import Progress

    R = TypeVar("R")
else:  # the C module behind ``signal``, without its slow enumerations
    import _signal as signal

#: Time limit in seconds for printing and logging a verdict, so that a blocking log does not hold back a job.
OUTPUT_S = 2.0

#: Control bytes other than signal numbers: check the clock again; end.
_LOOK, _END = b"\0", b"\xff"

#: Seconds within which the deadline thread ends when requested.
_ALONE_S = 0.1

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Watch:
    """Ends this process in time with the completed part of its work.

    The main thread reports its progress with ``advance``, each time as a complete value. The thread that claims the end
    first writes the output; the other one stops. One lock guards both; it is held only for assignments, so neither
    thread waits for the other's work. ``finish`` is called in the deadline thread with the last progress, the reason,
    and whether a signal ended the run; it writes the output and returns the exit status.
    """

    def __init__(
        self, began: float, deadline_s: float, progress: Progress, finish: Callable[[Progress, str, bool], int]
    ) -> None:
        """Set the deadline: ``deadline_s`` after ``began`` on the monotonic clock."""
        self.deadline_s = deadline_s
        self._began, self._phase = began, "starting"
        self._progress, self._finish = progress, finish
        self._lock, self._ended = _thread.allocate_lock(), False
        self._ear, self._wake = -1, -1

    @property
    def left_s(self) -> float:
        """Seconds left until the deadline."""
        return self._began + self.deadline_s - time.monotonic()

    @property
    def progress(self) -> Progress:
        """The progress that was reported last."""
        return self._progress

    def start(self) -> None:
        """Start the deadline thread."""
        self._ear, self._wake = os.pipe()
        for fd in (self._ear, self._wake):
            os.set_blocking(fd, False)
        self._begin()

    def enter(self, phase: str) -> None:
        """Set the current activity, in words that fit after "while"."""
        self._phase = phase

    def advance(self, progress: Progress) -> Progress:
        """Record the progress, and return it.

        Never returns once the deadline thread is ending the process.
        """
        with self._lock:
            if not self._ended:
                self._progress = progress
                return progress
        _wait_for_the_end()

    def run_single_threaded(self, act: Callable[[], R]) -> R:
        """Run something that needs a single-threaded process, such as a fork.

        It is unwatched, so it must be short.
        """
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.write(self._wake, _END)
        until = time.monotonic() + _ALONE_S
        while _threads() > 1 and time.monotonic() < until:
            time.sleep(0.0002)
        try:
            return act()
        finally:
            self._begin()

    def limit_to(self, deadline_s: float) -> None:
        """Change the deadline, in seconds from the start of the run."""
        self.deadline_s = deadline_s
        os.write(self._wake, _LOOK)

    def close(self, status: int) -> None:
        """Claim the end for the main thread, and limit the time of its output.

        Once that time is over, the process ends with ``status``.
        """
        if not self._claim():
            _wait_for_the_end()
        _thread.start_new_thread(_leave, (status,))

    def _claim(self) -> bool:
        """Return whether the calling thread must write the output: only one thread does."""
        with self._lock:
            first, self._ended = not self._ended, True
        return first

    def _begin(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            ready = select.select([self._ear], [], [], max(0.0, self.left_s))[0]
            received = os.read(self._ear, 64).replace(_LOOK, b"") if ready else b""
            if received == _END:
                return
            if received or self.left_s <= 0:
                break
        if not self._claim():
            return
        _thread.start_new_thread(_leave, (3,))
        after = f"after {time.monotonic() - self._began:.1f} s while {self._phase}"
        if received:
            os._exit(self._finish(self._progress, f"{_name(received[0])} {after}", True))
        os._exit(self._finish(self._progress, f"the deadline of {self.deadline_s:g} s was exceeded {after}", False))


def _wait_for_the_end() -> NoReturn:
    """Wait until the other thread has ended this process."""
    while True:
        time.sleep(1)


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:  # no /proc here
        return 2


def _name(number: int) -> str:
    names = {int(signal.SIGTERM): "SIGTERM", int(signal.SIGINT): "SIGINT", int(signal.SIGHUP): "SIGHUP"}
    return names.get(number, f"signal {number}")


def _noted(number: int, frame: object) -> None:
    """Do nothing: Python has already written the signal number to the other thread."""


def _leave(status: int) -> None:
    time.sleep(OUTPUT_S)
    os._exit(status)
