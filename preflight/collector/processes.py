"""Processes in /proc, and functions to end those that the collector started."""

import os
import signal
import time

try:  # imported here, not on use, to prepare before the plan arrives
    import ctypes
except ImportError:
    ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

_PR_SET_CHILD_SUBREAPER = 36


def _read(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(10000).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def _stat(task: str) -> "List[str]":
    """Return the fields of ``/proc/.../stat`` starting at the state.

    The name before it may contain any character.
    """
    return _read("/proc/{}/stat".format(task)).rpartition(")")[2].split()


def state(task: str) -> str:
    """Return the state letter of ``PID`` or ``PID/task/TID``; empty if it has ended."""
    fields = _stat(task)
    return fields[0] if fields else ""


def kernel(task: str) -> "Dict[str, str]":
    """Return a task's state, wait channel and kernel stack, if readable."""
    found = {
        "state": state(task),
        "wchan": _read("/proc/{}/wchan".format(task)).strip("0 \n"),
        "stack": _read("/proc/{}/stack".format(task)).rstrip("\n"),
    }
    return {key: value for key, value in found.items() if value}


def blocked(task: str) -> str:
    """Return the process that a thread may be starting, or else the thread itself."""
    started = _read("/proc/{}/children".format(task)).split()
    return started[-1] if started else task


def thread() -> str:
    """Return the calling thread as ``PID/task/TID``; empty before Linux 3.17."""
    try:
        return os.readlink("/proc/thread-self")
    except OSError:
        return ""


def signal_group(group: int, number: int) -> "Optional[OSError]":
    """Signal a process group; return the error, unless the group has ended."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return None
    except OSError as error:
        return error
    return None


def become_subreaper() -> str:
    """Become the subreaper of descendants, to end them; return an error or ""."""
    if ctypes is None:
        return "this Python has no ctypes"
    try:
        failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return os.strerror(ctypes.get_errno()) if failed else ""
    except (OSError, AttributeError) as error:
        return str(error)


def descendants(root: int) -> "Set[int]":
    """Return the living processes below ``root``."""
    children: Dict[int, List[int]] = {}
    for entry in os.listdir("/proc"):
        fields = _stat(entry) if entry.isdigit() else []
        if len(fields) > 1 and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: Set[int] = set()
    below = [root]
    while below:
        for pid in children.get(below.pop(), []):
            if pid not in found:
                found.add(pid)
                below.append(pid)
    return found


def has_children() -> bool:
    """Return whether this process has a child, zombies included.

    Without one it has no descendants.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except AttributeError:  # PyPy has no waitid
        return True
    return True


def end_descendants(grace_s: float) -> "Set[int]":
    """Kill all descendants; return those that still run after ``grace_s`` seconds."""
    until, sweeps = time.monotonic() + grace_s, 0
    while True:
        left, sweeps = descendants(os.getpid()) if has_children() else set(), sweeps + 1
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        if not left or (sweeps >= 3 and time.monotonic() > until):
            return left
        time.sleep(0.01)


def node() -> str:
    """Return this host's name."""
    return os.uname().nodename
