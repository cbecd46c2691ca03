"""Heat map of pairwise runs as an inline SVG, with a strip for each rail.

Colours come from the page's style sheet. Node names are escaped and sanitised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.reports.sanitize import one_line, short

PAD, LABEL, CELL, SMALL = 12, 150, 14, 7  # px: margin, room for names, a square, a square in a large map
_LARGE = 48  # maximum number of rows with large squares

Picture = Mapping[str, Any]


def summary(picture: Picture) -> str:
    """Summarise the picture in one line."""
    cells = picture["cells"]
    slow = sum(_kind(picture, cell) == "p-slow" for cell in cells)
    stopped = sum(cell[5] > 0 for cell in cells)
    parts = [f"{len(picture['rows'])} {picture['per_row']}s, {len(cells)} pairs"]
    parts += [f"{slow} slow"] if slow else []
    parts += [f"{stopped} that do not run"] if stopped else []
    return "; ".join(parts)


def draw(picture: Picture) -> Markup:
    """Return the picture as one ``<svg role="img">`` with a text description."""
    rows: Sequence[str] = picture["rows"]
    size = CELL if len(rows) <= _LARGE else SMALL
    side = len(rows) * size
    rails = picture.get("rails")
    right = LABEL + side + 2 * PAD
    names = [
        Markup('<text class="t-sub" x="{x}" y="{y:.1f}" text-anchor="end">{name}</text>').format(
            x=PAD + LABEL - 6, y=PAD + number * size + size * 0.75, name=short(one_line(name), 22)
        )
        for number, name in enumerate(rows)
        if size == CELL or number % 2 == 0
    ]
    squares = [square for cell in picture["cells"] for square in _squares(picture, cell, rows, size)]
    strips, width = _strips(rails, right, size) if rails else ([], 0)
    notes = ["filled: slow (fuller is slower); cross: does not run; outline: normal; empty: not run"]
    height = PAD + side + 24
    return Markup(
        '<svg class="topo pairs" role="img" xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}"'
        ' viewBox="0 0 {w} {h}" font-size="10" fill="currentColor"><title>{title}</title><desc>{words}</desc>'
        '{body}<text class="t-note" x="{pad}" y="{y}">{note}</text></svg>'
    ).format(
        w=max(right + width + PAD, 600), h=height + 12, title=f"{one_line(picture['title'])}: {summary(picture)}",
        words=_words(picture), body=Markup("").join([*names, *squares, *strips]), pad=PAD, y=height, note=notes[0],
    )  # fmt: skip


def _kind(picture: Picture, cell: Sequence[Any]) -> str:
    _, _, lowest, _, _, stopped = cell
    if stopped:
        return "p-stopped"
    if lowest is None:
        return "p-unknown"
    return "p-slow" if lowest < picture["slow_below"] else "p-sound"


def _squares(picture: Picture, cell: Sequence[Any], rows: Sequence[str], size: int) -> list[Markup]:
    a, b, lowest, middle, runs, stopped = cell
    kind = _kind(picture, cell)
    state = f"{stopped} of {runs} do not run" if stopped else "nothing to compare with"
    if not stopped and lowest is not None:
        state = f"{lowest:.0%} of the reference" + (f", median {middle:.0%} of {runs} runs" if runs > 1 else "")
    title = f"{one_line(rows[a])} and {one_line(rows[b])}: {state}"
    full = 0.25 + 0.75 * (1 - min(1.0, lowest)) if kind == "p-slow" and lowest is not None else 1
    shape = Markup(
        '<rect class="{k}" x="{x}" y="{y}" width="{s}" height="{s}" fill-opacity="{o:.2f}"><title>{t}</title></rect>'
    )
    places = [(a, b)] if a == b else [(a, b), (b, a)]
    return [
        shape.format(k=kind, x=PAD + LABEL + column * size, y=PAD + row * size, s=size - 1, o=full, t=title)
        for row, column in places
    ]


def _strips(rails: Mapping[str, Any], x: int, size: int) -> tuple[list[Markup], int]:
    """Draw a column for each rail: the share of slow runs per node."""
    shape = Markup(
        '<rect class="{k}" x="{x}" y="{y}" width="{s}" height="{s}" fill-opacity="{o:.2f}"><title>{t}</title></rect>'
    )
    drawn = []
    for row, column, lowest, slow, runs in rails["cells"]:
        title = f"{one_line(rails['names'][column])}: {slow} of {runs} runs slow, lowest {lowest:.0%}"
        drawn.append(
            shape.format(k="p-slow" if slow else "p-sound", x=x + column * size, y=PAD + row * size, s=size - 1,
                         o=0.25 + 0.75 * slow / runs if slow else 1, t=title)
        )  # fmt: skip
    return drawn, len(rails["names"]) * size


def _words(picture: Picture) -> str:
    rows = picture["rows"]
    bad = [cell for cell in picture["cells"] if _kind(picture, cell) in ("p-slow", "p-stopped")][:40]
    parts = [f"{one_line(rows[cell[0]])} and {one_line(rows[cell[1]])}" for cell in bad]
    return f"Slow or stopped: {'; '.join(parts)}." if parts else "No pair is slow."
