"""``devlink health show``: what NIC drivers report on firmware and queues."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("pci/", "auxiliary/")

_DEVICE = re.compile(r"\s*((?:pci|auxiliary)/[\w:.-]{1,40}(?:/\d{1,8})?):\s*")
_REPORTER = re.compile(r"\s+reporter ([\w-]{1,40})\s*")
_STATE = re.compile(r"\s+state (\w{1,20}) error (\d{1,12}) recover (\d{1,12})(?:\s.{0,400})?")
_DUMPED = re.compile(r"last_dump_date (\S{1,20})(?: last_dump_time (\S{1,20}))?")


@dataclass(frozen=True)
class Reporter:
    """One health reporter of a device or port."""

    device: str  # pci/0000:9a:00.0, or pci/0000:9a:00.0/1 for a port
    name: str  # fw, fw_fatal, tx, rx, vnic
    state: str  # healthy, error
    errors: int  # since the driver was loaded
    recoveries: int
    dumped: str  # date and time of the last dump; empty if there is none
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of reporters begins at a line."""
    return bool(_DEVICE.fullmatch(lines[at].text)) and any(
        _REPORTER.fullmatch(line.text) for line in lines[at + 1 : at + 3]
    )


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[Reporter, ...]]:
    """Read the reporters starting at a line."""
    result: list[Reporter] = []
    device = name = ""
    end = last = at
    while end < len(lines):
        text = lines[end].text
        if match := _DEVICE.fullmatch(text):
            device, name = match[1], ""
        elif match := _REPORTER.fullmatch(text):
            name = match[1]
        elif match := _STATE.fullmatch(text):
            dumped = _DUMPED.search(text)
            when = " ".join(filter(None, dumped.groups())) if dumped else ""
            result.append(Reporter(device, name, match[1], int(match[2]), int(match[3]), when, lines[end].number))
        elif text.strip() or is_prompt(text):
            break
        if text.strip():
            last = end
        end += 1
    return Parsed(tuple(result), (), last + 1)


def facts(reporters: tuple[Reporter, ...]) -> dict[str, Any]:
    """Return the reporters as `preflight read --json` prints them."""
    return {
        "reporters": [
            {"device": item.device, "name": item.name, "state": item.state, "errors": item.errors,
             "recoveries": item.recoveries, "dumped": item.dumped or None, "line": item.line}
            for item in reporters
        ]
    }  # fmt: skip


def summary(reporters: tuple[Reporter, ...]) -> str:
    """Return a one-line summary of the reporters."""
    bad = sum(item.state != "healthy" for item in reporters)
    devices = counted(len({item.device for item in reporters}), "device")
    return f"{counted(len(reporters), 'reporter')} of {devices}, {bad} not healthy"
