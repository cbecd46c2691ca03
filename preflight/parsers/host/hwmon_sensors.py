"""``sensors``: temperatures, fan speeds and voltages, as read by the kernel.

Sources: sensors(1); lm-sensors, prog/sensors/chips.c.
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("-isa-", "-pci-", "-i2c-", "-acpi-", "-virtual-", "-hid-", "-spi-", "-mdio-", "-scsi-", "-nvme-")

_ADAPTER = re.compile(r"Adapter: \S.{0,100}")
_CHIP = re.compile(r"[a-z][\w.]{1,40}-(?:isa|pci|i2c|acpi|virtual|hid|spi|mdio|nvme|scsi)-[\w:.-]{1,24}")
_READING = re.compile(
    r"([A-Za-z][\w +./#-]{0,40}): +(?:([+-]?\d{1,7}(?:\.\d{1,3})?) ?(°?[CF]|RPM|m?[VWA]|k?J|%|MHz)|N/A)(.*)"
)
_LIMIT = re.compile(
    r"\b(low|high|min|max|crit|crit low|crit high|hyst|emerg|lcrit|cap) *= *([+-]?\d{1,7}(?:\.\d{1,3})?)"
)
_ALARM = re.compile(r"\b(ALARM|FAULT)\b(?: ?\(([A-Z, ]{1,40})\))?")
_MORE = re.compile(r"\s+\(.*|\s+.*\b(?:ALARM|sensor = ).*")


@dataclass(frozen=True)
class HwmonReading:
    """The reading of one sensor of a chip; a value that the text lacks is None."""

    chip: str
    name: str
    value: float | None
    unit: str
    high: float | None
    critical: float | None
    alarm: str  # ALARM, ALARM (CRIT), FAULT; empty if there is none
    line: int

    @property
    def temperature(self) -> bool:
        """Whether the reading is a temperature."""
        return self.unit.endswith("C")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``sensors`` output begins at a line: a chip above its adapter."""
    if _CHIP.fullmatch(lines[at].text):
        return at + 1 < len(lines) and _ADAPTER.fullmatch(lines[at + 1].text) is not None
    return False


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[HwmonReading, ...]]:
    """Read the chips starting at a line."""
    end, taken = block(lines, at, _belongs)
    readings, chip = list[HwmonReading](), ""
    texts = [line.text for line in taken]
    for index, line in enumerate(taken):
        text = line.text
        if _CHIP.fullmatch(text):
            chip = text
        elif (match := _READING.fullmatch(text)) and not _ADAPTER.fullmatch(text):
            behind = match[4] + " " + _continued(texts, index)
            limits = {name: float(value) for name, value in reversed(_LIMIT.findall(behind))}
            alarm = _ALARM.search(behind)
            readings.append(HwmonReading(
                chip, match[1], float(match[2]) if match[2] else None, match[3] or "",
                limits.get("high", limits.get("max")), limits.get("crit"), alarm[0] if alarm else "", line.number,
            ))  # fmt: skip
    cut = end < len(lines) and bool(lines[end].text.strip()) and end == len(lines) - 1
    return Parsed(tuple(readings), (ParseGap(lines[end].number, "a truncated or unknown line"),) if cut else (), end)


def _belongs(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_CHIP, _ADAPTER, _READING, _MORE))


def _continued(texts: list[str], at: int) -> str:
    """Return the indented lines below a reading, which continue it, as one text."""
    below: list[str] = []
    for text in texts[at + 1 : at + 4]:
        if not _MORE.fullmatch(text):
            break
        below.append(text)
    return " ".join(below)


def facts(readings: tuple[HwmonReading, ...]) -> dict[str, Any]:
    """Return the readings as `preflight read --json` prints them."""
    return {
        "readings": [
            {"chip": reading.chip, "name": reading.name, "value": reading.value, "unit": reading.unit,
             "high": reading.high, "crit": reading.critical, "alarm": reading.alarm or None, "line": reading.line}
            for reading in readings
        ]
    }  # fmt: skip


def summary(readings: tuple[HwmonReading, ...]) -> str:
    """Return a one-line summary of the readings."""
    hottest = max(
        (reading.value for reading in readings if reading.temperature and reading.value is not None), default=None
    )
    chips = {reading.chip for reading in readings}
    most = f", the hottest at {hottest:g} °C" if hottest is not None else ""
    return f"{counted(len(readings), 'reading')} from {counted(len(chips), 'chip')}{most}"
