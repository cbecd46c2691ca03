"""Heat map of pairwise runs for a terminal, with the slow runs of each rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.reports.sanitize import one_line

#: Maximum number of rows; beyond it, only rows with slow or stopped runs are drawn.
_MOST_ROWS = 64

#: Width of a row's label in characters.
_LABEL = 20

_LEGEND = "  .: normal; 0 to 9: slow, in tenths of normal; x: does not run; ?: nothing to compare with; blank: not run"


def render(picture: Mapping[str, Any]) -> str:
    """Return the picture (``preflight.bench.picture``) as text."""
    rows: Sequence[str] = picture["rows"]
    marks = _marks(picture)
    drawn = list(range(len(rows)))
    if len(rows) > _MOST_ROWS:
        drawn = sorted({place for pair, mark in marks.items() if mark not in ".?" for place in pair})[:_MOST_ROWS]
    width = max((len(one_line(rows[place])[-_LABEL:]) for place in drawn), default=0)
    lines = ["", f"{one_line(picture['title'])}, one character for each pair ({picture['per_row']} by row)"]
    for place in drawn:
        cells = "".join(_mark(marks, place, other) for other in drawn)
        lines.append(f"  {one_line(rows[place])[-_LABEL:]:>{width}} {cells}".rstrip())
    if len(rows) > len(drawn):
        lines.append(f"  {len(rows) - len(drawn)} rows without slow runs are left out")
    lines.append(_LEGEND)
    lines += _rails(picture.get("rails"))
    return "\n".join(lines) + "\n"


def _marks(picture: Mapping[str, Any]) -> dict[tuple[int, int], str]:
    marks = {}
    for a, b, lowest, _, _, stopped in picture["cells"]:
        if stopped:
            mark = "x"
        elif lowest is None:
            mark = "?"
        else:
            mark = "." if lowest >= picture["slow_below"] else str(min(9, int(10 * lowest)))
        marks[a, b] = mark
    return marks


def _mark(marks: Mapping[tuple[int, int], str], a: int, b: int) -> str:
    if a == b:
        return marks.get((a, b), "\\")
    return marks.get((min(a, b), max(a, b)), " ")


def _rails(rails: Mapping[str, Any] | None) -> list[str]:
    if rails is None:
        return []
    pairs = zip(rails["names"], rails["totals"], strict=True)
    return ["  slow runs by rail: " + ", ".join(f"{one_line(name)} {slow}/{runs}" for name, (slow, runs) in pairs)]
