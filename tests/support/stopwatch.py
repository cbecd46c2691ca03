"""Seconds that are the product's own: what a starved machine adds to a run is no fault of what runs there.

Each test that holds something to a time does so with a ``Stopwatch``. The kernel counts the time in which anybody on
the machine had to wait for a processor, a disk or memory (pressure stall information: ``some`` of
``Documentation/accounting/psi.rst``), and what a hypervisor took away (``steal`` of ``proc_stat(5)``). At all other
times what is measured runs undisturbed: the elapsed seconds less these are never more than it needs when it is alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

#: However starved, nothing may take longer than so many times what it may: an end that never comes is still seen.
MOST = 10.0


def stalled_s() -> float | None:
    """Return the seconds since boot of pressure stalls (PSI); None: the kernel does not count them."""
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
    """Runs from its making on."""

    def __init__(self) -> None:
        self._began, self._stalled = time.monotonic(), stalled_s()

    @property
    def elapsed(self) -> float:
        """Seconds on the clock."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Seconds so far, less those of pressure stalls."""
        return self.own(self.elapsed)

    def own(self, seconds: float) -> float:
        """Return what is left of seconds measured elsewhere, between the start of this watch and now."""
        now = stalled_s()
        if now is None or self._stalled is None:
            return seconds / 4  # a kernel without PSI: four processes to a processor, where this was measured
        return max(seconds - (now - self._stalled), seconds / MOST)
