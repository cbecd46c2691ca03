"""Lines of pasted text, without the marks of terminals, email and web pages."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from preflight.textprep import joined_lines, quoted_printable
from preflight.textprep.numbered_text import NumberedText
from preflight.textprep.plain_text import BAR, limit_blank_runs, normalize_text, strip_ray_repeat

#: Maximum characters of a line that are read; no known tool prints longer lines, except JSON.
LONGEST = 1 << 20


class Line(NamedTuple):
    """One line of a text, without marks and trailing blanks.

    ``number`` counts from 1 in the source.
    """

    number: int
    text: str


Lines = Sequence[Line]

_FENCE = re.compile(r"\s{0,12}(?:```|~~~)[\w+.-]*\s*")
_QUOTE = re.compile(r"\s{0,8}(?:>\s?){1,8}")
_COLOUR_WITHOUT_ESC = re.compile(r"\ufffd?\[\d{1,2}(?:;\d{1,3}){0,4}m")
#: HTML elements that a web page or an issue tracker adds to a paste.
_HTML = re.compile(
    r"</?(?:p|br|pre|code|div|span|li|ul|details|summary|b|strong|em|i|u|font|a|tt|kbd|samp|mark)\b[^<>]{0,300}>"
)
#: A line break in a table cell of a web page or of Markdown.
_HTML_BREAK = re.compile(r"<br\s?/?>")
#: An escaped character, and a bold word, in Markdown.
_ESCAPED = re.compile(r"(?<=[A-Za-z0-9])\\(?=_)|\\(?=[\[\]*#=<>~|-])")
_BOLD = re.compile(r"(?<!\S)\*\*(?=[^\s*])([^*]{0,200}[^\s*])\*\*(?=\s|$)")
#: The quote at the start or end of a string in source code: ``OUTPUT = """CA 'mlx5_0'``.
_QUOTE_BEGINS = re.compile(r"(?:^\s*)?(?:[\w.:\[\] ]{1,60}?\s*:?=\s*|[\w.]{1,40}\()?(?:\"\"\"|'''|`)(?=[^\s`])")
_QUOTE_ENDS = re.compile(r"(?<=[^\s`])(?:\"\"\"|'''|`)$")
#: AsciiDoc's callout number after a line of JSON or YAML.
_CALLOUT = re.compile(r"(?<=[\[\]{},\"'])\s*<\d{1,2}>$")
#: A comment after a line of output.
_ANNOTATION = re.compile(
    r"(?<=\S)\s+(?:[←⬅◀◄◁⇐⟵👈]|<[-=—─]{1,80}(?=\s|$)|<-{2,80}(?![->\s])).*|(?<=\S)\s*[-—─]{4,80}>{1,8}.*"
    r"|(?<=\S)\s{2,}(?:#|//)(?:\s|[^\x00-\x7f]).*|(?<=\S)\s#[^\x00-\x7f].*"
)
#: A comment after the value of a field, where one blank before it is enough; a prompt has no such comment.
_FIELD_ANNOTATION = re.compile(r"(?<=\S)\s#\s.*")
#: Lines of tools that contain such marks: a heading of ``tail``, a node in ``ibnetdiscover``, and a table heading of
#: ``nvbandwidth``.
_NO_ANNOTATION = re.compile(
    r"==> .{1,300} <==$|\s*(?:\[\d{1,3}\]|(?:Switch|Ca|Rt)\s+\d).{0,200}\"[SHR]-[0-9a-fA-F]{16}\""
    r"|\s*mem\w{1,12} .{1,40}\(row\) (?:<-|->) .{1,40}\(column\) "
)
_ANNOTATED_FIELD = re.compile(r"\s*[A-Za-z][\w ()/.-]{0,60}:\s+[^\s~/].{0,200}?\s#\s.*")
_ANNOTATING = re.compile(r"//|[-—─]>|[#<←⬅◀◄◁⇐⟵👈]")
#: A field in a table of two columns: ``| Socket(s): | 4 |``.
_TABLE_FIELD = re.compile(r"^\|\s*([A-Za-z][^|]{0,60}:)\s*\|\s*([^|]*?)\s*\|\s*$")
#: Empty cells left by a web page's line numbers.
_CELLS = re.compile(r"\s\|\s\|\s*$")
_TMUX_MARK = re.compile(r"\[\d{1,6}/\d{1,6}\]\s*$")

#: Bytes at which line_source shortens a line.
_SHORTENED = 1 << 18
#: Minimum number of lines followed by a blank line for the blank lines to be an artifact.
_LEAST_DOUBLED = 6


def lines_of(source: str | NumberedText) -> list[Line]:
    """Split a text into lines, and remove the marks around and in them."""
    source = source if isinstance(source, NumberedText) else NumberedText(source)
    text = source.text
    text = limit_blank_runs(quoted_printable.decoded(text) if quoted_printable.is_quoted_printable(text) else text)
    found, marked = [], any(mark in text for mark in "\x1b\ufeff\x00\r")
    for number, raw in NumberedText(text, source.numbers).lines():
        if not raw:
            found.append(Line(number, ""))
            continue
        if raw == quoted_printable.GONE:
            continue
        line = raw[:LONGEST]
        if marked:
            # after a carriage return inside a line, a terminal overwrites the line; each state of a bar is a step
            *states, line = normalize_text(raw.rstrip("\r")[:LONGEST]).split("\n")
            if states and len(raw.encode("utf-8", "replace")) < _SHORTENED:  # a longer line may lack its last states
                found.extend(Line(number, state.rstrip()) for state in states if BAR in state)
        pieces = _HTML_BREAK.split(line) if "<br" in line else [line]
        for piece in pieces:
            if piece.strip() or len(pieces) == 1:
                found += [Line(number, one) for one in joined_lines.apart(_unmarked(piece))]
    return _unquoted(found)


def _unmarked(line: str) -> str:
    """Return a line without the marks of terminals, web pages and issue trackers."""
    if "[" in line:
        line = _TMUX_MARK.sub("", _COLOUR_WITHOUT_ESC.sub("", line))
    if "<" in line:
        line = _HTML.sub("", line)
    if "| |" in line and line.rstrip().endswith("| |"):
        line = _CELLS.sub("", line)
    if "**" in line:
        line = _BOLD.sub(r"\1", line)
    if "\\" in line:
        line = _ESCAPED.sub("", line)
    if "`" in line or '"""' in line or "'''" in line:
        line = _QUOTE_ENDS.sub("", _QUOTE_BEGINS.sub("", line, count=1))
    if line.endswith(">"):
        line = _CALLOUT.sub("", line)
    if line.startswith("|"):
        line = _TABLE_FIELD.sub(r"\1 \2", line)
    line = strip_ray_repeat(line)
    if line.endswith("\\n"):
        line = line[:-2].removesuffix("\\r")  # source code with escaped line ends
    if "&" in line and re.search(r"&(?:lt|gt|amp|quot|#39|nbsp);", line):
        line = html.unescape(line)
    return line.replace("\xa0", " ").rstrip()


def bare(lines: Lines) -> list[Line]:
    """Remove email quotes and comments from lines that have lost launcher prefixes."""
    found = _unquoted(lines)
    return [Line(line.number, _unexplained(line.text)) if _ANNOTATING.search(line.text) else line for line in found]


def _unexplained(text: str) -> str:
    if _NO_ANNOTATION.match(text):
        return text
    text = _ANNOTATION.sub("", text)
    return _FIELD_ANNOTATION.sub("", text, count=1) if _ANNOTATED_FIELD.fullmatch(text) else text


def _unquoted(lines: Lines) -> list[Line]:
    """Remove code fences, quote marks, and blank lines between all lines."""
    found = []
    for line in lines:
        text = line.text
        if ">" in text and (match := _QUOTE.match(text)):
            text = text[match.end() :]
        if ("`" in text or "~" in text) and _FENCE.fullmatch(text):
            text = ""
        found.append(line if text is line.text else Line(line.number, text))
    return _undoubled(found)


def _undoubled(lines: list[Line]) -> list[Line]:
    """Remove the blank line that an email or a web page added after every line."""
    if sum(not line.text or line.text.isspace() for line in lines) < _LEAST_DOUBLED - 1:
        return lines  # no blank line need follow the last line
    found: list[Line] = []
    at = 0
    while at < len(lines):
        end, doubled = at, 0
        while (
            end < len(lines) and lines[end].text.strip() and (end + 1 == len(lines) or not lines[end + 1].text.strip())
        ):
            doubled += 1
            end += 2
            while end < len(lines) and not lines[end].text.strip():
                end += 1
        if doubled < _LEAST_DOUBLED:
            found.extend(lines[at : max(end, at + 1)])
            at = max(end, at + 1)
            continue
        blanks = 0
        for line in lines[at:end]:
            blanks = blanks + 1 if not line.text.strip() else 0
            # of three blank lines in a row, the original one between two added ones remains
            if not blanks or (blanks > 1 and blanks % 2):
                found.append(line)
        at = end
    return found
