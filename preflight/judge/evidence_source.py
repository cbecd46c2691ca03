"""Source of a node's evidence until it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from preflight.evidence.document import Evidence


class EvidenceSource(Protocol):
    """A document on disk that can be read repeatedly; the source can be pickled."""

    @property
    def kind(self) -> str:
        """The kind of document: node or switch."""
        ...

    def read(self) -> Evidence:
        """Return the evidence; for an unreadable document, that of a silent node."""
        ...


@runtime_checkable
class JudgedSource(Protocol):
    """The document of a node that judged itself."""

    @property
    def node(self) -> str:
        """The name of the node."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the document has all evidence of the node."""
        ...

    def verdict(self) -> Mapping[str, Any] | None:
        """Return the node's verdict, not validated; None if it cannot be read."""
        ...

    def quoted(self) -> Evidence:
        """Return the evidence in the document, which may be a part of it."""
        ...


def opened(source: Evidence | EvidenceSource) -> Callable[[], Evidence]:
    """Return a function that returns the document, and reads it if it is on disk."""
    return (lambda: source) if isinstance(source, Evidence) else source.read


def of_kind(sources: Sequence[Evidence | EvidenceSource], kind: str) -> Sequence[Evidence | EvidenceSource]:
    """Return the documents of one kind: those of nodes, or those of switches."""
    return [source for source in sources if source.kind == kind]
