"""Reads a source as it is and, where it is packed in something, what is inside; keeps what tells no less."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from preflight.recognition.detector import TextGap, TextPart
from preflight.recognition.input_sources import InputSource
from preflight.recognition.line_unwrap import count_facts
from preflight.textprep.encodings import opened
from preflight.textprep.unicode_cleanup import plain_characters

_Read = Callable[[InputSource], list[TextPart]]

#: Characters of a pasted text; longer ones come from log collectors, and are read once.
_LARGEST, _MOST_LINES = 1 << 22, 20_000
#: Of an envelope that is no doubt one, what is inside counts even if it says less: what stood around it says nothing.
_LEFT = 0.5
#: How findings name lines.
_LINES = re.compile(r"\b(lines?) (\d{1,9})(?:-(\d{1,9}))?\b")


def best(source: InputSource, read: _Read) -> list[TextPart]:
    """Return the parts of a source, or of its unpacked content if that has enough."""
    if source.skipped is not None:
        return read(source)
    with _holding(source, plain_characters(source.text)) as bare:
        found, envelopes = read(bare), opened(bare.text) if len(bare.text) <= _LARGEST else []
    for inside in envelopes:
        if found and not inside.sure and len(inside.numbers) > _MOST_LINES:
            continue
        with _holding(source, inside.text) as inner:
            again = read(inner)
        if count_facts(again) and count_facts(again) >= count_facts(found) * (_LEFT if inside.sure else 1):
            for part in again:
                _renumber(part, inside.numbers)
            return again
    return found


@contextmanager
def _holding(source: InputSource, text: str) -> Iterator[InputSource]:
    """Give a source another text, which lies on disk meanwhile as every source does."""
    if text == source.text:
        yield source
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(tempfile.NamedTemporaryFile(prefix="preflight-read-", buffering=0))
            stream.write(text.encode("utf-8", "backslashreplace"))
            path = Path(stream.name)
        except OSError:
            path = source.path  # no room for it: a job's log is read as it stands
        yield replace(source, path=path, text=text)


def _renumber(part: TextPart, numbers: Sequence[int]) -> None:
    """Name the lines of a part as the source counts them."""

    def at(number: int) -> int:
        return numbers[min(max(number, 1), len(numbers)) - 1]

    def in_words(text: str) -> str:
        return _LINES.sub(
            lambda match: f"{match[1]} {at(int(match[2]))}" + (f"-{at(int(match[3]))}" if match[3] else ""), text
        )

    def walk(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: walk(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner, name) for inner in value]
        return at(value) if name == "line" and type(value) is int else value

    part.first, part.last = at(part.first), at(part.last)
    part.taken.end = at(part.taken.end)
    part.taken.facts = walk(part.taken.facts)
    part.taken.cut = [TextGap(at(cut.line), cut.what) for cut in part.taken.cut]
    part.taken.summary = in_words(part.taken.summary)
    part.findings = [
        {name: in_words(value) if isinstance(value, str) else value for name, value in finding.items()}
        for finding in part.findings
    ]
