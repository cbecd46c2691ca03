"""Evidence that is too large for memory: documents are read one by one."""

from __future__ import annotations

import json
import re
import stat
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import overload

from preflight.archive import directory
from preflight.archive.stored import File, InMemory, ResultFile, Source, put_aside
from preflight.evidence import bundle, json_limits, node_result, safe_read
from preflight.evidence.document import (
    NODE,
    Evidence,
    decode,
    dump,
    memory,
    read,
)  # fmt: skip
from preflight.evidence.self_judged import SelfJudged
from preflight.facts.job import RUN

#: Maximum number of documents in memory, and their maximum total size in bytes.
HELD, HELD_BYTES = 64, 64 << 20

#: Maximum memory in bytes for documents that are judged together; if they need more, each is read when it is needed.
#: A complete node takes 2 to 5 MB.
JUDGED_BYTES = 384 << 20

#: Maximum bytes of memory per byte of JSON; empty lists reach it.
_MOST_OF_A_BYTE = 50

#: The header that ``document.dump`` writes before a node's records, and its maximum size in bytes.
_HEAD = re.compile(
    rb'\{\n "collected_at": "[^\n]*\n "collector": \{.*?\n "node": ("[^\n]*"),\n( "origin": [^\n]*\n)? "records": \{',
    re.DOTALL,
)
_HEAD_BYTES = 16384

#: The header of the document of a node that judged itself.
_RESULT_HEAD = re.compile(rb'\{\n"schema": "' + node_result.SCHEMA.encode() + rb'",\n"node": ("[^\n]*"),\n')


class Saved(Sequence[Evidence]):
    """A sequence of documents, each of which is read when it is used.

    If ``large``, they need more than ``JUDGED_BYTES`` in total, so only a few may be in memory at a time.
    """

    def __init__(self, sources: Sequence[Source], folder: object = None, large: bool = False) -> None:
        """Wrap the sources, and hold ``folder``, which contains their files."""
        self.sources = sources
        self.large = large
        self._folder = folder

    def with_documents(self, evidences: Iterable[Evidence]) -> Saved:
        """Return these documents followed by more, which are held in memory."""
        added = [InMemory(evidence.node, evidence) for evidence in evidences]
        return Saved([*self.sources, *added], self._folder, self.large)

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, place: int) -> Evidence: ...
    @overload
    def __getitem__(self, place: slice) -> Saved: ...
    def __getitem__(self, place: int | slice) -> Evidence | Saved:
        if isinstance(place, slice):
            return Saved(self.sources[place], self._folder, self.large)
        return self.sources[place].read()


def load(paths: Sequence[Path]) -> tuple[Sequence[Evidence], Evidence | None]:
    """Load documents like ``directory.load``, but with only a few in memory.

    Bundles are accepted as well. Raises ArchiveError.
    """
    if any(is_bundle(path) for path in paths):
        return _of_bundles(paths)
    files = directory.files(paths)
    large = len(files) <= HELD and _memory(files) > JUDGED_BYTES
    if len(files) <= HELD and not large:
        return directory.load(paths)
    known: dict[str, File] = {}
    run: Evidence | None = None
    for path in files:
        node, evidence = _node(path)
        if node is None:
            continue
        if node == RUN:
            evidence = evidence or read(path)
            run = evidence if run is None else directory.merged(run, evidence)
        elif node in known:
            known[node] = _together(known[node], path)
        else:
            kind = ResultFile if evidence is None and _is_result(path) else File
            known[node] = kind(node, path, kind=evidence.kind if evidence else NODE)
    return Saved([known[name] for name in sorted(known)], large=large), run


def _of_bundles(paths: Sequence[Path]) -> tuple[Sequence[Evidence], Evidence | None]:
    """Load documents from bundles, files and directories; raises ArchiveError."""
    known: dict[str, tuple[bytes, Path]] = {}
    run: Evidence | None = None
    for path, evidence in _documents(paths):
        node = evidence.node
        if node == RUN:
            run = evidence if run is None else directory.merged(run, evidence)
            continue
        if node in known:
            combined = directory.joined(decode(zlib.decompress(known[node][0]), node), evidence)
            if combined is None:
                raise directory.twice(node, known[node][1], path)
            evidence = combined
        known[node] = (zlib.compress(dump(evidence).encode(), 1), path)
    spool = Spool()
    for node in sorted(known):
        spool.add(decode(zlib.decompress(known.pop(node)[0]), node))
    return spool.documents(), run


def is_bundle(path: Path) -> bool:
    """Return whether a file is compressed with gzip; of evidence, only bundles are."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(2) == b"\x1f\x8b"
    except OSError:
        return False


def _documents(paths: Sequence[Path]) -> Iterator[tuple[Path, Evidence]]:
    """Yield the documents in bundles, files and directories, each after its path.

    Raises ArchiveError.
    """
    for path in paths:
        if is_bundle(path):
            try:
                yield from ((path, evidence) for evidence in bundle.documents(path))
            except bundle.BundleError as error:
                raise directory.ArchiveError(str(error)) from None
        else:
            evidences, run = load([path])
            yield from ((path, evidence) for evidence in (*evidences, *([run] if run else [])))


def _node(path: Path) -> tuple[str | None, Evidence | None]:
    """Return a file's node (None for a report), and its document if it was read.

    Raises ArchiveError.
    """
    try:
        if (node := _glance(path)) is not None:
            return node, None
        evidence = directory.read_file(path)
    except OSError as error:
        raise directory.ArchiveError(f"{path} cannot be read: {error.strerror}") from None
    return (evidence.node, evidence) if evidence else (None, None)


def _glance(path: Path) -> str | None:
    """Return the node of a document without reading all of it, or None.

    This works for complete files that ``document.dump`` or ``node_result.dump`` wrote.
    """
    if not path.is_file():  # a pipe without a writer would block
        return None
    with path.open("rb") as stream:
        start = stream.read(_HEAD_BYTES)
        head = _HEAD.match(start) or _RESULT_HEAD.match(start)
        if head is None:
            return None
        stream.seek(-2, 2)
        is_complete = stream.read() == b"}\n"
    return str(json.loads(head[1])) if is_complete else None


def _is_result(path: Path) -> bool:
    with path.open("rb") as stream:
        return _RESULT_HEAD.match(stream.read(_HEAD_BYTES)) is not None


def _together(known: File, path: Path) -> File:
    """Add a second document of a node; one of the two must contain only pair tests.

    Raises ArchiveError.
    """
    one, other = known.read(), read(path)
    if directory.joined(one, other) is None:
        raise directory.twice(known.node, known.path, path)
    if one.pair is None:
        return File(known.node, known.path, (*known.parts, path))
    return File(known.node, path, (known.path,))


def _memory(files: Sequence[Path]) -> int:
    """Return an upper bound on the documents' memory in bytes; 0 if it is small.

    Small means certainly at most ``JUDGED_BYTES``; counting stops above that.
    """
    try:
        stats = [path.stat() for path in files]
        if sum(status.st_size for status in stats) * _MOST_OF_A_BYTE <= JUDGED_BYTES:
            return 0
        files = [
            path for path, status in zip(files, stats, strict=True) if stat.S_ISREG(status.st_mode)
        ]  # a pipe can be read only once
        for enough in (json_limits.FILE, 0):
            total = 0
            for path in files:
                total += json_limits.memory(safe_read.content(path, safe_read.DOCUMENT), enough)
                if total > JUDGED_BYTES:
                    break
            else:
                return total
    except OSError:  # reported when the file is read
        return 0
    return total


class Folder:
    """A private folder, removed when it is no longer used or the process ends."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="preflight-"))
        weakref.finalize(self, rmtree, self.path, ignore_errors=True)


class Spool:
    """A store for incoming documents: a few in memory; if there are more, all on disk."""

    def __init__(self, known: Iterable[Evidence] = ()) -> None:
        """Create a store with the given documents."""
        self.silent: list[Evidence] = []  # documents without an answer
        self._held: list[Evidence | SelfJudged] = []
        self._aside: list[Source] = []
        self._number = self._bytes = 0
        self._folder: Folder | None = None
        for evidence in known:
            self.add(evidence)

    def add(self, answer: Evidence | SelfJudged) -> None:
        """Add one document."""
        if isinstance(answer, Evidence) and answer.no_answer is not None:
            self.silent.append(answer)
        self._held.append(answer)
        if self._folder is None and len(self._held) <= HELD:
            self._bytes += _size(answer, HELD_BYTES - self._bytes)
            if self._bytes <= HELD_BYTES:
                return
        self._folder = self._folder or Folder()
        self._aside += [self._put_aside(one, self._folder.path) for one in self._held]
        self._held.clear()

    def _put_aside(self, answer: Evidence | SelfJudged, folder: Path) -> Source:
        self._number += 1
        return put_aside(answer, folder / f"{self._number}.z")

    def documents(self) -> Sequence[Evidence]:
        """Return all documents, sorted by node name."""
        if self._folder is None:
            evidences = [answer for answer in self._held if isinstance(answer, Evidence)]
            if len(evidences) == len(self._held):
                return sorted(evidences, key=lambda evidence: evidence.node)
            self._aside = [
                InMemory(answer.node, answer) if isinstance(answer, Evidence) else answer for answer in self._held
            ]
        large = sum(getattr(document, "bytes", 0) for document in self._aside) > JUDGED_BYTES
        return Saved(sorted(self._aside, key=lambda one: one.node), self._folder, large)


def _size(answer: Evidence | SelfJudged, enough: int) -> int:
    """Return the memory of a document in bytes; counting stops above ``enough``."""
    if isinstance(answer, Evidence):
        return memory(answer, enough)
    return len(answer.packed)
