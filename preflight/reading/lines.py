"""A pasted text as lines: without what a terminal, a mail or a page put into it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
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
_COLOUR_WITHOUT_ESC = re.compile(r"\ufffd?\[\d{1,2}(?:;\d{1,3}){0,4}m")
#: What a page or a tracker leaves of its own around a paste.
_HTML = re.compile(r"</?(?:p|br|pre|code|div|span|li|ul|details|summary)\b[^<>]{0,80}>")
#: What somebody explains behind a line of output.
_ANNOTATION = re.compile(r"(?<=\S)\s+(?:←|<-{1,2}\s|<=\s|⬅).*|(?<=\S)\s{2,}#\s.*")
#: What Ray writes behind a line that it shows once for many processes.
_REPEATED = re.compile(r"\s*\[repeated \d{1,7}x across [a-z ]{1,20}\].*")
_TMUX_MARK = re.compile(r"\[\d{1,6}/\d{1,6}\]\s*$")

#: Lines each of which has a blank one behind it, from which on that is no way to write.
_LEAST_DOUBLED = 6


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


def bare(lines: Lines) -> list[Line]:
    """Return lines that a launcher's marks were taken off: without a mail's below them, and without explanations."""
    found = _unquoted(lines)
    return [
        Line(line.number, _ANNOTATION.sub("", line.text)) if any(mark in line.text for mark in "#<←⬅") else line
        for line in found
    ]


def _unquoted(lines: Lines) -> list[Line]:
    """Drop fences; take the marks off quoted lines, and the blank lines between all lines."""
    found = []
    for line in lines:
        text = line.text
        if match := _QUOTE.match(text):
            text = text[match.end() :]
        found.append(Line(line.number, "" if _FENCE.fullmatch(text) else text))
    return _undoubled(found)


def _undoubled(lines: list[Line]) -> list[Line]:
    """Drop the blank line that a mail or a page put after every line."""
    found: list[Line] = []
    at = 0
    while at < len(lines):
        end, said = at, 0
        while (
            end < len(lines) and lines[end].text.strip() and (end + 1 == len(lines) or not lines[end + 1].text.strip())
        ):
            said += 1
            end += 2
            while end < len(lines) and not lines[end].text.strip():
                end += 1
        if said < _LEAST_DOUBLED:
            found.extend(lines[at : max(end, at + 1)])
            at = max(end, at + 1)
            continue
        blanks = 0
        for line in lines[at:end]:
            blanks = blanks + 1 if not line.text.strip() else 0
            # of a blank line that was doubled one stays
            if not blanks or (blanks > 1 and blanks % 2):
                found.append(line)
        at = end
    return found
