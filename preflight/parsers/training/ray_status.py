"""``ray status``: the nodes, failures and resource demands of a Ray cluster.

Source: Ray 2.x, python/ray/autoscaler/_private/util.py (format_info_string).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Autoscaler status: ", "Node status")

_HEAD = re.compile(r"=+ Autoscaler status: .{10,40} =+\s*|Node status\s*")
_RULE = re.compile(r"-{8,}\s*")
_SECTION = re.compile(
    r"(Active|Idle|Pending|Recent failures|(?:Total |Pending )?Usage|(?:Total |Pending )?Demands|Total Constraints"
    r"|(?:From )?Node status|Resources|GCS request time.*|Node Provider .*):?\s*"
)
_ENTRY = re.compile(r"\s{1,8}(\S.{0,300})")


@dataclass(frozen=True)
class RayStatus:
    """The entries of each section, as (line number, text)."""

    active: tuple[tuple[int, str], ...]  # idle nodes included
    pending: tuple[tuple[int, str], ...]
    failures: tuple[tuple[int, str], ...]
    shows_failures: bool  # the output has a section of failures
    usage: tuple[tuple[int, str], ...]
    demands: tuple[tuple[int, str], ...]


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ray status`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[RayStatus]:
    """Read the sections of one status."""
    entries: dict[str, list[tuple[int, str]]] = {}
    section, end, last = "", at, at
    while end < len(lines):
        text = lines[end].text
        if text.strip():
            if match := _SECTION.fullmatch(text):
                section = match[1]
            elif (match := _ENTRY.fullmatch(text)) and section:
                if not match[1].startswith("("):
                    entries.setdefault(section, []).append((lines[end].number, match[1].strip()))
                else:
                    entries.setdefault(section, [])
            elif not (_HEAD.fullmatch(text) or _RULE.fullmatch(text)):
                break
            last = end
        end += 1

    def of(*names: str) -> tuple[tuple[int, str], ...]:
        return tuple(entry for name in names for entry in entries.get(name, ()))

    value = RayStatus(
        of("Active", "Idle"), of("Pending"), of("Recent failures"), "Recent failures" in entries,
        of("Usage", "Total Usage"), of("Demands", "Total Demands", "Pending Demands"),
    )  # fmt: skip
    cut = () if {"Demands", "Total Demands", "Pending Demands"} & entries.keys() else (
        ParseGap(lines[last].number, "the demands are not in the text", beside=True),)  # fmt: skip
    return Parsed(value, cut, last + 1)


def facts(status: RayStatus) -> dict[str, Any]:
    """Return the status as `preflight read --json` prints it."""
    return {name: [{"line": line, "text": text} for line, text in getattr(status, name)]
            for name in ("active", "pending", "failures", "usage", "demands")}  # fmt: skip


def summary(status: RayStatus) -> str:
    """Return a one-line summary of the status."""
    failures, demands = counted(len(status.failures), "failure"), counted(len(status.demands), "demand")
    return f"{counted(len(status.active), 'kind')} of active nodes, {failures}, {demands}"
