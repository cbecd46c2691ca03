"""A child process with three pipes, killed together with its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import IO


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    """Return standard input, output and error; raise ValueError without a pipe."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise ValueError("the process was started without pipes")
    return stdin, stdout, stderr


def has_ended(pid: int, patience_s: float) -> bool:
    """Wait for a child to end, without reaping it; return whether it ended.

    The number of its process group stays reserved.
    """
    until = time.monotonic() + patience_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill an unreaped child that leads its process group, and the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
