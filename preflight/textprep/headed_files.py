"""Values below a line with their path.

The line is a heading of ``tail -n +1`` or ``head``, or a prompt with ``cat PATH``; ``ulimit -l`` is read as well.
"""

from __future__ import annotations

import re

from preflight.textprep.lines import Line, Lines

_HEAD = re.compile(r"\s{0,8}==> (\S{1,300}) <==\s*")
#: Paths of files that contain a value, not a text.
_VALUES = re.compile(r"/(?:sys|proc/sys)/.*|(?:.*/)?ports/\d{1,3}/.*")
#: A prompt with one or more paths of files with one value each, and one with a limit.
_CAT = re.compile(
    r"[^\n]{0,120}?[#$%>] {0,3}(?:sudo )?cat((?: /(?:sys/(?!class/infiniband)|proc/sys/)[\w./@:,+-]{1,250}){1,16})\s*"
)
_ULIMIT = re.compile(r"[^\n]{0,120}?[#$%>] {0,3}ulimit -(?:S|H)?l\s*")
_LIMIT = re.compile(r"\s*(?:unlimited|\d{1,20})\s*")
#: Maximum lines of such a file; longer ones are left unchanged.
_MOST_LINES = 64


def path_of(text: str) -> str | None:
    """Return the path in a file heading; None for any other line."""
    return match[1] if text.endswith("<==") and (match := _HEAD.fullmatch(text)) else None


def as_searched(lines: Lines) -> Lines:
    """Convert values below headings to ``grep`` output: ``path:value``."""
    lines = _of_commands(lines)
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


def _of_commands(lines: Lines) -> Lines:
    """Convert the values below prompts with ``cat`` or ``ulimit -l``."""
    if not any("cat /" in line.text[:200] or "ulimit -" in line.text[:200] for line in lines):
        return lines
    result: list[Line] = []
    values: list[str] = []  # the beginnings of the next lines
    for line in lines:
        text = line.text.strip()
        if (
            values
            and text
            and (values[0] != _LOCKED or _LIMIT.fullmatch(text))
            and not _CAT.fullmatch(line.text[:5000])
        ):
            result.append(Line(line.number, f"{values.pop(0)}{text}"))
            continue
        result.append(line)
        match = _CAT.fullmatch(line.text) if "cat /" in line.text[:200] else None
        values = [f"{path}:" for path in match[1].split()] if match else []
        if "ulimit -" in line.text[:200] and _ULIMIT.fullmatch(line.text):
            values = [_LOCKED]
    return result


#: The beginning of bash's line for the limit of locked memory.
_LOCKED = "max locked memory           (kbytes, -l) "
