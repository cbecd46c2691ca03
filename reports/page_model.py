"""A report but for its findings, regrouped for a page: coverage, heat map, groups of equal nodes. Frozen data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from preflight.reports import fabric_svg
from preflight.reports.sanitize import fold
from preflight.reports.topology_svg import draw

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
    total = max(1, sum(coverage[key] for key, *_ in COUNTS))
    made: list[Count] = []
    start = 0.0
    for key, word, ran in COUNTS:
        share = 100 * coverage[key] / total
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

    subjects: tuple[tuple[str, ...], ...]  # ids of checks, those of one subject together; in trouble first
    rows: tuple[HeatRow, ...]


def heat_map(nodes: Sequence[Document]) -> HeatMap:
    """Return the node x check table of the nodes that answered: equal rows folded, what is in trouble first."""
    answered = [node for node in nodes if not node.get("no_answer")]
    worst: dict[str, int] = {}
    for check, status in (item for node in answered for item in node["checks"].items()):
        worst[check] = min(urgency(status), worst.get(check, len(STATUSES)))
    subjects: dict[tuple[bool, str], list[str]] = {}
    for check, rank in worst.items():
        subjects.setdefault((rank >= urgency("pass"), check.partition(".")[0]), []).append(check)
    columns = [tuple(subjects[key]) for key in sorted(subjects, key=lambda key: key[0])]
    checks = [check for group in columns for check in group]
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in answered:
        cells = tuple(node["checks"].get(check, "") for check in checks)
        groups.setdefault((node["status"], cells), []).append(node["name"])
    rows = [HeatRow(fold(names), len(names), *key) for key, names in groups.items()]
    return HeatMap(
        tuple(columns),
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
class ChecklistView:
    """The items of one document and how many have each status."""

    document: str
    items: tuple[Document, ...]
    counts: tuple[tuple[str, int], ...]


def checklists(items: Sequence[Document]) -> tuple[ChecklistView, ...]:
    """Gather the checklist items by document."""
    groups: dict[str, list[Document]] = {}
    for item in items:
        groups.setdefault(item["document"], []).append(item)
    return tuple(ChecklistView(name, tuple(group), tally(group)) for name, group in groups.items())


def tally(items: Iterable[Document]) -> tuple[tuple[str, int], ...]:
    """Count items by status, most urgent first."""
    found = Counter(item["status"] for item in items)
    return tuple((status, found[status]) for status in sorted(found, key=urgency))
