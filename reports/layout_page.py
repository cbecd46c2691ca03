"""A plan as one HTML page without scripts: step parts, link load, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.facts.host import size_text
from preflight.reports import layout_text
from preflight.reports.page_environment import digest, environment, joined
from preflight.reports.sanitize import one_line, short
from preflight.version import VERSION

_STYLES = ("report.css", "plan.css")

#: Exit status -> word of the verdict, and the status that sets its colour.
_VERDICTS = {0: ("PASS", "pass"), 1: ("FAIL", "fail")}

#: px: size of a GPU, margin, width of the node names.
_CELL, _PAD, _LABEL = 18, 8, 170


def render(plan: Mapping[str, Any]) -> str:
    """Return the page of a ``preflight.layout/1`` document."""
    css = joined(_STYLES)
    word, tone = _VERDICTS.get(plan["exit_status"], ("UNKNOWN", "unknown"))
    return environment().get_template("plan.html.j2").render(
        plan=plan,
        version=VERSION,
        word=word,
        tone=tone,
        headline=tuple(layout_text.headline(plan)),
        findings=[own for status in layout_text.ORDER for own in plan["findings"] if own["status"] == status],
        passed=sorted({own["check"] for own in plan["findings"] if own["status"] == "pass"}),
        parts=_parts(plan),
        groups=[(own, draw_group(own)) for own in _groups(plan["axes"])],
        size=size_text,
        css=Markup(css),  # trusted, from the package
        css_hash=digest(css),
    )  # fmt: skip


def _parts(plan: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], float]]:
    """Return the parts of at least 0.05% of a step, each with its share of the step."""
    step = plan["step"]
    if step is None:
        return []
    return [
        (part, part["seconds"] / step["seconds"])
        for part in step["parts"]
        if part["seconds"] + part["hidden"] >= 0.0005 * step["seconds"]
    ]


def _groups(axes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first exchange of each axis, with the bytes of all its exchanges."""
    groups: dict[str, dict[str, Any]] = {}
    for own in axes:
        axis = groups.setdefault(own["axis"], {**own, "bytes_of_step": 0.0})
        axis["bytes_of_step"] += own["bytes_of_step"]
    return list(groups.values())


def draw_group(own: Mapping[str, Any]) -> Markup:
    """Draw the most widely spread group of an axis, with a row for each node."""
    rows = own["group"]
    width = max((max(row["gpus"]) + 1 for row in rows), default=1)
    width = max(width, 8)
    parts, y, last = [], _PAD, None
    for row in rows:
        place = (row["unit"], row["domain"] if own["crosses"] != "NVLink" else None)
        if last is not None and place[0] != last[0]:
            parts.append(
                Markup('<line class="g-unit" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/>').format(
                    a=_PAD, b=_PAD + _LABEL + width * _CELL, y=y + 3
                )
            )
            y += 8
        last = place
        name = short(one_line(str(row["node"])), 18)
        parts.append(
            Markup('<text class="t-sub" x="{x}" y="{y}" text-anchor="end">{name}</text>').format(
                x=_PAD + _LABEL - 8, y=y + _CELL * 0.72, name=name
            )
        )
        members = set(row["gpus"])
        for gpu in range(width):
            parts.append(
                Markup('<rect class="{k}" x="{x}" y="{y}" width="{s}" height="{s}" rx="2"/>').format(
                    k="g-in" if gpu in members else "g-out", x=_PAD + _LABEL + gpu * _CELL, y=y, s=_CELL - 3
                )
            )
        y += _CELL
    more = own["nodes"] - len(rows)
    note = f"and {more:,} more nodes" if more > 0 else ""
    return Markup(
        '<svg class="topo groups" role="img" xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}"'
        ' viewBox="0 0 {w} {h}" font-size="11" fill="currentColor"><title>{title}</title>{body}'
        '<text class="t-note" x="{x}" y="{y}">{note}</text></svg>'
    ).format(
        w=_PAD * 2 + _LABEL + width * _CELL, h=y + (18 if note else _PAD), title=_words(own),
        body=Markup("").join(parts), x=_PAD + _LABEL, y=y + 12, note=note,
    )  # fmt: skip


def _words(own: Mapping[str, Any]) -> str:
    """Describe the drawn group of an axis."""
    listed = "; ".join(
        f"{one_line(str(row['node']))}: GPU {', '.join(map(str, row['gpus']))}" for row in own["group"][:8]
    )
    return f"One group of {own['ranks']} ranks on {own['nodes']} nodes, over {own['crosses']}: {listed}"
