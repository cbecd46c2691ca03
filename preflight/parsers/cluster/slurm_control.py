"""``scontrol ping``, ``sdiag``, ``scontrol show partition`` and ``reservation``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Lines

HINTS = ("Slurmctld(", "PartitionName=", "ReservationName=", "sdiag output", "Server thread count")

_PING = re.compile(r"\s*Slurmctld\((?P<role>[\w/]{1,40})\) at (?P<host>\S{1,200}) (?:is|are) (?P<state>\S{1,20})")
_NAMED = ("PartitionName=", "ReservationName=")
_PAIR = re.compile(r"(?<!\S)([A-Z]\w{1,40})=(\S*)")
_FIELD = re.compile(r"\s{0,8}([A-Za-z][\w (),/-]{2,60}):\s{0,60}(\d{1,15})\b.*")


@dataclass(frozen=True)
class SlurmController:
    """A controller in the output of ``scontrol ping``."""

    role: str  # as in primary or backup1
    host: str
    state: str
    line: int


@dataclass(frozen=True)
class SlurmPartition:
    """A partition or reservation in the output of ``scontrol show``."""

    name: str
    state: str
    fields: Mapping[str, str]
    line: int
    reserved: bool = False  # whether it is a reservation


@dataclass(frozen=True)
class SlurmControl:
    """The content of one output of ``scontrol`` or ``sdiag``."""

    controllers: tuple[SlurmController, ...] = ()
    partitions: tuple[SlurmPartition, ...] = ()
    counters: Mapping[str, int] | None = None  # from sdiag; None in other outputs


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``scontrol`` or ``sdiag`` output begins at a line."""
    text = lines[at].text
    if _PING.fullmatch(text) or re.match(r"\s*sdiag output at ", text) or re.match(r"Server thread count:", text):
        return True
    return text.startswith(_NAMED) and "State=" in "".join(line.text for line in lines[at : at + 16])


def parse_lines(lines: Lines, at: int) -> Parsed[SlurmControl]:
    """Read the output that begins at a line."""
    end = at
    if _PING.fullmatch(lines[at].text):
        controllers: list[SlurmController] = []
        while end < len(lines) and (match := _PING.fullmatch(lines[end].text)):
            hosts, roles, states = (match[name].split("/") for name in ("host", "role", "state"))
            if len(hosts) == len(roles) == len(states):
                controllers += [SlurmController(role, host, state, lines[end].number)
                                for role, host, state in zip(roles, hosts, states, strict=True)]  # fmt: skip
            else:
                controllers.append(SlurmController(match["role"], match["host"], match["state"], lines[end].number))
            end += 1
        return Parsed(SlurmControl(tuple(controllers)), (), end)
    if lines[at].text.startswith(_NAMED):
        return _partitions(lines, at)
    counters: dict[str, int] = {}
    blank = 0
    while end < len(lines) and blank < 3:
        if match := _FIELD.fullmatch(lines[end].text):
            counters.setdefault(match[1].strip(), int(match[2]))
            blank = 0
        elif not re.fullmatch(r"\*{3,}|\s*|.{0,200}:.*|\s*\S+\s.*", lines[end].text):
            break
        else:
            blank = blank + 1 if not lines[end].text.strip() else blank
        end += 1
    return Parsed(SlurmControl(counters=counters), (), end)


def _partitions(lines: Lines, at: int) -> Parsed[SlurmControl]:
    result: list[SlurmPartition] = []
    end, fields, first = at, dict[str, str](), at
    while end < len(lines):
        text = lines[end].text
        if text.startswith(_NAMED) and end > at:
            result.append(_partition(fields, lines[first].number))
            fields, first = {}, end
        elif text.strip() and end > at and not (text[0].isspace() and "=" in text):
            break
        for name, value in _PAIR.findall(text[:4000]):
            fields.setdefault(name, value)
        end += 1
    result.append(_partition(fields, lines[first].number))
    while end > at + 1 and not lines[end - 1].text.strip():
        end -= 1
    return Parsed(SlurmControl(partitions=tuple(result)), (), end)


def _partition(fields: Mapping[str, str], line: int) -> SlurmPartition:
    name = fields.get("PartitionName", "") if "ReservationName" not in fields else fields["ReservationName"]
    return SlurmPartition(name, fields.get("State", ""), dict(fields), line, "ReservationName" in fields)
