"""Where the evidence of a node is kept until it is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from preflight.evidence.document import Evidence


class EvidenceSource(Protocol):
    """A document that can be read, more than once; it travels between processes."""

    def read(self) -> Evidence:
        """Return the evidence; what cannot be read any more is a node without an answer."""
        ...


def opened(source: Evidence | EvidenceSource) -> Callable[[], Evidence]:
    """Return what reads a document, or what returns one that is at hand."""
    return (lambda: source) if isinstance(source, Evidence) else source.read
