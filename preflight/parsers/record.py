"""Records of a node, read with the parsers of pasted text; a gap is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Line, Lines
from preflight.textprep.plain_text import limit_blank_runs, normalize_text

T = TypeVar("T")

#: Lines before or after a tool's output that do not belong to it.
_NOISE = re.compile(r"\s*(?:ib(?:warn|panic)\s*:.*|Failed to (?:open|query) device.*)?")


def lines_of_record(text: str) -> list[Line]:
    """Return the lines of a node's record, without terminal codes."""
    text = limit_blank_runs(normalize_text(text))
    return [Line(number, line.rstrip()) for number, line in enumerate(text.split("\n"), 1)]


def parse_complete(text: str, begins: Callable[[Lines, int], bool], parse: Callable[[Lines, int], Parsed[T]]) -> T:
    """Return the value of a node's record, which must be exactly one output.

    Raises ValueError for a gap or any other text, naming the line.
    """
    lines = lines_of_record(text)
    first = next((at for at, line in enumerate(lines) if line.text.strip()), None)
    if first is None:
        raise ValueError("it is empty")
    begin = next((at for at in range(first, len(lines)) if not _NOISE.fullmatch(lines[at].text)), first)
    if not begins(lines, begin):
        raise ValueError(f"it starts with {lines[begin].text.strip()[:80]!r}, which is not this output")
    parsed = parse(lines, begin)
    value = parsed.required()
    for line in lines[parsed.end :]:
        if not _NOISE.fullmatch(line.text):
            raise ValueError(f"line {line.number}: {line.text.strip()[:80]!r} is not part of this output")
    return value
