"""Reader of a log: a text, a stream, a file, or the files of all ranks.

It divides large logs among several processes.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError
from preflight.parsers.line_selection import LineSelection
from preflight.parsers.nccl_log.counters import LogCounters
from preflight.parsers.nccl_log.fast_scanner import Scanner
from preflight.parsers.nccl_log.model import NcclLog
from preflight.parsers.nccl_log.restore_prefix import restore_prefixes
from preflight.parsers.nccl_log.summarize import summarize
from preflight.parsers.nccl_log.truncation import CUT_VALUE, completed, undecided
from preflight.textprep.line_source import (
    CHUNK,
    HEAD,
    MAX_LINE_BYTES,
    ByteReader,
    divisible,
    lines,
    opened,
    peeked,
)
from preflight.textprep.wrapped_lines import continued, unwrapped

#: Minimum number of bytes for each process: starting one takes about 30 ms and 25 MB of memory.
_WORTH_A_PROCESS = 16 << 20
_MOST_PROCESSES = 8


#: Maximum number of empty lines that are scanned at the start of a text; more are only counted. They may stand for
#: other lines of a source, so line numbers are correct.
_MOST_EMPTY = 1000


class NoNcclOutput(PreflightError, ValueError):
    """The input has no NCCL line; the message names the input and the fix."""


@dataclass
class ScannedLog:
    """The counters of a log, and the lines selected for other parsers."""

    tally: LogCounters
    selection: LineSelection | None = None

    def merge(self, other: ScannedLog) -> None:
        """Add the next part of the log."""
        self.tally.merge(other.tally)
        if self.selection is not None and other.selection is not None:
            self.selection.merge(other.selection)


def parse(text: str) -> NcclLog | None:
    """Parse a text; return None if no line is from NCCL. Never raises."""
    return summarize(scan_text(text, select=False).tally)


def scan_text(text: str, *, select: bool) -> ScannedLog:
    """Scan a text. Never raises."""
    skipped = max(0, len(text) - len(text.lstrip("\n")) - _MOST_EMPTY)
    stream = io.BytesIO(text[skipped:].encode("utf-8", "backslashreplace"))
    found = _scan(stream, skipped, None, "", select=select)
    found.tally.all_lines += skipped
    if found.selection is not None and found.selection.all is not None:
        found.selection.take_all(text)
    return found


def _restore_lines(lines: list[bytes]) -> list[bytes]:
    """Restore the damaged lines of a copied text where that is unambiguous."""
    return completed(undecided(restore_prefixes(continued(unwrapped(lines)))))


def read_stream(stream: ByteReader, name: str = "") -> NcclLog:
    """Read a log from a stream, compressed or not.

    Raises NoNcclOutput, another ValueError for data that cannot be decompressed, or OSError.
    """
    return _finished(_scan_stream(stream, 0, None, "", select=False).tally, name or "the input")


def read(paths: Sequence[Path], processes: int | None = None) -> NcclLog:
    """Read a log in one file, or in one file per rank, compressed or not.

    NCCL_DEBUG_FILE with %h and %p writes one file per rank. ``processes`` limits the number of reading processes; by
    default, it is the number of processors (at most 8). Raises NoNcclOutput, another ValueError for data that cannot be
    decompressed, or OSError.
    """
    return _finished(scan(paths, processes).tally, str(paths[0]) if len(paths) == 1 else f"{len(paths)} files")


def scan(paths: Sequence[Path], processes: int | None = None, *, select: bool = False) -> ScannedLog:
    """Scan files, large ones in several processes.

    Raises OSError, and ValueError for data that cannot be decompressed.
    """
    pieces = _pieces(paths, several=len(paths) > 1)
    return _added(_shares(pieces, _processes() if processes is None else processes), select)


def _finished(tally: LogCounters, name: str) -> NcclLog:
    log = summarize(tally)
    if log is None:
        long = f", {tally.long_lines} of them longer than any NCCL line" if tally.long_lines else ""
        raise NoNcclOutput(f"{name}: no NCCL line in {tally.all_lines} lines{long}; run with NCCL_DEBUG=INFO")
    return log


@dataclass(frozen=True)
class _Piece:
    """A part of a file that consists of complete lines."""

    path: Path
    begin: int
    end: int | None  # None: the complete file, which is compressed or UTF-16
    size: int  # bytes on disk, by which the work is divided
    file: str  # name for quoting lines; empty if there is only one file


def _pieces(paths: Sequence[Path], *, several: bool) -> list[_Piece]:
    found = []
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as stream:
            plain = divisible(stream.read(HEAD))
        found.append(_Piece(path, 0, size if plain else None, size, path.name if several else ""))
    return found


def _shares(pieces: Sequence[_Piece], processes: int) -> list[list[_Piece]]:
    """Divide the pieces among processes in order; plain files are split between lines."""
    total = sum(piece.size for piece in pieces)
    number = max(1, min(processes, total // _WORTH_A_PROCESS, _MOST_PROCESSES))
    share = total / number
    shares: list[list[_Piece]] = [[]]
    room = share
    for piece in pieces:
        while piece.size > room and len(shares) < number and piece.end is not None:
            cut = _line_begin(piece.path, piece.begin + int(room), piece.end)
            if cut < piece.end:
                shares[-1].append(_Piece(piece.path, piece.begin, cut, cut - piece.begin, piece.file))
            else:
                break
            piece = _Piece(piece.path, cut, piece.end, piece.end - cut, piece.file)
            shares.append([])
            room = share
        shares[-1].append(piece)
        room -= piece.size
        if room <= 0 and len(shares) < number:
            shares.append([])
            room = share
    return [pieces for pieces in shares if pieces]


def _line_begin(path: Path, position: int, end: int) -> int:
    """Return the position of the first line start at or after a position."""
    if position <= 0:
        return 0
    with path.open("rb") as stream:
        stream.seek(position - 1)
        position -= 1
        while position < end and (data := stream.read(1 << 16)):
            found = data.find(b"\n")
            if found >= 0:
                return min(end, position + found + 1)
            position += len(data)
    return end


def _processes() -> int:
    """Return the maximum number of reading processes.

    It is 1 if other threads run, since they would not survive a fork.
    """
    if threading.active_count() > 1 or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _added(shares: Sequence[Sequence[_Piece]], select: bool) -> ScannedLog:
    """Scan the first share here, all others in child processes; merge in order."""
    context = multiprocessing.get_context("fork") if len(shares) > 1 else None
    helpers = []
    for share in shares[1:]:
        assert context is not None
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_help, args=(share, select, theirs), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about a fork while a library has a thread
            process.start()
        theirs.close()
        helpers.append((share, process, ours))
    found = ScannedLog(LogCounters(), LineSelection() if select else None)
    try:
        if shares:
            found = _scan_pieces(shares[0], select)
        for share, process, ours in helpers:
            try:
                found.merge(ours.recv())
            except (EOFError, OSError):
                # the child was killed, usually because of a memory shortage
                found.merge(_scan_pieces(share, select))
            process.join()
    finally:
        for _, process, ours in helpers:
            ours.close()
            if process.is_alive():
                process.kill()
                process.join()
    return found


def _help(share: Sequence[_Piece], select: bool, answer: Connection) -> None:
    try:
        answer.send(_scan_pieces(share, select))
    except Exception:
        answer.close()  # the parent then scans this share, and gets the same error


def _scan_pieces(pieces: Iterable[_Piece], select: bool) -> ScannedLog:
    found: ScannedLog | None = None
    for piece in pieces:
        with piece.path.open("rb") as stream:
            before = _count_lines(stream, piece.begin)
            most = None if piece.end is None else piece.end - piece.begin
            part = _scan_stream(stream, before, most, piece.file, select=select)
        if found is not None and found.tally.all_lines:
            found.merge(part)
        else:
            found = part
    return found or ScannedLog(LogCounters(), LineSelection() if select else None)


def _count_lines(stream: BinaryIO, end: int) -> int:
    """Count the newlines up to a position, and leave the stream there."""
    number = 0
    while end > 0 and (data := stream.read(min(CHUNK, end))):
        number += data.count(b"\n")
        end -= len(data)
    return number


def _scan_stream(stream: ByteReader, before: int, most: int | None, file: str, *, select: bool) -> ScannedLog:
    """Scan a file, or a limited part of it that is neither compressed nor UTF-16."""
    remarks: dict[str, None] = {}

    def note(remark: str) -> None:
        remarks[f"{file}: {remark}" if file else remark] = None

    found = _scan(opened(stream, note) if most is None else stream, before, most, file, select=select)
    found.tally.unread.update(remarks)
    return found


def _scan(reader: ByteReader, before: int, most: int | None, file: str, *, select: bool) -> ScannedLog:
    selection = LineSelection() if select else None
    scanner = Scanner(before, file, selection)
    reader, copied = peeked(reader, CHUNK if most is None else min(CHUNK, most))
    if copied is not None and not before:
        if selection is not None:
            selection.take_all(copied.decode("utf-8", "backslashreplace"))
            scanner.selection = None
        copied_lines = copied.removesuffix(b"\n").split(b"\n") if copied else []
        for number, line in enumerate(copied_lines):
            if len(line) > MAX_LINE_BYTES:
                scanner.left_out(line[MAX_LINE_BYTES:])
                copied_lines[number] = line[:MAX_LINE_BYTES]
        restored = _restore_lines(copied_lines)
        if cut := sum(line.endswith(CUT_VALUE) for line in restored):
            scanner.tally.unread[f"{cut} NCCL lines were truncated at the screen width; their values are left out"] = (
                None
            )
        scanner.feed(restored)
    else:
        for chunk in lines(reader, scanner.left_out, most):
            scanner.feed(chunk)
    scanner.flush_counts()
    return ScannedLog(scanner.tally, selection)
