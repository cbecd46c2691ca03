"""Causes, the evidence of a node about one, and how certain each is."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.parsers.nccl_log import LogLine


class Proof(enum.Enum):
    """How a cause is known."""

    AGREED = "agreed"  # the node shows what the log states or allows, or the log's line names the cause itself
    LIKELY = "likely"  # the node shows a fault that has this effect; the log's line has other causes as well
    PROBABLE = "probable"  # the log alone
    CONTRADICTED = "contradicted"  # the log states it, and the node shows the opposite


@dataclass(frozen=True)
class NodeEvidence:
    """What the evidence of a node shows about one cause."""

    confirms: bool | None  # None: it shows nothing about it
    summary: str  # one clause; empty where it shows nothing
    keys: tuple[str, ...] = ()  # records


#: Without evidence of the node, or where its evidence shows neither.
SILENT = NodeEvidence(None, "")


@dataclass(frozen=True)
class CauseKind:
    """Kind of a cause."""

    id: str
    name: str  # in two or three words
    examine: Callable[
        [Any, HostStatements, Any], NodeEvidence
    ]  # (NodeFacts, host, line); raises EvidenceError without the records
    confirm_with: str  # the next step where only the log shows the cause
    fix: str
    check: str = ""  # the check that reports it on a node
    proved: bool = False  # a line of the log that states it is proof enough: NCCL names the variable that it read


@dataclass(frozen=True)
class Suspect:
    """A cause that a host's lines allow."""

    kind: CauseKind
    line: LogLine | None = None  # that speaks for it
    states: bool = True  # False: the line has other causes too, that no node shows


@dataclass(frozen=True)
class Cause:
    """Why a host's traffic took its path."""

    kind: CauseKind  # the earliest layer that bears the blame
    proof: Proof
    line: LogLine | None
    summary: str  # what the node shows; several clauses where it contradicts
    keys: tuple[str, ...] = ()
    others: tuple[CauseKind, ...] = ()  # other causes that the log alone allows as well

    @property
    def names(self) -> str:
        """The causes that remain, in words."""
        return " or ".join(kind.name for kind in (self.kind, *self.others))
