"""``mlxconfig query``: the firmware settings of NICs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Device #", "Configurations:")

_DEVICE = re.compile(r"\s*Device #\d{1,3}:\s*")
_FIELD = re.compile(r"\s*(Device type|Name|Description|Device):\s+(\S.{0,200}?)\s*")
_HEAD = re.compile(r"\s*Configurations:\s*(.*)")
_ROW = re.compile(r"\s*(\*)?\s*((?:[A-Z][A-Z0-9_]{2,60})(?:\[\d{1,3}(?:\.\.\d{1,3})?\])?)\s+(\S.{0,160}?)\s*")
_REST = re.compile(r"\s*(?:-{5,}|The '\*' shows .*|Array\[.*)\s*")


@dataclass(frozen=True)
class NicConfiguration:
    """The settings of one NIC: after the next boot, and ``current`` ones if shown."""

    device: str
    type: str
    line: int
    settings: Mapping[str, str]
    current: Mapping[str, str]


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``mlxconfig query`` output begins at a line."""
    text = lines[at].text
    if _HEAD.fullmatch(text):
        return any(_ROW.fullmatch(line.text) for line in lines[at + 1 : at + 3])
    return _DEVICE.fullmatch(text) is not None and any(
        _FIELD.fullmatch(line.text) or _HEAD.fullmatch(line.text) for line in lines[at + 1 : at + 6]
    )


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[NicConfiguration, ...]]:
    """Read the settings of all NICs."""
    devices: list[tuple[int, dict[str, str], dict[str, str], dict[str, str]]] = []
    columns: list[str] = []
    end, last = at, at
    while end < len(lines):
        text = lines[end].text
        if end > at and is_prompt(text):
            break
        if _DEVICE.fullmatch(text) or not devices:
            devices.append((lines[end].number, {}, {}, {}))
        _, about, after, now = devices[-1]
        if match := _HEAD.fullmatch(text):
            columns = re.split(r"\s{2,}", match[1].strip())
        elif match := _FIELD.fullmatch(text):
            about.setdefault(match[1], match[2])
        elif match := _ROW.fullmatch(text):
            cells = re.split(r"\s{2,}", match[3])
            after.setdefault(match[2], cells[-1])
            if "Current" in columns and len(cells) == len(columns):
                now.setdefault(match[2], cells[columns.index("Current")])
        elif text.strip() and not _DEVICE.fullmatch(text) and not _REST.fullmatch(text):
            break
        if text.strip():
            last = end
        end += 1
    gaps = tuple(ParseGap(line, "no setting of this device follows") for line, _, after, _ in devices if not after)
    return Parsed(
        tuple(NicConfiguration(about.get("Device", ""), about.get("Device type", ""), line, after, now)
              for line, about, after, now in devices),
        gaps, last + 1,
    )  # fmt: skip


def facts(devices: tuple[NicConfiguration, ...]) -> dict[str, Any]:
    """Return the settings as `preflight read --json` prints them."""
    return {
        "devices": [
            {"device": item.device or None, "type": item.type or None, "settings": dict(item.settings),
             "current": dict(item.current)}
            for item in devices
        ]
    }  # fmt: skip


def summary(devices: tuple[NicConfiguration, ...]) -> str:
    """Return a one-line summary of the devices."""
    return f"{counted(len(devices), 'NIC')}, {sum(len(item.settings) for item in devices)} settings"
