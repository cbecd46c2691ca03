"""Lines of a job's output, without terminal codes and web page markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from preflight.textprep.numbered_text import NumberedText
from preflight.textprep.plain_text import limit_blank_runs, normalize_text

#: Maximum number of characters that are examined of a line; lines of NCCL or nccl-tests are much shorter.
LONGEST_LINE_CHARS = 8192
#: Maximum length of a line in which long runs of spaces do not slow down the patterns.
SHORT_LINE_CHARS = 1024

_MARKS = re.compile("[\x1b\ufeff\x00\r]")
_COLOUR_WITHOUT_ESC = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m")
#: Remains of a web page's line numbers.
_CELLS = re.compile(r"\s\|\s\|\s*$")
_AUTOLINK = re.compile(r"\[([^\[\]]{1,200})\]\(https?://[^()\s]{1,200}\)")


def lines(source: str | NumberedText, holding: str = "") -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line) without escape sequences and HTML.

    With ``holding``, only lines that contain this text are yielded.
    """
    source = source if isinstance(source, NumberedText) else NumberedText(source)
    marked = _MARKS.search(source.text) is not None
    for number, raw in source.lines():
        if holding and holding not in raw:
            continue
        raw = limit_blank_runs(raw[:LONGEST_LINE_CHARS]) if len(raw) > SHORT_LINE_CHARS else raw
        for part in normalize_text(raw).split("\n") if marked and _MARKS.search(raw) else (raw,):
            yield number, unmarked(part)


def unmarked(line: str) -> str:
    """Remove HTML escapes, empty table cells, colour codes and Markdown links.

    Colour codes may lack their ESC.
    """
    if "&" in line:
        line = unescape(line)
    if "| |" in line[-6:]:
        line = _CELLS.sub("", line)
    if "[" in line:
        line = _AUTOLINK.sub(r"\1", _COLOUR_WITHOUT_ESC.sub("", line))
    return line
