"""Decoding of untrusted JSON within a memory limit.

128 KB of compressed ``[],[],`` become 3 GB of lists. The memory of a document is therefore estimated from the bytes
that create objects, before any object is created.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from preflight.errors import PreflightError
from preflight.evidence import safe_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

#: Maximum memory in bytes for the text and values of a node's answer, and of a file. A complete node takes 1.5 MB, a
#: sweep of a large fabric 120 MB. Reports are read by ``report_file``.
ANSWER, FILE = 192 << 20, 400 << 20

#: Maximum memory in bytes for JSON within a record or a log, and the number of characters that never exceed it: each
#: character takes at most 50 bytes.
PART = 96 << 20
_SURELY_FITS = PART // 50

#: Maximum bytes of memory that each of the characters ``{[,:`` creates, on any Python from 3.10: the object, its slot
#: in the enclosing list or dictionary, and a value after a comma or colon. A repeated key costs only its slot.
_OBJECT, _LIST, _VALUE, _KEY, _KNOWN_KEY = 240, 90, 60, 95, 25

_MARKS = (b"{", b"[", b",", b":")
_CHUNK = 1 << 20
_NAME = re.compile(rb'"([^"\\]{0,200})"\s{0,20}:')
_MOST_NAMES = 50_000


class DocumentTooLarge(PreflightError, ValueError):
    """Raised if the values would take more memory than the limit."""


def read(path: str | Path, longest: int = safe_read.DOCUMENT, once: bool = False) -> Any:
    """Decode a JSON file; raises OSError, or ValueError for invalid content.

    ``once`` rejects duplicate keys, which takes as long again as decoding.
    """
    return _made([safe_read.content(path, longest)], FILE, 0, True, once)


def decoded(raw: bytes, most: int = FILE, strict: bool = True, once: bool = False) -> Any:
    """Decode JSON in UTF-8; raises ValueError.

    ``strict`` rejects control characters, such as line ends, within strings; ``once`` rejects duplicate keys.
    """
    return _made([raw], most, len(raw), strict, once)


def answer(raw: bytes) -> Any:
    """Decode a node's answer; raises ValueError."""
    if memory(raw, ANSWER) > ANSWER:
        raise DocumentTooLarge(f"it would take more than {ANSWER >> 20} MiB of memory")
    return decoded_answer(raw)


def decoded_answer(raw: bytes) -> Any:
    """Decode a node's answer whose size was checked; raises ValueError."""
    return _json().loads(raw.decode("utf-8"), strict=False)


def text_size(raw: bytes) -> int:
    """Return an upper bound on a text's memory in bytes while it is decoded."""
    return len(raw) * (1 if raw.isascii() else 4)


def text(
    text: str, strict: bool = True, most: int = PART, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Decode JSON within a record or log; raises ValueError.

    ``pairs`` converts the members of each object; by default, to a dictionary.
    """
    check(text, most=most)
    try:
        return _json().loads(text, strict=strict, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def begun(text: str, start: int) -> tuple[Any, int]:
    """Decode the JSON value at a position; return it and its end, or raise ValueError."""
    check(text, start)
    try:
        return _json().JSONDecoder().raw_decode(text, start)  # type: ignore[no-any-return]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check(text: str, start: int = 0, most: int = PART) -> None:
    """Raise DocumentTooLarge if a text and its values may exceed ``most`` bytes."""
    if len(text) - start > _SURELY_FITS and memory(text[start:].encode("utf-8", "surrogatepass"), most) > most:
        raise DocumentTooLarge(f"it would take more than {most >> 20} MiB of memory")


def _made(taken: list[bytes], most: int, held: int, strict: bool, once: bool) -> Any:
    """Decode the only item of a list, and remove it from the list.

    Text and values are in memory at the same time; emptying the list frees the bytes.
    """
    if (needed := held + memory(taken[0], most - held)) > most:
        raise DocumentTooLarge(f"it would take {needed >> 20} MiB of memory; the limit for a document is {most >> 20}")
    try:
        content = taken.pop().decode("utf-8-sig", "surrogatepass")
        return _json().loads(content, strict=strict, object_pairs_hook=_each_once if once else None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except MemoryError:
        raise DocumentTooLarge("there is not enough memory for it") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        number = Counter(name for name, _ in pairs)
        raise ValueError(f"it has the key {next(name for name, _ in pairs if number[name] > 1)[:60]!a} twice")
    return made


def _json() -> Any:
    return json


def memory(raw: bytes, enough: int = 0) -> int:
    """Return an upper bound on the memory of a document's text and values, in bytes.

    Above ``enough``, the bound is only rough.
    """
    wide = 1 if raw.isascii() else 4
    text, escaped = text_size(raw), b"\\u" in raw
    counts = [raw.count(mark) for mark in _MARKS]
    most = text + len(raw) * (4 if escaped else wide) + _weight(counts, counts[3])
    if most <= enough or text > enough > 0:
        return most
    counts, inside = _within(raw, wide, escaped, enough - text)
    if _weight(counts, 0) > enough - text > 0:
        return text + _weight(counts, 0)
    different, known = _names(raw, counts[3])
    return text + max(0, inside - known) + _weight(counts, different)


def _weight(counts: list[int], names: int) -> int:
    objects, lists, commas, colons = counts
    return objects * _OBJECT + lists * _LIST + commas * _VALUE + names * _KEY + (colons - names) * _KNOWN_KEY


def _within(raw: bytes, wide: int, escaped: bool, enough: int = 0) -> tuple[list[int], int]:
    """Count each of ``_MARKS`` outside strings, and the bytes of the strings.

    Counting stops above ``enough``.
    """
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    counts, within, size = [0, 0, 0, 0], 0, 0
    for at in range(0, len(bare), _CHUNK):
        parts = bare[at : at + _CHUNK].split(b'"')
        outside = b"".join(parts[within::2])
        counts = [sum(pair) for pair in zip(counts, map(outside.count, _MARKS), strict=True)]
        texts = parts[1 - within :: 2]
        size += sum(map(len, texts)) * wide
        if escaped:  # the first and last string may continue in another chunk
            size += sum(len(text) for text in texts if b"\\u" in text or text is parts[0] or text is parts[-1]) * 3
        within ^= (len(parts) - 1) & 1
        if _weight(counts, 0) > enough > 0:
            break
    return counts, size


def _names(raw: bytes, colons: int) -> tuple[int, int]:
    """Return an upper bound on the distinct keys, and the bytes of repeated keys."""
    known: set[bytes] = set()
    found = again = 0
    for match in _NAME.finditer(raw):
        found += 1
        if match[1] in known:
            again += len(match[1])
        elif len(known) < _MOST_NAMES:
            known.add(match[1])
        else:
            return colons, 0
    return min(colons, len(known) + max(0, colons - found)), again
