"""Processes of a farm, found by a mark in their environment."""

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
    """Return the descendants of these processes; sshd puts each command into a separate process group."""
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
    """Return a process's command line; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read().replace(b"\0", b" ").decode("utf-8", "backslashreplace").strip()
    except OSError:
        return ""


def kill(pids: Iterable[int]) -> None:
    """Kill processes; those that have already ended are not an error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
