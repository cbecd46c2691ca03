"""``sinfo``: nodes by state, and with ``-R`` why nodes are out of service."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.parsers.cluster.columns import cells, columns
from preflight.parsers.cluster.slurm_nodes import DrainReason, parse_reasons, reasons_begins
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("REASON", "STATE", "NODES(A/I/O/T)")

#: Allocated, idle, other and total nodes of a partition (``sinfo -s``).
_COUNTS = "NODES(A/I/O/T)"


@dataclass(frozen=True)
class NodesInState:
    """One row of the table."""

    partition: str
    state: str  # as printed: down*
    nodes: str
    reason: str
    line: int


@dataclass(frozen=True)
class Sinfo:
    """What one output shows: reasons, or nodes by state."""

    reasons: tuple[DrainReason, ...] = ()
    states: tuple[NodesInState, ...] = ()


def _header(text: str) -> tuple[str, ...] | None:
    names = columns(text)
    own = {"PARTITION", "NODES", "NODELIST"} & set(names)
    return names if {"STATE", _COUNTS} & set(names) and "NODELIST" in names and len(own) > 1 else None


def begins(lines: Lines, at: int) -> bool:
    """Return whether an output begins at a line."""
    return reasons_begins(lines, at) or _header(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[Sinfo]:
    """Read the rows below the header."""
    if reasons_begins(lines, at):
        parsed = parse_reasons(lines, at)
        return Parsed(Sinfo(parsed.value), parsed.gaps, parsed.end)
    names = _header(lines[at].text) or ()
    states: list[NodesInState] = []
    gaps: list[ParseGap] = []
    end = at + 1
    while end < len(lines) and lines[end].text.strip() and not is_prompt(lines[end].text):
        row = cells(names, lines[end].text)
        if row is None:
            gaps.append(ParseGap(lines[end].number, "the row has fewer cells than the header"))
            break
        reason = row.get("REASON", "")
        states.append(NodesInState(row.get("PARTITION", ""), row.get("STATE") or row[_COUNTS], row["NODELIST"],
                                   "" if reason == "none" else reason, lines[end].number))  # fmt: skip
        end += 1
    return Parsed(Sinfo(states=tuple(states)), tuple(gaps), end)
