"""The end of a hook is certain: a thread that waits for the deadline, SIGTERM, SIGINT and SIGHUP, and then ends it all.

The main thread may be waiting for a file server that is gone, where no handler of Python's ever runs. The kernel
kills such a thread when the process ends, so a second thread can report the verdict and exit. slurmd sends SIGKILL
10 ms after SIGTERM. Imported before every job.
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
else:  # what the module above is made of, without the enumerations, which take longer than all of this
    import _signal as signal

#: Seconds that printing and logging a verdict may take, once there is one: a log that blocks does not hold a job back.
OUTPUT_S = 2.0

#: Bytes that are the number of no signal: look at the clock again; end.
_LOOK, _END = b"\0", b"\xff"

#: Seconds within which the deadline thread ends when requested.
_ALONE_S = 0.1

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Watch:
    """Ends this process in time. ``phase`` is what is going on, in words that fit after "while"."""

    def __init__(self, deadline_s: float) -> None:
        self.began = time.monotonic()
        self.deadline_s = deadline_s
        self.phase = "starting"
        self._once = _thread.allocate_lock()
        self._ear, self._wake = -1, -1

    @property
    def until(self) -> float:
        """When all must be over, on the monotonic clock."""
        return self.began + self.deadline_s

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.until - time.monotonic()

    def start(self, on_deadline: Callable[[str, bool], int]) -> None:
        """Watch from now on. ``late`` is called with the reason, and whether it was a signal; it returns the status."""
        self._ear, self._wake = os.pipe()
        for fd in (self._ear, self._wake):
            os.set_blocking(fd, False)
        self._on_deadline = on_deadline
        self._begin()

    def run_single_threaded(self, act: Callable[[], object]) -> None:
        """Do something that needs a single-threaded process, such as a fork; unwatched, so it must be short."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.write(self._wake, _END)
        until = time.monotonic() + _ALONE_S
        while _threads() > 1 and time.monotonic() < until:
            time.sleep(0.0002)
        try:
            act()
        finally:
            self._begin()

    def limit_to(self, deadline_s: float) -> None:
        """Set another deadline, in seconds from the start."""
        self.deadline_s = deadline_s
        os.write(self._wake, _LOOK)

    def disarm(self, status: int) -> None:
        """Disarm the deadline and limit the output of the verdict; the process then ends with ``status``."""
        if not self._once.acquire(blocking=False):
            while True:  # the other thread is about to end this process
                time.sleep(1)
        _thread.start_new_thread(_leave, (status,))

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
        if not self._once.acquire(blocking=False):
            return
        _thread.start_new_thread(_leave, (3,))
        after = f"after {time.monotonic() - self.began:.1f} s while {self.phase}"
        if received:
            os._exit(self._on_deadline(f"{_name(received[0])} {after}", True))
        os._exit(self._on_deadline(f"the deadline of {self.deadline_s:g} s was over {after}", False))


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:  # no /proc here
        return 2


def _name(number: int) -> str:
    names = {int(signal.SIGTERM): "SIGTERM", int(signal.SIGINT): "SIGINT", int(signal.SIGHUP): "SIGHUP"}
    return names.get(number, f"signal {number}")


def _noted(number: int, frame: object) -> None:
    """Do nothing: the number has been written to the other thread."""


def _leave(status: int) -> None:
    time.sleep(OUTPUT_S)
    os._exit(status)
