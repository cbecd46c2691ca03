"""The nodes of the page: those to exclude, the map, groups and marks, leaves and rails, the script's data."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from preflight.reports import keep_off, page_map, page_nodes
from preflight.reports.html_page import render
from preflight.reports.page_incidents import incident_cards
from tests.support import report_samples as samples


def data_of(text: str) -> Any:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert match is not None
    return json.loads(match[1])


def test_the_nodes_to_keep_off_are_those_of_the_exclude_option_each_with_its_reasons() -> None:
    report = samples.sick()
    rows = keep_off.excluded(report)
    assert keep_off.bad_nodes(report) == "gpu[031-036]"
    assert [(row.nodes, row.incidents, row.checks, row.silent) for row in rows] == [
        ("gpu032", (0,), ("topology.nvlink",), ""),
        ("gpu031", (2,), ("rdma.port-state",), ""),
        ("gpu[034-035]", (), (), "connect"),
        ("gpu036", (), (), "host key"),
        ("gpu033", (), ("topology.nvlink",), ""),
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gating": False}, "None: no gating check failed, and every node answered."),
        ({"undecided": True}, "which value is right is unknown, so no node is excluded for it: x"),
    ],
    ids=["non-gating", "no side is right"],
)
def test_what_excludes_no_node(more: dict[str, Any], words: str) -> None:
    finding = samples.finding("a.one", "fail", ["n1"], "x", **more)
    report = samples.report([samples.node("n1", None), samples.node("n2", None)], [finding], 1)
    assert keep_off.bad_nodes(report) == ""
    assert keep_off.excluded(report) == ()
    page = render(report)
    assert words in page
    assert ("no gating check failed, and every" in page) is ("gating" in more)


def test_unknown_excludes_no_node_and_the_page_states_it() -> None:
    finding = samples.finding("a.one", "unknown", ["n1"], "no record")
    report = samples.report([samples.node("n1", None, gpu__count="unknown")], [finding], 3)
    assert keep_off.bad_nodes(report) == ""
    assert "An unknown result excludes a node only if what it examines hangs." in render(report)


@pytest.mark.parametrize(
    ("owner", "impact", "nodes", "excluded"),
    [
        ("job", "slows-job", ["n1", "n2"], ""),  # no node is better
        ("network", "slows-job", ["n1", "n2"], ""),
        ("node", "loses-redundancy", ["n1", "n2"], ""),
        ("site", "slows-job", ["n2"], "n2"),
        ("site", "blocks-job", ["n1", "n2"], "n[1-2]"),  # no job runs on any
        ("network", "blocks-job", ["n1", "n2"], "n[1-2]"),
    ],
)
def test_a_fault_of_all_nodes_excludes_none(owner: str, impact: str, nodes: list[str], excluded: str) -> None:
    findings = [samples.finding("a.one", "fail", nodes, "rail 4 is down")]
    incident = samples.incident("0" * 12, findings, 0, impact=impact, owner=owner)
    report = samples.report([samples.node("n1", None), samples.node("n2", None)], findings, 1, incidents=[incident])
    assert keep_off.bad_nodes(report) == excluded
    note = {
        "": "on all nodes, so no node is excluded for it: rail 4 is down", "n2": "",
        "n[1-2]": "all 2 nodes are excluded, so no job can start: rail 4 is down",
    }[excluded]  # fmt: skip
    assert list(keep_off.remarks(report)) == [f"note: {note}"] * bool(note)
    page = render(report)
    assert note in page
    assert "no gating check failed, and every" not in page


def test_a_silent_node_has_no_fault_in_common() -> None:
    findings = [samples.finding("a.one", "fail", ["n1", "n2"], "rail 4 is down")]
    incident = samples.incident("0" * 12, findings, 0, impact="slows-job", owner="network")
    silent = samples.node("n3", None)
    silent["no_answer"] = {"phase": "connect", "reason": "refused"}
    report = samples.report([samples.node("n1", None), samples.node("n2", None), silent], findings, 1,
                            incidents=[incident])  # fmt: skip
    assert keep_off.bad_nodes(report) == "n3"
    assert list(keep_off.remarks(report)) == [
        "note: on all nodes that answered, so no node is excluded for it: rail 4 is down"
    ]


@pytest.mark.parametrize(
    ("impacts", "excluded"),
    [
        (("slows-job", "slows-job", "slows-job"), ""),  # else no node is left
        (("slows-job", "blocks-job", "loses-redundancy"), "n2"),
        (("slows-job", "slows-job", ""), "n[1-2]"),
        (("slows-job", "slows-job", "silent"), "n3"),
        (("blocks-job", "blocks-job", "blocks-job"), "n[1-3]"),
    ],
)
def test_nodes_that_each_have_a_fault(impacts: tuple[str, ...], excluded: str) -> None:
    hit = [(f"n{number}", impact) for number, impact in enumerate(impacts, start=1) if impact not in ("", "silent")]
    findings = [samples.finding("a.one", "fail", [name], f"port {name} is down") for name, _ in hit]
    incidents = [samples.incident(f"{place:012}", findings, place, impact=impact) for place, (_, impact)
                 in enumerate(hit)]  # fmt: skip
    nodes = [samples.silent(f"n{number}") if impact == "silent" else samples.node(f"n{number}", None)
             for number, impact in enumerate(impacts, start=1)]  # fmt: skip
    report = samples.report(nodes, findings, 1, incidents=incidents)
    assert keep_off.bad_nodes(report) == excluded
    note = "note: every node has a fault, so faults that only slow jobs down exclude none"
    assert (note in keep_off.remarks(report)) == (excluded not in ("n[1-2]", "n[1-3]"))


def test_a_second_fault_excludes_a_node_beside_a_fault_of_all() -> None:
    findings = [samples.finding("a.one", "fail", nodes, "x") for nodes in (["n1", "n2", "n3"], ["n2"])]
    incidents = [samples.incident(f"{place:012}", findings, place, impact="slows-job") for place in (0, 1)]
    nodes = [samples.node(f"n{number}", None) for number in (1, 2, 3)]
    assert keep_off.bad_nodes(samples.report(nodes, findings, 1, incidents=incidents)) == "n2"


def test_nodes_that_are_all_excluded_for_different_reasons() -> None:
    finding = samples.finding("a.one", "fail", ["n1"], "x")
    report = samples.report([samples.node("n1", None), samples.silent("n2")], [finding], 1)
    assert list(keep_off.remarks(report)) == [
        "note: all 2 nodes are excluded, so no job can start: for different reasons"
    ]


@pytest.mark.parametrize(
    ("more", "excluded"), [({"impact": "blocks-job"}, "n1"), ({"impact": "drifts"}, ""), ({"gating": False}, "")]
)
def test_what_hangs_excludes_its_node(more: dict[str, Any], excluded: str) -> None:
    finding = samples.finding("a.one", "unknown", ["n1"], "it does not answer", **more)
    report = samples.report([samples.node("n1", None)], [finding], 3)
    assert keep_off.bad_nodes(report) == excluded


@pytest.mark.parametrize(
    ("impact", "owner", "gating", "excluded"),
    [
        ("blocks-job", "network", True, "n1"),  # not n2, at the other end
        ("blocks-job", "site", True, "n1"),
        ("blocks-job", "job", True, ""),  # no node is better
        ("slows-job", "network", True, ""),
        ("blocks-job", "network", False, ""),
    ],
)
def test_the_node_with_the_cause_of_a_failure_in_the_logs(impact: str, owner: str, gating: bool, excluded: str) -> None:
    findings = [
        samples.finding("a.flap", "warn", ["n1", "n3"], "the link flapped"),
        samples.finding("a.log", "fail", ["@run"], "time-out", cause={"check": "a.flap", "nodes": ["n1", "n2"]},
                        gating=gating),
    ]  # fmt: skip
    incident = samples.incident("0" * 12, findings, 0, 1, impact=impact, owner=owner) | {"nodes": ["n1", "n3"]}
    report = samples.report([samples.node(f"n{n}", None) for n in (1, 2, 3)], findings, 1, incidents=[incident])
    assert keep_off.bad_nodes(report) == excluded
    assert [row.incidents for row in keep_off.excluded(report)] == [(0,)] * bool(excluded)


@pytest.mark.parametrize(
    ("status", "owner", "subject", "excluded"),
    [
        ("fail", "node", "n1", "n1"), ("warn", "node", "n1", ""), ("unknown", "node", "n1", ""),
        ("fail", "network", "n1", ""), ("fail", "node", "leaf1", ""),
    ],
)  # fmt: skip
def test_the_host_that_pauses_its_switch(status: str, owner: str, subject: str, excluded: str) -> None:
    findings = [samples.finding("a.pause", status, ["@switches"], f"{subject} pauses leaf2", subject=subject)]
    incident = samples.incident("0" * 12, findings, 0, impact="slows-job", owner=owner)
    report = samples.report([samples.node("n1", None), samples.node("n2", None)], findings, 1, incidents=[incident])
    assert keep_off.bad_nodes(report) == excluded


def test_every_node_has_its_square() -> None:
    """Decode the dashes: their number for each status is that of its nodes, and none overlaps another."""
    statuses = ["pass", "fail", "pass", "pass", "warn", "unknown", "skip"] * 23
    nodes: list[dict[str, Any]] = [{"name": f"n{number}", "status": status} for number, status in enumerate(statuses)]
    nodes[10] = samples.silent("n10")
    drawn = page_map.node_map(nodes)
    assert drawn is not None
    squares: dict[int, str] = {}
    for status, _, path in drawn.paths:
        for x, y, length in re.findall(r"M(\d+) ([\d.]+)h(\d+)", path):
            first = int(x) // drawn.cell + drawn.columns * int((float(y) - drawn.square / 2) / drawn.cell)
            for place in range(first, first + (int(length) + drawn.cell - drawn.square) // drawn.cell):
                assert place not in squares
                squares[place] = status
    assert squares == {place: page_map.status_of(node) for place, node in enumerate(nodes)}
    assert page_map.node_map(nodes[:40]) is None


def test_the_map_of_ten_thousand_nodes_is_a_few_lines() -> None:
    nodes = [{"name": f"n{number}", "status": "pass"} for number in range(10_000)]
    drawn = page_map.node_map(nodes)
    assert drawn is not None
    assert sum(len(path) for *_, path in drawn.paths) < 2500


def cabled(name: str, leaf: str, port: int, **statuses: Any) -> dict[str, Any]:
    node = samples.node(name, samples.hgx(), **statuses)
    for numa in node["topology"]["numa"]:
        for switch in numa["switches"]:
            for nic in switch["nics"]:
                if nic["compute"]:
                    nic |= {"leaf": f"{leaf}-{nic['name']}", "leaf_port": f"Ethernet{port}"}
    return node


def test_nodes_that_differ_in_their_switch_ports_only_share_a_drawing() -> None:
    nodes = [cabled(f"n{number}", "a", number) for number in range(50)]
    report = samples.report(nodes, [], 0)
    groups = page_nodes.node_groups(report, page_nodes.part_marks(report))
    assert [(group.nodes, group.node_count) for group in groups.shown] == [("n[0-49]", 50)]


def test_leaves_and_rails() -> None:
    nodes = [cabled(f"n{number:02d}", "a" if number < 3 else "b", number) for number in range(5)]
    down = samples.finding("rdma.port-state", "fail", ["n01", "n02"], "mlx5_5:1 is DOWN", subject="mlx5_5:1")
    report = samples.report([*nodes, samples.node("alone", samples.hgx())], [down], 1)
    wiring = page_nodes.find_wiring(report, page_nodes.part_marks(report))
    assert [(row.nodes, row.node_count) for row in wiring.rows] == [("n[00-02]", 3), ("n[03-04]", 2)]
    bad = {cell.leaf: (cell.status, cell.bad, cell.ports) for row in wiring.rows for cell in row.cells if cell.bad}
    assert bad == {"a-mlx5_5": ("fail", 2, 3)}
    assert "alone" not in wiring.wiring_of  # without an LLDP neighbour it is in no row, and on no leaf
    healthy = samples.healthy(4)
    assert page_nodes.find_wiring(healthy, {}).rows == ()
    assert "Leaves and rails" not in render(healthy)


def test_marks_are_of_the_part_that_a_finding_names_under_any_of_its_names() -> None:
    nodes = [samples.node("n1", samples.hgx()), samples.node("n2", samples.hgx())]
    address = nodes[0]["topology"]["numa"][0]["switches"][0]["gpus"][0]["address"]
    findings = [
        samples.finding("a.one", "warn", ["n1"], "warm", subject="GPU0"),
        samples.finding("a.two", "fail", ["n1"], "lost", subject=address),
        samples.finding("a.three", "fail", ["n1"], "not set", subject="NCCL_DEBUG"),
    ]
    marks = page_nodes.part_marks(samples.report(nodes, findings, 1))
    assert marks == {"n1": {address: ("fail", "lost")}}


def test_the_switch_port_of_a_port_stands_in_an_incident_of_the_network() -> None:
    nodes = [cabled(f"n{number}", "a", number) for number in range(3)]
    down = samples.finding("rdma.port-state", "fail", ["n1"], "mlx5_5:1 is DOWN", subject="mlx5_5:1")
    incident = samples.incident("0a1b2c3d4e5f", [down], 0, owner="network")
    (card,) = incident_cards(samples.report(nodes, [down], 1, incidents=[incident]))
    assert [(end.switch, end.switch_port, end.node, end.port) for end in card.cables] == [
        ("a-mlx5_5", "Ethernet1", "n1", "mlx5_5")
    ]  # fmt: skip
    (card,) = incident_cards(samples.report(nodes, [down], 1, incidents=[incident | {"owner": "node"}]))
    assert card.cables == ()


def test_the_data_hold_what_did_not_pass_and_nothing_that_ends_the_element() -> None:
    data = data_of(render(samples.sick()))
    assert len(data["names"]) == len(data["status"]) == len(data["group"]) == 43 + 3 - 3
    assert "<" not in json.dumps(data["names"])
    checks = {data["checks"][row[0]] for row in data["findings"]}
    assert {"rdma.port-rate", "gpu.count", "host.shm", "rdma.active-mtu"} <= checks
    hostile = render(samples.hostile())
    inside = hostile[hostile.index('id="data">') + 10 :]
    inside = inside[: inside.index("</script>")]
    assert not set("<>&") & set(inside)
    assert data_of(hostile)["names"][0].count("alert(1)")


def test_a_fleet_of_which_every_node_differs_stays_small() -> None:
    """No list on the page grows with the number of nodes."""
    count = 2000
    nodes = [samples.node(f"n{number:05d}", samples.hgx(), gpu__count="fail") for number in range(count)]
    for number, node in enumerate(nodes):
        node["topology"]["numa"][0]["switches"][0]["name"] = f"0000:{number:04x}:00.0"
    findings = [
        samples.finding(check, status, [node["name"]], f"{node['name']} reports {number}", fix=f"fix {number}",
                        subject=f"mlx5_{number}:1")
        for check, status in (("gpu.count", "fail"), ("host.shm", "warn"), ("rdma.mtu", "unknown"))
        for number, node in enumerate(nodes)
    ]  # fmt: skip
    incidents = [samples.incident(f"{number:012x}", findings, number) for number in range(count)]
    text = render(samples.report(nodes, findings, 1, incidents=incidents))
    assert len(text) < 2_900_000
    assert text.count("<article") < 350
    assert "1,750 incidents more" in text
    assert text.count("<li") < 3000
