"""The new text in a pasted patch, without its markers and removed lines."""

from __future__ import annotations

import re

_Lines = list[tuple[int, str]]

#: Minimum number of lines with a mark, and their minimum fraction of all lines.
_LEAST, _SHARE = 3, 0.8
_HUNK = re.compile(r"@@ -\d{1,7}(?:,\d{1,7})? \+\d{1,7}(?:,\d{1,7})? @@.*")
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)\s?(?:diff|patch)\s*")
_FENCE_END = re.compile(r"\s{0,3}(?:```|~~~)\s*")
#: The changed line numbers, in ``diff`` without ``-u``.
_COMMAND = re.compile(r"\d{1,7}(?:,\d{1,7})?[acd]\d{1,7}(?:,\d{1,7})?\s*")
_HEAD = re.compile(
    r"diff --|index [0-9a-f]{4,40}\.\.|(?:---|\+\+\+) \S|(?:new|deleted) file mode |similarity |\\ No newline"
)
#: The same mark before every line: ``-`` or ``+`` in the first column, or ``<`` followed by a blank.
_UNIFORM = (re.compile("-"), re.compile(r"\+(?![-=+]{2})"), re.compile("<(?: |$)"))


def patched(lines: _Lines) -> _Lines | None:
    """Return a patch's new text, or its old text if it only removes lines; else None."""
    marked = _hunks(lines) or _changes(lines)
    if marked is None:
        return None
    side = "+" if any(mark == "+" for _, mark, _ in marked) else "-"
    return [(number, line) for number, mark, line in marked if mark in (side, " ")]


def _hunks(lines: _Lines) -> list[tuple[int, str, str]] | None:
    """Return the lines of a unified diff with their marks; None without one.

    The mark of lines outside the diff is a blank.
    """
    found: list[tuple[int, str, str]] = []
    inside = fenced = False
    count, least = 0, _LEAST
    for number, line in lines:
        if _HUNK.fullmatch(line) or _FENCE.fullmatch(line):
            inside, fenced, least = True, line[:1] != "@" or fenced, 1 if line[:1] == "@" else least
        elif fenced and _FENCE_END.fullmatch(line):
            inside = fenced = False
        elif _HEAD.match(line):
            inside = fenced
        elif inside and line[:1] in ("+", "-"):
            count += 1
            found.append((number, line[0], line[1:]))
        else:
            # web pages and emails remove trailing blanks
            inside = inside and (fenced or line[:1] in (" ", "\t", "", "\r"))
            found.append((number, " ", line[1:] if inside and line[:1] == " " else line))
    return found if count >= least else None


def _changes(lines: _Lines) -> list[tuple[int, str, str]] | None:
    """Return the lines of a diff in the default format with their marks, or None."""
    if not any(_COMMAND.fullmatch(line) for _, line in lines):
        return None
    found: list[tuple[int, str, str]] = []
    count = 0
    for number, line in lines:
        if line[:2] in ("> ", "< ") or line in ("<", ">"):
            count += 1
            found.append((number, "+" if line[0] == ">" else "-", line[2:]))
        elif not _COMMAND.fullmatch(line) and line.rstrip() != "---":
            found.append((number, " ", line))
    return found if count else None


def marked_alike(lines: _Lines) -> _Lines | None:
    """Remove the common mark of a patch or list without its head; None without one."""
    texts = [line for _, line in lines if line.strip()]
    for pattern in _UNIFORM:
        marked = [line for line in texts if pattern.match(line)]
        if len(marked) < max(_LEAST, _SHARE * len(texts)):
            continue
        mark = marked[0][0]
        margin = 2 if all(line[1:2] in (" ", "") for line in texts if line[0] == mark) else 1
        return [(number, line[margin:] if line[:1] == mark else line) for number, line in lines]
    return None
