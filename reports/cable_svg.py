"""One Ethernet cable as inline SVG: both ends, and what each of them shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from preflight.reports.sanitize import one_line, short

WIDTH, BOX, BOX_H, ROW = 420, 158, 44, 18  # px: width of the picture, of a box, its height, height of a row

Cable = Mapping[str, Any]


def draw(cable: Cable) -> Markup:
    """Return the picture of a cable as one ``<svg role="img">`` with a title."""
    rows = [row for row in cable["rows"] if any(value is not None for value in row["values"])]
    height = BOX_H + 16 + ROW * len(rows) + (16 if cable["only"] else 0)
    centres = (BOX / 2 + 1, WIDTH - BOX / 2 - 1)
    parts = [_box(end, centre) for end, centre in zip(cable["ends"], centres, strict=True)]
    for number, row in enumerate(rows):
        parts.append(_row(row, centres, BOX_H + 22 + ROW * number))
    if cable["only"]:
        parts.append(_text(WIDTH / 2, height - 5, "t-note", f"only {cable['only']} shows this cable"))
    return Markup(
        '<svg class="topo cable" role="img" xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}"'
        ' viewBox="0 0 {w} {h}" font-size="11" fill="currentColor"><title>{title}</title>'
        '<line class="{kind}" x1="{a}" y1="{y}" x2="{b}" y2="{y}" stroke="currentColor" stroke-width="3"/>{parts}</svg>'
    ).format(
        w=WIDTH, h=height, title=_words(cable, rows), kind="t-idle" if cable["only"] else "t-wire", a=BOX + 1,
        b=WIDTH - BOX - 1, y=BOX_H / 2 + 1, parts=Markup("").join(parts),
    )  # fmt: skip


def _box(end: Mapping[str, Any], centre: float) -> Markup:
    box = Markup('<rect class="{kind}" x="{x}" y="1" width="{w}" height="{h}" rx="5" stroke="currentColor"/>').format(
        kind="t-switch" if end["switch"] else "t-gpu", x=centre - BOX / 2, w=BOX, h=BOX_H
    )
    return (
        box + _text(centre, 19, "t-name", short(end["device"], 20)) + _text(centre, 35, "t-sub", short(end["port"], 24))
    )


def _row(row: Mapping[str, Any], centres: tuple[float, float], y: float) -> Markup:
    back = Markup('<rect class="t-bad" x="1" y="{y}" width="{w}" height="{h}" rx="3"/>').format(
        y=y - 13, w=WIDTH - 2, h=ROW
    )
    values = [_text(centre, y, "t-sub", _value(value)) for centre, value in zip(centres, row["values"], strict=True)]
    return (back if row["wrong"] else Markup("")) + Markup("").join(
        [*values, _text(WIDTH / 2, y, "t-note", row["name"])]
    )


def _value(value: str | None) -> str:
    return "not known" if value is None else short(value, 24)


def _text(x: float, y: float, kind: str, words: str) -> Markup:
    return Markup('<text class="{k}" x="{x}" y="{y}" text-anchor="middle">{t}</text>').format(k=kind, x=x, y=y, t=words)


def _words(cable: Cable, rows: list[Mapping[str, Any]]) -> str:
    shown = (f"{row['name']}: {_value(row['values'][0])} and {_value(row['values'][1])}" for row in rows)
    return one_line("; ".join((f"Cable {cable['name']}", *shown)))
