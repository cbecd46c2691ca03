"""A child process with three pipes: watched, and killed together with its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import IO


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    """Return standard input, output and error; raise ValueError if one of them is no pipe."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise ValueError("the process was started without pipes")
    return stdin, stdout, stderr


def has_ended(pid: int, patience_s: float) -> bool:
    """Wait for the end of a child without reaping it, so that its group's number stays taken."""
    until = time.monotonic() + patience_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads its own process group and was not reaped, and all in that group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
