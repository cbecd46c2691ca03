"""A report regrouped for a page: coverage, heat map, sweeps, checklists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from preflight.reports import fabric_svg, pair_map_svg, timeline_svg
from preflight.reports.sanitize import fold
from preflight.reports.text_report import without_answer

#: Maximum rows in the table of nodes and checks, and of reasons for missing answers; the rest is counted.
MOST_ROWS, MOST_SILENCES = 60, 60

#: Statuses of results, the most urgent first.
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
    """Return the rank of a status by urgency; an unrecognised status ranks first."""
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
    """Return whether the numbers of results and of nodes add up to their totals."""
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
    """Nodes that did not answer, all for the same reason."""

    nodes: str
    node_count: int
    phase: str
    reason: str


def silences(nodes: Sequence[Document]) -> tuple[Silence, ...]:
    """Group the nodes that did not answer by phase and reason."""
    return tuple(Silence(fold(names), len(names), *key) for key, names in without_answer(nodes).items())


@dataclass(frozen=True)
class HeatRow:
    """Nodes with the same status in every check; a cell is "" if it did not run."""

    nodes: str
    node_count: int
    status: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class HeatMap:
    """Checks by subject, and a row for each group of nodes."""

    subjects: tuple[tuple[str, ...], ...]  # check ids grouped by subject; those with problems first
    rows: tuple[HeatRow, ...]
    more_nodes: int = 0  # number of nodes in further rows


def heat_map(nodes: Sequence[Document]) -> HeatMap:
    """Return the node x check table: equal rows folded, the worst first."""
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
    rows.sort(key=lambda row: (urgency(row.status), -Counter(row.cells)[row.status]))
    return HeatMap(tuple(columns), tuple(rows[:MOST_ROWS]), sum(row.node_count for row in rows[MOST_ROWS:]))


# --- the fabric ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FabricView:
    """One sweep of the fabric, as shown on the page."""

    swept_from: str
    summary: str
    partial: str  # why it is incomplete; empty if complete
    picture: Markup


def fabrics(sweeps: Sequence[Document]) -> tuple[FabricView, ...]:
    """Return a view of each sweep, with its drawing."""
    return tuple(
        FabricView(one["swept_from"], fabric_svg.summary(one), one["partial"], fabric_svg.draw(one)) for one in sweeps
    )


@dataclass(frozen=True)
class PairMapView:
    """Runs of one collective over pairs of nodes, as shown on the page."""

    title: str
    summary: str
    picture: Markup


def pair_maps(maps: Sequence[Document]) -> tuple[PairMapView, ...]:
    """Return a view of each heat map of pairs, with its drawing."""
    return tuple(PairMapView(item["title"], pair_map_svg.summary(item), pair_map_svg.draw(item)) for item in maps)


@dataclass(frozen=True)
class TimelineView:
    """One step of a job's traces, as shown on the page."""

    summary: str
    picture: Markup


def timelines(steps: Sequence[Document]) -> tuple[TimelineView, ...]:
    """Return a view of each step, with its drawing."""
    return tuple(TimelineView(timeline_svg.summary(step), timeline_svg.draw(step)) for step in steps)


# --- checklists ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChecklistView:
    """The items of one document, and the count of each status."""

    document: str
    items: tuple[Document, ...]
    counts: tuple[tuple[str, int], ...]


def checklists(items: Sequence[Document]) -> tuple[ChecklistView, ...]:
    """Group the checklist items by document."""
    groups: dict[str, list[Document]] = {}
    for item in items:
        groups.setdefault(item["document"], []).append(item)
    return tuple(ChecklistView(name, tuple(group), tally(group)) for name, group in groups.items())


def tally(items: Iterable[Document]) -> tuple[tuple[str, int], ...]:
    """Count items by status, most urgent first."""
    found = Counter(item["status"] for item in items)
    return tuple((status, found[status]) for status in sorted(found, key=urgency))
