"""Processes in error messages: those killed, or holding the memory of a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The process that printed the message.
OWN = "itself"

#: A process that was killed, as printed by torchrun, PyTorch's data loader and the shell.
_PID = re.compile(
    r"\(pid(?:\(s\))?:? (\d{1,10}(?:, \d{1,10}){0,15})\)|received by PID (\d{1,10})|: line \d{1,6}: +(\d{1,10}) Killed"
)

#: The holders of a GPU's memory, as listed by PyTorch, and its figures.
_SIZE = r"(\d{1,6}(?:\.\d{1,3})?) ([KMG]iB)"
_CAPACITY = re.compile(rf"has a total capacity of {_SIZE} of which {_SIZE} is free")
_HOLDER = re.compile(rf"\bProcess (\d{{1,10}}) has {_SIZE} memory in use")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_GIB = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}

#: Maximum number of characters of a message that are examined, and of processes.
_LONGEST, _MOST = 2000, 16

#: Memory of a GPU without a known holder that does not count, in GiB; contexts of driver daemons need less.
_OTHERS_GIB = 1.0


def processes_in(message: str) -> tuple[str, ...]:
    """Return the PIDs that a message blames; OWN if its writer used all memory.

    Another process that holds little of a GPU's memory is not blamed.
    """
    message = message[:_LONGEST]
    pids = [pid for groups in _PID.findall(message) for group in groups if group for pid in group.split(", ")]
    pids += [pid for pid, figure, unit in _HOLDER.findall(message) if float(figure) * _GIB[unit] >= _OTHERS_GIB]
    return tuple(dict.fromkeys(pids[:_MOST])) or ((OWN,) if _used_all(message) else ())


def _used_all(message: str) -> bool:
    """Return whether no other process used the GPU's memory, by PyTorch's figures."""
    capacity, own = _CAPACITY.search(message), _OWN.search(message)
    if not capacity or not own:
        return False
    total, free, mine = (float(figure) * _GIB[unit] for figure, unit in (
        capacity.group(1, 2), capacity.group(3, 4), own.group(1, 2)
    ))  # fmt: skip
    return total - free - mine < _OTHERS_GIB


def memory_step(blamed: Sequence[Sequence[str]]) -> str:
    """Return the step that messages about a GPU's full memory allow; may be empty.

    ``blamed`` are the processes of each message, from ``processes_in``.
    """
    pids = ",".join(list(dict.fromkeys(pid for each in blamed for pid in each if pid != OWN))[:_MOST])
    if pids:
        return f"find out which job owns process {pids} (`ps -fp {pids}`), and end it if none does"
    if blamed and all(map(bool, blamed)):
        return "no other process uses much of that GPU's memory: use a smaller batch, sharding, or expandable segments"
    return ""
