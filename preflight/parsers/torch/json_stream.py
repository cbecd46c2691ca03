"""Reader of JSON of any size, value by value, in bounded memory.

The text may be complete, truncated at either end, or damaged in between.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from preflight.errors import PreflightError
from preflight.parsers.torch.trace_events import decode

Read = Callable[[int], str]
#: Decodes the text of a JSON list. Raises ValueError.
Decode = Callable[[str], Sequence[Any]]

CHUNK = 1 << 20
#: Maximum number of characters in a value; a profiler event has a few hundred, or with its Python stack a few thousand.
LONGEST = 4 << 20
#: Number of errors after which the rest is skipped; no real file has so many.
MOST_DAMAGE = 100

#: Lists whose elements are yielded one by one.
STREAMED = frozenset(("traceEvents", "entries"))

#: The list whose elements are decoded in batches, and the name under which they are yielded.
_EVENTS, BATCH = "traceEvents", "*"
#: The start of an element up to the end of its first name, which is usually the same for all elements of a list.
_OPENING = re.compile(r'\{\s{0,80}"[^"\\]{1,40}"')

#: The start of an element of a streamed list, at which parsing resumes after an error.
_ELEMENT = re.compile(r'\{\s{0,80}"(?:ph|record_id|frames|collective_seq_id|pg_id)"\s{0,8}:')
_END_MISSING = "the end is missing"
_BETWEEN = ", \t\r\n"
_BLANK = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(strict=False)


class _JsonError(PreflightError, ValueError):
    """The text is not JSON, or ends too early."""


def decoded(reader: Callable[[int], bytes]) -> Read:
    """Return a text reader for UTF-8 bytes; invalid bytes are replaced."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def read(size: int) -> str:
        while data := reader(size):
            if text := decoder.decode(data):
                return text
        return decoder.decode(b"", final=True)

    return read


class Values:
    """A JSON text, parsed value by value.

    ``cut`` has (line number, reason) for each place at which the text is damaged.
    """

    def __init__(self, read: Read, decode: Decode = decode) -> None:
        self._read = read
        self._decode = decode
        self._text = ""
        self._at = 0
        self._before = 1
        self._ended = False
        self.cut: list[tuple[int, str]] = []

    @property
    def line(self) -> int:
        """The number of the current line."""
        return self._before + self._text.count("\n", 0, self._at)

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of the members of the outermost object.

        The elements of a streamed list are yielded one by one, except that trace events are yielded in lists under the
        name ``BATCH``. The elements of an outermost list, or of a list without its start, have an empty name. Raises
        only the reader's errors.
        """
        begun = self._next()
        if begun != "{" or self._element():
            if begun == "[":
                self._at += 1
            else:
                self.cut.append((self.line, "the beginning is missing"))
                if not self._element() and not self._found():
                    return
            yield from self._elements("")
            begun = self._next()
            if begun not in (",", '"', "}"):
                return
        else:
            self._at += 1
        yield from self._object()

    def _object(self) -> Iterator[tuple[str, Any]]:
        while len(self.cut) < MOST_DAMAGE:
            try:
                if (following := self._next()) == "}":
                    self._at += 1
                    return
                if not following:
                    if not self.cut or self.cut[-1][1] != _END_MISSING:
                        self.cut.append((self.line, _END_MISSING))
                    return
                name = self._value()
                if not isinstance(name, str) or self._next() != ":":
                    raise _JsonError("a member name is missing")
                self._at += 1
                if name in STREAMED and self._next() == "[":
                    self._at += 1
                    yield from self._elements(name)
                else:
                    self._next()
                    yield name, self._value()
            except _JsonError as damage:
                self.cut.append((self.line, str(damage)))
                if not self._found():
                    return
                yield from self._elements("")

    def _elements(self, name: str) -> Iterator[tuple[str, Any]]:
        tried = ""
        while len(self.cut) < MOST_DAMAGE:
            if name == _EVENTS and tried is not self._text and self._next() == "{":
                while batch := self._batch():
                    yield BATCH, batch
                tried = self._text
            if (following := self._next()) == "]":
                self._at += 1
                return
            if following in ("}", ")", "`") or (not following and not name):
                return
            try:
                if not following:
                    raise _JsonError(_END_MISSING)
                yield name, self._value()
            except _JsonError as damage:
                self.cut.append((self.line, str(damage)))
                if not self._found():
                    return

    def _batch(self) -> Sequence[Any]:
        """Decode the complete elements in the buffer; return an empty list on failure.

        The last element is left, because it may continue beyond the buffer.
        """
        if self._next() != "{":
            return []
        if len(self._text) - self._at < CHUNK // 2:
            self._more()
        opening = _OPENING.match(self._text, self._at)
        last = self._text.rfind(opening[0], self._at + 1) if opening else -1
        if last < 0:
            return []
        try:
            batch = self._decode(f"[{self._text[self._at : last].rstrip(_BETWEEN)}]")
        except (ValueError, RecursionError):
            return []
        self._at = last
        return batch

    def _next(self) -> str:
        """Return the next character other than whitespace and commas; empty at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            assert match
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _element(self) -> bool:
        """Return whether an element of a streamed list starts here."""
        while len(self._text) - self._at < 256 and self._more():
            pass
        return _ELEMENT.match(self._text, self._at) is not None

    def _found(self) -> bool:
        """Advance to the next element; return whether there is one."""
        self._at += 1
        while not (match := _ELEMENT.search(self._text, self._at)):
            self._at = max(self._at, len(self._text) - 256)
            if not self._more():
                return False
        self._at = match.start()
        return True

    def _value(self) -> Any:
        while True:
            wrong, begun = "", self._at
            try:
                value, end = _DECODER.raw_decode(self._text, begun)
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                wrong = error.msg
                near_end = error.pos > len(self._text) - 64 or wrong.startswith("Unterminated")
                if not near_end:
                    raise _JsonError(f"invalid JSON from character {error.pos - begun} on: {wrong}") from None
            except (ValueError, RecursionError) as error:
                raise _JsonError(f"unreadable JSON: {str(error)[:80]}") from None
            if len(self._text) - begun > LONGEST:
                raise _JsonError(f"a value is longer than {LONGEST} characters")
            if not self._more() and wrong:
                raise _JsonError(_END_MISSING)

    def _more(self) -> bool:
        """Read more text; return whether there is any.

        The buffer doubles, so decoding a long value is not retried too often.
        """
        if self._ended:
            return False
        self._before += self._text.count("\n", 0, self._at)
        waiting = self._text[self._at :]
        added = self._read(max(CHUNK, len(waiting)))
        self._text, self._at = waiting + added, 0
        self._ended = not added
        return bool(added)
