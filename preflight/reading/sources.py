"""Where a pasted text comes from: a file of any size, plain or compressed, or standard input."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from preflight import bounded
from preflight.facts.nccl_log.source import CHUNK, Reader, opened

#: Bytes of a source that are held at once. Logs of NCCL are read to their end whatever their size; of everything
#: else in a source that is larger, this much is read from its beginning and from its end.
HELD = 16 << 20

_ROOM = "give a file, or set TMPDIR to a folder with room for all of it"


class SourceError(Exception):
    """A source cannot be opened or unpacked; the text says which and why."""


@dataclass(frozen=True)
class Source:
    """A text on disk. ``text`` is what is held of it; ``skipped`` the lines left out, from number to number."""

    name: str
    path: Path
    text: str
    skipped: tuple[int, int] | None = None


def open_sources(names: tuple[str, ...]) -> Iterator[Source]:
    """Yield each source by name, ``-`` for standard input, which is kept on disk meanwhile. Raises SourceError."""
    with ExitStack() as stack:
        for name in names:
            yield _source(name, stack.enter_context(_standard_input()) if name == "-" else Path(name))


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Keep standard input on disk meanwhile: it is read more than once. Raises SourceError."""
    if sys.stdin is None:
        raise SourceError("standard input is closed")
    if bounded.endless(os.fstat(sys.stdin.fileno())):
        raise SourceError("standard input: cannot be read: it is no regular file")
    try:
        spooled = tempfile.NamedTemporaryFile(prefix="preflight-read-", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise SourceError(f"standard input cannot be kept: {error.strerror}; {_ROOM}") from None
    with spooled:
        try:
            shutil.copyfileobj(sys.stdin.buffer, spooled, CHUNK)
        except OSError as error:
            raise SourceError(f"standard input cannot be kept: {error.strerror}; {_ROOM}") from None
        yield Path(spooled.name)


def _source(name: str, path: Path) -> Source:
    said = "standard input" if name == "-" else name
    try:
        bounded.waits_for_nobody(path)
        with path.open("rb") as stream:
            head, tail, skipped = _held(opened(stream, lambda remark: None))
    except OSError as error:
        raise SourceError(f"{said}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SourceError(f"{said}: {error}") from None
    if not skipped:
        return Source(name, path, (head + tail).decode("utf-8", "backslashreplace"))
    begin = head.rfind(b"\n") + 1
    end = tail.find(b"\n") + 1
    first = head.count(b"\n", 0, begin) + 1
    left_out = head[begin:].count(b"\n") + skipped + tail.count(b"\n", 0, end)
    # The lines left out stay as empty ones, so that every other keeps its number
    gap = b"\n" * left_out
    text = (head[:begin] + gap + tail[end:]).decode("utf-8", "backslashreplace")
    return Source(name, path, text, (first, first + left_out - 1))


def _held(reader: Reader) -> tuple[bytes, bytes, int]:
    """Return the beginning and the end of what a reader gives, and how many line ends lie between them."""
    head, tail, skipped = bytearray(), bytearray(), 0
    while data := reader.read(CHUNK):
        room = HELD - len(head)
        head += data[:room]
        tail += data[room:] if room < len(data) else b""
        if len(tail) > 2 * HELD:
            skipped += tail.count(b"\n", 0, len(tail) - HELD)
            del tail[: len(tail) - HELD]
    return bytes(head), bytes(tail), skipped
