"""Report files, read part by part, with equal parts stored only once.

In a report of ten thousand nodes, most parts are equal.
"""

from __future__ import annotations

import codecs
import json
import marshal
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from preflight.evidence import json_limits, safe_read

#: Maximum memory in bytes for the values of a report. Ten thousand nodes take 50 MB, or 80 MB if the findings of each
#: are different. A comparison needs two reports.
MOST = 140 << 20

#: Maximum length of a text that is deduplicated, and the memory in bytes that each stored value costs in addition.
_SHORT, _ENTRY = 200, 120

_SPACE = " \t\n\r"

#: Characters of a written piece, and of the remembered texts of parts; level of the parts of a node; types of members
#: that are encoded in C.
_PIECE, _KNOWN, _PARTS, _SCALARS = 1 << 19, 16 << 20, 3, frozenset((str, int, float, bool, type(None)))


def read(path: str | Path) -> Any:
    """Decode a report; raises OSError, or ValueError for invalid content.

    Equal parts are the same object, so the report must not be modified.
    """
    text = _Window(safe_read.pieces(path, safe_read.REPORT, b"{"))
    try:
        return _object(text, _Held(MOST)) if text.peek() == "{" else text.value()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except MemoryError:
        raise json_limits.DocumentTooLarge("there is not enough memory for it") from None


def written(report: Mapping[str, Any], sort_keys: bool = False) -> Iterator[str]:
    """Yield a report as JSON text, in pieces.

    A report on ten thousand nodes takes hundreds of megabytes.
    """
    pieces: list[str] = []
    size = 0
    for piece in _Writer(sort_keys).pieces(report, 0):
        pieces.append(piece)
        size += len(piece)
        if size > _PIECE:
            yield "".join(pieces)
            pieces.clear()
            size = 0
    yield "".join([*pieces, "\n"])


class _Writer:
    """Encoder of JSON with an indent of one space for each level.

    Parts that many nodes share are encoded once.
    """

    def __init__(self, sort_keys: bool) -> None:
        self._sort_keys = sort_keys
        self._encoders: dict[int, Callable[[Any], str]] = {}
        self._known: dict[int, str] = {}  # id of a part of a node -> its text
        self._left = _KNOWN

    def pieces(self, value: Any, depth: int) -> Iterator[str]:
        """Yield the text of a value in pieces; a part of a node or finding is one piece."""
        if depth == _PARTS:
            if (text := self._known.get(id(value))) is None:
                text = "".join(self._nested(value, depth))
                if isinstance(value, dict) and len(text) < self._left:
                    self._known[id(value)] = text
                    self._left -= len(text)
            yield text
        else:
            yield from self._nested(value, depth)

    def _nested(self, value: Any, depth: int) -> Iterator[str]:
        encode = self._encode(depth)
        if not value or not isinstance(value, dict | list | tuple):
            yield encode(value)
            return
        begin, end = "\n" + " " * (depth + 1), "\n" + " " * depth
        if _SCALARS.issuperset(map(type, value.values() if isinstance(value, dict) else value)):
            text = encode(value)
            yield f"{text[0]}{begin}{text[1:-1]}{end}{text[-1]}"
            return
        if isinstance(value, dict):
            named = sorted(value.items()) if self._sort_keys else value.items()
            members = [(f"{encode(key)}: ", member) for key, member in named]
        else:
            members = [("", member) for member in value]
        sign = "{" if isinstance(value, dict) else "["
        for key, member in members:
            yield f"{sign}{begin}{key}"
            yield from self.pieces(member, depth + 1)
            sign = ","
        yield end + ("}" if isinstance(value, dict) else "]")

    def _encode(self, depth: int) -> Callable[[Any], str]:
        if depth not in self._encoders:
            separators = ",\n" + " " * (depth + 1), ": "
            self._encoders[depth] = json.JSONEncoder(separators=separators, sort_keys=self._sort_keys).encode
        return self._encoders[depth]


class _Window:
    """The part of a text that is being read; a value must fit ``json_limits.PART``."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._codec = pieces, codecs.getincrementaldecoder("utf-8-sig")("surrogatepass")
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at, self._over = "", 0, False

    def sign(self, *expected: str) -> str:
        """Consume the next non-blank character; raises ValueError.

        It must be one of the expected characters.
        """
        if (sign := self.peek()) not in expected:
            raise ValueError(f"expected {' or '.join(map(repr, expected))}, not {sign!r}")
        self._at += 1
        return sign

    def peek(self) -> str:
        """Return the next non-blank character; empty at the end."""
        while True:
            while (sign := self._text[self._at : self._at + 1]) and sign in _SPACE:
                self._at += 1
            if sign or not self._more():
                return sign

    def value(self) -> Any:
        """Consume the next value; raises ValueError."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError:
                if not self._more():
                    raise
                continue
            if end < len(self._text) or not self._more():  # a number may continue
                self._at = end
                return value

    def _more(self) -> bool:
        """Drop what was read, and at least double the unread text; False at the end.

        Raises DocumentTooLarge.
        """
        if self._over:
            return False
        held = [self._text[self._at :]]
        size = 0
        while size <= len(held[0]) and (piece := next(self._pieces, b"")):
            held.append(self._codec.decode(piece))
            size += len(piece)
        if not size:
            self._over = True
            held.append(self._codec.decode(b"", True))
        self._text, self._at = "".join(held), 0
        json_limits.check(self._text)
        return True


class _Held:
    """A store that holds each value only once, within a limit in bytes."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[Any, Any] = {}
        self._count = 0

    def pay(self, size: int) -> None:
        """Count bytes towards the limit; raises DocumentTooLarge."""
        self._left -= size
        if self._left < 0:
            raise json_limits.DocumentTooLarge(f"it would take more than {MOST >> 20} MiB of memory")

    def entry(self, value: Any) -> Any:
        """Return the stored value that equals an entry of a list in the report.

        The objects in an entry, such as the results of a node, usually equal those of another entry. Comparing digests
        first takes a third of the time.
        """
        return self._object(value, self._part) if type(value) is dict else self.held(value)

    def _part(self, value: Any) -> Any:
        if type(value) is not dict:
            return self.held(value)
        digest = blake2b(marshal.dumps(value, 2), digest_size=16).digest()  # version 2: equal values, equal bytes
        if digest not in self._known:
            self._known[digest] = self.held(value)
            self._count = len(self._known)
            self.pay(sys.getsizeof(digest) + _ENTRY)
        return self._known[digest]

    def held(self, value: Any) -> Any:
        """Return the stored value that equals ``value``, which is stored if it is new."""
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT:
                self.pay(sys.getsizeof(value))
                return value
            return self._once(value, value)
        if kind is dict:
            return self._object(value, self.held)
        if kind is list:
            self.pay(8 * len(value))  # the caller builds an index of the items
            parts = [self.held(part) for part in value]
            return self._once(hash((list, *map(id, parts))), parts)
        if value is None or kind is bool:
            return value
        return self._once((kind, value or str(value)), value)  # 0.0 and -0.0 compare equal, but are different

    def _object(self, value: dict[str, Any], held: Callable[[Any], Any]) -> Any:
        names, parts = [self.held(name) for name in value], [held(part) for part in value.values()]
        return self._once(hash((dict, *map(id, names), *map(id, parts))), dict(zip(names, parts, strict=True)))

    def _once(self, key: Any, value: Any) -> Any:
        if (known := self._known.setdefault(key, value)) is not value:
            if type(known) is type(value) and known == value:
                return known
        elif len(self._known) == self._count:
            return known
        self._count = len(self._known)
        self.pay(sys.getsizeof(value) + _ENTRY)
        return value


def _object(text: _Window, values: _Held) -> dict[str, Any]:
    """Read the outermost object, and its lists entry by entry."""
    made: dict[str, Any] = {}
    text.sign("{")
    if text.peek() == "}":
        text.sign("}")
    else:
        while True:
            if text.peek() != '"':
                raise ValueError("expected a key")
            name = text.value()
            text.sign(":")
            made[name] = list(_entries(text, values)) if text.peek() == "[" else values.held(text.value())
            if text.sign(",", "}") == "}":
                break
    if text.peek():
        raise ValueError("data follows the end of the report")
    return made


def _entries(text: _Window, values: _Held) -> Iterator[Any]:
    text.sign("[")
    if text.peek() == "]":
        text.sign("]")
        return
    while True:
        values.pay(8)
        yield values.entry(text.value())
        if text.sign(",", "]") == "]":
            return
