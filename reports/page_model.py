"""The report document regrouped for a page: cards, heat map, groups of equal nodes. Frozen data only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from preflight.reports import fabric_svg
from preflight.reports.topology_svg import draw
from preflight.reports.visible import fold

#: Most urgent first.
STATUSES = ("fail", "unknown", "warn", "pass", "skip")
#: Parts of the planned results: key of ``coverage``, word, whether the check ran.
COUNTS = (
    ("failed", "fail", True),
    ("unknown", "unknown", True),
    ("warned", "warn", True),
    ("passed", "pass", True),
    ("skipped", "skip", False),
    ("no_answer", "no answer", False),
)

Document = Mapping[str, Any]


def urgency(status: str) -> int:
    """Return the place of a status in the order of urgency; one that is not known stands first."""
    return STATUSES.index(status) if status in STATUSES else -1


# --- findings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instance:
    """One finding of a card: where, what, on what evidence."""

    nodes: str
    node_count: int
    finding: Document
    why: str  # empty where the card says it for all
    fix: str
    evident: bool  # its evidence is told; not where the next one rests on the same


@dataclass(frozen=True)
class Card:
    """All findings of one check that have one status."""

    ident: str
    check: str
    title: str
    status: str
    gating: bool
    nodes: str
    node_count: int
    why: str
    fix: str
    instances: tuple[Instance, ...]


def cards(findings: Sequence[Document], status: str) -> tuple[Card, ...]:
    """Gather the findings of a status by check, in the order in which the report tells them."""
    groups: dict[str, list[Document]] = {}
    for finding in findings:
        if finding["status"] == status:
            groups.setdefault(finding["check"], []).append(finding)
    return tuple(_card(f"{status}-{number}", group) for number, group in enumerate(groups.values(), 1))


def _card(ident: str, group: Sequence[Document]) -> Card:
    first = group[0]
    why, fix = _shared(group, "why"), _shared(group, "fix")
    nodes = _union(group)
    return Card(
        ident=ident,
        check=first["check"],
        title=first["title"],
        status=first["status"],
        gating=all(finding.get("gating", True) for finding in group),
        nodes=fold(nodes),
        node_count=len(nodes),
        why=why,
        fix=fix,
        instances=tuple(
            Instance(
                fold(finding["nodes"]),
                len(finding["nodes"]),
                finding,
                "" if why else finding["why"],
                "" if fix else finding["fix"],
                following is None or _rests_on(finding) != _rests_on(following),
            )
            for finding, following in zip(group, (*group[1:], None), strict=True)
        ),
    )


def _rests_on(finding: Document) -> tuple[object, object]:
    return finding["evidence"], finding.get("excerpts")


def _shared(group: Sequence[Document], key: str) -> str:
    values = {finding[key] for finding in group}
    return str(values.pop()) if len(values) == 1 else ""


def _union(group: Iterable[Document]) -> list[str]:
    return list(dict.fromkeys(name for finding in group for name in finding["nodes"]))


@dataclass(frozen=True)
class Gap:
    """What one step would tell: unknown findings that have the same fix."""

    fix: str
    results: int
    cards: tuple[Card, ...]


def gaps(findings: Sequence[Document]) -> tuple[Gap, ...]:
    """Group the unknown findings by what would tell; the step that tells most comes first."""
    groups: dict[str, list[Document]] = {}
    for finding in findings:
        if finding["status"] == "unknown":
            groups.setdefault(finding["fix"], []).append(finding)
    made = []
    for number, (fix, group) in enumerate(groups.items(), 1):
        inside = cards(group, "unknown")
        renamed = tuple(Card(**{**vars(card), "ident": f"gap-{number}-{card.ident}"}) for card in inside)
        made.append(Gap(fix, sum(len(finding["nodes"]) for finding in group), renamed))
    return tuple(sorted(made, key=lambda gap: -gap.results))


# --- coverage --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """One part of the planned results, with its place in the stacked bar (percent)."""

    word: str
    status: str
    number: int
    share: float
    start: float
    ran: bool


def counts(coverage: Document) -> tuple[Count, ...]:
    """Return the parts of ``planned`` in the order of the bar."""
    whole = max(1, sum(coverage[key] for key, *_ in COUNTS))
    made: list[Count] = []
    start = 0.0
    for key, word, ran in COUNTS:
        share = 100 * coverage[key] / whole
        made.append(Count(word, word.replace(" ", "-"), coverage[key], share, start, ran))
        start += share
    return tuple(made)


def adds_up(coverage: Document) -> bool:
    """Tell whether the parts sum up to what was planned and what ran."""
    parts = sum(coverage[key] for key, *_ in COUNTS)
    ran = sum(coverage[key] for key, _, ran in COUNTS if ran)
    nodes = coverage["nodes"]
    return bool(
        parts == coverage["planned"]
        and ran == coverage["ran"]
        and nodes["answered"] + nodes["no_answer"] == nodes["planned"]
    )


# --- nodes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silence:
    """Nodes that gave no answer for one reason."""

    nodes: str
    node_count: int
    phase: str
    reason: str


def silences(nodes: Sequence[Document]) -> tuple[Silence, ...]:
    """Group the nodes that did not answer by phase and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if silence := node.get("no_answer"):
            groups.setdefault((silence.get("phase", ""), silence.get("reason", "")), []).append(node["name"])
    return tuple(Silence(fold(names), len(names), *key) for key, names in groups.items())


@dataclass(frozen=True)
class HeatRow:
    """Nodes whose checks all have the same statuses; a status is empty where the check did not run there."""

    nodes: str
    node_count: int
    status: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class HeatMap:
    """Checks by subject, and a row for each group of nodes."""

    subjects: tuple[tuple[str, ...], ...]  # ids of checks, those of one subject together
    rows: tuple[HeatRow, ...]


def heat_map(nodes: Sequence[Document]) -> HeatMap:
    """Return the node x check table of the nodes that answered, equal rows folded, worst first."""
    answered = [node for node in nodes if not node.get("no_answer")]
    subjects: dict[str, dict[str, None]] = {}
    for check in (check for node in answered for check in node["checks"]):
        subjects.setdefault(check.partition(".")[0], {})[check] = None
    checks = [check for group in subjects.values() for check in group]
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in answered:
        cells = tuple(node["checks"].get(check, "") for check in checks)
        groups.setdefault((node["status"], cells), []).append(node["name"])
    rows = [HeatRow(fold(names), len(names), *key) for key, names in groups.items()]
    return HeatMap(
        tuple(tuple(group) for group in subjects.values()),
        tuple(sorted(rows, key=lambda row: (urgency(row.status), -Counter(row.cells)[row.status]))),
    )


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that are told together, since all that the report says of them is equal."""

    ident: str
    nodes: str
    node_count: int
    node: Document  # one of them
    collected: str
    checks: tuple[tuple[str, tuple[str, ...]], ...]  # status -> ids of checks
    picture: Markup | None
    same_as: tuple[str, str] | None  # ident and names of an earlier group with the same picture


_OWN = ("name", "collected_at")


def node_groups(nodes: Sequence[Document]) -> tuple[NodeGroup, ...]:
    """Group the nodes that answered, worst first; each distinct picture is drawn once."""
    groups: dict[str, list[Document]] = {}
    for node in nodes:
        if not node.get("no_answer"):
            rest = {key: value for key, value in node.items() if key not in _OWN}
            groups.setdefault(json.dumps(rest, sort_keys=True), []).append(node)
    ordered = sorted(groups.values(), key=lambda group: urgency(group[0]["status"]))
    drawn: dict[str, tuple[str, str]] = {}
    return tuple(_node_group(number, group, drawn) for number, group in enumerate(ordered, 1))


def _node_group(number: int, group: Sequence[Document], drawn: dict[str, tuple[str, str]]) -> NodeGroup:
    node = group[0]
    ident, names = f"node-{number}", fold(member["name"] for member in group)
    picture, same_as = None, None
    if topology := node.get("topology"):
        key = json.dumps(topology, sort_keys=True)
        same_as = drawn.get(key)
        if same_as is None:
            drawn[key] = ident, names
            picture = draw(topology)
    times = sorted({str(member.get("collected_at") or "") for member in group} - {""})
    by_status: dict[str, list[str]] = {}
    for check, status in node["checks"].items():
        by_status.setdefault(status, []).append(check)
    return NodeGroup(
        ident=ident,
        nodes=names,
        node_count=len(group),
        node=node,
        collected=times[0] if len(times) == 1 else " to ".join((times[0], times[-1])) if times else "",
        checks=tuple((status, tuple(by_status[status])) for status in sorted(by_status, key=urgency)),
        picture=picture,
        same_as=same_as,
    )


# --- the fabric ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FabricView:
    """One sweep of the fabric."""

    swept_from: str
    summary: str
    partial: str  # why it is not all of it; empty: it is
    picture: Markup


def fabrics(sweeps: Sequence[Document]) -> tuple[FabricView, ...]:
    """Draw the sweeps."""
    return tuple(
        FabricView(one["swept_from"], fabric_svg.summary(one), one["partial"], fabric_svg.draw(one)) for one in sweeps
    )


# --- checklists ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checklist:
    """The items of one document and how many have each status."""

    document: str
    items: tuple[Document, ...]
    counts: tuple[tuple[str, int], ...]


def checklists(items: Sequence[Document]) -> tuple[Checklist, ...]:
    """Gather the checklist items by document."""
    groups: dict[str, list[Document]] = {}
    for item in items:
        groups.setdefault(item["document"], []).append(item)
    return tuple(Checklist(name, tuple(group), tally(group)) for name, group in groups.items())


def tally(items: Iterable[Document]) -> tuple[tuple[str, int], ...]:
    """Count items by status, most urgent first."""
    found = Counter(item["status"] for item in items)
    return tuple((status, found[status]) for status in sorted(found, key=urgency))


def anchors(failures: Sequence[Card], warnings: Sequence[Card], unknown: Sequence[Gap]) -> dict[str, str]:
    """Return where on the page the findings of a check stand: check id -> fragment."""
    found: dict[str, str] = {}
    for card in (*failures, *_inside(unknown), *warnings):
        found.setdefault(card.check, card.ident)
    return found


def _inside(unknown: Sequence[Gap]) -> Iterator[Card]:
    for gap in unknown:
        yield from gap.cards
