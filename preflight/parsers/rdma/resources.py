"""``rdma res`` and ``rdma dev``: RDMA devices and their open resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = (" qp ", "node_type ")

_LINE = re.compile(r"\s*\d{1,4}: ([A-Za-z][\w.-]{1,63}): ((?:[a-z_]{2,16} \S{1,64}\s{0,2}){2,40})")


@dataclass(frozen=True)
class RdmaDevice:
    """A device with ``node_type`` and ``fw``, or counts of ``qp``, ``cq``, ``mr``."""

    name: str
    fields: Mapping[str, str]
    line: int


def _device(text: str) -> tuple[str, dict[str, str]] | None:
    if not (match := _LINE.fullmatch(text)):
        return None
    words = match[2].split()
    return match[1], dict(zip(words[::2], words[1::2], strict=True))


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``rdma res`` or ``rdma dev`` output begins at a line."""
    device = _device(lines[at].text)
    return device is not None and not device[1].keys().isdisjoint(("qp", "node_type"))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[RdmaDevice, ...]]:
    """Read the devices."""
    end, taken = block(lines, at, lambda text: _device(text) is not None)
    devices = [(line.number, device) for line in taken if (device := _device(line.text)) is not None]
    return Parsed(tuple(RdmaDevice(name, fields, line) for line, (name, fields) in devices), (), end)


def facts(devices: tuple[RdmaDevice, ...]) -> dict[str, Any]:
    """Return the devices as `preflight read --json` prints them."""

    def plain(value: str) -> int | str:
        return int(value) if value.isdecimal() and len(value) < 16 else value

    return {"devices": {item.name: {key: plain(value) for key, value in item.fields.items()} for item in devices}}


def summary(devices: tuple[RdmaDevice, ...]) -> str:
    """Return a one-line summary of the devices."""
    return counted(len(devices), "RDMA device")
