"""The kernel's log: lines with the time at which they were written, whatever printed them.

``dmesg --raw`` writes ``<4>[12.345678] text``. The same lines come as plain ``[12.34] text``, with a wall
clock (``dmesg -T``, ``--time-format iso``, journalctl, syslog) or as records of ``/dev/kmsg``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.textprep.plain_text import normalize_text

DMESG = "cmd:dmesg --raw --level=emerg,alert,crit,err,warn"
UPTIME = "file:/proc/uptime"

_RAW = re.compile(r"(?:<[0-9]{1,3}>)?\[ {0,12}([0-9]{1,10}\.[0-9]{1,9})\](?:\[[ 0-9TC]{1,12}\])? ?(.*)")
_KMSG = re.compile(r"[0-9]{1,4},[0-9]{1,15},([0-9]{1,18}),[^;\n]{1,80};(.*)")
_ISO = re.compile(
    r"(?:[a-z]{1,9} {0,4}:[a-z]{1,9} {0,4}: )?([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:[.,][0-9]{1,6})?)"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?:? (.*)"
)
_CTIME = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4})\] (.*)")
_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8}) (.*)")
_HOST_KERNEL = re.compile(r"\S{1,255} kernel: ?(.*)")

#: A step back of more than this between lines is another boot, seconds; CPUs may disagree by less.
_BOOT_STEP_S = 60


@dataclass(frozen=True)
class KernelLogLine:
    """One line of the log."""

    at_s: float  # since boot, or since 1970 where the log has a wall clock
    text: str


@dataclass(frozen=True)
class KernelLog:
    """The newest boot's lines, and how far they reach back."""

    lines: tuple[KernelLogLine, ...]
    now_s: float | None  # of the same clock; None if it is not known
    cut: str = ""  # why newer lines are missing

    @property
    def since(self) -> str:
        """Say which window the log covers."""
        first = self.lines[0].at_s
        if first < _BOOT_STEP_S:
            return "since boot" if self.now_s is None else f"since boot, {age(self.now_s - first)} ago"
        return "the kept lines" if self.now_s is None else f"the last {age(self.now_s - first)}"

    def ago(self, at_s: float) -> str:
        """Say how long ago a line was written; empty if that is not known."""
        return "" if self.now_s is None or self.now_s < at_s else f"{age(self.now_s - at_s)} ago"


def age(seconds: float) -> str:
    """Write a time span in the unit that fits."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def kernel_log(evidence: Evidence) -> KernelLog:
    """Return the log; raises EvidenceError where it may not be read or is not one.

    Of a log that was longer than the output cap the first part is kept, and ``cut`` says so.
    """
    record = evidence.record(DMESG)
    cut = record.describe() if record.status == "cut" else ""
    text = record.out if cut else evidence.text(DMESG)
    try:
        lines = parse(text)
    except ValueError as error:
        raise EvidenceError(DMESG, f"cannot be read: {error}") from None
    return KernelLog(lines, _uptime(evidence), cut)


def _uptime(evidence: Evidence) -> float | None:
    try:
        text = evidence.text(UPTIME)
    except EvidenceError:
        return None
    match = re.match(r"([0-9]{1,10}\.[0-9]{1,6}) ", text)
    return float(match[1]) if match else None


def parse(text: str) -> tuple[KernelLogLine, ...]:
    """Read the lines of the newest boot; raises ValueError if no line carries a time."""
    lines: list[KernelLogLine] = []
    for line in _lines(text):
        if lines and line.at_s < lines[-1].at_s - _BOOT_STEP_S:
            lines = []
        lines.append(line)
    if not lines:
        raise ValueError(f"no line of it carries a time; it begins {normalize_text(text).strip()[:80]!r}")
    return tuple(lines)


def _lines(text: str) -> Iterator[KernelLogLine]:
    at_s: float | None = None
    for raw in normalize_text(text).split("\n"):
        if not raw or raw.isspace():
            continue
        if (line := _timed(raw)) is not None:
            at_s = line.at_s
            yield line
        elif at_s is not None:  # the rest of a message of several lines
            yield KernelLogLine(at_s, raw.strip())


def _timed(raw: str) -> KernelLogLine | None:
    if match := _RAW.fullmatch(raw):
        return KernelLogLine(float(match[1]), match[2])
    if match := _KMSG.fullmatch(raw):
        return KernelLogLine(int(match[1]) / 1e6, match[2])
    for pattern, layout in ((_ISO, "%Y-%m-%dT%H:%M:%S"), (_CTIME, "%a %b %d %H:%M:%S %Y"), (_SYSLOG, "%b %d %H:%M:%S")):
        if (match := pattern.fullmatch(raw)) and (at_s := _clock(match[1], layout)) is not None:
            return _within(at_s, match[2])
    return None


def _clock(text: str, layout: str) -> float | None:
    if layout == "%b %d %H:%M:%S":  # syslog names no year; only differences are used
        text, layout = f"2000 {text}", f"%Y {layout}"
    try:
        return datetime.strptime(re.split("[.,]", text)[0], layout).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _within(at_s: float, rest: str) -> KernelLogLine:
    """Take host name, ``kernel:`` and the kernel's own time off what a log daemon wrote."""
    if match := _HOST_KERNEL.fullmatch(rest):
        rest = match[1]
    if match := _RAW.fullmatch(rest):
        rest = match[2]
    return KernelLogLine(at_s, rest)
