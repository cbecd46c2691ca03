"""A fabric sweep as inline SVG: tiers, hosts of each leaf, slow and lost links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.reports.sanitize import one_line, short

PAD, GAP, BOX_H, RISE = 12, 8, 40, 96  # px: margin, between boxes, height of a box, between tiers
WIDE, NARROW = 104, 26  # px: width of a box with a name; without a name
DOT, DOTS_WIDE = 8, 11  # px: a host including its space; hosts in a row under a wide box
MOST_BOXES, MOST_LINES = 256, 1200
LABELLED = 24  # switches in a tier that are drawn with their names

Fabric = Mapping[str, Any]


def summary(fabric: Fabric) -> str:
    """Summarise the picture: numbers of switches, tiers, HCAs and faulty links."""
    switches = sum(len(tier) for tier in fabric["tiers"])
    slow = sum(link["slow"] for link in fabric["links"]) + sum(len(s.get("slow_hosts", ())) for s in _all(fabric))
    gone = sum(link["missing"] for link in fabric["links"])
    gone += sum(len(switch.get("missing_hosts", ())) for switch in _all(fabric))
    parts = [f"{switches} switches in {len(fabric['tiers'])} tiers, {fabric['hcas']} HCAs"]
    parts += [f"{slow} slow links"] if slow else []
    parts += [f"{gone} links missing"] if gone else []
    return "; ".join(parts)


def draw(fabric: Fabric) -> Markup:
    """Return the picture as one ``<svg role="img">`` with a text description."""
    tiers = [tier[:MOST_BOXES] for tier in reversed(fabric["tiers"])]  # leaves below
    widths = [_box(tier) for tier in tiers]
    total = max(len(tier) * (w + GAP) - GAP for tier, w in zip(tiers, widths, strict=True)) if tiers else 0
    places: dict[str, tuple[float, float]] = {}
    boxes: list[Markup] = []
    y = PAD
    for tier, width in zip(tiers, widths, strict=True):
        x = PAD + (total - (len(tier) * (width + GAP) - GAP)) / 2
        for switch in tier:
            places[switch["guid"]] = (x + width / 2, y)
            boxes.append(_switch(switch, x, y, width))
            x += width + GAP
        y += RISE + BOX_H
    height = y - RISE + _hosts_height(tiers[-1] if tiers else (), widths[-1] if widths else WIDE) + 12
    lines, left_out = _lines(fabric["links"], places)
    notes = ["line: links between two switches; dashed: slow; dotted: missing compared with the reference"]
    notes += ["square under a leaf: one HCA; A : B: rate of the links below and above a leaf"]
    notes += [f"{left_out} healthy bundles of links are not drawn"] if left_out else []
    more = sum(max(0, len(tier) - MOST_BOXES) for tier in fabric["tiers"])
    notes += [f"{more} switches are not drawn"] if more else []
    notes_svg = Markup("").join(
        Markup('<text class="t-note" x="{x}" y="{y:.0f}">{t}</text>').format(x=PAD, y=height + 15 * number, t=note)
        for number, note in enumerate(notes)
    )
    return Markup(
        '<svg class="topo fabric" role="img" xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}"'
        ' viewBox="0 0 {w:.0f} {h:.0f}" font-size="11" fill="currentColor"><title>{title}</title><desc>{words}</desc>'
        "{lines}{boxes}{notes}</svg>"
    ).format(
        w=max(total + 2 * PAD, 560), h=height + 15 * len(notes), title=f"Fabric: {summary(fabric)}",
        words=_words(fabric), lines=lines, boxes=Markup("").join(boxes), notes=notes_svg,
    )  # fmt: skip


def _all(fabric: Fabric) -> list[Mapping[str, Any]]:
    return [switch for tier in fabric["tiers"] for switch in tier]


def _box(tier: Sequence[Any]) -> int:
    return WIDE if len(tier) <= LABELLED else NARROW


def _switch(switch: Mapping[str, Any], x: float, y: float, width: int) -> Markup:
    bad = switch["up_gbps"] and switch["down_gbps"] > switch["up_gbps"]
    words = [switch["name"]]
    if switch["hosts"]:
        words.append(f"{switch['hosts']} HCA links, {switch['down_gbps']:g} Gb/s down, {switch['up_gbps']:g} Gb/s up")
    words += [f"slow: {name}" for name in switch.get("slow_hosts", ())]
    words += [f"missing: {name}" for name in switch.get("missing_hosts", ())]
    label = Markup("")
    if width == WIDE:
        under = f"{switch['down_gbps']:g} : {switch['up_gbps']:g} Gb/s" if switch["hosts"] else ""
        label = Markup(
            '<text class="t-name" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{name}</text>'
            '<text class="t-sub" x="{x:.1f}" y="{z:.1f}" text-anchor="middle">{under}</text>'
        ).format(x=x + width / 2, y=y + (17 if under else 24), z=y + 32, name=short(switch["name"], 15), under=under)
    return Markup(
        '<g><title>{title}</title><rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{w}" height="{h}" rx="5"'
        ' fill="none" stroke="currentColor"/>{label}{hosts}</g>'
    ).format(
        title=one_line("; ".join(words)), kind="t-switch f-over" if bad else "t-switch", x=x, y=y, w=width, h=BOX_H,
        label=label, hosts=_hosts(switch, x, y + BOX_H + 5, width),
    )  # fmt: skip


def _columns(width: int) -> int:
    return DOTS_WIDE if width == WIDE else 3


def _hosts(switch: Mapping[str, Any], x: float, y: float, width: int) -> Markup:
    """Draw a square for each HCA of a leaf: lost, then slow, then healthy."""
    gone, slow = len(switch.get("missing_hosts", ())), len(switch.get("slow_hosts", ()))
    kinds = ["f-gone"] * gone + ["f-slow"] * slow + ["f-host"] * max(0, switch["hosts"] - slow)
    columns = _columns(width)
    dot = Markup('<rect class="{k}" x="{x:.1f}" y="{y:.1f}" width="6" height="6" stroke="currentColor"/>')
    return Markup("").join(
        dot.format(k=kind, x=x + 2 + number % columns * DOT, y=y + number // columns * DOT)
        for number, kind in enumerate(kinds)
    )


def _hosts_height(tier: Sequence[Mapping[str, Any]], width: int) -> float:
    most = max((switch["hosts"] + len(switch.get("missing_hosts", ())) for switch in tier), default=0)
    return 8 + -(-most // _columns(width)) * DOT


def _lines(links: Sequence[Mapping[str, Any]], places: Mapping[str, tuple[float, float]]) -> tuple[Markup, int]:
    """Draw links between switches, faulty ones on top; also return the number omitted."""
    known = [link for link in links if link["a"] in places and link["b"] in places]
    faulty = [link for link in known if link["slow"] or link["missing"]]
    sound = [link for link in known if not (link["slow"] or link["missing"])]
    drawn = [*(sound if len(sound) <= MOST_LINES else []), *faulty]
    shape = Markup(
        '<line class="{k}" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="currentColor"'
        ' stroke-width="{w:.1f}"><title>{t}</title></line>'
    )
    parts = []
    for link in drawn:
        (x1, y1), (x2, y2) = sorted((places[link["a"]], places[link["b"]]), key=lambda place: place[1])
        kind = "f-missing" if link["missing"] else "f-slow-link" if link["slow"] else "t-wire"
        tooltip = f"{link['count']} links, {link['gbps']:g} Gb/s; {link['slow']} slow, {link['missing']} missing"
        thick = 2.5 if kind != "t-wire" else min(3.0, 0.6 + 0.3 * link["count"])
        parts.append(shape.format(k=kind, a=x1, b=y1 + BOX_H if y1 != y2 else y1, c=x2, d=y2, w=thick, t=tooltip))
    return Markup("").join(parts), len(known) - len(drawn)


def _words(fabric: Fabric) -> str:
    parts = []
    for number, tier in enumerate(fabric["tiers"]):
        named = ", ".join(
            f"{one_line(switch['name'])}" + (f" ({switch['hosts']} HCAs)" if switch["hosts"] else "")
            for switch in tier[:LABELLED]
        )
        rest = f" and {len(tier) - LABELLED} more" if len(tier) > LABELLED else ""
        parts.append(f"Tier {number + 1}: {named}{rest}.")
    return " ".join(parts)
