"""``smartctl``: the health report of a SATA, SAS or NVMe disk.

Sources: smartctl(8); NVM Express base specification, SMART / Health Information log; ACS (ATA attributes).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("smartctl ",)

_HEAD = re.compile(r"smartctl (?:pre-)?\d{1,3}\.\d{1,3} .{0,200}")
_FIELD = re.compile(r"([A-Z][\w /().,-]{1,60}?):\s+(\S.*)")
_HEALTH = re.compile(r"SMART (?:overall-health self-assessment test result|Health Status): +(\S.{0,100})")
_ATTRIBUTE = re.compile(
    r" {0,2}(\d{1,3}) ([A-Za-z][\w-]{1,40}) +(?:0x[0-9a-f]{4}|[POSRCK-]{6}) +(\d{3}) +(\d{3}) +(\d{3}|---) +"
    r"(?:(?:Pre-fail|Old_age) +\w{1,10} +)?(-|FAILING_NOW|In_the_past|NOW|Past) +(\d{1,18}).*"
)


@dataclass(frozen=True)
class DiskAttribute:
    """One attribute of an ATA disk."""

    number: int
    name: str
    raw: int
    failing: bool | None  # below its threshold: True: now; None: only in the past; False: never


@dataclass(frozen=True)
class DiskHealth:
    """The health of one disk; a value that the text lacks is None."""

    model: str | None
    serial: str | None
    health: str | None  # PASSED, FAILED!, OK, or the words of a SAS disk
    critical_warning: int | None  # bit mask; NVMe only
    spare_percent: int | None
    spare_threshold_percent: int | None
    used_percent: int | None
    media_errors: int | None
    attributes: tuple[DiskAttribute, ...]
    fields: dict[str, str]
    line: int
    device: str | None = None  # name of the device, if the output shows it instead of a model

    @property
    def healthy(self) -> bool | None:
        """Whether the disk reports that it is healthy; None if the text lacks this."""
        return None if self.health is None else self.health.rstrip("!.").upper() in ("PASSED", "OK")

    @property
    def name(self) -> str:
        """The model and serial number that are shown, else the device, else "the disk"."""
        return " ".join(filter(None, (self.model, self.serial))) or self.device or "the disk"


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``smartctl`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


#: Maximum consecutive blank lines within a report.
_BLANKS = 2


def parse_lines(lines: Lines, at: int) -> Parsed[DiskHealth]:
    """Read the report that starts at a line, up to a prompt or the next report."""
    end, taken = block(lines, at, lambda text: True, blanks=_BLANKS, again=lambda text: bool(_HEAD.fullmatch(text)))
    fields: dict[str, str] = {}
    attributes: list[DiskAttribute] = []
    health = None
    for text in (line.text for line in taken):
        if match := _HEALTH.fullmatch(text.strip()):
            health = match[1].strip()
        elif match := _ATTRIBUTE.fullmatch(text):
            failing = {"-": False, "FAILING_NOW": True, "NOW": True}.get(match[6])
            attributes.append(DiskAttribute(int(match[1]), match[2], int(match[7]), failing))
        elif match := _FIELD.fullmatch(text.strip()):
            fields.setdefault(match[1], match[2].strip())
    gaps = () if health else (ParseGap(lines[end - 1].number, "the disk's health self-assessment is missing"),)
    value = DiskHealth(
        next((fields[name] for name in ("Device Model", "Model Number", "Product") if name in fields), None),
        next((fields[name] for name in ("Serial Number", "Serial number") if name in fields), None),
        health, number(fields.get("Critical Warning")), number(fields.get("Available Spare")),
        number(fields.get("Available Spare Threshold")), number(fields.get("Percentage Used")),
        number(fields.get("Media and Data Integrity Errors")), tuple(attributes), fields, lines[at].number,
    )  # fmt: skip
    return Parsed(value, gaps, end)


def number(text: str | None) -> int | None:
    """Return the number at the start of a string; None if it has none."""
    match = re.match(r"(0x[0-9a-fA-F]{1,4}|[\d,]{1,24})", text or "")
    return int(match[1].replace(",", ""), 0 if match[1].startswith("0x") else 10) if match else None


def facts(disk: DiskHealth) -> dict[str, Any]:
    """Return the disk as `preflight read --json` prints it."""
    return {
        "device": disk.device, "model": disk.model, "serial": disk.serial, "health": disk.health,
        "critical_warning": disk.critical_warning,
        "available_spare_percent": disk.spare_percent, "available_spare_threshold": disk.spare_threshold_percent,
        "percentage_used": disk.used_percent, "media_errors": disk.media_errors,
        "temperature_c": number(disk.fields.get("Temperature")), "fields": disk.fields,
        "attributes": [
            {"id": attribute.number, "name": attribute.name, "raw": attribute.raw,
             "failing_now": attribute.failing is True}
            for attribute in disk.attributes
        ],
    }  # fmt: skip


def summary(disk: DiskHealth) -> str:
    """Return a one-line summary of the disk."""
    warning = None if disk.critical_warning is None else f"critical warning 0x{disk.critical_warning:02x}"
    return f"{disk.name}: {disk.health or warning or 'its health is not shown'}"
