"""Evidence on disk: one file per node, and ``run.json`` for the logs of a run."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from preflight._startup.lightclass import replace
from preflight.errors import PreflightError
from preflight.evidence import safe_read
from preflight.evidence.document import DocumentError, Evidence, dump, no_answer, read
from preflight.evidence.spool import spool
from preflight.facts.job import RUN
from preflight.facts.streamed_log import LogFile, with_texts
from preflight.parsers.torch.safe_pickle import is_pickle
from preflight.textprep.line_source import divisible

if TYPE_CHECKING:
    from io import BufferedWriter

RUN_FILE = "run.json"

#: The start of a report, and the number of bytes that are searched for it.
_REPORT, _HEAD = re.compile(rb'\s{0,100}\{\s{0,100}"schema"\s{0,10}:\s{0,10}"preflight\.report/'), 300


class ArchiveError(PreflightError):
    """Raised if evidence cannot be loaded; the text names the path and the fix."""


def file_name(node: str) -> str:
    """Return the file name of a node's document, which cannot leave its directory."""
    if node == RUN:
        return RUN_FILE
    name = quote(node, safe="-_.+@:", errors="backslashreplace") + ".json"
    if name.startswith(".") or name == RUN_FILE:
        name = f"%{ord(node[0]):02X}{name[1:]}"
    return name


def _file_of(evidence: Evidence) -> str:
    """Return a document's file name; pair tests have separate files."""
    if evidence.pair is None:
        return file_name(evidence.node)
    return file_name(f"{evidence.node}.pair-{evidence.pair.peer}")


def save(directory: Path, evidences: Iterable[Evidence]) -> None:
    """Write each document to ``DIRECTORY/NODE.json``; raises OSError.

    Documents of pair tests are written to ``NODE.pair-PEER.json``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for evidence in evidences:
        write(directory / _file_of(evidence), dump(_with_texts(evidence)))


def _with_texts(evidence: Evidence) -> Evidence:
    """Return the evidence; that of a run includes the text of its logs.

    Raises OSError.
    """
    if evidence.node != RUN:
        return evidence

    return with_texts(evidence)


def is_stream(path: Path) -> bool:
    """Return whether a path is a device or open stream, which must not be replaced."""
    if str(path).startswith(("/dev/fd/", "/dev/std", "/proc/")):
        return True
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


#: The path that means standard output.
STDOUT = Path("-")


def write(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file, which replaces an older one atomically; raises OSError."""
    with replacing(path) as stream:
        for piece in [text] if isinstance(text, str) else text:
            stream.write(piece.encode("utf-8", "backslashreplace"))


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BufferedWriter]:
    """Yield a stream whose content replaces a file when complete; raises OSError.

    For standard output or a device, the stream writes to it directly.
    """
    if path == STDOUT:
        sys.stdout.flush()
        yield sys.stdout.buffer  # type: ignore[misc]
        sys.stdout.buffer.flush()
        return
    if is_stream(path):
        with path.open("wb") as stream:
            yield stream
        return
    if mode is None:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    # The name is random, so that no link with this name can be created in advance.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            os.fchmod(stream.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(paths: Sequence[Path]) -> tuple[list[Evidence], Evidence | None]:
    """Read files and directories; raises ArchiveError.

    Return the nodes' documents sorted by name, and the logs of the run, or None.
    """
    nodes: dict[str, tuple[Evidence, Path]] = {}
    run: Evidence | None = None
    for path in files(paths):
        try:
            evidence = read_file(path)
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read: {error.strerror}") from None
        if evidence is None:
            continue
        if evidence.node == RUN:
            run = evidence if run is None else merged(run, evidence)
            continue
        if evidence.node in nodes:
            known, other = nodes[evidence.node]
            if (combined := joined(known, evidence)) is not None:
                nodes[evidence.node] = (combined, other)
                continue
            raise twice(evidence.node, other, path)
        nodes[evidence.node] = (evidence, path)
    return [nodes[name][0] for name in sorted(nodes)], run


def read_file(path: Path) -> Evidence | None:
    """Read the document in a file; return None for a report.

    A file without a complete document becomes a node without an answer. Raises OSError.
    """
    try:
        return read(path)
    except DocumentError as error:
        return None if is_report(path) else no_answer(path.stem, "read", str(error), _written_at([path]))


def twice(node: str, one: Path, other: Path) -> ArchiveError:
    """Return the error for a node that two files describe."""
    return ArchiveError(f"{one} and {other} both describe node {node}; judge them separately")


def files(paths: Sequence[Path]) -> list[Path]:
    """Return the paths, with each directory replaced by its sorted JSON files.

    Raises ArchiveError.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            if not inside:
                raise ArchiveError(f"{path} contains no *.json file; `preflight check --save {path}` writes them")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise ArchiveError(f"{path}: no such file or directory")
    return found


def is_report(path: Path) -> bool:
    """Return whether a file is a report."""
    try:
        safe_read.require_regular_file(path)
        with path.open("rb") as stream:
            return _REPORT.match(stream.read(_HEAD)) is not None
    except OSError:
        return False


def merged(one: Evidence, other: Evidence) -> Evidence:
    """Merge two documents with logs of a run."""
    return Evidence(RUN, one.collected_at, {**one.records, **other.records}, origin=one.origin)


def joined(one: Evidence, other: Evidence) -> Evidence | None:
    """Join a node's document with that of its pair tests, given in any order.

    Return None if they cannot be joined.
    """
    if (one.pair is None) == (other.pair is None):
        return None
    document, part = (one, other) if one.pair is None else (other, one)
    if document.pair_tests or document.no_answer is not None:
        return None
    return replace(document, records={**part.records, **document.records})


def logs(paths: Sequence[Path], limit: int) -> Evidence | None:
    """Return the evidence of a run from log files; None without files.

    Raises ArchiveError.
    """
    records: dict[str, object] = {}
    for path in paths:
        try:
            safe_read.require_regular_file(path)
            place = _spooled(path)
            with place.open("rb") as stream:
                head, size = stream.read(_HEAD), os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read: {error.strerror}") from None
        key = f"log:{path.name}"
        while key in records:
            key += "'"
        records[key] = _log(place, head, size, limit)
    return Evidence(RUN, _written_at(paths), records) if records else None


def _spooled(path: Path) -> Path:
    """Return the path of a log, or of its copy if the log is a pipe."""
    if not stat.S_ISFIFO(path.stat().st_mode):
        return path

    with path.open("rb") as stream:
        copy = spool(stream)
    _copies.append(copy)
    return Path(copy.name)


#: Copies of pipes, which are removed when the process ends.
_copies: list[object] = []


def _log(path: Path, head: bytes, size: int, limit: int) -> object:
    """Return the record of a log whose first bytes are ``head``."""
    why = ""
    if size > limit:
        why = f"the log is longer than {limit} bytes"
    elif is_pickle(head[:8]):
        why = "the log is a pickle"
    elif not divisible(head):
        why = "the log is compressed, or in UTF-16"
    return LogFile(path, why)


def _written_at(paths: Sequence[Path]) -> str:
    """Return the UTC time at which the newest of the files was written."""
    newest = max(path.stat().st_mtime for path in paths)
    return datetime.fromtimestamp(newest, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
