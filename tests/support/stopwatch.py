"""Time used by the product itself: delays caused by a busy machine are excluded.

Each test of a time limit uses a ``Stopwatch``. The kernel counts the time in which any process had to wait for a
processor, a disk or memory (pressure stall information: ``some`` of ``Documentation/accounting/psi.rst``), and the time
taken by a hypervisor (``steal`` of ``proc_stat(5)``). The measured code runs undisturbed at all other times, so the
elapsed time minus these never exceeds the time on an idle machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Even on a busy machine nothing may take longer than this multiple of its limit, so that a hang is noticed.
MOST = 10.0


def stalled_s() -> float | None:
    """Return the seconds of stalls (PSI) and stolen time since boot; None if the kernel does not count them."""
    total_us = 0
    try:
        for resource in ("cpu", "io", "memory"):
            (some,) = (line for line in Path("/proc/pressure", resource).read_text().splitlines() if "some" in line)
            total_us += int(some.rpartition("total=")[2])
        ticks = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    except (OSError, ValueError, IndexError):
        return None
    return total_us / 1e6 + ticks / os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Runs from its creation."""

    def __init__(self) -> None:
        self._began, self._stalled = time.monotonic(), stalled_s()

    @property
    def elapsed(self) -> float:
        """Seconds on the clock."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Seconds so far, minus those of pressure stalls."""
        return self.own(self.elapsed)

    def own(self, seconds: float) -> float:
        """Return seconds measured elsewhere since the start of this watch, minus the stalls."""
        now = stalled_s()
        if now is None or self._stalled is None:
            return seconds / 4  # a kernel without PSI: measured with four processes per processor
        return max(seconds - (now - self._stalled), seconds / MOST)
