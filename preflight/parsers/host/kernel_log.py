"""Lines of the kernel log with their times, in the format of any tool.

``dmesg --raw`` prints ``<4>[12.345678] text``. The same lines also occur as plain ``[12.34] text``, with a wall-clock
time (``dmesg -T``, ``--time-format iso``, journalctl, syslog) or as records of ``/dev/kmsg``. A web page or email may
have added a bullet or a number before them. All of these formats are read here, both for node records and for pasted
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: Excludes UCX, which prints a similar time since boot, followed by host and process.
_NO_UCX = r"(?!\s\[[\w.-]{1,64}:\d{1,10} ?:\d{1,5}\])"
#: A line in the format that nodes send; it is tried first, for speed.
_RAW = re.compile(
    rf"(?:<[0-9]{{1,3}}>)?\[ {{0,12}}([0-9]{{1,10}}\.[0-9]{{1,9}})\]{_NO_UCX}(?:\[[ 0-9TC]{{1,12}}\])?"
    r"(?! ?\[[ 0-9TC]| ?(?:\S{1,255} )?kernel:):{0,2} ?(.*)"
)

#: The start of a line, up to and including its time, in any format of dmesg, journalctl and syslog.
STAMP = re.compile(
    r"\s{0,8}(?:(?:#|//|[*>•-]|\d{1,5}\.)\s{1,4})?(?:(?:kern\s*:\w+\s*:\s*|kernel:\s*|<\d{1,3}>)?"
    rf"(?:\d{{1,7}}[:-]?\s?(?=\[))?(?P<at>\[\s*\+?\d{{1,10}}\.\d{{1,9}}\]{_NO_UCX}"
    r"|\[\w{3} \w{3} [ \d]?\d \d\d:\d\d:\d\d \d{4}\]|\[[A-Z][a-z]{2}[ \d]\d \d\d:\d\d\](?= )"  # dmesg -T, -e
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d{0,9}(?:Z|[+-]\d\d:?\d\d)?"
    # the month in any language
    r"|[^\W_][\w.]{1,5} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,6})?"
    r"|\d{1,3},\d{1,12},\d{1,18},[^;]{1,16};))"
)
#: The node's name: a launcher prints it before the line, a log daemon after the time.
_LAUNCHED = re.compile(
    r"\s{0,4}(?!NVRM|kern|nvidia|mce|EDAC|AER|pci|mlx|DMAR|usb|ata|nvme|sd)([a-z][a-z0-9.-]{0,62}\d[a-z0-9.-]{0,20}): "
    r" {0,3}(?=\[|NVRM: |kernel: |<\d|\d{4}-|[A-Z][a-z]{2} |Out of memory: Kill|INFO: task |EDAC |mce: "
    r"|[a-z][\w-]{1,30} [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
)
_LOGGED = re.compile(r" ([\w.-]{1,255}) kernel: ?")
#: Text that a log daemon and the kernel write between the time and the message.
_HOST_KERNEL = re.compile(r"(?:\S{1,255} )?kernel: ?")
_CALLER = re.compile(r"\[[ 0-9TC]{1,12}\] ?")
_SINCE_BOOT = re.compile(r"\[ {0,12}[0-9]{1,10}\.[0-9]{1,9}\] ?")
#: journalctl's line between two boots.
_OTHER_BOOT = re.compile(r"-- (?:Boot [0-9a-f]{32}|Reboot) --\s*")
_BANNER = re.compile(r"Linux version [0-9]")

#: If the time goes back by more than this many seconds, another boot has begun; CPUs may differ by less.
_BOOT_STEP_S = 60
#: Times of at least this value are from a wall clock; smaller ones are seconds since boot.
_WALL_S = 3e8


@dataclass(frozen=True)
class KernelLogLine:
    """One line of the kernel log."""

    at_s: float  # since boot, or since 1970 for a wall clock; nan for a pasted line without a time
    text: str
    number: int = 0  # line number in pasted text

    @property
    def wall(self) -> bool:
        """Whether the time is from a wall clock."""
        return self.at_s >= _WALL_S


def parse(text: str) -> tuple[KernelLogLine, ...]:
    """Read the lines of the newest boot; raises ValueError if no line has a time."""
    lines: list[KernelLogLine] = []
    for line in _lines(text):
        if line is None or (lines and line.at_s < lines[-1].at_s - _BOOT_STEP_S):
            lines = []
        if line is not None:
            lines.append(line)
    if not lines:
        raise ValueError(f"no line has a time; the text begins with {normalize_text(text).strip()[:80]!r}")
    return tuple(lines)


def _lines(text: str) -> Iterator[KernelLogLine | None]:
    """Yield the lines of a log, and None where another boot begins."""
    at_s: float | None = None
    for raw in normalize_text(text).split("\n"):
        if not raw or raw.isspace():
            continue
        if raw.startswith("-- ") and _OTHER_BOOT.fullmatch(raw):
            yield None
        elif (line := read_line(raw)) is not None:
            if at_s is not None and line.wall and _BANNER.match(line.text):
                yield None
            at_s = line.at_s
            yield line
        elif at_s is not None:  # continues a message of several lines
            yield KernelLogLine(at_s, raw.strip())


def read_line(raw: str) -> KernelLogLine | None:
    """Read one line; return None if it has no readable time."""
    parts = split_line(raw)
    if parts.stamp is None or parts.at_s is None:
        return None
    if parts.stamp[10:11] == " " and parts.stamp[:1].isdigit():  # a program's log; the kernel log has a T
        return None
    return KernelLogLine(parts.at_s, parts.message)


class LineParts(NamedTuple):
    """The parts of one line of the kernel log, in any format."""

    stamp: str | None  # its time, as written
    at_s: float | None  # the same in seconds; None if unreadable
    message: str  # the kernel's message
    host: str  # the node that logged it; empty if not named


def without_writer(raw: str) -> str:
    """Return a line without the node name that a launcher put before it."""
    launched = _LAUNCHED.match(raw)
    return raw[launched.end() :] if launched else raw


def split_line(raw: str) -> LineParts:
    """Split a line into its time, the kernel's message and the node name."""
    if match := _RAW.fullmatch(raw):
        return LineParts(match[1], float(match[1]), match[2].rstrip(), "")
    launched = _LAUNCHED.match(raw)
    own = raw[launched.end() :] if launched else raw
    if (time := STAMP.match(own)) is None:
        return LineParts(None, None, message(own), launched[1] if launched else "")
    logged = launched or _LOGGED.match(own, time.end())
    host = logged[1] if logged else ""
    return LineParts(time["at"].strip("[] "), seconds(time["at"]), message(own, time.end()), host)


def message(raw: str, at: int = 0) -> str:
    """Return the kernel's message in a line whose time ends at position ``at``."""
    rest = raw[at:].lstrip(":").removeprefix(" ")
    for part in (_CALLER, _HOST_KERNEL, _SINCE_BOOT):
        if match := part.match(rest):
            rest = rest[match.end() :]
    return rest.rstrip()


#: Formats of wall-clock times, and of ``/dev/kmsg``.
_CTIME = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]?[0-9] [0-9:]{8} [0-9]{4})\]")
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9:]{8})(?:[.,]([0-9]{0,9}))?(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?"
)
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) {1,2}([0-9]{1,2}) ([0-9:]{8})(?:\.[0-9]{1,6})?")
_KMSG = re.compile(r"[0-9]{1,4},[0-9]{1,15},([0-9]{1,18}),[^;\n]{1,80};")


def seconds(stamp: str) -> float | None:
    """Convert a line's time to seconds since boot or 1970; None if unreadable."""
    if match := re.fullmatch(r"\[\s*([0-9]{1,10}\.[0-9]{1,9})\]", stamp):
        return float(match[1])
    if match := _KMSG.fullmatch(stamp):
        return int(match[1]) / 1e6
    if match := _ISO.fullmatch(stamp):
        at_s = _clock(f"{match[1]} {match[2]}", "%Y-%m-%d %H:%M:%S")
        if at_s is None:
            return None
        offset_s = int(match[5] or 0) * 3600 + int(match[6] or 0) * 60
        return at_s + float(f"0.{match[3] or 0}") - (-offset_s if match[4] == "-" else offset_s)
    if match := _CTIME.fullmatch(stamp):
        return _clock(match[1], "%a %b %d %H:%M:%S %Y")
    if match := _SYSLOG.fullmatch(stamp):  # syslog prints no year; only differences are used
        return _clock(f"2000 {match[1]} {match[2]} {match[3]}", "%Y %b %d %H:%M:%S")
    return None


def _clock(text: str, layout: str) -> float | None:
    from datetime import datetime, timezone  # start-up: a node's record has seconds since boot

    try:
        return datetime.strptime(text, layout).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def parse_uptime(text: str) -> float:
    """Return the seconds since boot from /proc/uptime; raises ValueError."""
    match = re.match(r"([0-9]{1,10}\.[0-9]{1,6}) ", text)
    if not match:
        raise ValueError(f"there are no seconds since boot in {text[:40]!r}")
    return float(match[1])
