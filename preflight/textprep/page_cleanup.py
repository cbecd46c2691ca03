"""Removal of the marks that pages, emails and terminals put around a text.

They are HTML elements, frames, quote marks, line numbers and code fences.
"""

from __future__ import annotations

import html
import re

from preflight.textprep.plain_text import BAR

_Lines = list[tuple[int, str]]

#: Minimum number of framed or quoted lines, and their minimum fraction of all lines.
_LEAST, _SHARE = 3, 0.8

_BREAK = re.compile(r"<br\s?/?>|</(?:p|div|li|tr|pre|h[1-6])>", re.IGNORECASE)
#: HTML elements that format text; the elements of ``nvidia-smi -q -x`` have different names.
_ELEMENTS = re.compile(
    r"</?(?:p|br|pre|code|div|span|li|ul|ol|tr|td|th|table|tbody|thead|details|summary|b|strong|em|i|u|font|a|tt|kbd|samp"
    r"|mark|blockquote|h[1-6]|hr)(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_CELL_END = re.compile(r"</t[dh]>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")


def page(lines: _Lines) -> _Lines | None:
    """Extract the text from the source of a web page; None if it is not one."""
    if not any(_ELEMENTS.search(line) or _ENTITY.search(line) for _, line in lines if "<" in line or "&" in line):
        return None
    found: _Lines = []
    for number, line in lines:
        if "<" not in line and "&" not in line:
            found.append((number, line))
            continue
        pieces = _BREAK.split(line)
        if len(pieces) > 1 and not _ELEMENTS.sub("", pieces[-1]).strip():
            pieces.pop()
        for piece in pieces:
            inner = html.unescape(_ELEMENTS.sub("", _CELL_END.sub("\t", piece))).replace("\xa0", " ")
            found += [(number, one) for one in inner.split("\n")]
    return found


_FRAMED = re.compile(r"\s*([|│┃║])(.*)\1\s*")
#: An empty cell left by a web page's line numbers.
_EMPTY_CELL = re.compile(r"(?<=[^\s|])\s+\|\s*$")
_FRAME_RULE = re.compile(r"\s*[+┌┐└┘├┤╭╮╰╯╔╗╚╝═─━=-]{3,}\s*")


def framed(lines: _Lines) -> _Lines | None:
    """Extract the text from a frame with bars on both sides; None without one."""
    texts = [line for _, line in lines if line.strip()]
    inside = sum(bool(_FRAMED.fullmatch(line)) for line in texts)
    if inside < max(_LEAST, _SHARE * len(texts)):
        return None
    found: _Lines = []
    for number, line in lines:
        if match := _FRAMED.fullmatch(line):
            inner = match[2].removeprefix(" ").rstrip()
            found.append((number, inner if inner.startswith("|") else _EMPTY_CELL.sub("", inner)))
        elif not _FRAME_RULE.fullmatch(line):
            found.append((number, line))
    return found


def fenced(lines: _Lines) -> _Lines | None:
    """Remove code fences from the lines that they were joined to; None without one."""
    found: _Lines = []
    any_ = False
    for number, line in lines:
        bare = _without_fence(line)
        any_ |= bare != line
        found.append((number, bare))
    return found if any_ else None


_GLUED_FENCE = re.compile(
    r"^\s{0,3}(?:```|~~~|\[code\]|\{code\}|\{noformat\})(?=.*\s\S|\s*[{\[<].*)"
    r"|(?<=\S)\s?(?:```|~~~|\[/code\]|\{code\}|\{noformat\})\s*$"
)
#: A line in backquotes, or the first or last of several lines in backquotes.
_TICKED = re.compile(r"\s{0,3}`([^`]+)`?\s*|([^`]*\S)`\s*")


def _without_fence(line: str) -> str:
    if "`" in line and (match := _TICKED.fullmatch(line)):
        return match[1] or match[2]
    return _GLUED_FENCE.sub("", line) if "`" in line or "~" in line or "code" in line or "{nof" in line else line


_QUOTED = re.compile(r"\s{0,3}(?:>\s?){1,8}")


def quoted(lines: _Lines) -> _Lines | None:
    """Remove an email's quote marks, else the common margin; None without either."""
    texts = [line for _, line in lines if line.strip()]
    quoted = sum(bool(_QUOTED.match(line)) for line in texts)
    if quoted >= max(_LEAST, _SHARE * len(texts)):
        return [(number, _QUOTED.sub("", line, count=1)) for number, line in lines]
    margin = min((len(line) - len(line.lstrip(" \t")) for line in texts), default=0)
    if not margin or len({line[:margin] for line in texts}) > 1:
        return None
    return [(number, line[margin:]) for number, line in lines]


def returned(lines: _Lines) -> _Lines | None:
    """Reduce overwritten lines to their final text; None if there are none.

    NCCL's messages and progress bars remain, even if overwritten.
    """
    if not any("\r" in line.rstrip("\r") for _, line in lines):
        return None
    found: _Lines = []
    for number, line in lines:
        *before, last = [piece for piece in line.split("\r") if piece.strip()] or [""]
        found += [(number, piece) for piece in before if "NCCL" in piece or BAR in piece]
        found.append((number, last))
    return found


#: The number of a line, as ``grep -n`` and viewers print it.
_NUMBER = re.compile(r"\s{0,8}(\d{1,6})(?:[:|.)] ?|\t)")
_LEAST_COUNTED = 8


def counted(lines: _Lines) -> _Lines | None:
    """Remove line numbers that start at 1; None without them.

    Numbers that start at 0 may be the task numbers of a launcher.
    """
    filled = [(number, line) for number, line in lines if line.strip()]
    matches = [_NUMBER.match(line) for _, line in filled]
    if len(filled) < _LEAST_COUNTED or any(not match or int(match[1]) != at for at, match in enumerate(matches, 1)):
        return None
    return [(number, line[match.end() :]) for (number, line), match in zip(filled, matches, strict=True) if match]
