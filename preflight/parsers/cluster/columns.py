"""Tables with a header in capitals, as Slurm's commands print them."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Z][A-Za-z_:/()%]{1,30}")
#: Maximum columns of a table, and maximum characters of a line.
_MOST, _LONGEST = 40, 4000


def columns(text: str) -> tuple[str, ...]:
    """Return the column names of a header; empty for any other line."""
    if len(text) > _LONGEST:
        return ()
    names = tuple(text.split())
    plausible = 2 <= len(names) <= _MOST and len(set(names)) == len(names)
    return names if plausible and all(_NAME.fullmatch(name) for name in names) else ()


def cells(names: tuple[str, ...], text: str) -> dict[str, str] | None:
    """Return the cells of a row by column; None if cells are missing.

    The last cell contains the rest of the line.
    """
    words = text[:_LONGEST].split(None, len(names) - 1)
    return dict(zip(names, words, strict=True)) if len(words) == len(names) else None
