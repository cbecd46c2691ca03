"""``lsmod`` and ``/proc/modules``: the loaded kernel modules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Used by", "nvidia", "mlx5", "ib_core", "ib_uverbs", "rdma_", "amdgpu", "nouveau", "efa", "irdma", "bnxt")

_HEAD = re.compile(r"\s*Module\s+Size\s+Used by\s*")
_ROW = re.compile(r"\s*([a-z0-9][\w-]{1,60})\s+(\d{3,12})\s+(\d{1,6}|-)(?:\s+([\w,-]{1,2000}))?(?:\s+Live\b.*)?\s*")


@dataclass(frozen=True)
class LoadedModule:
    """One loaded kernel module."""

    size: int  # bytes
    users: int | None
    used_by: tuple[str, ...]


@dataclass(frozen=True)
class ModuleList:
    """The modules by name; without a header, the list may be a search result."""

    modules: Mapping[str, LoadedModule]
    headed: bool


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list begins at a line: its header, or two rows."""
    text = lines[at].text
    if _HEAD.fullmatch(text):
        return True
    return _ROW.fullmatch(text) is not None and at + 1 < len(lines) and _ROW.fullmatch(lines[at + 1].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[ModuleList]:
    """Read the rows starting at a line."""
    headed = _HEAD.fullmatch(lines[at].text) is not None
    end = at + headed
    modules: dict[str, LoadedModule] = {}
    while end < len(lines) and (match := _ROW.fullmatch(lines[end].text)):
        used = tuple(filter(None, (match[4] or "").split(",")))
        modules.setdefault(match[1], LoadedModule(int(match[2]), int(match[3]) if match[3] != "-" else None, used))
        end += 1
    gaps = () if modules else (ParseGap(lines[at].number, "no module follows the header"),)
    return Parsed(ModuleList(modules, headed), gaps, end)


def facts(listed: ModuleList) -> dict[str, Any]:
    """Return the modules as `preflight read --json` prints them."""
    return {
        "modules": {
            name: {"size": item.size, "users": item.users, "used_by": list(item.used_by)}
            for name, item in listed.modules.items()
        }
    }  # fmt: skip


def summary(listed: ModuleList) -> str:
    """Return a one-line summary of the modules."""
    return counted(len(listed.modules), "kernel module")
