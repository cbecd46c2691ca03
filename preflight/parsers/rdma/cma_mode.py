"""``cma_roce_mode`` and ``cma_roce_tos``: RoCE version and TOS of rdma_cm."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import queried_device
from preflight.textprep.lines import Lines

HINTS = ("RoCE v", "cma_roce_tos")

_MODE = re.compile(r"\s*(?:IB/)?RoCE v([12])\s*")
_TOS = re.compile(r"\s*(\d{1,3})\s*")


@dataclass(frozen=True)
class CmaMode:
    """The settings of rdma_cm on a device; a setting that is not shown is None."""

    device: str | None
    version: int | None  # RoCE version, 1 or 2
    tos: int | None  # type of service: DSCP x 4
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line is a mode, or the command for the type of service."""
    text = lines[at].text
    if _MODE.fullmatch(text):
        return True
    return "cma_roce_tos" in text and at + 1 < len(lines) and _TOS.fullmatch(lines[at + 1].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[CmaMode]:
    """Read the mode or the type of service."""
    if match := _MODE.fullmatch(lines[at].text):
        device = queried_device(lines, at, "cma_roce_mode")
        return Parsed(CmaMode(device, int(match[1]), None, lines[at].number), (), at + 1)
    device = queried_device(lines, at + 1, "cma_roce_tos")
    return Parsed(CmaMode(device, None, int(lines[at + 1].text), lines[at + 1].number), (), at + 2)


def facts(mode: CmaMode) -> dict[str, Any]:
    """Return the setting as `preflight read --json` prints it."""
    return {"device": mode.device, "roce_version": mode.version, "tos": mode.tos}


def summary(mode: CmaMode) -> str:
    """Return a one-line summary of the setting."""
    what = f"RoCE v{mode.version}" if mode.version else f"type of service {mode.tos}"
    return f"{mode.device or 'a device'}: rdma_cm uses {what}"
