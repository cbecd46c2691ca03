"""What was read as evidence: one record for each kind, which holds a part's facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight.evidence.document import EvidenceError
from preflight.facts.node import NodeFacts


def key_of(kind: str) -> str:
    """Return the key of the record that holds the facts of a kind."""
    return f"read:{kind}"


def read_facts(node: NodeFacts, *kinds: str) -> Iterator[tuple[str, Any]]:
    """Yield record key and facts of the kinds that were read; raises EvidenceError if there is none."""
    keys = [key for kind in kinds if (key := key_of(kind)) in node.evidence.records]
    if not keys:
        raise EvidenceError(key_of(kinds[0]), "was not in the text")
    for key in keys:
        yield key, node.evidence.record(key).value
