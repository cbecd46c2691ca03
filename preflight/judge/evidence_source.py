"""Source of a node's evidence until it is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from preflight.evidence.document import Evidence


class EvidenceSource(Protocol):
    """A document that can be read repeatedly; it can be pickled."""

    def read(self) -> Evidence:
        """Return the evidence; an unreadable document is a node without an answer."""
        ...


def opened(source: Evidence | EvidenceSource) -> Callable[[], Evidence]:
    """Return the reader of a document, or a function that returns a loaded document."""
    return (lambda: source) if isinstance(source, Evidence) else source.read
