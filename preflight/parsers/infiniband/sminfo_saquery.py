"""``sminfo`` and ``saquery``: subnet managers and registered services.

Sources: infiniband-diags, sminfo(8), saquery(8); IBA 14.4.1 for the states.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: States of a subnet manager (IBA table 160).
STATES = {0: "not active", 1: "discovering", 2: "standby", 3: "master"}
MASTER = 3

#: Name under which the SHARP aggregation manager registers itself (NVIDIA SHARP, sharp_benchmark.sh).
AGGREGATION_SERVICE = "SHArP.AggregationManager"

_SMINFO = re.compile(
    r"sminfo: sm lid ([0-9]{1,5}) sm guid 0x([0-9a-fA-F]{1,16}), activity count ([0-9]{1,20}) "
    r"priority ([0-9]{1,2}) state ([0-9]{1,2}) \S+"
)
#: The message about a query that was not answered, as opposed to a port that could not be opened.
_NO_ANSWER = re.compile(r"(?:\S{0,200}/)?sminfo: iberror: failed: query\s*")

_NOISE = re.compile(r"sim_connect: attached as client")
_LOST = re.compile(r"bad status|timed out|[Tt]imeout|query failed|_do_madrpc failed|Mad (?:handle|status) error")
_ROUTE = re.compile(r"DR path slid [0-9]+; dlid [0-9]+; ([0-9]{1,3}(?:,[0-9]{1,3}){0,63})[ )]")


@dataclass(frozen=True)
class Manager:
    """A subnet manager, as described by its answer."""

    lid: int
    guid: str  # GUID of its port, 16 hexadecimal digits
    priority: int
    state: int  # a key of STATES

    @property
    def is_master(self) -> bool:
        """Whether the manager reports that it is the master."""
        return self.state == MASTER

    @property
    def words(self) -> str:
        """The subnet manager, as findings describe it."""
        return f"LID {self.lid}, GUID 0x{self.guid}, priority {self.priority}"


def parse_sminfo(text: str) -> Manager | None:
    """Read ``sminfo`` output; None if the query was not answered.

    Raises ValueError for any other text.
    """
    line = next((line.strip() for line in normalize_text(text).split("\n") if line.strip()), "")
    if match := _SMINFO.fullmatch(line):
        return Manager(int(match[1]), match[2].lower().zfill(16), int(match[4]), int(match[5]))
    if _NO_ANSWER.fullmatch(line):
        return None
    raise ValueError(f"it is not an answer of sminfo; it starts with {line[:80]!r}")


def parse_services(text: str) -> tuple[str, ...]:
    """Read the names of the services in ``saquery SR`` output.

    Empty if no service is registered. Raises ValueError for any other text.
    """
    names = []
    for line in normalize_text(text).split("\n"):
        if not line.strip() or line.strip() == "ServiceRecord dump:":
            continue
        if not (match := re.fullmatch(r"\s*(Service[A-Za-z0-9_.]{1,20}?)\.{2,}(.{0,200})", line)):
            raise ValueError(f"there is no service record in the line {line.strip()[:120]!r}")
        if match[1] == "ServiceName":
            names.append(match[2].strip())
    return tuple(names)


@dataclass(frozen=True)
class Lost:
    """The queries of a tool that were not answered."""

    count: int
    routes: tuple[tuple[int, ...], ...]  # directed routes to devices that did not answer, such as (0, 1, 3), each once
    first: str  # the first line that reports one


def lost(err: str) -> Lost | None:
    """Find unanswered queries in a tool's standard error; return None without any.

    A tool with unanswered queries still exits with status 0, and prints the other answers.
    """
    lines = [line.strip() for line in normalize_text(err).split("\n") if _LOST.search(line) and not _NOISE.search(line)]
    if not lines:
        return None
    routes = dict.fromkeys(match[1] for line in lines if (match := _ROUTE.search(line)))
    return Lost(len(lines), tuple(tuple(int(port) for port in route.split(",")) for route in routes), lines[0][:200])
