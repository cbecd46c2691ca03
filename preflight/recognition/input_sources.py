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

from preflight.errors import PreflightError
from preflight.evidence import safe_read
from preflight.parsers.nccl_log.line_source import CHUNK, ByteReader, opened

#: Bytes of a source that are held at once. Logs of NCCL of any size are read to their end; of everything
#: else in a source that is larger, this much is read from its beginning and from its end.
HELD = 16 << 20

#: Lines that are held likewise: a line of a few bytes costs more as a fact than as text, up to 3 KB.
HELD_LINES = 60_000

#: Lines between the beginning and the end of a source up to which the end is held: each stays as an empty line.
MOST_SKIPPED = 10_000_000

_ROOM = "give a file, or set TMPDIR to a folder with room for all of it"


class SourceError(PreflightError):
    """A source cannot be opened or unpacked; the text says which and why."""


@dataclass(frozen=True)
class InputSource:
    """A text on disk. ``text`` is what is held of it; ``skipped`` the lines left out, from number to number."""

    name: str
    path: Path
    text: str
    skipped: tuple[int, int] | None = None


def open_sources(names: tuple[str, ...]) -> Iterator[InputSource]:
    """Yield each source by name, ``-`` for standard input, spooled to disk. Raises SourceError."""
    with ExitStack() as stack:
        for name in names:
            yield _source(name, stack.enter_context(_standard_input()) if name == "-" else Path(name))


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Keep standard input on disk meanwhile: it is read more than once. Raises SourceError."""
    if sys.stdin is None:
        raise SourceError("standard input is closed")
    if safe_read.is_endless(os.fstat(sys.stdin.fileno())):
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


def _source(name: str, path: Path) -> InputSource:
    label = "standard input" if name == "-" else name
    try:
        safe_read.require_regular_file(path)
        with path.open("rb") as stream:
            head, tail, skipped = _held(opened(stream, lambda remark: None))
    except OSError as error:
        raise SourceError(f"{label}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SourceError(f"{label}: {error}") from None
    if skipped is None:
        return InputSource(name, path, (head + tail).decode("utf-8", "backslashreplace"))
    begin = head.rfind(b"\n") + 1
    end = tail.find(b"\n") + 1
    first = head.count(b"\n", 0, begin) + 1
    left_out = head[begin:].count(b"\n") + skipped + tail.count(b"\n", 0, end)
    if left_out > MOST_SKIPPED:
        left_out, end = left_out + tail.count(b"\n", end), len(tail)
    # The lines left out stay as empty ones, so that every other keeps its number
    gap = b"\n" * (left_out if end < len(tail) else 0)
    text = (head[:begin] + gap + tail[end:]).decode("utf-8", "backslashreplace")
    return InputSource(name, path, text, (first, first + left_out - 1))


def _held(reader: ByteReader) -> tuple[bytes, bytes, int | None]:
    """Return the beginning and the end of what a reader gives, and how many line ends lie between; None for no gap."""
    head, tail = bytearray(), bytearray()
    head_lines = tail_lines = 0
    skipped: int | None = None
    full = False
    while data := reader.read(CHUNK):
        if not full:
            end = _end(data, HELD - len(head), HELD_LINES - head_lines)
            head += data[:end]
            head_lines += data.count(b"\n", 0, end)
            full, data = end < len(data), data[end:]
        tail += data
        tail_lines += data.count(b"\n")
        if len(tail) > 2 * HELD or tail_lines > 2 * HELD_LINES:
            dropped = _drop(tail)
            skipped, tail_lines = (skipped or 0) + dropped, tail_lines - dropped
    if tail_lines > HELD_LINES or skipped is not None:
        skipped = (skipped or 0) + _drop(tail)
    return bytes(head), bytes(tail), skipped


def _drop(tail: bytearray) -> int:
    """Drop all but the end of a text that is held, and return how many line ends that takes away."""
    begin = _begin(tail)
    dropped = tail.count(b"\n", 0, begin)
    del tail[:begin]
    return dropped


def _end(data: bytes, most: int, most_lines: int) -> int:
    """Return where the first ``most`` bytes of data end, or its first ``most_lines`` lines if that is sooner."""
    end = min(most, len(data))
    if data.count(b"\n", 0, end) <= most_lines:
        return end
    return end - len(data[:end].split(b"\n", most_lines)[-1])


def _begin(data: bytes | bytearray) -> int:
    """Return where the last ``HELD`` bytes of data begin, or its last ``HELD_LINES`` lines if that is later."""
    begin = max(len(data) - HELD, 0)
    if data.count(b"\n", begin) <= HELD_LINES:
        return begin
    return len(data.rsplit(b"\n", HELD_LINES + 1)[0]) + 1
