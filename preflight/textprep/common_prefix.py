"""The common prefix of a run of lines, from a logger, a loop or numbering.

This finds prefixes that the lists in ``launcher_prefixes`` lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from itertools import islice

from preflight.textprep.line_prefixes import ACTIVITY_BAR
from preflight.textprep.lines import Line, Lines

#: Minimum number of lines with the prefix, and maximum characters of a line's start that are compared.
_LEAST, _LONGEST = 4, 160
#: Maximum lines of a text; longer texts are logs, whose prefixes are in the lists.
_MOST_LINES = 5000
_TOKEN = re.compile(r"\d+|.", re.DOTALL)
#: Characters that end a prefix.
_SEPARATOR = " \t:|>])}│"
_TIME = re.compile(r"\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?")
#: Maximum number of possible prefixes that are tried; the common start of the lines may be longer than the prefix.
_MOST_MARKS = 10
#: Maximum number of lines examined, over all possible prefixes.
_MOST_TRIED = 10_000
#: Minimum average number of lines per writer, if there are several.
_EACH = 3


def unmarked(lines: Lines, taken: Set[int]) -> Iterator[list[list[tuple[str, list[Line]]]]]:
    """Yield each run of lines, with each possible prefix removed.

    Lines whose numbers are in ``taken`` end a run. As the common start of the lines may be longer than their prefix,
    each possible prefix gives a list of writers with their lines.
    """
    if len(lines) > _MOST_LINES:
        return
    stretch: list[Line] = []
    for line in [*lines, Line(0, "")]:
        if line.number and line.number not in taken and not ACTIVITY_BAR.match(line.text):
            stretch.append(line)
        elif stretch:
            marks = _marks([line.text for line in stretch if line.text.strip()])
            if marks:
                yield [_by_mark(stretch, length) for length in marks]
            stretch = []


def _by_mark(lines: list[Line], length: int) -> list[tuple[str, list[Line]]]:
    written: dict[str, list[Line]] = {}
    bare = []
    for line in lines:
        mark, rest = _split(line.text, length)
        bare.append(Line(line.number, rest))
        if line.text.strip():
            name = " ".join(_TIME.sub("", mark).split()).rstrip(_SEPARATOR)
            written.setdefault(name, []).append(bare[-1])
    if len(written) > 1 and len(written) * _EACH > len(lines):  # ascending numbers are not names of writers
        return [("", bare)]
    return list(written.items())


def _split(text: str, length: int) -> tuple[str, str]:
    """Split a line after a number of tokens."""
    at = len(text) - len(text.lstrip())
    for match in islice(_TOKEN.finditer(text, at), length):
        at = match.end()
    return text[:at], text[at:].rstrip()


def _marks(texts: list[str]) -> list[int]:
    """Return the possible lengths of a common prefix in tokens, shortest first.

    Numbers in the prefix may differ between lines.
    """
    if len(texts) < _LEAST:
        return []
    lists = [_tokens(text) for text in texts]
    longest = max(lists, key=len)
    alike, blank = len(longest), 0
    for tokens in lists:
        pairs = enumerate(zip(tokens, longest, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), len(tokens))
        if same == len(tokens) and same < len(longest):
            blank += 1  # an empty line, with only the prefix
        else:
            alike = min(alike, same)
    if blank * 2 >= len(texts):
        return []
    ends = [
        at
        for at in range(1, alike + 1)
        if longest[at - 1] in _SEPARATOR
        and (at == len(longest) or longest[at] not in _SEPARATOR or at == alike)
        and any(token not in _SEPARATOR for token in longest[:at])
    ]
    return ends[: max(1, min(_MOST_MARKS, _MOST_TRIED // len(texts)))]


def _tokens(text: str) -> list[str]:
    return ["0" if token[0].isdigit() else token for token in _TOKEN.findall(text[:_LONGEST].lstrip())]
