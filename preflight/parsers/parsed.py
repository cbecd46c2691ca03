"""What a parser returns: a typed value, and the gaps in the text that it was read from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from preflight._startup.lightclass import dataclass
from preflight.textprep.lines import Line, Lines
from preflight.textprep.plain_text import limit_blank_runs, normalize_text

T = TypeVar("T")

#: Lines between two parts of a record that may be anything: a tool's warnings.
_NOISE = re.compile(r"\s*(?:ib(?:warn|panic)\s*:.*)?")

#: Marks of lines left out.
_LEFT_OUT = re.compile(
    r"\s*(?:#\s*)?[\[(<]?\s?(?:\.{3,}|…|snip\w*|truncated|omitted)[\])>]?(?:\s.{0,80})?|\s*\.\.\s*", re.IGNORECASE
)


def left_out(text: str) -> bool:
    """Return whether a line stands for lines that were left out."""
    return ("." in text or "…" in text or "<" in text or "[" in text) and bool(_LEFT_OUT.fullmatch(text))


@dataclass(frozen=True)
class TextGap:
    """A gap in an output: the line of the source, and what is missing there."""

    line: int
    what: str


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """A value read from the lines before ``end``, and what is missing in them."""

    end: int  # index of the first line behind the output
    value: T
    gaps: Sequence[TextGap] = ()


Parser = Callable[[Lines, int], Parsed[T]]


def lines_of_record(text: str) -> list[Line]:
    """Return the lines of a node's record; nothing but a terminal's marks is taken off."""
    text = limit_blank_runs(normalize_text(text))
    return [Line(number, line.rstrip()) for number, line in enumerate(text.split("\n"), 1)]


def parse_complete(text: str, begins: Callable[[Lines, int], bool], parse: Parser[T]) -> T:
    """Return the value of a node's record; raise ValueError for a gap, naming its line.

    The record must hold one output and nothing else.
    """
    lines = lines_of_record(text)
    first = next((at for at, line in enumerate(lines) if line.text.strip()), None)
    if first is None:
        raise ValueError("it is empty")
    begin = next((at for at in range(first, len(lines)) if not _NOISE.fullmatch(lines[at].text)), first)
    if not begins(lines, begin):
        raise ValueError(f"it begins {lines[begin].text.strip()[:80]!r}, which is no such output")
    parsed = parse(lines, begin)
    for gap in parsed.gaps:
        raise ValueError(f"line {gap.line}: {gap.what}")
    for line in lines[parsed.end :]:
        if not _NOISE.fullmatch(line.text):
            raise ValueError(f"line {line.number}: {line.text.strip()[:80]!r} does not belong to it")
    return parsed.value
