"""Source of a node's evidence until it is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from preflight.evidence.document import Evidence


class EvidenceSource(Protocol):
    """A document on disk that can be read repeatedly; the source can be pickled."""

    @property
    def kind(self) -> str:
        """The kind of document: of a node or of a switch."""
        ...

    def read(self) -> Evidence:
        """Return the evidence; for an unreadable document, that of a silent node."""
        ...


def opened(source: Evidence | EvidenceSource) -> Callable[[], Evidence]:
    """Return a function that returns the document, and reads it if it is on disk."""
    return (lambda: source) if isinstance(source, Evidence) else source.read


def of_kind(sources: Sequence[Evidence | EvidenceSource], kind: str) -> Sequence[Evidence | EvidenceSource]:
    """Return the documents of one kind: those of nodes, or those of switches."""
    return [source for source in sources if source.kind == kind]
