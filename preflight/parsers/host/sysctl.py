"""Kernel settings by name, from ``sysctl`` or files of ``/proc/sys``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("kernel.", "net.", "vm.", "fs.", "/proc/sys/", "dev.", "user.")

_LINE = re.compile(r"\s*((?:kernel|net|vm|fs|dev|user|sunrpc|abi)(?:\.[\w@:-]{1,64}){1,8})\s*=\s?(.{0,400})")
_FILE = re.compile(r"\s*/proc/sys/([\w./@:-]{3,200}?):(?:\s*)(.{0,400})")


@dataclass(frozen=True)
class KernelSettings:
    """The values of the settings and their line numbers, by name."""

    values: Mapping[str, str]
    lines: Mapping[str, int]


def _setting(text: str) -> tuple[str, str] | None:
    if match := _LINE.fullmatch(text):
        return match[1], match[2].strip()
    if match := _FILE.fullmatch(text):
        return match[1].replace("/", "."), match[2].strip()
    return None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of kernel settings begins at a line."""
    return _setting(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[KernelSettings]:
    """Read the settings starting at a line; if a name is repeated, the last is used."""
    end, taken = block(lines, at, lambda text: _setting(text) is not None)
    values: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for line in taken:
        if (setting := _setting(line.text)) is not None:
            values[setting[0]], numbers[setting[0]] = setting[1], line.number
    return Parsed(KernelSettings(values, numbers), (), end)


def facts(settings: KernelSettings) -> dict[str, Any]:
    """Return the settings as `preflight read --json` prints them."""
    return {"settings": dict(settings.values)}


def summary(settings: KernelSettings) -> str:
    """Return a one-line summary of the settings."""
    return counted(len(settings.values), "kernel setting")
