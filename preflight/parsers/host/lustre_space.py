"""``lfs df`` and ``lfs check``: the storage targets of a Lustre file system.

Sources: lfs-df(1), lfs-check(1).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("UUID  ", "_UUID", "-osc-", "-mdc-", "inactive device")

_HEAD = re.compile(r"UUID\s+(?:1K-blocks|bytes|Inodes)\s+\S+\s+\S+\s+I?Use% Mounted on\s*")
_ROW = re.compile(
    r"([\w.-]{1,60}_UUID)\s+(\S{1,20})\s+(\S{1,20})\s+(\S{1,20})\s+(\d{1,3})% (\S{1,200})(?:\s+([A-Z]{1,8}))?\s*"
)
_DOWN = re.compile(
    r"([\w.-]{1,60}?)(?:_UUID)?\s*: (inactive device|(?:Resource temporarily|Cannot send|Invalid).{0,80})"
)
_CHECK = re.compile(
    r"([\w.-]{1,60}-(?:osc|mdc|mgc)-[\w.]{1,40}|MGC[\w.@]{1,60})[: ] ?(active\.?|inactive\.?|check error: .{1,100})"
)
_TOTAL = re.compile(r"filesystem_summary:.*")


@dataclass(frozen=True)
class LustreTarget:
    """One storage target of a Lustre file system."""

    name: str
    used_pct: int | None  # None if not shown
    state: str  # "active", or the printed problem
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``lfs`` output begins at a line."""
    return any(form.fullmatch(lines[at].text) for form in (_HEAD, _CHECK, _ROW))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[LustreTarget, ...]]:
    """Read the targets starting at a line."""
    forms = (_HEAD, _ROW, _DOWN, _CHECK, _TOTAL)
    end, taken = block(lines, at, lambda text: any(form.fullmatch(text) for form in forms), blanks=1)
    targets = []
    for line in taken:
        if match := _ROW.fullmatch(line.text):
            targets.append(
                LustreTarget(match[1].removesuffix("_UUID"), int(match[5]), match[7] or "active", line.number)
            )
        elif match := _CHECK.fullmatch(line.text) or _DOWN.fullmatch(line.text):
            targets.append(LustreTarget(match[1], None, match[2].strip(" ."), line.number))
    cut = end < len(lines) and end == len(lines) - 1 and bool(lines[end].text.strip())
    return Parsed(tuple(targets), (ParseGap(lines[end].number, "a truncated row"),) if cut else (), end)


def facts(targets: tuple[LustreTarget, ...]) -> dict[str, Any]:
    """Return the targets as `preflight read --json` prints them."""
    return {
        "targets": [
            {"name": target.name, "used_pct": target.used_pct, "state": target.state, "line": target.line}
            for target in targets
        ]
    }  # fmt: skip


def summary(targets: tuple[LustreTarget, ...]) -> str:
    """Return a one-line summary of the targets."""
    return counted(len(targets), "Lustre target")
