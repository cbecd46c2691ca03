"""Processes in error messages: those killed, or holding the memory of a GPU."""

from __future__ import annotations

import re

#: The process that printed the message.
OWN = "itself"

#: A process that was killed, as printed by torchrun, PyTorch's data loader and the shell; and the holders of a GPU's
#: memory, as listed by PyTorch.
_PID = re.compile(
    r"\(pid(?:\(s\))?:? (\d{1,10}(?:, \d{1,10}){0,15})\)|received by PID (\d{1,10})|: line \d{1,6}: +(\d{1,10}) Killed"
    r"|\bProcess (\d{1,10}) has \d"
)
_SIZE = r"(\d{1,6}(?:\.\d{1,3})?) ([KMG]iB)"
_CAPACITY = re.compile(rf"has a total capacity of {_SIZE} of which {_SIZE} is free")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_GIB = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}

#: Maximum number of characters of a message that are examined, and of processes.
_LONGEST, _MOST = 2000, 16

#: Memory of a GPU without a known holder that does not count, in GiB; contexts of driver daemons need less.
_OTHERS_GIB = 1.0


def processes_in(message: str) -> tuple[str, ...]:
    """Return the PIDs that a message blames; OWN if its writer used all memory."""
    pids = [
        pid for groups in _PID.findall(message[:_LONGEST]) for group in groups if group for pid in group.split(", ")
    ]
    return tuple(dict.fromkeys(pids[:_MOST])) or ((OWN,) if _used_all(message[:_LONGEST]) else ())


def _used_all(message: str) -> bool:
    """Return whether no other process used the GPU's memory, by PyTorch's figures."""
    capacity, own = _CAPACITY.search(message), _OWN.search(message)
    if not capacity or not own:
        return False
    total, free, mine = (float(figure) * _GIB[unit] for figure, unit in (
        capacity.group(1, 2), capacity.group(3, 4), own.group(1, 2)
    ))  # fmt: skip
    return total - free - mine < _OTHERS_GIB
