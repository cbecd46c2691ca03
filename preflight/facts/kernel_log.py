"""Kernel log of a node, the time of collection, and the period it covers."""

from __future__ import annotations

from heapq import merge

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.parsers.host.kernel_log import KernelLogLine, parse, parse_uptime

DMESG = "cmd:dmesg --raw --level=emerg,alert,crit,err,warn"
#: Driver messages about links, slots and mounts; only lines needed for known events are collected.
NOTICES = "cmd:dmesg --raw --level=notice,info"
UPTIME = "file:/proc/uptime"

#: Maximum time stamp, in seconds since boot, of the first line in a log that goes back to the boot.
_BOOT_S = 60


@dataclass(frozen=True)
class KernelLog:
    """Kernel log lines since the last boot, and the period that they cover."""

    lines: tuple[KernelLogLine, ...]
    now_s: float | None  # time of collection by the same clock; None if unknown
    cut: str = ""  # why newer lines are missing

    @property
    def since(self) -> str:
        """The window that the log covers."""
        first = self.lines[0].at_s
        if first < _BOOT_S:
            return "since boot" if self.now_s is None else f"since boot, {age(self.now_s - first)} ago"
        return "the saved lines" if self.now_s is None else f"the last {age(self.now_s - first)}"

    def ago(self, at_s: float) -> str:
        """Return the age of a line; empty if unknown."""
        return "" if self.now_s is None or self.now_s < at_s else f"{age(self.now_s - at_s)} ago"


def age(seconds: float) -> str:
    """Return a time span in a suitable unit, such as ``3 days`` or ``12 min``."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def kernel_log(evidence: Evidence, key: str = DMESG) -> KernelLog:
    """Return the log; raises EvidenceError if it is not readable or not a log.

    A log longer than the output cap is truncated: only its first part is present, and ``cut`` is set.
    """
    record = evidence.record(key)
    cut = record.describe() if record.status == "cut" else ""
    text = record.out if cut else evidence.text(key)
    try:
        lines = parse(text)
    except ValueError as error:
        raise EvidenceError(key, f"cannot be parsed: {error}") from None
    return KernelLog(lines, _uptime(evidence), cut)


def all_levels(log: KernelLog, notices: KernelLog) -> KernelLog:
    """Return one log of warnings and notices, ordered by time."""
    lines = tuple(merge(log.lines, notices.lines, key=lambda line: line.at_s))
    return KernelLog(lines, log.now_s, log.cut or notices.cut)


def _uptime(evidence: Evidence) -> float | None:
    try:
        text = evidence.text(UPTIME)
    except EvidenceError:
        return None
    try:
        return parse_uptime(text)
    except ValueError:
        return None
