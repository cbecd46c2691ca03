"""``sinfo``: nodes by state; with ``-R``, why nodes are out of service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.cluster.columns import cells, columns
from preflight.parsers.cluster.slurm_jobs import has_json, plain
from preflight.parsers.cluster.slurm_nodes import DrainReason, parse_reasons, reasons_begins
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt, json_at
from preflight.textprep.lines import Lines

HINTS = (
    "REASON", "STATE", "NODES(A/I/O/T)", " idle", " mix", " alloc", " down", " drain", " drng", " plnd", " comp", "{",
)  # fmt: skip

#: The column of ``sinfo -s`` with a partition's allocated, idle, other and total nodes.
_COUNTS = "NODES(A/I/O/T)"


@dataclass(frozen=True)
class NodesInState:
    """The nodes of one row of ``sinfo``; a value that the row lacks is empty."""

    partition: str
    state: str  # as printed, as in down*
    nodes: str
    reason: str
    line: int
    availability: str = ""  # of the partition: up, down, inact
    counts: str = ""  # allocated/idle/other/total nodes; ``sinfo -s`` prints them instead of a state


@dataclass(frozen=True)
class Sinfo:
    """The content of one output: reasons, or nodes by state."""

    reasons: tuple[DrainReason, ...] = ()
    states: tuple[NodesInState, ...] = ()


def _header(text: str) -> tuple[str, ...] | None:
    names = columns(text)
    own = {"PARTITION", "NODES", "NODELIST", "HOSTNAMES", "REASON", "AVAIL", "GRES", "CPUS", "MEMORY"} & set(names)
    others = {"JOBID", "NAME", "JOB_ID", "USER"} & set(names)
    where = {*_NODES, "NODES", _COUNTS} & set(names)
    return names if {"STATE", _COUNTS} & set(names) and where and own and len(names) > 1 and not others else None


_NODES = ("NODELIST", "HOSTNAMES")
#: Node states in a list without a header, from ``sinfo -h -o '%N %T'``.
_STATES = (
    "idle|alloc(?:ated)?|mix(?:ed)?|down|drain(?:ed|ing)?|drng|comp(?:leting)?|fail(?:ing)?|failg|maint|resv|reserved"
    "|unk|unknown"
    "|plnd|planned|boot|pow_up|pow_dn|power(?:ed|ing)_(?:up|down)|blocked|inval|err(?:or)?|no_respond|reboot|futr"
    "|perf(?:ctrs)?"
)
_BARE = re.compile(
    rf"(?P<nodes>(?=[\w.,\[\]-]*\d)[A-Za-z][\w.,\[\]-]{{0,400}})\s+(?P<state>(?:{_STATES})[*~#!%$@^+-]{{0,2}})"
)
#: Minimum rows of a list without a header, and states that only Slurm prints.
_LEAST_BARE = 3
_ITS_OWN = re.compile(r"(?:idle|alloc|mix|drain|drng|comp|plnd|resv|maint|inval)")


def _bare(lines: Lines, at: int) -> int:
    """Return the end of a list without a header; ``at`` if none starts there."""
    end = at
    while end < len(lines) and _BARE.fullmatch(lines[end].text.strip()):
        end += 1
    states = [match["state"] for line in lines[at:end] if (match := _BARE.fullmatch(line.text.strip()))]
    return end if len(states) >= _LEAST_BARE and any(map(_ITS_OWN.match, states)) else at


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``sinfo`` output begins at a line."""
    if reasons_begins(lines, at) or _header(lines[at].text) is not None:
        return True
    if has_json(lines, at, "sinfo", ("node", "nodes")) or has_json(lines, at, "nodes", ("slurmd_start_time", "gres")):
        return True
    if at and _BARE.fullmatch(lines[at - 1].text.strip()):
        return False
    return _bare(lines, at) > at


def parse_lines(lines: Lines, at: int) -> Parsed[Sinfo]:
    """Read the table, list or JSON that begins at a line."""
    if reasons_begins(lines, at):
        parsed = parse_reasons(lines, at)
        return Parsed(Sinfo(parsed.value), parsed.gaps, parsed.end)
    if lines[at].text[:1] == "{":
        return _of_json(lines, at)
    names = _header(lines[at].text) or ()
    if not names:
        listed = lines[at : _bare(lines, at)]
        rows = tuple(
            NodesInState("", match["state"], match["nodes"], "", line.number)
            for line in listed
            if (match := _BARE.fullmatch(line.text.strip()))
        )
        return Parsed(Sinfo(states=rows), (), at + max(1, len(rows)))
    states: list[NodesInState] = []
    gaps: list[ParseGap] = []
    end = at + 1
    while end < len(lines) and lines[end].text.strip() and not is_prompt(lines[end].text):
        if begins(lines, end):  # the output of another command
            break
        row = cells(names, lines[end].text) or _without_nodes(names, lines[end].text)
        if row is None:
            gaps.append(ParseGap(lines[end].number, "the row has fewer cells than the header"))
            break
        reason = row.get("REASON", "")
        nodes = next((row[name] for name in _NODES if name in row), row.get("NODES", ""))
        states.append(NodesInState(row.get("PARTITION", ""), row.get("STATE", ""), nodes,
                                   "" if reason == "none" else reason, lines[end].number,
                                   row.get("AVAIL", ""), row.get(_COUNTS, "")))  # fmt: skip
        end += 1
    return Parsed(Sinfo(states=tuple(states)), tuple(gaps), end)


def _without_nodes(names: tuple[str, ...], text: str) -> dict[str, str] | None:
    """Return the cells of a row without nodes (its last cell is empty), or None."""
    return cells(names[:-1], text) if names[-1] == "NODELIST" and " 0 " in text else None


def _of_json(lines: Lines, at: int) -> Parsed[Sinfo]:
    """Read ``sinfo --json``, and the nodes of ``scontrol show nodes --json``."""
    parsed = json_at(lines, at)
    if parsed is None:
        return Parsed(Sinfo(), (ParseGap(lines[at].number, "the JSON is truncated"),), len(lines))
    end, value = parsed
    listed = (value.get("sinfo") or value.get("nodes")) if isinstance(value, dict) else None
    rows = [_json_row(entry, lines[at].number) for entry in listed or () if isinstance(entry, dict)]
    return Parsed(Sinfo(states=tuple(row for row in rows if row.nodes)), (), end)


def _json_row(entry: Mapping[str, Any], line: int) -> NodesInState:
    node, nodes, reason, partition = (entry.get(name) for name in ("node", "nodes", "reason", "partition"))
    state = node.get("state") if isinstance(node, dict) else entry.get("state")
    states = [*map(str, state)] if isinstance(state, list) else str(state or "").split("+")
    flags = entry.get("state_flags")
    states += [*map(str, flags)] if isinstance(flags, list) else []
    names = nodes.get("nodes") if isinstance(nodes, dict) else entry.get("name", entry.get("hostname"))
    why = reason.get("description") if isinstance(reason, dict) else reason
    return NodesInState(
        plain(partition), "+".join(states).lower(), ",".join(map(str, names)) if isinstance(names,
             list) else plain(names),
        plain(why), line,
    )  # fmt: skip
