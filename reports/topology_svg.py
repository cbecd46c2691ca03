"""A node's topology as inline SVG: NUMA panels, PCIe switches, NVLink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.reports.nvlink_text import NvLink
from preflight.reports.sanitize import one_line, short

PANEL, GUTTER, PAD = 372, 16, 12  # px: width of a NUMA panel, space between panels, space inside
CHIP_H, CHIP_GAP, SWITCH_HEAD = 38, 6, 22
CHIP_W = (PANEL - 4 * PAD - 20) // 2  # two columns and the spine between them
SHORT = 24  # characters that fit in a chip

#: A finding about a part: its status and its message.
Mark = tuple[str, str]

#: A sign for each status, 14 px wide; status is shown by shape as well as colour.
_SIGNS = {
    "fail": '<rect class="t-sign" width="14" height="14" rx="3"/><path class="t-knock" d="M4 4l6 6m0-6l-6 6"/>',
    "warn": '<path class="t-sign" d="M7 0L14.5 14H-.5z"/><path class="t-knock" d="M7 5v4m0 2v1"/>',
    "unknown": '<circle class="t-sign" cx="7" cy="7" r="7"/>'
               '<path class="t-knock" d="M5 5.6a2 1.9 0 113.2 1.5C7.4 7.6 7 7.9 7 8.7m0 1.6v1"/>',
}  # fmt: skip


def draw(topology: Mapping[str, Any], marks: Mapping[str, Mark] | None = None) -> Markup:
    """Return ``nodes[].topology`` as an accessible ``<svg role="img">``."""
    panels = [_Panel(numa) for numa in topology.get("numa", ())]
    gpus = [gpu for panel in panels for switch in panel.switches for gpu in switch.get("gpus", ())]
    nics = [nic for panel in panels for switch in panel.switches for nic in switch.get("nics", ())]
    link = NvLink.of(topology.get("nvlink", ()))
    columns = min(2, len(panels)) or 1
    width = columns * PANEL + (columns - 1) * GUTTER
    pen = _Pen(marks or {})
    y = _panels(pen, panels, columns)
    if len(gpus) > 1 or link.gpus:
        y = _nvlink(pen, link, y, width)
    y = _legend(pen, gpus, nics, y, width, bool(marks))
    title = f"Topology: {_count(gpus, 'GPU')} and {_count(nics, 'NIC')} on {_count(panels, 'NUMA node')}"
    return Markup(
        '<svg class="topo" role="img" xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}"'
        ' viewBox="0 0 {w} {h}" font-size="11" fill="currentColor"><title>{title}</title><desc>{desc}</desc>'
        "{body}</svg>"
    ).format(w=width, h=y, title=title, desc=_words(panels, link, len(gpus), marks or {}), body=pen.markup())


class _Pen:
    """Shapes of a drawing; all text in them is escaped."""

    def __init__(self, marks: Mapping[str, Mark]) -> None:
        self._parts: list[Markup] = []
        self._marks = marks

    def mark(self, *names: object) -> Mark | None:
        """Return the mark of the part with one of these names; None if it has none."""
        return next((self._marks[str(name)] for name in names if str(name) in self._marks), None)

    def sign(self, x: float, y: float, mark: Mark | None) -> None:
        """Draw the sign of a mark at a corner of its part."""
        if mark and mark[0] in _SIGNS:
            self.add('<g class="t-mark s-{s}" transform="translate({x} {y})">', s=mark[0], x=x, y=y)
            self._parts.append(Markup(_SIGNS[mark[0]]))  # trusted
            self.add("</g>")

    def add(self, shape: str, **values: object) -> None:
        self._parts.append(Markup(shape).format(**values))

    def rect(self, x: float, y: float, w: float, h: float, kind: str, r: int = 6) -> None:
        self.add(
            '<rect class="{k}" x="{x}" y="{y}" width="{w}" height="{h}" rx="{r}" fill="none" stroke="currentColor"/>',
            k=kind, x=x, y=y, w=w, h=h, r=r,
        )  # fmt: skip

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add(
            '<line class="{k}" x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="currentColor"/>',
            k=kind, a=x1, b=y1, c=x2, d=y2,
        )  # fmt: skip

    def text(self, x: float, y: float, words: object, kind: str, anchor: str = "start") -> None:
        self.add(
            '<text class="{k}" x="{x}" y="{y}" text-anchor="{a}">{t}</text>',
            k=kind, x=x, y=y, a=anchor, t=one_line(str(words)),
        )  # fmt: skip

    def markup(self) -> Markup:
        return Markup("").join(self._parts)


class _Panel:
    """One NUMA node: its switches and its height."""

    def __init__(self, numa: Mapping[str, Any]) -> None:
        self.switches: Sequence[Mapping[str, Any]] = numa.get("switches", ())
        number = numa.get("node")
        self.name = "NUMA node not known" if number is None else f"NUMA node {number}"
        self.height = 34 + sum(_switch_height(switch) + CHIP_GAP for switch in self.switches) + PAD - CHIP_GAP


def _switch_height(switch: Mapping[str, Any]) -> int:
    gpus, nics = len(switch.get("gpus", ())), len(switch.get("nics", ()))
    rows = _rows(gpus, nics)
    return (SWITCH_HEAD if gpus else 6) + rows * (CHIP_H + CHIP_GAP) - CHIP_GAP + 6


def _rows(gpus: int, nics: int) -> int:
    if nics == 0:
        return (gpus + 1) // 2
    return max(gpus, nics)


def _panels(pen: _Pen, panels: Sequence[_Panel], columns: int) -> int:
    y = 0
    for first in range(0, len(panels), columns):
        row = panels[first : first + columns]
        height = max(panel.height for panel in row)
        for column, panel in enumerate(row):
            _panel(pen, panel, column * (PANEL + GUTTER), y, height)
        y += height + GUTTER
    return y


def _panel(pen: _Pen, panel: _Panel, x: int, y: int, height: int) -> None:
    pen.rect(x + 0.5, y + 0.5, PANEL - 1, height - 1, "t-panel", 10)
    pen.text(x + PAD, y + 22, panel.name, "t-head")
    y += 34
    for switch in panel.switches:
        _switch(pen, switch, x + PAD, y)
        y += _switch_height(switch) + CHIP_GAP


def _switch(pen: _Pen, switch: Mapping[str, Any], x: int, y: int) -> None:
    gpus, nics = switch.get("gpus", ()), switch.get("nics", ())
    name = f"PCIe {switch['name']}" if switch.get("name") else "not on PCIe"
    pen.rect(x, y, PANEL - 2 * PAD, _switch_height(switch), "t-switch")
    left, right = x + PAD, x + PAD + CHIP_W + 20
    top = y + (SWITCH_HEAD if gpus else 6)
    if gpus:
        pen.text(left, y + 15, short(name, 46), "t-note")
    else:
        pen.text(left, top + CHIP_H / 2 + 4, short(name, SHORT), "t-note")
    gpu_spots = _spots(left, right, nics, gpus)
    nic_spots = [(right, number) for number in range(len(nics))]
    _wires(pen, [*gpu_spots, *nic_spots], left, top)
    for (at, number), gpu in zip(gpu_spots, gpus, strict=True):
        _gpu(pen, gpu, at, top + number * (CHIP_H + CHIP_GAP))
    for (at, number), nic in zip(nic_spots, nics, strict=True):
        _nic(pen, nic, at, top + number * (CHIP_H + CHIP_GAP))


def _wires(pen: _Pen, spots: Sequence[tuple[int, int]], left: int, top: int) -> None:
    """Connect the devices of a switch by a spine between the two columns."""
    if len(spots) < 2:
        return
    spine = left + CHIP_W + 10
    heights = [top + number * (CHIP_H + CHIP_GAP) + CHIP_H / 2 for _, number in spots]
    for (at, _), height in zip(spots, heights, strict=True):
        pen.line(spine, height, at + CHIP_W if at == left else at, height, "t-wire")
    pen.line(spine, min(heights), spine, max(heights), "t-wire")


def _spots(left: int, right: int, nics: Sequence[Any], gpus: Sequence[Any]) -> list[tuple[int, int]]:
    """Return x and row of each GPU: in the left column, or in both if there is no NIC."""
    if nics:
        return [(left, number) for number in range(len(gpus))]
    return [((left, right)[number % 2], number // 2) for number in range(len(gpus))]


def _gpu(pen: _Pen, gpu: Mapping[str, Any], x: int, y: int) -> None:
    name, model, address = (str(gpu.get(key) or "") for key in ("name", "model", "address"))
    silent = not gpu.get("answers")
    mark = pen.mark(address, name)
    words = _distinct(_gpu_words(gpu), model, address, *(mark or ()))
    pen.add("<g><title>{t}</title>", t=one_line(", ".join(words)))
    pen.rect(x, y, CHIP_W, CHIP_H, f"t-gpu{' t-bad' if silent else ''}{_marked(mark)}")
    if silent:
        pen.line(x + CHIP_W - 30, y + 8, x + CHIP_W - 8, y + CHIP_H - 8, "t-cross")
        pen.line(x + CHIP_W - 30, y + CHIP_H - 8, x + CHIP_W - 8, y + 8, "t-cross")
    pen.text(x + 10, y + 16, short(name, 20), "t-name")
    pen.text(x + 10, y + 30, "no answer" if silent else short(model.removeprefix("NVIDIA ") or address, SHORT), "t-sub")
    pen.sign(x - 5, y - 4, mark)
    pen.add("</g>")


def _marked(mark: Mark | None) -> str:
    return f" t-marked s-{mark[0]}" if mark and mark[0] in _SIGNS else ""


def _nic(pen: _Pen, nic: Mapping[str, Any], x: int, y: int) -> None:
    down, compute = nic.get("state") != "ACTIVE", bool(nic.get("compute"))
    mark = pen.mark(nic.get("name"), nic.get("address"))
    words = _distinct(_nic_words(nic), str(nic.get("address") or ""), *(mark or ()))
    pen.add("<g><title>{t}</title>", t=one_line(", ".join(words)))
    kind = "t-nic t-compute" if compute else "t-nic"
    if down:  # a port that no job uses may be down
        kind += " t-bad" if compute else " t-idle"
    pen.rect(x, y, CHIP_W, CHIP_H, kind + _marked(mark))
    if compute:
        pen.rect(x, y + 5, 4, CHIP_H - 10, "t-bar", 2)
    cx, cy = x + CHIP_W - 12, y + 26
    if down:
        pen.add(
            '<path class="{k}" d="M{a} {c}l8 8m0 -8l-8 8" fill="none" stroke="currentColor"/>',
            k="t-cross" if compute else "t-idle-cross", a=cx - 4, c=cy - 4,
        )  # fmt: skip
    else:
        pen.add('<circle class="t-up" cx="{x}" cy="{y}" r="3.5"/>', x=cx, y=cy)
    pen.text(x + 10, y + 16, short(str(nic.get("name", "")), 14), "t-name")
    pen.text(x + CHIP_W - 8, y + 16, "compute" if compute else "other", "t-role", "end")
    pen.text(x + 10, y + 30, short(_label(nic), 22), "t-sub")
    pen.sign(x - 5, y - 4, mark)
    pen.add("</g>")


def _nvlink(pen: _Pen, link: NvLink, y: int, width: int) -> int:
    """Draw the NVLink summary bar, and arcs for pairs that differ below it."""
    lines = [piece for text in link.lines() for piece in _wrap(text, width // 6)]
    arcs = link.arcs if len(link.gpus) > 1 else ()
    arch = 66 if arcs else 0
    height = 30 + (arch + 22 if arcs else 0) + 15 * len(lines) + (8 if lines else 0)
    kind = {"weak": "t-nvlink t-weak", "none": "t-nvlink t-quiet"}.get(link.kind, "t-nvlink")
    pen.rect(0.5, y + 0.5, width - 1, height - 1, kind, 8)
    pen.text(PAD, y + 20, short(f"NVLink: {link.summary}", width // 8), "t-head")
    at = y + 30
    if arcs:
        at = _arcs(pen, link, at, width, arch)
    for number, line in enumerate(lines):
        pen.text(PAD, at + 11 + 15 * number, line, "t-sub")
    return y + height + 12


def _arcs(pen: _Pen, link: NvLink, y: int, width: int, arch: int) -> int:
    base = y + arch
    step = (width - 2 * PAD - 30) / max(1, len(link.gpus) - 1)
    place = {gpu: PAD + 15 + number * step for number, gpu in enumerate(link.gpus)}
    kind = "t-arc t-weak" if link.kind == "weak" else "t-arc"
    for one, other, code in link.arcs:
        a, b = sorted((place[one], place[other]))
        rise = arch * min(1.0, 0.35 + (b - a) / width)
        pen.add(
            '<path class="{k}" d="M{a:.1f} {y} C{a:.1f} {t:.1f} {b:.1f} {t:.1f} {b:.1f} {y}" fill="none"'
            ' stroke="currentColor"/>',
            k=kind, a=a, b=b, y=base, t=base - rise * 1.25,
        )  # fmt: skip
        if len(link.arcs) <= 4:
            pen.text((a + b) / 2, base - rise * 0.94 + 12, short(code, 8), "t-code", "middle")
    for gpu, x in place.items():
        pen.add('<circle class="t-dot" cx="{x:.1f}" cy="{y}" r="3.5"/>', x=x, y=base)
        pen.text(round(x, 1), base + 16, short(gpu.removeprefix("GPU") if step < 44 else gpu, 8), "t-sub", "middle")
    return base + 22


def _legend(pen: _Pen, gpus: Sequence[Any], nics: Sequence[Any], y: int, width: int, marked: bool) -> int:
    notes = []
    if marked:
        notes.append("cross, triangle or question mark at a corner: a check failed, warns or is unknown")
    if nics:
        notes += ["bar at the left, “compute”: the job's traffic", "dot: port active", "cross: port not active"]
    if any(not gpu.get("answers") for gpu in gpus):
        notes.append("crossed GPU: on the PCI bus, but the driver does not answer for it")
    for line in _wrap(";  ".join(notes), width // 6):
        pen.text(2, y + 8, line, "t-note")
        y += 15
    return y + 2


# --- words -----------------------------------------------------------------------------------------


def _words(panels: Sequence[_Panel], link: NvLink, gpus: int, marks: Mapping[str, Mark]) -> str:
    parts = []
    for panel in panels:
        switches = []
        for switch in panel.switches:
            devices = [_gpu_words(gpu) for gpu in switch.get("gpus", ())]
            devices += [_nic_words(nic) for nic in switch.get("nics", ())]
            switches.append(f"{switch.get('name') or 'not on PCIe'}: {', '.join(devices)}")
        parts.append(f"{panel.name}: {'; '.join(switches)}.")
    if gpus > 1 or link.gpus:
        parts.append(f"NVLink: {link.summary}. {' '.join(link.lines())}".strip())
    if marks:
        parts.append("Marked: " + "; ".join(f"{name}: {', '.join(mark)}" for name, mark in sorted(marks.items())) + ".")
    return one_line(" ".join(parts))


def _gpu_words(gpu: Mapping[str, Any]) -> str:
    return f"{gpu.get('name', '')}" + ("" if gpu.get("answers") else " (does not answer)")


def _nic_words(nic: Mapping[str, Any]) -> str:
    role = "compute" if nic.get("compute") else "other"
    return f"{nic.get('name', '')} ({role}, {_label(nic)}, {str(nic.get('state', '')).lower() or 'state not read'})"


def _label(nic: Mapping[str, Any]) -> str:
    label, state = str(nic.get("label") or ""), str(nic.get("state") or "").lower()
    if state in ("", "active") or state in label.lower():
        return label
    return f"{state}, {label}"


def _distinct(*words: str) -> Iterable[str]:
    return dict.fromkeys(word for word in words if word)


def _wrap(text: str, limit: int) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= limit:
            lines[-1] += f" {word}"
        elif word:
            lines.append(short(word, limit))
    return lines


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
