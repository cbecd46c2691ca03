"""Causes, the evidence of a node about a cause, and how certain a cause is."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.parsers.nccl_log import LogLine


class Proof(enum.Enum):
    """How a cause was determined."""

    AGREED = "agreed"  # the node confirms the log, or the log's line names the cause
    LIKELY = "likely"  # the node shows a fault that has this effect; the log's line has other causes as well
    PROBABLE = "probable"  # only the log
    CONTRADICTED = "contradicted"  # the log states it, and the node shows the opposite


@dataclass(frozen=True)
class NodeEvidence:
    """The evidence of a node about one cause."""

    confirms: bool | None  # None: no evidence about it
    summary: str  # one clause; empty without evidence
    keys: tuple[str, ...] = ()  # records


#: The node has no evidence about a cause, or its evidence is inconclusive.
SILENT = NodeEvidence(None, "")


@dataclass(frozen=True)
class CauseKind:
    """A possible cause: how to examine a node for it, and how to fix it."""

    id: str
    name: str  # short name
    examine: Callable[
        [Any, HostStatements, Any], NodeEvidence
    ]  # (NodeFacts, host, line); raises EvidenceError without the records
    confirm_with: str  # the next step if only the log shows the cause
    fix: str
    check: str = ""  # the check that reports it on a node
    proved: bool = False  # whether a log line is sufficient proof: NCCL names the variable it read
    of_port: bool = False  # whether it concerns the port that the log line names


@dataclass(frozen=True)
class Suspect:
    """A cause that a host's log lines allow."""

    kind: CauseKind
    line: LogLine | None = None  # log line that supports the suspect
    states: bool = True  # False: the line has other possible causes, which no node shows


@dataclass(frozen=True)
class Cause:
    """Why a host's traffic takes its path, or why it failed."""

    kind: CauseKind  # the earliest layer at fault
    proof: Proof
    line: LogLine | None
    summary: str  # the node's evidence; several clauses if contradictory
    keys: tuple[str, ...] = ()
    others: tuple[CauseKind, ...] = ()  # other causes that are possible from the log alone

    @property
    def names(self) -> str:
        """The names of all possible causes, joined by "or"."""
        *first, last = (kind.name for kind in (self.kind, *self.others))
        return f"{', '.join(first)} or {last}" if first else last
