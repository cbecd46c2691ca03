"""A curve as an inline SVG with axes and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.reports.sanitize import one_line, short

WIDTH, HEIGHT = 500, 230
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 34, 40  # px around the plot

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

Points = Sequence[tuple[float, float]]


def draw(curve: Mapping[str, Any]) -> Markup:
    """Return the picture of a curve as ``<svg role="img">`` with a description."""
    points = [(float(x), float(y)) for x, y in curve["points"]]
    by_size = curve["kind"] == "nccl-tests"
    scale = (lambda x: math.log2(max(1.0, x))) if by_size else float
    highest = _round_up(max([y for _, y in points] + [0.0]))
    first, last = scale(points[0][0]), scale(points[-1][0])

    def place(x: float, y: float) -> tuple[float, float]:
        share = (scale(x) - first) / ((last - first) or 1)
        return (LEFT + share * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / highest * (HEIGHT - TOP - BOTTOM))

    spots = [place(x, max(0.0, y)) for x, y in points]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    dots = Markup("").join(
        Markup('<circle class="v-dot" cx="{x:.1f}" cy="{y:.1f}" r="2.6"><title>{t}</title></circle>').format(
            x=x, y=y, t=f"{_at(point[0], by_size)}: {point[1]:,.4g} {curve['unit']}".strip()
        )
        for (x, y), point in zip(spots, points, strict=True)
    )
    return Markup(
        '<svg class="curve" role="img" viewBox="0 0 {w} {h}" width="{w}" height="{h}" font-size="11">'
        '<title>{title}</title><text class="v-head" x="4" y="17">{head}</text>{axes}'
        '<path class="v-line" d="{line}" fill="none"/>{dots}</svg>'
    ).format(
        w=WIDTH, h=HEIGHT, title=_words(curve, points, by_size), line=line, dots=dots,
        head=short(str(curve["name"]), 68), axes=_axes(points, highest, place, by_size, str(curve["unit"])),
    )  # fmt: skip


def _axes(
    points: Points, highest: float, place: Callable[[float, float], tuple[float, float]], by_size: bool, unit: str
) -> Markup:
    """Draw five labelled grid lines, and the labels and title of the x axis."""
    parts = []
    for quarter in range(5):
        value = highest * quarter / 4
        y = place(points[0][0], value)[1]
        parts.append(
            Markup(
                '<line class="v-grid" x1="{a}" y1="{y:.1f}" x2="{b}" y2="{y:.1f}"/>'
                '<text class="v-mark" x="{c}" y="{d:.1f}" text-anchor="end">{t}</text>'
            ).format(a=LEFT, b=WIDTH - RIGHT, y=y, c=LEFT - 7, d=y + 4, t=f"{value:,.4g}")
        )
    step = max(1, (len(points) - 1) // 4)
    for x, _ in points[::step]:
        at = place(x, 0)[0]
        parts.append(
            Markup('<text class="v-mark" x="{x:.1f}" y="{y}" text-anchor="middle">{t}</text>').format(
                x=min(at, WIDTH - 24), y=HEIGHT - BOTTOM + 16, t=_at(x, by_size)
            )
        )
    words = "message size" if by_size else "days before the last run"
    parts.append(
        Markup('<text class="v-mark" x="{x}" y="{y}" text-anchor="end">{t}</text>').format(
            x=WIDTH - RIGHT, y=HEIGHT - 6, t=f"{words}{f'; {unit}' if unit else ''}"
        )
    )
    return Markup("").join(parts)


def _words(curve: Mapping[str, Any], points: Points, by_size: bool) -> str:
    unit = str(curve["unit"])
    (start, low), (end, high) = points[0], points[-1]
    peak = max(points, key=lambda point: point[1])
    return one_line(
        f"{curve['name']}: {low:,.4g} {unit} at {_at(start, by_size)}, {high:,.4g} {unit} at {_at(end, by_size)}, "
        f"at most {peak[1]:,.4g} {unit} at {_at(peak[0], by_size)}"
    )


def _at(x: float, by_size: bool) -> str:
    if not by_size:
        return f"{x:,.3g}"
    for factor, name in _UNITS:
        if x >= factor:
            return f"{x / factor:,.3g} {name}"
    return f"{x:,.0f} B"


def _round_up(value: float) -> float:
    """Round up to 1, 2, 4, 5 or 8 times a power of ten."""
    if not (math.isfinite(value) and value > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * 0.999999)
