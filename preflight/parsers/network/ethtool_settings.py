"""An interface's settings: ``ethtool -k``, ``-c``, ``-g``, ``-l``, ``--show-fec``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("Features for", "Coalesce parameters for", "Ring parameters for", "Channel parameters for",
         "FEC parameters for", "Private flags for", "Time stamping parameters for")  # fmt: skip

_HEAD = re.compile(
    r"\s*(Features|Coalesce parameters|Ring parameters|Channel parameters|FEC parameters|Private flags"
    r"|Time stamping parameters) for ([\w.@-]{1,64}):\s*"
)
_SECTION = re.compile(r"(Pre-set maximums|Current hardware settings|Capabilities|Hardware Transmit Timestamp Modes"
                      r"|Hardware Receive Filter Modes):?\s*")  # fmt: skip
_FIELD = re.compile(r"\s*([A-Za-z][\w /-]{0,60}?)\s*:\s*(\S.{0,200})?")
_ADAPTIVE = re.compile(r"\s*Adaptive RX:\s*(\S{1,8})\s+TX:\s*(\S{1,8})\s*")


@dataclass(frozen=True)
class InterfaceSettings:
    """Settings of one kind, by name; those in a section are below its name."""

    interface: str
    what: str  # features, coalesce parameters, ring parameters, channel parameters, fec parameters, private flags
    line: int
    fields: Mapping[str, str]
    sections: Mapping[str, Mapping[str, str]]


def begins(lines: Lines, at: int) -> bool:
    """Return whether settings printed by ``ethtool`` begin at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[InterfaceSettings]:
    """Read the settings starting at a line."""
    head = _HEAD.fullmatch(lines[at].text)
    assert head is not None
    end, taken = block(lines, at, lambda text: bool(_FIELD.fullmatch(text) or _SECTION.fullmatch(text.strip())),
                       again=lambda text: bool(_HEAD.fullmatch(text)))  # fmt: skip
    fields: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {}
    into = fields
    for line in taken[1:]:
        if match := _SECTION.fullmatch(line.text.strip()):
            into = sections.setdefault(match[1], {})
        elif match := _ADAPTIVE.fullmatch(line.text):
            into["Adaptive RX"], into["Adaptive TX"] = match[1], match[2]
        elif match := _FIELD.fullmatch(line.text):
            into.setdefault(match[1], (match[2] or "").strip())
    gaps = () if fields or any(sections.values()) else (ParseGap(lines[at].number, "no setting follows"),)
    return Parsed(InterfaceSettings(head[2], head[1].lower(), lines[at].number, fields, sections), gaps, end)


def facts(settings: InterfaceSettings) -> dict[str, Any]:
    """Return the settings as `preflight read --json` prints them."""
    sections = {name: dict(fields) for name, fields in settings.sections.items()}
    return {"interface": settings.interface, "settings": settings.what, "fields": {**settings.fields, **sections}}


def summary(settings: InterfaceSettings) -> str:
    """Return a one-line summary of the settings."""
    count = len(settings.fields) + sum(map(len, settings.sections.values()))
    return f"{settings.interface}: {count} {settings.what}"
