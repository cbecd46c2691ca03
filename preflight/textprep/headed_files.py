"""Files printed by ``tail -n +1`` or ``head``, each below a line with its path."""

from __future__ import annotations

import re

from preflight.textprep.lines import Line, Lines

_HEAD = re.compile(r"\s{0,8}==> (\S{1,300}) <==\s*")
#: Paths of files that contain a value, not a text.
_VALUES = re.compile(r"/(?:sys|proc/sys)/.*|(?:.*/)?ports/\d{1,3}/.*")
#: Maximum lines of such a file; longer ones are left unchanged.
_MOST_LINES = 64


def path_of(text: str) -> str | None:
    """Return the path in a file heading; None for any other line."""
    return match[1] if text.endswith("<==") and (match := _HEAD.fullmatch(text)) else None


def as_searched(lines: Lines) -> Lines:
    """Convert values below headings to ``grep`` output: ``path:value``."""
    if not any(line.text.endswith("<==") for line in lines):
        return lines
    result: list[Line] = []
    at = 0
    while at < len(lines):
        path = path_of(lines[at].text)
        end = at + 1
        while end < len(lines) and lines[end].text.strip() and path_of(lines[end].text) is None:
            end += 1
        if path is None or not _VALUES.fullmatch(path) or not 1 < end - at <= _MOST_LINES + 1:
            result.append(lines[at])
            at += 1
            continue
        result += [Line(line.number, f"{path}:{line.text.strip()}") for line in lines[at + 1 : end]]
        while end < len(lines) and not lines[end].text.strip():
            end += 1
        at = end
    return result
