"""``ethtool -i``: an interface's driver, firmware and PCI address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import field, fields_from, printed, stops_in, value_or_none
from preflight.textprep.lines import Lines

HINTS = ("driver:",)


@dataclass(frozen=True)
class DriverInfo:
    """An interface's driver and firmware; a missing or masked value is None."""

    driver: str | None
    version: str | None
    firmware: str | None  # as in 28.39.1002
    psid: str | None  # board ID of the firmware, as in MT_0000000838
    bus_info: str | None  # PCI address
    line: int
    fields: Mapping[str, str]


_DRIVER = frozenset(
    ("driver", "version", "firmware-version", "expansion-rom-version", "bus-info", "supports-statistics",
     "supports-test", "supports-eeprom-access", "supports-register-dump", "supports-priv-flags")
)  # fmt: skip


_DRIVER_BEGUN = re.compile(r"\s*(?:su?p?p?|supports[\w-]*|expansion[\w-]*|bus-?\w*|firmware[\w-]*)$")
#: A truncated PCI address.
_PCI_BEGUN = re.compile(r"[0-9a-f]{1,4}(?::[0-9a-f]{0,2}(?::[0-9a-f]{0,2}\.?)?)?")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ethtool -i`` output begins at a line."""
    if not re.fullmatch(r"\s*driver:\s*\S+\s*", lines[at].text):
        return False
    return any((result := field(line.text)) and result[0] in ("version", "firmware-version", "bus-info")
               for line in lines[at + 1 : at + 4])  # fmt: skip


def parse_lines(lines: Lines, at: int) -> Parsed[DriverInfo]:
    """Read the fields starting at a line."""

    def belongs(text: str) -> bool:
        return bool((result := field(text)) and result[0] in _DRIVER)

    end, fields = fields_from(lines, at, belongs)
    cut = [] if "bus-info" in fields else [ParseGap(lines[end - 1].number, "bus-info is missing")]
    if stops_in(lines, end, _DRIVER_BEGUN):
        cut.append(ParseGap(lines[end - 1].number, "the text stops within a field"))
    bus = value_or_none(fields.get("bus-info"))
    if _PCI_BEGUN.fullmatch(bus or ""):
        cut.append(ParseGap(lines[end - 1].number, "bus-info is truncated"))
        bus = None
    firmware = re.match(r"(\S+)(?:\s+\((\w+)\))?", fields.get("firmware-version", ""))
    driver, version = (value_or_none(fields.get(name)) for name in ("driver", "version"))
    result = DriverInfo(driver, version, firmware[1] if firmware else None, firmware[2] if firmware else None, bus,
                       lines[at].number, fields)  # fmt: skip
    return Parsed(result, tuple(cut), end)


def facts(driver: DriverInfo) -> dict[str, Any]:
    """Return the fields as `preflight read --json` prints them."""
    named = {name.replace("-", "_"): value_or_none(driver.fields.get(name)) for name in sorted(_DRIVER)}
    return {**printed(driver.fields), **named, "bus_info": driver.bus_info, "psid": driver.psid,
            "fields": driver.fields}  # fmt: skip


def summary(driver: DriverInfo) -> str:
    """Return a one-line summary of the driver and firmware."""
    return f"{driver.driver} {driver.version or ''}, firmware {driver.fields.get('firmware-version')}"
