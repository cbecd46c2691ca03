"""The host's load, from ``uptime``, ``top``, ``vmstat``, ``iostat -x`` and PSI.

Sources: uptime(1), top(1), vmstat(8), iostat(1), Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("load average: ", "procs -", " r  b ", "avg-cpu:", "Device", "avg10=", "%Cpu(s)", "zombie")

_REAL = r"\d{1,9}(?:[.,]\d{1,3})?"
_LOAD = re.compile(rf".{{0,200}}\bload averages?: (?P<one>{_REAL}),? (?P<five>{_REAL}),? (?P<fifteen>{_REAL})\s*")
_TASKS = re.compile(r"(?:Tasks|Threads): *(?P<total>\d{1,9}) total, .{0,80}stopped, *(?P<zombies>\d{1,9}) zombie\s*")
_CPU = re.compile(rf"%Cpu\(s\): .{{0,80}}?(?P<waiting>{_REAL})[ %]wa.*")
_TOP = re.compile(r"(?:[MKG]iB (?:Mem|Swap) *: .*|%Cpu.*)")
_VMSTAT_HEAD = re.compile(r"procs -.*|\s+r\s+b\s+swpd\s+free\s+(?:buff|inact)\s+(?:cache|active)\s+si\s+so\s.*")
_VMSTAT = re.compile(r"\s*\d{1,5}\s+\d{1,5}(?:\s+\d{1,15}){4}(?:\s+\d{1,12}){6}(?:\s+\d{1,3}){4,6}\s*")
_IOSTAT_CPU = re.compile(r"avg-cpu: +%user +%nice +%system +%iowait +%steal +%idle\s*")
_IOSTAT_HEAD = re.compile(r"Device:?\s+.*%util\s*")
_IOSTAT = re.compile(rf"[a-z][\w/.-]{{1,40}}(?:\s+{_REAL}){{8,24}}\s*|\s+{_REAL}(?:\s+{_REAL}){{5}}\s*")
_PRESSURE = re.compile(
    rf"(?P<kind>some|full) avg10={_REAL} avg60=(?P<minute>{_REAL}) avg300={_REAL} total=\d{{1,20}}\s*"
)
_FORMS = (_LOAD, _TASKS, _CPU, _TOP, _VMSTAT_HEAD, _VMSTAT, _IOSTAT_CPU, _IOSTAT_HEAD, _IOSTAT, _PRESSURE)


@dataclass(frozen=True)
class LoadReading:
    """One value of the host's load, and its line number."""

    name: str  # load, zombies, waiting_pct, blocked, swapped_kib_s, utilization_pct, await_ms, pressure_pct
    device: str  # for pressure_pct, "some" or "full"; empty for the host
    value: float
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether output with values of the host's load begins at a line."""
    text = lines[at].text
    heads = (_LOAD, _TASKS, _CPU, _VMSTAT_HEAD, _IOSTAT_CPU, _IOSTAT_HEAD, _PRESSURE)
    return any(form.fullmatch(text) for form in heads)


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[LoadReading, ...]]:
    """Read the values starting at a line."""
    end, taken = block(lines, at, lambda text: any(form.fullmatch(text) for form in _FORMS), blanks=1)
    readings: list[LoadReading] = []
    devices: list[str] = []
    for line in taken:
        text = line.text
        if _IOSTAT_HEAD.fullmatch(text):
            devices = text.split()[1:]
        elif devices and _IOSTAT.fullmatch(text) and not text[:1].isspace():
            readings += _of_device(devices, text.split(), line.number)
        elif _IOSTAT.fullmatch(text) and text[:1].isspace() and len(text.split()) == 6:
            readings.append(LoadReading("waiting_pct", "", _real(text.split()[3]), line.number))
        elif _VMSTAT.fullmatch(text):
            cells = text.split()
            readings.append(LoadReading("blocked", "", _real(cells[1]), line.number))
            readings.append(LoadReading("swapped_kib_s", "", _real(cells[6]) + _real(cells[7]), line.number))
            readings.append(LoadReading("waiting_pct", "", _real(cells[15]), line.number))
        else:
            readings += _of_line(text, line.number)
    return Parsed(tuple(readings), (), end)


def _of_line(text: str, number: int) -> Iterator[LoadReading]:
    if match := _LOAD.fullmatch(text):
        yield LoadReading("load", "", _real(match["fifteen"]), number)
    elif match := _TASKS.fullmatch(text):
        yield LoadReading("zombies", "", _real(match["zombies"]), number)
    elif match := _CPU.fullmatch(text):
        yield LoadReading("waiting_pct", "", _real(match["waiting"]), number)
    elif match := _PRESSURE.fullmatch(text):
        yield LoadReading("pressure_pct", match["kind"], _real(match["minute"]), number)


def _of_device(names: list[str], cells: list[str], number: int) -> Iterator[LoadReading]:
    values = dict(zip(names, cells[1:], strict=False))
    if "%util" in values:
        yield LoadReading("utilization_pct", cells[0], _real(values["%util"]), number)
    waits = [_real(values[name]) for name in ("await", "r_await", "w_await") if name in values]
    if waits:
        yield LoadReading("await_ms", cells[0], max(waits), number)


def _real(text: str) -> float:
    return float(text.replace(",", "."))


def facts(readings: tuple[LoadReading, ...]) -> dict[str, Any]:
    """Return the values as `preflight read --json` prints them."""
    return {
        "readings": [
            {"name": item.name, "device": item.device or None, "value": item.value, "line": item.line}
            for item in readings
        ]
    }  # fmt: skip


def summary(readings: tuple[LoadReading, ...]) -> str:
    """Return a one-line summary of the values."""
    return f"{counted(len(readings), 'reading')} of the host's load"
