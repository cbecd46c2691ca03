"""Reads a log: a text, a stream, a file of any size, or the files of all ranks, on all processors."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError
from preflight.parsers.nccl_log.counters import LogCounters
from preflight.parsers.nccl_log.fast_scanner import Scanner
from preflight.parsers.nccl_log.line_source import CHUNK, HEAD, ByteReader, divisible, lines, opened
from preflight.parsers.nccl_log.model import NcclLog
from preflight.parsers.nccl_log.restore_prefix import restore_prefixes
from preflight.parsers.nccl_log.summarize import summarize
from preflight.parsers.nccl_log.truncation import completed, undecided
from preflight.parsers.nccl_log.unwrap import continued, unwrapped

#: A further process costs some 30 ms and 25 MB; it pays from about twice that much work on.
_WORTH_A_PROCESS = 32 << 20
_MOST_PROCESSES = 8


#: Empty lines at the beginning of a text of which the rest is only counted: a piece of a source may keep its place so.
_MOST_EMPTY = 1000


class NoNcclOutput(PreflightError, ValueError):
    """What was read holds no line of NCCL; the text says what it is instead."""


def parse(text: str) -> NcclLog | None:
    """Parse a log among other text; None if no line is NCCL's. Never raises."""
    skipped = max(0, len(text) - len(text.lstrip("\n")) - _MOST_EMPTY)
    scanner = Scanner(skipped)
    scanner.feed(_restore_lines(text[skipped:].encode("utf-8", "backslashreplace").split(b"\n")))
    scanner.flush_counts()
    scanner.tally.all_lines += skipped
    return summarize(scanner.tally)


def _restore_lines(lines: list[bytes]) -> list[bytes]:
    """Restore the lines of a copied text, as far as that is certain."""
    return completed(undecided(restore_prefixes(unwrapped(continued(lines)))))


def read_stream(stream: ByteReader, name: str = "") -> NcclLog:
    """Read a log from a stream, compressed or not; raises NoNcclOutput, other ValueError for damage, OSError."""
    tally = _stream_tally(stream, 0, None, "")
    return _finished(tally, name or "the input")


def read(paths: Sequence[Path], processes: int | None = None) -> NcclLog:
    """Read a log in one file, or in one for each rank (NCCL_DEBUG_FILE with %h and %p), compressed or not.

    Reads with as many processes as there are processors to run on, unless ``processes`` is given. Raises
    NoNcclOutput, other ValueError for compressed data that cannot be unpacked, OSError.
    """
    pieces = _pieces(paths, several=len(paths) > 1)
    shares = _shares(pieces, _processes() if processes is None else processes)
    return _finished(_added(shares), str(paths[0]) if len(paths) == 1 else f"{len(paths)} files")


def _finished(tally: LogCounters, name: str) -> NcclLog:
    log = summarize(tally)
    if log is None:
        long = f", {tally.long_lines} of them longer than any of NCCL" if tally.long_lines else ""
        raise NoNcclOutput(f"{name}: no line of NCCL in {tally.all_lines} lines{long}; run with NCCL_DEBUG=INFO")
    return log


@dataclass(frozen=True)
class _Piece:
    """Part of a file: whole lines."""

    path: Path
    begin: int
    end: int | None  # None: to the end of a compressed file
    size: int  # bytes on disk, to share out the work
    file: str  # name that lines are quoted with; empty where there is only one file


def _pieces(paths: Sequence[Path], *, several: bool) -> list[_Piece]:
    found = []
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as stream:
            plain = divisible(stream.read(HEAD))
        found.append(_Piece(path, 0, size if plain else None, size, path.name if several else ""))
    return found


def _shares(pieces: Sequence[_Piece], processes: int) -> list[list[_Piece]]:
    """Share the pieces out in order, cutting plain files between lines."""
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
    """Return where the first line begins that begins at a position or after it."""
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
    """Return how many processes may read: one where others' threads run, which a fork would not survive."""
    if threading.active_count() > 1 or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _added(shares: Sequence[Sequence[_Piece]]) -> LogCounters:
    """Tally all shares, each but the first in a process of its own, and add up in order."""
    context = multiprocessing.get_context("fork") if len(shares) > 1 else None
    helpers = []
    for share in shares[1:]:
        assert context is not None
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_help, args=(share, theirs), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks where a library keeps a thread
            process.start()
        theirs.close()
        helpers.append((share, process, ours))
    tally = LogCounters()
    try:
        if shares:
            tally = _tally(shares[0])
        for share, process, ours in helpers:
            try:
                tally.merge(ours.recv())
            except (EOFError, OSError):
                tally.merge(_tally(share))  # the helper was killed: the kernel's need for memory, as a rule
            process.join()
    finally:
        for _, process, ours in helpers:
            ours.close()
            if process.is_alive():
                process.kill()
                process.join()
    return tally


def _help(share: Sequence[_Piece], answer: Connection) -> None:
    try:
        answer.send(_tally(share))
    except Exception:
        answer.close()  # the parent reads this share itself, and gets the same error


def _tally(pieces: Iterable[_Piece]) -> LogCounters:
    tally = LogCounters()
    for piece in pieces:
        with piece.path.open("rb") as stream:
            before = _count_lines(stream, piece.begin)
            if piece.end is None:
                part = _stream_tally(stream, before, None, piece.file)
            else:
                part = _stream_tally(stream, before, piece.end - piece.begin, piece.file)
        if tally.all_lines:
            tally.merge(part)
        else:
            tally = part
    return tally


def _count_lines(stream: BinaryIO, end: int) -> int:
    """Count line ends up to a position, and stay there."""
    number = 0
    while end > 0 and (data := stream.read(min(CHUNK, end))):
        number += data.count(b"\n")
        end -= len(data)
    return number


def _stream_tally(stream: ByteReader, before: int, most: int | None, file: str) -> LogCounters:
    scanner = Scanner(before, file)

    def note(remark: str) -> None:
        scanner.tally.notes[f"{file}: {remark}" if file else remark] = None

    reader = opened(stream, note) if most is None else stream
    chunks = lines(reader, most)
    small = list(islice(chunks, 2))
    if sum(map(len, small[1:])) <= 1 and not before:  # a copied text, and the end of its last line
        small = [_restore_lines([line for chunk in small for line in chunk])]
    for chunk in chain(small, chunks):
        scanner.feed(chunk)
    scanner.flush_counts()
    return scanner.tally
