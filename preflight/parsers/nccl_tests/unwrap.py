"""Lines of nccl-tests reports that a terminal wrapped, joined again."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from preflight.textprep.wrapped_lines import join_at

#: Minimum and maximum terminal width; a complete row has 100 to 130 characters.
_NARROWEST, _WIDEST = 60, 200
#: Maximum number of lines; text that is copied from a screen has fewer.
_MOST_LINES = 5000
#: Minimum number of rows that end at the same column for it to be the terminal's width.
_LEAST = 3

_HEADER = re.compile(r"(?:.{0,60}?[\s#>:|])?(?:size\s{1,40}count|bytes\s{1,40}N)\s{1,40}type\s.*")
_ROW_CUT = re.compile(
    r"(?:.{0,60}?[\]>:|]\s?)?\s{0,40}\d{1,19}\s{1,40}\d{1,19}\s{1,40}[a-z]\w{2,15}\s[\s\d.eE+\-nainf/N*a-z]*"
)
_DEVICE = re.compile(r".{0,80}?\bRank\s{1,4}\d{1,7}\s.{0,300}\bdevice\s{1,4}\d.*")
_NAME_REST = re.compile(r"[\w ()./-]{1,60}")
_NCCL = re.compile(r".{0,80}NCCL |\S{1,200}:\d{1,10}:\d{1,10} ")
_REST = re.compile(r"[\s\d.eE+\-nainf/NA*]{1,80}")
_WORDS = ("time", "algbw", "busbw")


def unwrap_report(text: str) -> str:
    """Join wrapped lines on their first line.

    The continuation lines become empty, so line numbers do not change.
    """
    if "busbw" not in text and "float" not in text and " device " not in text:
        return text
    if text.count("\n") > _MOST_LINES:
        return text
    lines = text.split("\n")
    bare = [line.rstrip("\r") for line in lines]
    width = _of_header(bare) or _of_rows(bare) or _of_devices(bare)
    if width is None:
        return text
    return "\n".join(join_at(bare, width, _goes_on))


def _goes_on(line: str) -> bool:
    """Return whether a line does not start a report line, and may continue one."""
    return not (line.lstrip().startswith("#") or _ROW_CUT.fullmatch(line) or _NCCL.match(line) or _DEVICE.match(line))


def _of_header(lines: list[str]) -> int | None:
    """Return the column at which the table header was wrapped, or None."""
    for line, after in pairwise(lines):
        if _NARROWEST <= len(line) <= _WIDEST and _HEADER.fullmatch(line) and not after.lstrip().startswith("#"):
            joined = (line + after).split()
            # both halves have the same columns; a wrapped line lacks some of the second half
            if any(joined.count(word) == 2 and line.split().count(word) < 2 for word in _WORDS):
                return len(line)
    return None


def _of_rows(lines: list[str]) -> int | None:
    """Return the column at which rows without a header were wrapped, or None."""
    ends = Counter(
        len(line)
        for line, after in pairwise(lines)
        if _NARROWEST <= len(line) <= _WIDEST and _ROW_CUT.fullmatch(line) and _REST.fullmatch(after)
        and after.strip() and not _ROW_CUT.fullmatch(after)
    )  # fmt: skip
    width, count = ends.most_common(1)[0] if ends else (0, 0)
    return width if count >= _LEAST else None


def _of_devices(lines: list[str]) -> int | None:
    """Return the column at which a device list without a table was wrapped, or None."""
    ends = Counter(
        len(line)
        for line, after in pairwise(lines)
        if _NARROWEST <= len(line) <= _WIDEST and _DEVICE.fullmatch(line) and _NAME_REST.fullmatch(after)
        and after.strip() and _goes_on(after)
    )  # fmt: skip
    width, count = ends.most_common(1)[0] if ends else (0, 0)
    return width if count > 1 and all(len(line) <= width for line in lines if _DEVICE.fullmatch(line)) else None
