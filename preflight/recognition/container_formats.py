"""Choice between a source's text and its unpacked content, by number of facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from preflight.recognition.detector import TextPart
from preflight.recognition.input_sources import InputSource
from preflight.recognition.line_unwrap import count_facts
from preflight.textprep.encodings import opened, unprefixed
from preflight.textprep.unicode_cleanup import plain_characters

_Read = Callable[[InputSource], list[TextPart]]

#: Maximum number of lines of a pasted text. Longer texts come from log collectors and are read only once.
_MOST_LINES = 20_000
#: Unpacked content that is surely an envelope's is used even if it has only this share of the facts.
_LEFT = 0.5
#: Line references in findings and summaries.
_LINES = re.compile(r"\b(lines?) (\d{1,9})(?:-(\d{1,9}))?\b")


def best(source: InputSource, read: _Read) -> list[TextPart]:
    """Return the parts of a source, or of its unpacked content if it has enough facts."""
    if source.copied is None:
        return read(source)
    text = plain_characters(source.copied)
    found = read(source if text == source.copied else replace(source, given=text))
    for inside in opened(text):
        if found and not inside.sure and len(inside.numbers) > _MOST_LINES:
            continue
        again = read(replace(source, given=inside.text))
        if count_facts(again) and count_facts(again) >= count_facts(found) * (_LEFT if inside.sure else 1):
            for part in again:
                _renumber(part, inside.numbers)
            return again
    return found if count_facts(found) else _unprefixed(text, source, read) or found


def _unprefixed(text: str, source: InputSource, read: _Read) -> list[TextPart]:
    """Return the parts of a short text after removing as few prefixes as possible."""
    for written in unprefixed(text):
        recognised: list[TextPart] = []
        for writer, inside in written:
            for part in read(replace(source, given=inside.text)):
                _renumber(part, inside.numbers)
                part.writer = f"{writer} {part.writer}".strip()
                recognised.append(part)
        if count_facts(recognised):
            return sorted(recognised, key=lambda part: part.first)
    return []


def _renumber(part: TextPart, numbers: Sequence[int]) -> None:
    """Translate the line numbers in a part to those of its source, in place."""

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
    part.taken.cut = [replace(cut, line=at(cut.line)) for cut in part.taken.cut]
    part.taken.summary = in_words(part.taken.summary)
    part.findings = [
        {name: in_words(value) if isinstance(value, str) else value for name, value in finding.items()}
        for finding in part.findings
    ]
