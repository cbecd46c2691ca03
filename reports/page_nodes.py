"""The nodes of a report for a page: groups, drawings, leaves and rails.

The number of elements does not grow with the number of nodes: the worst groups are drawn, and the rest is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from preflight.incidents.parts import Parts, devices, is_device
from preflight.reports.page_model import urgency
from preflight.reports.sanitize import fold
from preflight.reports.topology_svg import Mark, draw

Document = Mapping[str, Any]

#: Node -> parts named by findings -> their worst finding.
Marks = Mapping[str, Mapping[str, Mark]]

#: Maximum number of groups on the page.
MOST_GROUPS = 40


@dataclass(frozen=True)
class NodeGroup:
    """Nodes for which the page shows the same content."""

    ident: str
    nodes: str
    node_count: int
    members: tuple[str, ...]
    node: Document  # example node
    collected: str
    checks: tuple[tuple[str, tuple[str, ...]], ...]  # status -> ids of checks
    picture: Markup | None
    same_as: tuple[str, str] | None  # id and names of an earlier group with the same picture


@dataclass(frozen=True)
class NodeGroups:
    """The groups on the page, the worst first, and the counts of those not shown."""

    shown: tuple[NodeGroup, ...]
    more_groups: int
    more_nodes: int


_OWN = ("name", "collected_at", "topology", "record")


def node_groups(report: Document, marks: Marks) -> NodeGroups:
    """Group the nodes that answered, worst first; each distinct picture is drawn once."""
    groups: dict[str, list[Document]] = {}
    for node in report["nodes"]:
        if not node.get("no_answer"):
            rest = {key: value for key, value in node.items() if key not in _OWN}
            own = sorted(marks.get(node["name"], {}).items())
            key = json.dumps([rest, _without_cables(node.get("topology")), own], sort_keys=True)
            groups.setdefault(key, []).append(node)
    ordered = sorted(groups.values(), key=lambda group: urgency(group[0]["status"]))
    drawn: dict[str, tuple[str, str]] = {}
    shown = tuple(
        _node_group(number, group, marks.get(group[0]["name"], {}), drawn)
        for number, group in enumerate(ordered[:MOST_GROUPS], 1)
    )
    beyond = ordered[MOST_GROUPS:]
    return NodeGroups(shown, len(beyond), sum(map(len, beyond)))


def _node_group(
    number: int, group: Sequence[Document], marks: Mapping[str, Mark], drawn: dict[str, tuple[str, str]]
) -> NodeGroup:
    node = group[0]
    members = tuple(member["name"] for member in group)
    ident, names = f"node-{number}", fold(members)
    picture, same_as = None, None
    if node.get("topology"):
        topology = _without_cables(node["topology"])
        key = json.dumps([topology, sorted(marks.items())], sort_keys=True)
        same_as = drawn.get(key)
        if same_as is None:
            drawn[key] = ident, names
            picture = draw(topology, marks)
    times = sorted({str(member.get("collected_at") or "") for member in group} - {""})
    by_status: dict[str, list[str]] = {}
    for check, status in node["checks"].items():
        by_status.setdefault(status, []).append(check)
    return NodeGroup(
        ident=ident,
        nodes=names,
        node_count=len(group),
        members=members,
        node=node,
        collected=times[0] if len(times) == 1 else " to ".join((times[0], times[-1])) if times else "",
        checks=tuple((status, tuple(by_status[status])) for status in sorted(by_status, key=urgency)),
        picture=picture,
        same_as=same_as,
    )


def _without_cables(topology: Document | None) -> Document:
    """Return a topology without switch ports, which differ from node to node."""
    if not topology:
        return {}
    return {
        **topology,
        "numa": [
            {**numa, "switches": [
                {**switch, "nics": [
                    {key: value for key, value in nic.items() if key not in ("leaf", "leaf_port")}
                    for nic in switch.get("nics", ())
                ]}
                for switch in numa.get("switches", ())
            ]}
            for numa in topology.get("numa", ())
        ],
    }  # fmt: skip


def part_marks(report: Document) -> Marks:
    """Return the worst finding about each part of each node."""
    parts = {node["name"]: Parts.of(node) for node in report["nodes"] if node.get("topology")}
    marks: dict[str, dict[str, Mark]] = {}
    for finding in report["findings"]:
        status, subject = finding["status"], finding["subject"]
        if status not in ("fail", "warn", "unknown") or not is_device(subject):
            continue
        for name in finding["nodes"]:
            if name in parts:
                of_node = marks.setdefault(name, {})
                for part in parts[name].of_subject(subject):
                    before = of_node.get(part)
                    if before is None or urgency(status) < urgency(before[0]):
                        of_node[part] = status, finding["message"]
    return marks


# --- leaves and rails ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RailLayout:
    """The leaf of each compute NIC, from LLDP; nodes with the same leaves share a row."""

    leaves: tuple[str, ...]
    wirings: tuple[tuple[int, ...], ...]  # index of the leaf of each rail; -1: not known
    wiring_of: Mapping[str, int]  # node -> index of its wiring
    rows: tuple[WiringRow, ...]
    rails: int


@dataclass(frozen=True)
class WiringRow:
    """Nodes with the same leaves, and a cell for each rail."""

    place: int
    nodes: str
    node_count: int
    cells: tuple[WiringCell, ...]


@dataclass(frozen=True)
class WiringCell:
    """One rail of a row's nodes: its leaf, worst status, and numbers of ports."""

    leaf: str
    status: str  # the worst
    bad: int  # ports named by a finding, or not active
    ports: int


#: Maximum number of grid rows on the page; the worst are shown.
MOST_WIRINGS = 64


def find_wiring(report: Document, marks: Marks) -> RailLayout:
    """Return the leaves and rails of the nodes that show LLDP neighbours."""
    leaves: dict[str, int] = {}
    wirings: dict[tuple[int, ...], int] = {}
    members: dict[int, list[tuple[str, list[str]]]] = {}
    wiring_of: dict[str, int] = {}
    for node in report["nodes"]:
        rails = _rails(node)
        if not any(nic.get("leaf") for nic in rails):
            continue
        key = tuple(leaves.setdefault(nic["leaf"], len(leaves)) if nic.get("leaf") else -1 for nic in rails)
        place = wirings.setdefault(key, len(wirings))
        wiring_of[node["name"]] = place
        own = marks.get(node["name"], {})
        members.setdefault(place, []).append((node["name"], [_port_status(nic, own) for nic in rails]))
    names = tuple(leaves)
    rows = [
        WiringRow(
            place, fold(name for name, _ in nodes), len(nodes),
            tuple(
                _cell(names[leaf] if leaf >= 0 else "", [statuses[rail] for _, statuses in nodes])
                for rail, leaf in enumerate(key)
            ),
        )
        for key, place in wirings.items()
        for nodes in (members[place],)
    ]  # fmt: skip
    rails_count = max((len(key) for key in wirings), default=0)
    rows.sort(key=lambda row: row.nodes)
    if len(rows) > MOST_WIRINGS:
        rows.sort(key=lambda row: -sum(cell.bad for cell in row.cells))
    return RailLayout(names, tuple(wirings), wiring_of, tuple(rows), rails_count)


def _rails(node: Document) -> list[Document]:
    """Return the compute NICs of a node, in the node's order."""
    return [nic for nic in devices(node, "nics") if nic.get("compute")]


def _port_status(nic: Document, marks: Mapping[str, Mark]) -> str:
    if mark := marks.get(nic["name"]):
        return mark[0]
    return "pass" if nic.get("state") == "ACTIVE" else "fail"


def _cell(leaf: str, statuses: Iterable[str]) -> WiringCell:
    listed = list(statuses)
    worst = min(listed, key=urgency, default="pass")
    return WiringCell(leaf, worst, sum(status != "pass" for status in listed), len(listed))
