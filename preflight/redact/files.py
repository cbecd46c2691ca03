"""Redaction of files: JSON documents by key, all others as text."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from preflight._startup.lightclass import dataclass
from preflight.archive.directory import replacing
from preflight.errors import PreflightError
from preflight.evidence import node_result
from preflight.redact import json_rewriter
from preflight.redact.redactor import Redactor

#: Maximum memory in bytes for a JSON document; a larger one is redacted as text.
DOCUMENT = 160 << 20

#: Maximum content of a file in bytes (each million takes one to two seconds). For compressed content above ``FREE``
#: bytes there is also a maximum expansion: a log expands 30 times, repeated lines of a large log 100 times.
UNPACKED_CAP, FREE, SMALL = 16_000_000_000, 5 << 20, 1 << 20
RATIO, RATIO_OF_SMALL = 100, 40

#: Bytes that are read at once, and maximum characters without a space. A longer run is left out, because a break within
#: it could split a name.
_BLOCK, _UNBROKEN = 1 << 18, 1 << 19

_KEY_BEGINS, _KEY_NAME = "-----BEGIN PRIVATE KEY-----\n", "PRIVATE KEY"


class RedactionError(PreflightError):
    """Raised for a file that cannot be redacted; the text is the reason."""


@dataclass(frozen=True)
class InputFile:
    """A file, and its path relative to the argument that it belongs to."""

    path: Path
    place: Path


def items(paths: Sequence[Path]) -> tuple[list[InputFile], list[str]]:
    """Return the files to redact, and the excluded paths with their reasons."""
    found, left = [], []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for one in inside:
            place = one.relative_to(path) if path.is_dir() else Path(path.name)
            if one.is_symlink() and path.is_dir():
                left.append(f"{one} is a link")
            elif one.is_file():
                found.append(InputFile(one, place if len(paths) == 1 or not path.is_dir() else Path(path.name) / place))
            elif not one.is_dir():
                left.append(f"{one} is not a file")
    return found, left


def learn(redactor: Redactor, found: Sequence[InputFile]) -> list[str]:
    """Learn names from all files; return the unreadable files with their reasons."""
    left = []
    for item in found:
        redactor.learn(str(item.place))
        try:
            _no_bomb(item.path)
            if (document := _document(item.path)) is not None:
                redactor.learn_value(document[1])
            else:
                formats: set[str] = set()
                for piece in _pieces(item.path):
                    redactor.learn(_readable(piece), formats)
        except (OSError, EOFError, zlib.error, RedactionError) as error:
            left.append(f"{item.path}: {getattr(error, 'strerror', None) or error}")
    return left


def write(redactor: Redactor, item: InputFile, target: Path) -> None:
    """Write a redacted file atomically; raises OSError, RedactionError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as stream:
        for piece in redacted(redactor, item):
            stream.write(piece)


def redacted(redactor: Redactor, item: InputFile) -> Iterator[bytes]:
    """Yield a file's redacted content in pieces; raises OSError, RedactionError."""
    text: Iterable[str]
    if (document := _document(item.path)) is not None:
        text = json_rewriter.rewritten(*document, redactor.value)
    else:
        text = (redactor.text(_readable(piece)) for piece in _pieces(item.path))
    for piece in text:
        yield piece.encode("utf-8", "surrogateescape")


def place(redactor: Redactor, item: InputFile, taken: set[str]) -> Path:
    """Return a file's target path: with aliases, and not yet in ``taken``."""
    parts = [redactor.text(part) for part in item.place.parts]
    if parts[-1].endswith(".gz"):
        parts[-1] = parts[-1].removesuffix(".gz")  # the content is written uncompressed
    made = Path(*parts)
    number = 2
    while str(made) in taken:
        made = made.with_name(f"{Path(parts[-1]).stem}-{number}{Path(parts[-1]).suffix}")
        number += 1
    taken.add(str(made))
    return made


# --- reading ---------------------------------------------------------------------------------------


def _document(path: Path) -> tuple[str, dict[str, Any] | list[Any]] | None:
    """Return the text and document of a JSON file; None for any other file.

    For a node that judged itself, these are its evidence. Raises OSError or RedactionError.
    """
    if path.stat().st_size > DOCUMENT:
        return None
    with path.open("rb") as stream:
        if stream.read(64).lstrip()[:1] not in (b"{", b"["):
            return None
        stream.seek(0)
        try:
            text = stream.read(DOCUMENT + 1).decode()
            document = json_rewriter.loads(text, DOCUMENT)
        except (ValueError, json_rewriter.DuplicateKey):
            return None
    if isinstance(document, dict) and document.get("schema") == node_result.SCHEMA:
        try:
            document = node_result.unpacked(document)
        except ValueError as error:
            raise RedactionError(str(error)) from None
        return json.dumps(document, indent=1), document
    return (_readable(text), document) if isinstance(document, dict | list) else None


def _readable(text: str) -> str:
    """Return the text; raises RedactionError if it has compressed evidence."""
    if node_result.SCHEMA in text:
        raise RedactionError(
            f"it contains {node_result.SCHEMA}, but is not such a document: its evidence is compressed"
        )
    return text


def _pieces(path: Path) -> Iterator[str]:
    """Yield a file's text in pieces without splitting names.

    Raises OSError or RedactionError.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    rest, dropped, in_key, total = "", 0, False, 0
    with _opened(path) as stream:
        while True:
            block = stream.read(_BLOCK)
            total += len(block)
            if total > UNPACKED_CAP:
                raise RedactionError(f"contains more than {UNPACKED_CAP} bytes")
            if b"\0" in block:
                raise RedactionError("is not text")
            rest += decoder.decode(block, final=not block)
            piece, rest, lost = _cut(rest, not block)
            dropped += lost
            if dropped and piece:
                piece = f"[{dropped} characters without a space left out]{piece}"
                dropped = 0
            if in_key and piece:
                piece = _KEY_BEGINS + piece
            if piece:
                in_key = _unfinished_key(piece)
                yield piece
            if not block:
                break
    if dropped:
        yield f"[{dropped} characters without a space left out]\n"


def _unfinished_key(piece: str) -> bool:
    """Return whether a private key starts in a piece, but does not end in it."""
    begins = piece.rfind("-----BEGIN ")
    return begins >= 0 and _KEY_NAME in piece[begins : begins + 60] and "-----END " not in piece[begins:]


def _cut(text: str, last: bool) -> tuple[str, str, int]:
    """Split a text into the part to process now and the rest.

    Also return the number of dropped characters: an overlong run without a break is dropped.
    """
    if last:
        return text, "", 0
    end = _line_end(text)
    if not end and len(text) > _BLOCK:
        end = max(text.rfind(sign) for sign in " \t\r,;") + 1
    if end or len(text) < _UNBROKEN:
        return text[:end], text[end:], 0
    return "", "", len(text)


def _line_end(text: str) -> int:
    """Return the end of the last complete line, preferably one that does not continue."""
    last = end = text.rfind("\n") + 1
    while end > max(1, last - _UNBROKEN) and text[end - 2] in ",([-":
        end = text.rfind("\n", 0, end - 1) + 1
    return end if end > 1 else last


def _no_bomb(path: Path) -> None:
    """Raise RedactionError for a compressed file that expands too much."""
    with _opened(path) as stream:
        if not isinstance(stream, gzip.GzipFile):
            return
        size, held = path.stat().st_size, 0
        most = min(max(FREE, size * (RATIO_OF_SMALL if size <= SMALL else RATIO)), UNPACKED_CAP)
        while block := stream.read(_BLOCK):
            held += len(block)
            if held > most:
                raise RedactionError(
                    f"{size} bytes unpack to more than {most}, the limit for a compressed file of this "
                    "size; unpack it with gunzip and pass the result"
                )


def _opened(path: Path) -> IO[bytes]:
    """Open a file, decompressed if it is gzip; raises RedactionError."""
    stream = path.open("rb")
    magic = stream.read(6)
    stream.seek(0)
    if magic[:2] == b"\x1f\x8b":
        stream.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if magic[:4] == b"(\xb5/\xfd" or magic[:3] == b"BZh" or magic == b"\xfd7zXZ\0":
        stream.close()
        raise RedactionError("is compressed by a tool other than gzip; unpack it first")
    return stream


def write_map(redactor: Redactor, path: Path) -> None:
    """Write the aliases and names to a file that only its owner can read.

    Raises OSError, also if the file exists.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
        for original, alias in sorted(redactor.aliases()):
            stream.write(f"{alias}\t{original}\n")
