"""Tables from a spreadsheet, a log store or a web page.

Their cells are separated by commas, semicolons or bars.
"""

from __future__ import annotations

import csv
import re
from collections import Counter

_Lines = list[tuple[int, str]]

#: Minimum number of rows with the same number of cells, and minimum cells per row.
_LEAST, _CELLS = 3, 5
#: Minimum fraction of lines that are rows, if the rows are fewer or their numbers of cells differ.
_SHARE = 0.8
#: Maximum lines of a text that is searched for tables.
_MOST_LINES = 20_000
#: Columns aligned with blanks, which a row does not contain.
_SET_WITH_BLANKS = re.compile(r"\S(?:\t|\s{2,})\S")
#: Characters in the first cell of a list that follows its name; such a list is not a row.
_NAMED = re.compile(r"[=:\s]")
#: The line below the header of a table in Markdown.
_RULE = re.compile(r"\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?\s*)?")
#: A number with a decimal comma, as in European spreadsheets: ``8247,6``.
_DECIMAL_COMMA = re.compile(r"(-?\d{1,15}),(\d{1,12})")


def messages(lines: _Lines) -> _Lines | None:
    """Extract the messages from the CSV table of a log store; None without one."""
    filled = [(number, line) for number, line in lines if line.strip()]
    if (
        len(filled) < _LEAST
        or sum(line.lstrip().startswith('"') and '","' in line for _, line in filled) < len(filled) - 1
    ):
        return None
    try:
        rows = list(csv.reader(line for _, line in filled))
    except csv.Error:
        return None
    width = min(map(len, rows))
    if len(rows) != len(filled) or not 2 <= width == max(map(len, rows)):
        return None
    longest = max(range(width), key=lambda column: sum(len(row[column]) for row in rows))
    if width >= _CELLS and sum(" " in row[longest] for row in rows) * 2 < len(rows):
        return None  # cells of a table without messages
    return [(number, row[longest]) for (number, _), row in zip(filled, rows, strict=True)]


def cells(lines: _Lines) -> _Lines | None:
    """Separate the cells of a table with tabs; None if there is no table.

    Padding is removed from the remaining lines.
    """
    if len(lines) > _MOST_LINES:
        return None
    texts = [line.strip() for _, line in lines if line.strip()]
    for separator in ",;|":
        widths = Counter(len(row) for line in texts if (row := _row(line, separator)) is not None)
        width, count = widths.most_common(1)[0] if widths else (0, 0)
        closed = sum(line[:1] == line[-1:] == ("|" if separator == "|" else '"') for line in texts)
        rows = count >= _LEAST and width >= _CELLS
        if not rows and (max(widths, default=0) < _CELLS or closed < max(_LEAST, _SHARE * len(texts))):
            continue
        return [(number, _set(line, separator)) for number, line in lines if not _RULE.fullmatch(line.strip())]
    return None


def _set(line: str, separator: str) -> str:
    bare = line.rstrip(f"{separator} \t\r")
    if line.count(separator, len(bare)) > 1:  # padding of a short row
        line = bare
    row = _row(line, separator)
    # a shell pipe or a list may occur in the same text
    if row is None or (len(row) < _CELLS and line.strip()[:1] not in ('"', "|")):
        return line
    if separator == ";":
        row = [_DECIMAL_COMMA.sub(r"\1.\2", cell) if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in row]
    return "\t".join(row).rstrip()


def _row(line: str, separator: str) -> list[str] | None:
    """Return the cells of a row; None if the line is not a row."""
    if separator not in line and line[:1] != '"':
        return None
    text = line.strip()
    if separator == "|":
        row = [cell.strip() for cell in text.removeprefix("|").removesuffix("|").split("|")]
    else:
        try:
            row = next(csv.reader([text], delimiter=separator))
        except (csv.Error, StopIteration):
            return None
        if '"' in text:
            return row
        if _SET_WITH_BLANKS.search(text) or f"{separator} " in text or _NAMED.search(row[0]):
            return None
        if not any(cell[:1].isalpha() for cell in row):
            return None  # `lscpu -p`
    return row
