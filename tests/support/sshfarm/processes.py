"""Processes of a farm, found by the mark that each of them carries in its environment."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def marked(mark: str) -> set[int]:
    """Return the living processes with ``NAME=VALUE`` in their environment."""
    wanted, found = mark.encode(), set()
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as stream:
            if wanted in stream.read().split(b"\0"):
                found.add(pid)
    return found


def descendants(*roots: int) -> set[int]:
    """Return the processes below these; sshd gives each command a process group of its own."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stream:
            parent = int(stream.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    below = [*roots]
    while below:
        new = [pid for pid in children.get(below.pop(), []) if pid not in found]
        found.update(new)
        below += new
    return found


def command_of(pid: int) -> str:
    """Return a process's command line; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read().replace(b"\0", b" ").decode("utf-8", "backslashreplace").strip()
    except OSError:
        return ""


def kill(pids: Iterable[int]) -> None:
    """End processes at once; those that are gone already are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
