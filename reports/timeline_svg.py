"""A step of a job across its ranks as an inline SVG: one row for each rank.

The number of elements depends on the number of ranks only: all parts of one kind in a row are one path. Computation is
drawn from the bottom of a row, waiting from its top, so the picture is readable without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.reports.sanitize import one_line, short

WIDTH, LABEL, PAD, TOP = 800, 150, 12, 30  # px: width of the plot, of the names; margin; height of the legend
_TALL, _FLAT, _MANY = 20, 11, 24  # px: height of a row, of one of many; number of rows at which they are flat
_GAP = 3

#: Kinds of activity from the bottom of a row, with their names; waiting is drawn from the top.
KINDS = (
    ("compute", "computation"),
    ("transfer", "exposed transfer"),
    ("communication", "exposed communication"),
    ("copies", "copies"),
    ("waiting", "exposed waiting"),
)

Row = Mapping[str, Any]


def summary(timeline: Mapping[str, Any]) -> str:
    """Summarise the picture in one line."""
    step, rows = timeline["step"], timeline["rows"]
    subject = "the complete profile" if step is None else f"step {step}, the {timeline['which']} one"
    shown = f"{len(rows)} of {timeline['ranks']}" if len(rows) < timeline["ranks"] else f"{len(rows)}"
    ranks = f"{shown} ranks" if timeline["ranks"] > 1 else f"rank {rows[0]['rank']}"
    error = timeline["clock_error_us"]
    clock = "" if error is None or len(rows) == 1 else f"; clocks compared to within {error:,.0f} µs"
    return f"{subject}: {timeline['length_ms']:.4g} ms, {ranks}{clock}"


def draw(timeline: Mapping[str, Any]) -> Markup:
    """Return the picture as one ``<svg role="img">`` with a text description."""
    rows: Sequence[Row] = timeline["rows"]
    height = _TALL if len(rows) < _MANY else _FLAT
    body, y, group = [_legend(rows)], TOP, None
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            body.append(_text(PAD, y + 12, short(group, 120), "t-note"))
            y += 18
        body.append(_row(row, y, height))
        y += height + _GAP
    body.append(_axis(timeline["length_ms"], y))
    return Markup(
        '<svg class="topo timeline" role="img" xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}"'
        ' viewBox="0 0 {w} {h}" font-size="11" fill="currentColor">'
        "<title>{title}</title><desc>{words}</desc>{body}</svg>"
    ).format(
        w=PAD + LABEL + WIDTH + PAD, h=y + 24, title=summary(timeline), words=_words(rows), body=Markup("").join(body)
    )


def _legend(rows: Sequence[Row]) -> Markup:
    parts, x = [], PAD + LABEL
    for kind, name in (*KINDS, ("idle", "idle GPU")):
        if kind == "idle" or any(kind in row["parts"] for row in rows):
            square = Markup('<rect class="s-{k}" x="{x}" y="9" width="11" height="11"/>').format(k=kind, x=x)
            parts += [square, _text(x + 16, 19, name, "t-sub")]
            x += 30 + 7 * len(name)
    return Markup("").join(parts)


def _row(row: Row, y: int, height: int) -> Markup:
    begin, end = (PAD + LABEL + WIDTH * row[edge] for edge in ("begin", "end"))
    name = f"rank {row['rank']}" + (f" {row['host']}" if row["host"] else "")
    marks = ("late: " if row["late"] else "") + name + ("" if row["same_clock"] else " (own clock)")
    below = [0] * max(map(len, row["parts"].values()), default=0)
    paths = []
    for kind, _ in KINDS:
        if kind not in row["parts"]:
            continue
        parts = row["parts"][kind]
        floors = [100 - part for part in parts] if kind == "waiting" else below
        path = "".join(_bars(parts, floors, begin, (end - begin) / len(parts), y, height))
        paths.append(Markup('<path class="s-{k}" d="{d}"/>').format(k=kind, d=path))
        below = [floor + part for floor, part in zip(below, parts, strict=True)]
    return Markup(
        '<g><title>{t}</title>{n}<rect class="s-idle" x="{x:.1f}" y="{y}" width="{w:.1f}" height="{h}"/>{p}</g>'
    ).format(
        t=f"{one_line(marks)}: {_shares(row)}", x=begin, y=y, w=max(1.0, end - begin), h=height,
        n=_text(PAD + LABEL - 6, y + height - (5 if height == _TALL else 1), short(marks, 24),
                "s-late" if row["late"] else "t-sub", "end"),
        p=Markup("").join(paths),
    )  # fmt: skip


def _bars(
    parts: Sequence[int], floors: Sequence[int], x: float, width: float, y: int, height: int
) -> Iterator[str]:  # fmt: skip
    """Yield a rectangle for each run of equal parts."""
    at = 0
    while at < len(parts):
        until = at + 1
        while until < len(parts) and (parts[until], floors[until]) == (parts[at], floors[at]):
            until += 1
        if parts[at]:
            top = y + height * (1 - min(100, floors[at] + parts[at]) / 100)
            size = height * parts[at] / 100
            yield f"M{x + at * width:.1f} {top:.1f}h{(until - at) * width:.1f}v{size:.1f}h{(at - until) * width:.1f}z"
        at = until


def _axis(length_ms: float, y: int) -> Markup:
    marks = []
    for quarter in range(5):
        x = PAD + LABEL + WIDTH * quarter / 4
        anchor = "start" if quarter == 0 else "end" if quarter == 4 else "middle"
        marks.append(Markup('<path class="s-tick" d="M{x:.1f} {a}V{b}"/>').format(x=x, a=TOP, b=y))
        marks.append(_text(x, y + 15, f"{length_ms * quarter / 4:.4g} ms", "t-sub", anchor))
    return Markup("").join(marks)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> Markup:
    shape = Markup('<text class="{k}" x="{x:.1f}" y="{y:.1f}" text-anchor="{a}">{t}</text>')
    return shape.format(k=kind, x=x, y=y, a=anchor, t=one_line(text))


def _shares(row: Row) -> str:
    """Return the shares of a row in words."""
    means = {kind: sum(row["parts"][kind]) / len(row["parts"][kind]) for kind, _ in KINDS if kind in row["parts"]}
    idle = max(0.0, 100 - sum(means.values()))
    return ", ".join([*(f"{means[kind]:.0f}% {name}" for kind, name in KINDS if kind in means), f"{idle:.0f}% idle"])


def _words(rows: Sequence[Row]) -> str:
    """Name the late ranks, and describe the shares of each row."""
    late = ", ".join(str(row["rank"]) for row in rows if row["late"])
    first = f"Late: rank {late}. " if late else "No rank delays its peers. "
    return first + "; ".join(f"rank {row['rank']}: {_shares(row)}" for row in rows) + "."
