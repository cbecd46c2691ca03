"""Sources of pasted text: files of any size, or standard input.

Both may be compressed.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

from preflight.errors import PreflightError
from preflight.evidence import safe_read
from preflight.evidence.spool import spool
from preflight.parsers import job_log
from preflight.textprep.line_source import CHUNK, ByteReader, Notes, opened, peeked
from preflight.textprep.numbered_text import LEFT_OUT, NumberedText

#: Maximum number of bytes and of lines retained at the beginning, and again at the end, of a source without a job log.
#: The facts of a short line take up to 3 KB.
HELD, HELD_LINES = 8 << 20, 20_000

#: Maximum number of files in a directory; a directory with more is rejected.
MOST_FILES = 20_000

#: Maximum number of bytes of a text that may be copied from a page, an email or a log store; a longer text is a file.
COPIED = 4 << 20

_FREE_SPACE_FIX = "pass a file, or set TMPDIR to a folder with enough space"


class SourceError(PreflightError):
    """A source cannot be opened or unpacked; the message names it and the reason."""


@dataclass(frozen=True)
class InputSource:
    """A text on disk, or the text unpacked from an envelope (``given``)."""

    name: str
    path: Path
    given: str | None = None
    unread: dict[str, None] = field(default_factory=dict)  # remarks on unread parts, recorded while reading

    @cached_property
    def log(self) -> job_log.JobLog:
        """The source as a job's log. Raises SourceError."""
        if self.given is not None:
            return job_log.parse(self.given)
        with self._reading():
            return job_log.parse_file(self.path)

    @cached_property
    def copied(self) -> str | None:
        """The complete text; None if too long for a copy. Raises SourceError."""
        if self.given is not None:
            return self.given
        with self._reading(), self.path.open("rb") as stream:
            _, text = peeked(opened(stream, self.note), COPIED)
        return None if text is None else text.decode("utf-8", "backslashreplace")

    @cached_property
    def text(self) -> NumberedText:
        """The text that may contain tool output, with line numbers. Raises SourceError."""
        if not self.log.text.complete and not self.log.is_job and not self.log.repeated_steps:
            with self._reading(), self.path.open("rb") as stream:
                return _held(opened(stream, self.note), self.note)
        if self.log.dropped:
            self.note(f"{self.log.dropped} lines between the beginning and the end were left out")
        return self.log.tool_text()

    @property
    def has_counted_steps(self) -> bool:
        """Whether ``text`` lacks step lines, which only ``log`` has. Raises SourceError."""
        return not self.text.complete and bool(self.log.repeated_steps)

    def note(self, remark: str) -> None:
        """Record that a part of the source was not read."""
        self.unread[remark] = None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        label = "standard input" if self.name == "-" else self.name
        try:
            yield
        except OSError as error:
            raise SourceError(f"{label} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise SourceError(f"{label}: {error}") from None


def open_sources(names: tuple[str, ...]) -> Iterator[InputSource]:
    """Yield the sources of the given names; ``-`` is standard input.

    A directory yields each of its files. Raises SourceError.
    """
    with ExitStack() as stack:
        for name in chain.from_iterable(map(_files, names)):
            source = InputSource(name, stack.enter_context(_standard_input()) if name == "-" else Path(name))
            with source._reading():
                safe_read.require_regular_file(source.path)
                with source.path.open("rb") as file:
                    opened(file, lambda remark: None).read(1)
            yield source


def _files(name: str) -> list[str]:
    """Return the files of a directory, or the name itself if it is not a directory.

    Hidden files and directories are left out. Raises SourceError if a directory contains no files, or too many.
    """
    if name == "-" or not Path(name).is_dir():
        return [name]
    files = []
    for folder, below, inside in os.walk(name):
        below[:] = sorted(entry for entry in below if not entry.startswith("."))
        paths = (Path(folder, entry) for entry in sorted(inside) if not entry.startswith("."))
        files += [str(path) for path in paths if path.is_file()]
        if len(files) > MOST_FILES:
            raise SourceError(f"{name} contains more than {MOST_FILES:,} files; specify some of them")
    if not files:
        raise SourceError(f"{name} contains no files")
    return files


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Spool standard input to disk, because it is read more than once.

    Yields the path. Raises SourceError.
    """
    if sys.stdin is None:
        raise SourceError("standard input is closed")
    if safe_read.is_endless(os.fstat(sys.stdin.fileno())):
        raise SourceError("standard input cannot be read: it is not a regular file")
    try:
        spooled = spool(sys.stdin.buffer)
    except safe_read.UnreadableFile as error:
        raise SourceError(f"standard input: {error.strerror}") from None
    except OSError as error:
        raise SourceError(f"standard input cannot be saved: {error.strerror}; {_FREE_SPACE_FIX}") from None
    with spooled:
        yield Path(spooled.name)


def _held(reader: ByteReader, note: Notes) -> NumberedText:
    """Return a reader's text, or the beginning and end of a long one.

    A gap is recorded with ``note``.
    """
    head, tail = bytearray(), bytearray()
    head_lines = tail_lines = dropped = 0
    full = is_cut = False
    while data := reader.read(CHUNK):
        if not full:
            end = _end(data, HELD - len(head), HELD_LINES - head_lines)
            head += data[:end]
            head_lines += data.count(b"\n", 0, end)
            full, data = end < len(data), data[end:]
        tail += data
        tail_lines += data.count(b"\n")
        if len(tail) > 2 * HELD or tail_lines > 2 * HELD_LINES:
            lost = _drop(tail)
            is_cut, dropped, tail_lines = True, dropped + lost, tail_lines - lost
    if tail_lines > HELD_LINES or is_cut:
        is_cut, dropped = True, dropped + _drop(tail)
    if not is_cut:
        return NumberedText((head + tail).decode("utf-8", "backslashreplace"))
    begin = head.rfind(b"\n") + 1
    note(f"{dropped or 'parts of the'} lines between the beginning and the end were left out")
    first, last = bytes(head[:begin]).split(b"\n")[:-1], bytes(tail).split(b"\n")
    # The retained end usually starts within a line, which is dropped
    after = head_lines + dropped + 1
    numbers = array("Q", range(1, len(first) + 1))
    numbers.append(len(first) + 1)
    numbers.extend(range(after + 1, after + len(last)))
    text = b"\n".join([*first, LEFT_OUT.encode(), *last[1:]])
    return NumberedText(text.decode("utf-8", "backslashreplace"), numbers)


def _drop(tail: bytearray) -> int:
    """Drop all but the end of a text; return the number of dropped newlines."""
    begin = _begin(tail)
    dropped = tail.count(b"\n", 0, begin)
    del tail[:begin]
    return dropped


def _end(data: bytes, most: int, most_lines: int) -> int:
    """Return where the first ``most`` bytes or ``most_lines`` lines end.

    The limit that is reached first applies.
    """
    end = min(most, len(data))
    if data.count(b"\n", 0, end) <= most_lines:
        return end
    return end - len(data[:end].split(b"\n", most_lines)[-1])


def _begin(data: bytes | bytearray) -> int:
    """Return where the last ``HELD`` bytes or ``HELD_LINES`` lines begin.

    The limit that leaves less text applies.
    """
    begin = max(len(data) - HELD, 0)
    if data.count(b"\n", begin) <= HELD_LINES:
        return begin
    return len(data.rsplit(b"\n", HELD_LINES + 1)[0]) + 1
