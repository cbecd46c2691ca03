"""Slurm nodes from ``sinfo -R``, ``scontrol show node`` and slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

_REASONS_HEAD = re.compile(r"\s*REASON\s+USER\s+TIMESTAMP\s+(?:STATE\s+)?NODELIST\s*")
_REASON = re.compile(
    r"\s*(\S.{0,200}?)\s+([\w.()-]{1,40})\s+(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown"
    r"|N/A)\s+(?:([a-z*~#%$@+^-]{2,20})\s+)?(\S{1,400})\s*"
)
_NODE = re.compile(r"\s*NodeName=(\S{1,100})(?:\s.*)?")
#: The state of a node whose other lines a filter such as ``grep State`` has dropped; the command may name the node.
_STATE = re.compile(r"\s*State=[A-Z][A-Z_+*~#$@!%^-]{1,200} ThreadsPerCore=\d.*")
_COMMAND = re.compile(r"\bscontrol\s.{0,80}?\bshow\s+nodes?[ =](\w[\w.-]{0,99})(?=\s|$)")
_UNNAMED = "an unnamed node"
_PAIR = re.compile(r"(?<!\S)([A-Z]\w{1,30}(?:/\w{1,20})?)=(\S*)")
#: Fields that only a running controller prints, and fields that only a configuration has (slurm.conf, ``slurmd -C``,
#: gres.conf).
_RUNNING = frozenset({"Arch", "CPUAlloc", "CPUTot", "CPULoad", "AllocMem", "FreeMem", "BootTime", "CfgTRES", "OS"})
_CONFIGURED = frozenset({"CPUs", "Procs", "SocketsPerBoard", "File", "AutoDetect"})
_NODE_REASON = re.compile(r"\s*Reason=(.*?)(?:\s*\[([\w.@:-]{1,80})\])?\s*")


@dataclass(frozen=True)
class DrainReason:
    """Why nodes are out of service: one line of ``sinfo -R``."""

    reason: str
    user: str
    since: str
    nodes: str  # as printed
    line: int


@dataclass(frozen=True)
class SlurmNode:
    """One node of ``scontrol show node``, or one line of a configuration."""

    name: str
    state: tuple[str, ...]  # all words of the state, such as IDLE and DRAIN
    reason: str
    fields: Mapping[str, str]
    line: int
    configured: bool = False  # whether a configuration names it: its state is the one at the start of slurmctld


def reasons_begins(lines: Lines, at: int) -> bool:
    """Return whether ``sinfo -R`` output begins at a line."""
    return bool(_REASONS_HEAD.fullmatch(lines[at].text))


def parse_reasons(lines: Lines, at: int) -> Parsed[tuple[DrainReason, ...]]:
    """Read the list that begins at a line."""
    end, taken = block(lines, at, lambda text: bool(_REASON.fullmatch(text)), blanks=0)
    reasons = tuple(
        DrainReason(match[1], match[2], match[3], match[5], line.number)
        for line in taken[1:]
        if (match := _REASON.fullmatch(line.text))
    )
    return Parsed(reasons, (), end)


def nodes_begins(lines: Lines, at: int) -> bool:
    """Return whether ``scontrol show node`` output begins at a line."""
    if _STATE.fullmatch(lines[at].text):
        return True
    return bool(_NODE.fullmatch(lines[at].text)) and (
        "State=" in lines[at].text or any("=" in line.text for line in lines[at + 1 : at + 3])
    )


def parse_nodes(lines: Lines, at: int) -> Parsed[tuple[SlurmNode, ...]]:
    """Read the nodes, starting at the line of the first one."""

    def belongs(text: str) -> bool:
        return bool(
            _NODE.fullmatch(text)
            or re.match(r"\s{2,}[A-Z]\w{1,30}=", text)
            or text.lstrip().startswith(("Reason=", "State="))
        )

    end, taken = block(lines, at, belongs, blanks=2)
    nodes: list[SlurmNode] = []
    fields: dict[str, str] = {}
    name, reason, number, configured = "", "", 0, False
    gaps: list[ParseGap] = []

    def close() -> None:
        if name:
            state = fields.get("State", "")
            of_file = configured and not _RUNNING & fields.keys()
            if not state and not of_file:
                gaps.append(ParseGap(number, f"the state of {name} is missing"))
            words = tuple(word.rstrip("*~#$@") for word in state.split("+")) if state else ()
            words += ("NOT_RESPONDING",) * ("*" in state)  # a suffix, up to Slurm 20.11
            nodes.append(SlurmNode(name, words, reason, dict(fields), number, of_file))

    command = _COMMAND.search(lines[at - 1].text) if at else None
    unnamed = command[1] if command else _UNNAMED
    for line in taken:
        begun = _NODE.fullmatch(line.text)
        if begun or ((not name or "State" in fields) and _STATE.fullmatch(line.text)):
            close()
            fields.clear()
            name, reason, number, configured = begun[1] if begun else unnamed, "", line.number, False
        if (match := _NODE_REASON.fullmatch(line.text)) is not None:
            reason = match[1]
            fields["ReasonBy"] = match[2] or ""
        else:
            fields.update(_PAIR.findall(line.text))
        if begun:
            configured = "[" in name or name == "DEFAULT" or fields.get("State") == "UNKNOWN"
        configured = configured or bool(_CONFIGURED & fields.keys())
    close()
    return Parsed(tuple(nodes), tuple(gaps), end)
