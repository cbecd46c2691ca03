"""What is concluded: a cause, who bears witness to it, and what would settle it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import Said
    from preflight.parsers.nccl_log import Line


class Proof(enum.Enum):
    """How a cause is known."""

    AGREED = "agreed"  # the node shows what the log states or allows, or the log's line names the cause itself
    LIKELY = "likely"  # the node shows a fault that has this effect; the log's line has other causes as well
    PROBABLE = "probable"  # the log alone
    CONTRADICTED = "contradicted"  # the log states it, and the node shows the opposite


@dataclass(frozen=True)
class Testimony:
    """What a node's evidence says of one cause."""

    guilty: bool | None  # None: it says nothing of it
    says: str  # one clause; empty where it says nothing
    keys: tuple[str, ...] = ()  # records


#: Where nobody asked the node, or it could not tell.
SILENT = Testimony(None, "")


@dataclass(frozen=True)
class Kind:
    """A cause as such."""

    id: str
    name: str  # in two or three words
    ask: Callable[[Any, Said, Any], Testimony]  # (NodeFacts, host, line); raises EvidenceError where it cannot tell
    settle: str  # what would tell, where the log alone speaks
    fix: str
    proved: bool = False  # a line of the log that states it is proof enough: NCCL names the variable that it read


@dataclass(frozen=True)
class Suspect:
    """A cause that a host's lines allow."""

    kind: Kind
    line: Line | None = None  # that speaks for it
    states: bool = True  # False: the line has other causes too, that no node shows


@dataclass(frozen=True)
class Cause:
    """Why a host's traffic took the way that it took."""

    kind: Kind  # the earliest layer that bears the blame
    proof: Proof
    line: Line | None
    says: str  # what the node shows; several clauses where it contradicts
    keys: tuple[str, ...] = ()
    others: tuple[Kind, ...] = ()  # other causes that the log alone allows as well

    @property
    def names(self) -> str:
        """The causes that remain, in words."""
        return " or ".join(kind.name for kind in (self.kind, *self.others))
