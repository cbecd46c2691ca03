"""A pasted text as lines: without a terminal's, a mail's or a launcher's marks, and by who wrote them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preflight.facts.text import plain

#: Characters of a line that are looked at; no tool that is known here prints a longer one, but for JSON.
LONGEST = 1 << 20


@dataclass(frozen=True)
class Line:
    """One line; ``number`` counts from 1 in the source, ``text`` has no marks and no blanks at its end."""

    number: int
    text: str


Lines = Sequence[Line]

_FENCE = re.compile(r"\s{0,3}(?:```|~~~)[\w+.-]*\s*")
_QUOTE = re.compile(r"\s{0,3}(?:>\s?){1,8}")
_COLOUR_WITHOUT_ESC = re.compile(r"\[\d{1,2}(?:;\d{1,3}){0,4}m")
#: What a page or a tracker leaves of its own around a paste.
_HTML = re.compile(r"</?(?:p|br|pre|code|div|span|li|ul|details|summary)\b[^<>]{0,80}>")
#: What Ray writes behind a line that it shows once for many processes.
_REPEATED = re.compile(r"\s*\[repeated \d{1,7}x across [a-z ]{1,20}\].*")
_TMUX_MARK = re.compile(r"\[\d{1,6}/\d{1,6}\]\s*$")

#: What a launcher puts before each line; the group is who wrote it.
_MARKS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[(?:[\w.-]+@)?(\d{1,6},\d{1,6})\]<std(?:out|err|diag)>: ?",  # mpirun --tag-output
        r"\[([a-z]+\d{1,6})\]: ?",  # torchrun
        r"\(((?:[\w.:-]+ )?pid=\d+(?:, ip=[^)\s]{1,64})?)\)\s",  # Ray
        r"\[(pod/[^\]\s]{1,256})\]\s",  # kubectl logs --prefix
        r"([\w.-]{1,128})\s+\| ?",  # docker compose
        r"\s{0,6}(\d{1,6}): ",  # srun --label
        r"([A-Za-z][\w.-]{0,127}): ",  # pdsh, clush
        r"(\d{1,3}(?:\.\d{1,3}){3}): ",  # the same with addresses
        r"()\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)\s",  # kubectl logs --timestamps
    )
)

#: Lines in a row that bear a mark, below which it is taken for part of the text; and how often each writer's
#: name must come among them, since ``State: Active`` looks like a mark as well.
_LEAST_LINES, _LEAST_PER_WRITER = 3, 3


def lines_of(text: str) -> list[Line]:
    """Take a text apart."""
    found = []
    for number, raw in enumerate(text.split("\n"), 1):
        # A carriage return inside a line is a terminal's way of writing it anew
        line = plain(raw.rstrip("\r")[:LONGEST]).rpartition("\n")[2]
        if "[" in line:
            line = _TMUX_MARK.sub("", _COLOUR_WITHOUT_ESC.sub("", line))
        if "<" in line:
            line = _HTML.sub("", line)
        if "[repeated " in line:
            line = _REPEATED.sub("", line)
        if "&" in line and re.search(r"&(?:lt|gt|amp|quot|#39|nbsp);", line):
            line = html.unescape(line)
        found.append(Line(number, line.replace("\xa0", " ").rstrip()))
    return _unquoted(found)


def _unquoted(lines: list[Line]) -> list[Line]:
    """Drop fences; take the marks off quoted lines."""
    found = []
    for line in lines:
        text = line.text
        if match := _QUOTE.match(text):
            text = text[match.end() :]
        found.append(Line(line.number, "" if _FENCE.fullmatch(text) else text))
    return found


def by_writer(lines: Lines) -> Iterator[tuple[str, list[Line]]]:
    """Yield stretches of lines, each with who wrote it (empty if nothing tells), without a launcher's marks.

    What several writers wrote into each other is told apart.
    """
    at, plain_from = 0, 0
    while at < len(lines):
        end, written = _marked(lines, at)
        if end == at:
            at += 1
            continue
        if plain_from < at:
            yield "", list(lines[plain_from:at])
        yield from written.items()
        at = plain_from = end
    if plain_from < len(lines):
        yield "", list(lines[plain_from:])


def _marked(lines: Lines, at: int) -> tuple[int, dict[str, list[Line]]]:
    """Return where a stretch of marked lines that begins here ends, and its lines by writer; ``at`` if none does."""
    for mark in _MARKS:
        if not mark.match(lines[at].text):
            continue
        written: dict[str, list[Line]] = {}
        end, count = at, 0
        while end < len(lines):
            text = lines[end].text
            if match := mark.match(text + " "):
                written.setdefault(match[1], []).append(Line(lines[end].number, text[match.end() :]))
                count += 1
            elif text.strip():
                break
            end += 1
        while end > at and not lines[end - 1].text.strip():
            end -= 1
        if count >= max(_LEAST_LINES, _LEAST_PER_WRITER * len(written)):
            return end, written
    return at, {}
