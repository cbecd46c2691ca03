"""Documents on disk, each of which is read when it is used."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from preflight._startup.lightclass import dataclass, replace
from preflight.archive import directory
from preflight.evidence import json_limits
from preflight.evidence.document import (
    NODE,
    DocumentError,
    Evidence,
    from_document,
    memory,
    no_answer,
    read,
    to_document,
)  # fmt: skip
from preflight.evidence.self_judged import SelfJudged


@dataclass(frozen=True)
class File:
    """The files of one node: its document, and documents with only pair tests."""

    node: str
    path: Path
    parts: tuple[Path, ...] = ()
    kind: str = NODE

    def read(self) -> Evidence:
        """Return the evidence; it has no answer if a file is gone or has changed."""
        try:
            found = directory.read_file(self.path)
            for part in self.parts:
                found = found and (directory.joined(found, read(part)) or found)
        except (OSError, DocumentError) as error:
            return no_answer(self.node, "read", str(error), "")
        if found is not None and found.node == self.node:
            return found
        if found is not None and found.no_answer is not None:  # a damaged file is named after its path
            return replace(found, node=self.node)
        return no_answer(self.node, "read", f"{self.path} was replaced while it was judged", "")


@dataclass(frozen=True)
class ResultFile(File):
    """The file of a node that judged itself."""

    complete = True

    def quoted(self) -> Evidence:
        """Return the evidence."""
        return self.read()

    def verdict(self) -> Mapping[str, Any] | None:
        """Return the node's verdict, not validated; None if it cannot be read."""
        try:
            document = json_limits.read(self.path)
            return document["verdict"] if document["node"] == self.node else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Packed:
    """A node's compressed document on disk; ``bytes`` is its size in memory."""

    node: str
    path: Path
    bytes: int = 0
    kind: str = NODE

    def read(self) -> Evidence:
        """Return the evidence; it has no answer if the file is unreadable."""
        try:
            document = json.loads(zlib.decompress(self.path.read_bytes()))
            return from_document(document, str(self.path))
        except (OSError, zlib.error, ValueError) as error:
            return no_answer(self.node, "read", str(error), "")


@dataclass(frozen=True)
class PackedResult:
    """The answer of a node that judged itself, on disk."""

    node: str
    path: Path
    complete: bool
    bytes: int = 0
    kind: str = NODE

    def verdict(self) -> Mapping[str, Any] | None:
        """Return the verdict, not validated; None if it cannot be read."""
        try:
            return self._answer().verdict()
        except (OSError, zlib.error, ValueError):
            return None

    def quoted(self) -> Evidence:
        """Return the evidence that was sent; it has no answer if it is unreadable."""
        return self._evidence(SelfJudged.quoted)

    def read(self) -> Evidence:
        """Return the evidence; it has no answer if only a part was sent."""
        return self._evidence(SelfJudged.read)

    def _evidence(self, part: Callable[[SelfJudged], Evidence]) -> Evidence:
        try:
            return part(self._answer())
        except (OSError, zlib.error, ValueError) as error:
            return no_answer(self.node, "read", str(error), "")

    def _answer(self) -> SelfJudged:
        return SelfJudged(self.node, self.path.read_bytes(), self.complete)


@dataclass(frozen=True)
class InMemory:
    """The document of one node, if it was added later or could not be stored on disk."""

    node: str
    evidence: Evidence
    bytes: int = 0

    @property
    def kind(self) -> str:
        """The kind of the document: node or switch."""
        return self.evidence.kind

    def read(self) -> Evidence:
        """Return the evidence."""
        return self.evidence


#: A document that is read when it is used.
Source: TypeAlias = File | Packed | PackedResult | InMemory | SelfJudged


def put_aside(answer: Evidence | SelfJudged, path: Path) -> Source:
    """Write an answer to a private file, or keep it in memory if the disk is full."""
    if isinstance(answer, SelfJudged):
        try:
            path.write_bytes(answer.packed)
        except OSError:
            return answer
        return PackedResult(answer.node, path, answer.complete)
    try:
        path.write_bytes(zlib.compress(json.dumps(to_document(answer)).encode(), 1))
    except (OSError, RecursionError):  # the disk is full, or the document is nested too deeply
        return InMemory(answer.node, answer)
    return Packed(answer.node, path, memory(answer), answer.kind)
