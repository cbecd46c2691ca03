"""A kernel log within pasted text.

Finds the start and end of the log, joins broken lines, and extracts Xids and events.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import nan

from preflight.parsers.host.kernel_events import KernelEvent, events, of_line
from preflight.parsers.host.kernel_log import STAMP, KernelLogLine, split_line, without_writer
from preflight.parsers.nvidia.xid_marks import LoggedXid, sxids_in, xids_in
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import left_out
from preflight.textprep.wrapped_lines import KERNEL_TIME

#: Range of widths at which emails and screens break lines; maximum pieces of one line; lines examined for the width.
_BROKEN, _MOST_PIECES, _MOST_NEAR = (50, 140), 8, 200
#: Number of foreign lines in a row, and of blank lines in a row, that end a log.
_GAP, _BLANKS = 3, 6


#: A driver's line without a time: ``pcieport 0000:00:03.0: AER: …``, ``EDAC MC0: 1 CE …``.
_UNTIMED = re.compile(
    r"\s*(?:kernel: )?(?:mlx[45]_\w{2,6}(?: [\w.-]{1,16})?: |mlx5_\w{4,40}:\d{1,5}:\(pid \d{1,8}\): "
    r"|[a-z][\w-]{1,30} [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?: [\w@.-]{1,32})?: "
    r"|EDAC [A-Z]{1,8}\d{0,3}: |mce: \[Hardware Error\]"
    r"|[\w./:-]{1,64}\[\d{1,10}\]: segfault at [0-9a-f]{1,16} ip "
    r"|INFO: task \S{1,64}:\d{1,10} blocked for more than \d|watchdog: BUG: soft lockup - CPU#\d{1,5} stuck for \d"
    r"|Out of memory: Kill(?:ed)? process \d{1,10} \().*"
)


def _is_log(text: str) -> bool:
    text = without_writer(text)
    if STAMP.match(text) or "NVRM: " in text or "SXid (" in text or " kernel: " in f" {text}":
        return True
    return bool(_UNTIMED.fullmatch(text))


#: An NVSwitch error in the kernel log; other programs print it differently.
_SWITCH = re.compile(r"SXid \((?:PCI:)?[0-9a-fA-F]{4}")
#: The device number of the NVSwitch.
_DEVICE = re.compile(r"\bnvidia-nvswitch([0-9]{1,3}): SXid ")
#: An Xid whose line is truncated within the PCI address.
_TORN = re.compile(r"NVRM: Xid \((?:PCI:)?[0-9a-fA-F:.]{0,24}$")
#: The name of an error in prose, or in a command that searches for it.
_ONLY_NAMED = re.compile(r"NVRM: Xid(?! \()|grep\b.{0,80}(?:NVRM|SXid)")


#: The time since boot, shortened, or the time of ``dmesg -T``.
_STAMP = re.compile(r"\s*\[(?:\s*\d{1,10}\.\d{1,5}|[^\W\d_]{2,4}\.? [^\W\d_]{3,4}\.? [ \d]\d \d\d:\d\d:\d\d \d{4})\] ")
#: The time of ``dmesg -T``, and the name of the driver or subsystem.
_IN_WORDS = re.compile(
    r"\[[^\W\d_]{2,4}\.? [^\W\d_]{3,4}\.? [ \d]\d \d\d:\d\d:\d\d \d{4}\] +"
    r"[A-Za-z][\w.-]{1,30}(?: [\w.:@-]{1,32}){0,2}: "
)


#: ``dmesg --time-format iso``: a comma and six digits, unlike the three digits of Python's loggers.
_DMESG_ISO = re.compile(r"\s*\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:?\d\d \S")


#: Number of lines within which a driver error shows that lines with times are from the kernel.
_NEAR = 40


def begins(lines: Lines, at: int) -> bool:
    """Return whether a kernel log begins at a line."""
    text = lines[at].text
    if ("NVRM: " in text or _SWITCH.search(text)) and not _ONLY_NAMED.search(text):
        return True
    if "NCCL" in text:
        return False
    text = without_writer(text)
    time = STAMP.match(text)
    if not time:
        return bool(_UNTIMED.fullmatch(text)) and _has_event(text)
    if _IN_WORDS.match(text) and any(_IN_WORDS.match(line.text) for line in lines[at + 1 : at + 3]):
        return True
    if (
        re.match(r"\s*(?:<\d{1,3}>|\d{1,7}[:-]?\s?)?\[\s*\+?\d{1,10}\.\d{6}\](?! ?\[[A-Z]+\])", text)
        or " kernel: " in text
        or text.lstrip().startswith("kern")
        or (_STAMP.match(text) and _has_event(text))
    ):
        return True
    if _DMESG_ISO.match(text):
        return True
    # Other programs also log times: it is a kernel log if a driver and its device follow the time, or an Xid is nearby
    if _UNTIMED.fullmatch(text, time.end()):
        return True
    return any(_holds_error(line.text) for line in lines[at : at + _NEAR])


@lru_cache(maxsize=4 * _NEAR)  # each line is close to many others
def _holds_error(text: str) -> bool:
    return bool(xids_in(text) or sxids_in(text))


@dataclass(frozen=True)
class PastedLine:
    """One line of a pasted kernel log."""

    number: int  # line number in the pasted text
    stamp: str | None  # its time, as written
    at_s: float | None  # the same in seconds; None if unreadable
    text: str  # as written, with broken parts joined
    message: str  # the kernel's message
    host: str = ""  # the node that logged it; empty if not named


@dataclass(frozen=True)
class LoggedCode:
    """An Xid, or an SXid of an NVSwitch, with its line."""

    mark: LoggedXid
    line: PastedLine
    switch: int | None = None  # device number of the NVSwitch


#: Lines of a boot, a shutdown, and a network driver's start; the seconds and lines around them in which links change.
_SET_UP = re.compile(
    r"Linux version \d|Command line: |reboot: |systemd-shutdown|mlx5_core \S{1,20}: firmware version: "
    r"|Entering (?:sleep|runlevel)|mlx5_core \S{1,20}: (?:mlx5_unload|E-Switch: Unload|PF: Sync Reset)"
)
_SET_UP_S, _SET_UP_LINES = 300, 400


def _is_close(place: float | None, places: Sequence[float], within: float) -> bool:
    """Return whether any of the sorted places is within a distance of a place."""
    if place is None:
        return False
    next_ = bisect_left(places, place - within)
    return next_ < len(places) and places[next_] <= place + within


@dataclass(frozen=True)
class KernelText:
    """The content of a pasted kernel log."""

    lines: tuple[PastedLine, ...]
    xids: tuple[LoggedCode, ...]
    sxids: tuple[LoggedCode, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The named nodes that logged the lines, each once."""
        return tuple(host for host in self.writers if host)

    @property
    def writers(self) -> tuple[str, ...]:
        """The nodes that logged the lines, each once; an empty string for an unnamed one."""
        return tuple(dict.fromkeys(line.host for line in self.lines))

    def of_host(self, host: str) -> KernelText:
        """Return the log of one node."""
        return KernelText(
            tuple(line for line in self.lines if line.host == host),
            tuple(code for code in self.xids if code.line.host == host),
            tuple(code for code in self.sxids if code.line.host == host),
        )

    @cached_property
    def events(self) -> tuple[KernelEvent, ...]:
        """The events other than Xids and SXids."""
        return events((line.number, line.at_s, line.message) for line in self.lines)

    def after_set_up(self, logged: Sequence[KernelEvent]) -> tuple[KernelEvent, ...]:
        """Return the events that are not close to a boot, a shutdown or a driver's start.

        Links go down and come up at these times.
        """
        starts = [line for line in self.lines if _SET_UP.search(line.message)]
        times = sorted(line.at_s for line in starts if line.at_s is not None)
        numbers = [line.number for line in starts if line.at_s is None]
        return tuple(
            event for event in logged
            if not _is_close(event.at_s, times, _SET_UP_S) and not _is_close(event.line, numbers, _SET_UP_LINES)
        )  # fmt: skip

    @property
    def driver(self) -> str | None:
        """The version of the NVIDIA driver that was loaded last; None if not logged."""
        return next((match[1] for line in reversed(self.lines) if (match := _DRIVER.search(line.message))), None)

    @property
    def firmware(self) -> Mapping[str, str]:
        """The firmware versions that NIC drivers logged, by PCI address."""
        return {match[1]: match[2] for line in self.lines if (match := _FIRMWARE.search(line.message))}

    @property
    def log_lines(self) -> Iterator[KernelLogLine]:
        """The lines in the format of a node's kernel log."""
        return (
            KernelLogLine(nan if line.at_s is None else line.at_s, line.message, line.number) for line in self.lines
        )


_DRIVER = re.compile(r"NVRM: loading NVIDIA UNIX .{0,80}?\b(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\b")
_FIRMWARE = re.compile(
    r"\b(?:mlx5_core|mlx4_core|bnxt_en) ([0-9a-f:]{7,13}\.\d):? .{0,40}?firmware version: (\d[\w.]{2,30})"
)


def _has_event(text: str) -> bool:
    """Return whether the kernel log parser finds an event in a line."""
    return next(of_line(text), None) is not None


@dataclass(frozen=True)
class _Width:
    """The width at which an email or a screen broke the lines.

    It is 0 if they were not broken.
    """

    most: int
    hard: bool  # lines were also broken within words

    @classmethod
    def of(cls, lines: Lines) -> _Width:
        lengths = [len(line.text) for line in lines if line.text]
        most = max(lengths, default=0)
        return cls(most if _BROKEN[0] <= most <= _BROKEN[1] else 0, lengths.count(most) > 1)

    def joined(self, text: str, last: str, after: str) -> str | None:
        """Join text with the next line if it was wrapped after ``last``; None if not."""
        if self.hard and len(last) == self.most:
            return text + after
        return f"{text} {after.lstrip()}" if len(last) + 1 + len(after.split()[0]) > self.most else None


def _complete_line(lines: Lines, at: int, width: _Width) -> tuple[str, int]:
    """Return the log line at an index, with its pieces joined, and the next index."""
    text, end = lines[at].text, at + 1
    while width.most and end < min(len(lines), at + _MOST_PIECES):
        after = lines[end].text
        if not after.strip() or _is_log(after) or KERNEL_TIME.match(after):
            break
        if is_prompt(after) or left_out(after):
            break
        if (more := width.joined(text, lines[end - 1].text, after)) is None:
            break
        text, end = more, end + 1
    return text, end


def parse_lines(lines: Lines, at: int) -> Parsed[KernelText]:
    """Read the kernel log that begins at a line."""
    xids: list[LoggedCode] = []
    sxids: list[LoggedCode] = []
    log_lines: list[PastedLine] = []
    gaps: list[ParseGap] = []
    end, last, others, blanks = at, at, 0, 0
    width = _Width.of(lines[at : at + _MOST_NEAR])
    while end < len(lines) and others < _GAP and blanks < _BLANKS:
        text = lines[end].text
        if end > at and is_prompt(text):
            break
        if not _is_log(text):
            bare = text.strip()  # a web page's line numbers may be between the lines
            others, blanks = others + (bare != "" and not bare.isdigit()), blanks + (not bare)
            end += 1
            continue
        number = lines[end].number
        text, end = _complete_line(lines, end, width)
        last, others, blanks = end - 1, 0, 0
        parts = split_line(text)
        line = PastedLine(number, parts.stamp, parts.at_s, text, parts.message, parts.host)
        log_lines.append(line)
        marks = xids_in(text)
        if not marks and _TORN.search(text):
            gaps.append(ParseGap(number, "the address of an Xid is incomplete"))
        for mark in marks:
            if mark.code is None:
                gaps.append(ParseGap(number, "the number of an Xid is incomplete"))
            else:
                xids.append(LoggedCode(mark, line))
        for mark in () if marks else sxids_in(text):
            if mark.code is None:
                gaps.append(ParseGap(number, "the number of an SXid is incomplete"))
            else:
                device = _DEVICE.search(text)
                sxids.append(LoggedCode(mark, line, int(device[1]) if device else None))
    return Parsed(KernelText(tuple(log_lines), tuple(xids), tuple(sxids)), tuple(gaps), last + 1)


HINTS = (":", "[", ";", "SXid (")
