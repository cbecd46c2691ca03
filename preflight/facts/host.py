"""Limits, NUMA nodes and allowed CPUs of the collector's process.

Sources: /proc and /sys.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.parsers.host.ulimit import soft_limit
from preflight.textprep.plain_text import id_list, integer

STATUS = "file:/proc/self/status"
LIMITS = "file:/proc/self/limits"
SHM = "statvfs:/dev/shm"
PORT_RANGE = "file:/proc/sys/net/ipv4/ip_local_port_range"

_CAP_IPC_LOCK = 14

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size_text(size: float) -> str:
    """Format bytes in the largest unit that keeps the number at or above one."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size:.4g} B"


def memlock_bytes(text: str) -> float:
    """Return the soft "Max locked memory" of ``/proc/self/limits`` in bytes.

    ``inf`` for unlimited. Raises ValueError.
    """
    return soft_limit(text, "locked memory")


def open_files(text: str) -> float:
    """Read the soft "Max open files" of ``/proc/self/limits``; ``inf`` for unlimited."""
    return soft_limit(text, "open files")


def may_lock_memory(text: str) -> bool:
    """Return whether CAP_IPC_LOCK lifts the memlock limit.

    It is read from ``/proc/self/status``. Raises ValueError.
    """
    if not (match := re.search(r"^CapEff:\s*([0-9a-fA-F]{1,16})\s*$", text, re.MULTILINE)):
        raise ValueError("no line 'CapEff' found")
    return bool(int(match[1], 16) >> _CAP_IPC_LOCK & 1)


def allowed_cpus(text: str) -> frozenset[int]:
    """Read ``Cpus_allowed_list`` of ``/proc/self/status``; raises ValueError."""
    if not (match := re.search(r"^Cpus_allowed_list:\s*(\S+)\s*$", text, re.MULTILINE)):
        raise ValueError("no line 'Cpus_allowed_list' found")
    return id_list(match[1], "Cpus_allowed_list")


def allowed_memory_nodes(text: str) -> frozenset[int]:
    """Read the NUMA nodes in ``Mems_allowed_list`` of a status; raises ValueError."""
    if not (match := re.search(r"^Mems_allowed_list:\s*(\S+)\s*$", text, re.MULTILINE)):
        raise ValueError("no line 'Mems_allowed_list' found")
    return id_list(match[1], "Mems_allowed_list")


def integer_file(evidence: Evidence, key: str) -> int:
    """Return the number in a file of /proc or /sys; raises EvidenceError."""
    try:
        return integer(evidence.text(key), key.rsplit("/", 1)[-1])
    except ValueError as error:
        raise EvidenceError(key, str(error)) from None


def port_range(text: str) -> tuple[int, int]:
    """Read ``ip_local_port_range``: first and last port; raises ValueError."""
    if not (match := re.fullmatch(r"\s*(\d{1,5})\s+(\d{1,5})\s*", text)):
        raise ValueError(f"{text.strip()[:60]!r} is not a pair of ports")
    return int(match[1]), int(match[2])


def shm_bytes(evidence: Evidence) -> int:
    """Return the size of ``/dev/shm`` in bytes; raises EvidenceError."""
    value = evidence.value(SHM)
    total = value.get("total_bytes") if isinstance(value, dict) else None
    if isinstance(total, bool) or not isinstance(total, int):
        raise EvidenceError(SHM, "the record has no size")
    return total


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node and its CPUs.

    Nodes of Grace's GPU memory and of CXL have no CPUs and are not sockets.
    """

    number: int
    cpus: frozenset[int]


def numa_nodes(evidence: Evidence) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes; raises EvidenceError if none was recorded."""
    found = []
    for key in evidence.keys("file:/sys/devices/system/node/node*/cpulist"):
        number = key.split("/")[-2].removeprefix("node")
        if not re.fullmatch("[0-9]{1,4}", number):
            continue
        try:
            found.append(NumaNode(int(number), id_list(evidence.text(key), "cpulist")))
        except ValueError as error:
            raise EvidenceError(key, str(error)) from None
    if not found:
        raise EvidenceError("file:/sys/devices/system/node/node*/cpulist", "no NUMA node was recorded")
    return tuple(sorted(found, key=lambda node: node.number))
