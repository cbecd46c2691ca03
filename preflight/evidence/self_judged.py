"""The answer of a node that judged itself during a run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits
from preflight.evidence.document import DocumentError, Evidence, from_document, no_answer
from preflight.evidence.node_result import MOST_VERDICT, SCHEMA
from preflight.schemas.conform import find_error

#: Why the evidence of a node is not judged instead of its verdict.
_NOT_SENT = "its verdict cannot be used, and it did not send its evidence: collect again without --judge-on-nodes"


@dataclass(frozen=True)
class SelfJudged:
    """The answer of a node that judged itself; ``complete`` with all its evidence.

    ``packed`` is its document, compressed as the node sent it.
    """

    node: str
    packed: bytes
    complete: bool
    no_answer: Mapping[str, str] | None = None
    kind: str = "node"

    def verdict(self) -> Mapping[str, Any] | None:
        """Return the verdict, not validated; None if it is not an object."""
        verdict = self._document()["verdict"]
        return verdict if isinstance(verdict, dict) else None

    def quoted(self) -> Evidence:
        """Return the evidence that was sent."""
        try:
            evidence = self._document()["evidence"]
            return from_document({"schema": SCHEMA, "node": self.node, "evidence": evidence}, "the answer")
        except DocumentError as error:
            return no_answer(self.node, "read", str(error), "")

    def read(self) -> Evidence:
        """Return the evidence; it has no answer if only a part was sent."""
        return self.quoted() if self.complete else no_answer(self.node, "read", _NOT_SENT, "")

    def _document(self) -> Mapping[str, Any]:
        """Decode the document again: ``of_answer`` has validated it."""
        document: Mapping[str, Any] = json_limits.decoded_answer(zlib.decompress(self.packed))
        return document


def of_answer(document: Mapping[str, Any], node: str, packed: bytes, size: int) -> SelfJudged:
    """Return the answer of a node that judged itself; raises ValueError.

    Neither verdict nor evidence is decoded. ``packed`` is the compressed document, which has ``size`` bytes.
    """
    if wrong := find_error(document, "node-result-1", shallow=("verdict",), exact=True):
        raise ValueError(wrong)
    if document["node"] != node:
        raise ValueError("it is that of another node")
    if (verdict := size - len(document["evidence"])) > MOST_VERDICT:
        raise ValueError(f"its verdict has {verdict} characters; at most {MOST_VERDICT} are allowed")
    return SelfJudged(node, packed, document.get("complete", True))
