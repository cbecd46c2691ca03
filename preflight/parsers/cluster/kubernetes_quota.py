"""``kubectl describe quota``: a namespace's used and allowed resources.

Source: Kubernetes, Resource Quotas.
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Resource",)

_HEAD = re.compile(r"\s{0,4}Resource\s+Used\s+Hard\s*")
_RULE = re.compile(r"\s{0,4}-{4,20}\s+-{2,10}\s+-{2,10}\s*")
_ROW = re.compile(r"\s{0,4}([a-z][\w./-]{1,120})\s+(\d{1,15}\w{0,2})\s+(\d{1,15}\w{0,2})\s*")
_NAME = re.compile(r"\s{0,4}(?:Name|Resource Quotas?):\s+(\S{1,253})\s*")
#: Maximum lines between the quota's name and the table.
_ABOVE = 4


@dataclass(frozen=True)
class QuotaRow:
    """The use and limit of one resource, as printed."""

    resource: str
    used: str
    hard: str
    line: int


@dataclass(frozen=True)
class Quota:
    """One resource quota; an unknown name is empty."""

    name: str
    rows: tuple[QuotaRow, ...]


def begins(lines: Lines, at: int) -> bool:
    """Return whether the table of a quota begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[Quota]:
    """Read the table that begins at a line."""
    end, taken = block(lines, at, lambda text: bool(_RULE.fullmatch(text) or _ROW.fullmatch(text)), blanks=0)
    rows = tuple(
        QuotaRow(match[1], match[2], match[3], line.number) for line in taken if (match := _ROW.fullmatch(line.text))
    )
    above = (_NAME.fullmatch(line.text) for line in lines[max(0, at - _ABOVE) : at])
    name = next((match[1] for match in above if match), "")
    cut = not rows or (end == len(lines) - 1 and bool(lines[end].text.strip()))
    return Parsed(Quota(name, rows), (ParseGap(lines[end - 1].number, "the table is truncated"),) if cut else (), end)


def facts(quota: Quota) -> dict[str, Any]:
    """Return the quota as `preflight read --json` prints it."""
    return {
        "name": quota.name or None,
        "resources": [
            {"resource": row.resource, "used": row.used, "hard": row.hard, "line": row.line} for row in quota.rows
        ],
    }  # fmt: skip


def summary(quota: Quota) -> str:
    """Return a one-line summary of the quota."""
    resources = counted(len(quota.rows), "resource")
    return f"quota {quota.name}: {resources}" if quota.name else f"{resources} of a quota"
