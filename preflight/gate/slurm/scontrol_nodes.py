"""Parser of ``scontrol show node --oneliner``.

The format is that of Slurm 22.05, with the additions of 23.11 (ReservationName, MAINTENANCE). User-written text
(Reason, Comment, Extra) is unquoted among the fields, so each one is searched for after the last preceding field
that users cannot write.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from preflight._startup.lightclass import dataclass

#: State suffixes of sinfo: not responding, powering, maintenance, reboot, planned (sinfo(1), NODE STATE CODES).
_SUFFIXES = "*~#!%$@^-"

_STATE = re.compile(r" State=(\S+)(?= ThreadsPerCore=)| State=(\S+)")
_STAMP = re.compile(r" ?\[([^\s\[\]@]+)@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
_COMMENT = re.compile(r" Comment=(.*?)(?= Extra=| Instance\w+=| ReservationName=| ResumeAfterTime=|\s*\Z)", re.DOTALL)


@dataclass(frozen=True)
class Node:
    """A node as reported by the controller.

    ``at`` is the time at which ``user`` set the reason, in seconds since 1970 (0: none). ``gpus``: whether its Gres has
    any; ``cpus_in_use``: number of CPUs allocated to jobs.
    """

    name: str
    host: str
    states: tuple[str, ...]
    partitions: tuple[str, ...] = ()
    gpus: bool = False
    cpus_in_use: int = 0
    reason: str = ""
    user: str = ""
    at: int = 0
    comment: str = ""

    @property
    def drained(self) -> bool:
        """Whether the node is drained or draining, and so accepts no new jobs."""
        return any(state.startswith("DRAIN") for state in self.states)

    @property
    def down(self) -> bool:
        """Whether the node is down, failed, powered or powering down, or unknown."""
        gone = ("DOWN", "FAIL", "FAILING", "ERROR", "FUTURE", "UNKNOWN", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN")
        return any(state in gone for state in self.states)


def read(text: str) -> dict[str, Node]:
    """Parse scontrol's output into nodes by name; raises ValueError.

    A reason may have line breaks; a line that does not begin with NodeName= belongs to the previous node.
    """
    records = re.split(r"(?m)^NodeName=", text)
    if records[0].strip():
        raise ValueError(f"does not begin with NodeName=: {records[0].strip()[:80]!r}")
    found: dict[str, Node] = {}
    for record in records[1:]:
        node = _node(record)
        found.setdefault(node.name, node)
    return found


def _node(record: str) -> Node:
    name = record.split(None, 1)[0] if record.strip() else ""
    state = _STATE.search(record)
    if not name or state is None:
        raise ValueError(f"names a node without a state: {record[:80]!r}")
    states = tuple(part.strip(_SUFFIXES) for part in (state[1] or state[2]).upper().split("+"))
    head, tail = record[: state.end()], record[state.end() :]
    fields, marker, rest = tail.partition(" Reason=")
    reason, user, at = "", "", 0
    if marker:
        stamp = _STAMP.search(rest)
        reason, user, at = (rest, "", 0) if stamp is None else (rest[: stamp.start()], stamp[1], _seconds(stamp[2]))
        rest = "" if stamp is None else rest[stamp.end() :]
    comment = _COMMENT.search(rest if marker else fields)
    return Node(
        name,
        _word(head, "NodeHostName") or name,
        states,
        tuple(part for part in _word(fields, "Partitions").split(",") if part),
        any(part.partition(":")[0] == "gpu" for part in _word(head, "Gres").split(",")),
        int(_word(head, "CPUAlloc") or 0),
        reason.strip(),
        user,
        at,
        comment[1].strip() if comment else "",
    )


def _word(text: str, key: str) -> str:
    found = re.search(rf" {key}=(\S*)", text)
    return found[1] if found else ""


def _seconds(stamp: str) -> int:
    """Parse a time printed by scontrol, in UTC; raises ValueError."""
    return int(datetime.fromisoformat(stamp).replace(tzinfo=timezone.utc).timestamp())
