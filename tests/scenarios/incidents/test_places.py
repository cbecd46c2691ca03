"""The same hardware fault in one rack, on several nodes, or with one value: faults with and without a common cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document, no_answer
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.judge import judge
from preflight.reports.sanitize import fold
from preflight.reports.summary_text import render
from tests.scenarios.incidents.combinations import MORE
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.planted_fleet import CLUSTER
from tests.support.whole_nodes import Fault, both, nic

UNDECLARED = "\n".join(
    line for line in CLUSTER.splitlines() if not line.startswith(("memory_gib", "nvme", "cpus", "smt", "numa_nodes"))
)


def judged(faults: Mapping[int, str], racks: str = "", cluster: str = CLUSTER, silent: Sequence[int] = ()) -> Any:
    """Return the report of twelve nodes with faults by number."""
    planted = {f"gpu{number:03d}": MORE[name] for number, name in faults.items()}
    evidences = [
        no_answer(document["node"], "connect", "no route to host", "") if int(document["node"][3:]) in silent
        else from_document(document, document["node"])
        for document in fleet(hgx_h100("", roce=True), 12, 7, planted)
    ]  # fmt: skip
    return judge(evidences, registry().checks, decode(f"{cluster}\n{racks}".encode(), "cluster.toml"))


def named(report: Any) -> list[str]:
    """Return each incident: check, nodes, owner."""
    return sorted(
        f"{report['findings'][entry['findings'][0]]['check']} @{fold(entry['nodes'])} {entry['owner']}"
        for entry in report["incidents"]
    )


HOT = dict.fromkeys((1, 2, 3), "GPU4 too hot")


def test_most_of_a_rack_is_one_cause() -> None:
    report = judged(HOT, '[racks]\nr1 = "gpu[001-004]"\nr2 = "gpu[005-012]"')
    (incident,) = report["incidents"]
    assert incident["nodes"] == ["gpu001", "gpu002", "gpu003"]
    assert incident["title"].startswith("all in rack r1: ")
    assert report["nodes"][0]["rack"] == "r1"


@pytest.mark.parametrize(
    "racks",
    [
        "",  # none is declared
        '[racks]\nr1 = "gpu[001-008]"',  # three of eight: chance
        '[racks]\nr1 = "gpu[001-002,004]"\nr2 = "gpu[003,005-007]"',  # two, and one of another kind
    ],
)
def test_few_of_a_rack_are_not(racks: str) -> None:
    assert len(judged(HOT, racks)["incidents"]) == 3


def test_rack_that_gives_no_answer_is_named() -> None:
    report = judged({}, '[racks]\nr1 = "gpu[001-004]"\nr2 = "gpu[005-012]"', silent=(1, 2, 3, 4))
    run = {"at": "2026-11-27T00:00:00Z", "version": "0", "command": "judge", "seconds": 1, "cluster_file": "x"}
    text = render({**report, "run": run}, width=120)
    assert "NO ANSWER  gpu[001-004]  no route to host (connect); all of rack r1\n" in text
    report = judged({}, '[racks]\nr1 = "gpu[001-005]"', silent=(1, 2, 3, 4))
    assert "rack" not in render({**report, "run": run}, width=120)


def test_parts_that_two_nodes_lack_are_two_causes() -> None:
    lost = dict.fromkeys((1, 2), "two cards of memory gone")
    assert named(judged(lost, cluster=UNDECLARED)) == ["fleet.host @gpu001 node", "fleet.host @gpu002 node"]
    assert named(judged(lost)) == ["node.expected @gpu001 node", "node.expected @gpu002 node"]


def test_one_value_of_three_nodes_is_one_cause() -> None:
    delivered = dict.fromkeys((1, 2, 3), "two cards of memory gone")
    assert named(judged(delivered, cluster=UNDECLARED)) == ["fleet.host @gpu[001-003] node"]


def test_disks_that_the_kernel_turned_read_only_are_two_causes() -> None:
    report = judged({1: "/scratch read-only", 2: "/scratch read-only"})
    assert named(report) == ["host.file-systems @gpu001 node", "host.file-systems @gpu002 node"]
    assert {(entry["impact"], entry["status"]) for entry in report["incidents"]} == {("blocks-job", "warn")}


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ('r1 = "gpu[001-004]"\nr2 = "gpu004"', "gpu004 is also in rack r1"),
        ('r1 = "@rack:r1"', 'a node has no "@" in its name'),
        ('r1 = "gpu*"', 'a node has no "*" in its name'),
        ('"r 1" = "gpu001"', "is not the name of a rack"),
        ("r1 = 4", "takes names such as"),
    ],
)
def test_racks_that_are_wrong(table: str, error: str) -> None:
    with pytest.raises(ClusterFileError, match=r"cluster\.toml:") as raised:
        decode(f"[racks]\n{table}\n".encode(), "cluster.toml")
    assert error in str(raised.value)


def test_ports_that_are_down_belong_to_the_leaf_of_their_peers() -> None:
    down = {**dict.fromkeys((1, 2, 3), "port 5 of leaf 7 down"), **dict.fromkeys((4, 5, 6), "port 5 of leaf 8 down")}
    report = judged(down)
    places = [(entry["nodes"], entry["title"].partition("mlx5")[0]) for entry in report["incidents"]
              if report["findings"][entry["findings"][0]]["check"] == "rdma.port-state"]  # fmt: skip
    assert places == [
        (["gpu001", "gpu002", "gpu003"], "all on leaf-07, inferred from the cables of their peers: "),
        (["gpu004", "gpu005", "gpu006"], "all on leaf-08, inferred from the cables of their peers: "),
    ]


RAILS = (0, 3, 4, 5, 6, 9, 10, 11)


def at_pod(pod: str, *down: int) -> Fault:
    """Cable each rail of a node to the pod's own leaf; the leaves of these rails are dead."""
    cabled = [nic(f"mlx5_{rail}", leaf=f"leaf-{pod}{rail}") for rail in RAILS]
    return both(*cabled, *(nic(f"mlx5_{rail}", state="DOWN", physical="Polling") for rail in down))


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({1: "b59", 2: "b59", 3: "b59"}, ["gpu[001-003]", "gpu[001-003]"]),  # two dead leaves, known to no live port
        ({1: "b345", 2: "b345", 3: "b345"}, ["gpu[001-003]"]),
        ({1: "all of b", 2: "all of b", 3: "all of b"}, ["gpu[001-003]"]),
        ({1: "b5", 2: "b5", 3: "b5", 4: "c9", 5: "c9", 6: "c9"}, ["gpu[001-003]", "gpu[004-006]"]),
        # a loose cable to a leaf that serves another node is not part of the dead one
        ({1: "b5", 2: "b5", 3: "b5", 4: "d", 5: "d5"}, ["gpu005", "gpu[001-003]"]),
        ({1: "b5", 2: "b", 3: "c5", 4: "c", 5: "d5", 6: "d"}, ["gpu001", "gpu003", "gpu005"]),
    ],
)
def test_dead_leaves(faults: Mapping[int, str], expected: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pods = {"b59": (5, 9), "b345": (3, 4, 5), "all of b": RAILS, "b5": (5,), "b": (), "c5": (5,), "c9": (9,), "c": (),
            "d5": (5,), "d": ()}  # fmt: skip
    for name, down in pods.items():
        monkeypatch.setitem(MORE, name, at_pod("b" if name.startswith("all") else name[0], *down))
    report = judged(faults)
    assert sorted(fold(entry["nodes"]) for entry in report["incidents"]) == sorted(expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # a leaf of another pod dies too, while two pods have one that is live
        ({1: "b5", 2: "b5", 3: "b5", 4: "c", 5: "c", 6: "c", 7: "d"}, {4: "c5", 5: "c5", 6: "c5"}),
        ({1: "b0", 2: "b0", 3: "b0", 4: "b"}, {4: "b0"}),  # the last port of the leaf dies
        # the same rail of the other pod of two dies too: either first, a part of it, fewer nodes
        ({**dict.fromkeys(range(1, 7), "b5"), **dict.fromkeys(range(7, 13), "c")}, dict.fromkeys(range(7, 13), "c5")),
        ({**dict.fromkeys(range(1, 7), "b"), **dict.fromkeys(range(7, 13), "c5")}, dict.fromkeys(range(1, 7), "b5")),
        ({**dict.fromkeys(range(1, 7), "b5"), **dict.fromkeys(range(7, 13), "c")}, dict.fromkeys(range(7, 11), "c5")),
        ({**dict.fromkeys(range(1, 11), "b5"), **dict.fromkeys((11, 12), "c")}, dict.fromkeys((11, 12), "c5")),
        # both rails of a pod, then those of the other pod too
        (dict.fromkeys(range(1, 7), "b59") | dict.fromkeys(range(7, 13), "c"), dict.fromkeys(range(7, 13), "c59")),
        # the rest of the only pod
        ({**dict.fromkeys(range(1, 7), "b5"), **dict.fromkeys(range(7, 13), "b")}, dict.fromkeys(range(7, 13), "b5")),
    ],
)
def test_fingerprint_of_a_dead_leaf_lasts(
    before: Mapping[int, str], after: Mapping[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "b0", "b5", "b59", "c", "c5", "c59", "d"):
        monkeypatch.setitem(MORE, name, at_pod(name[0], *map(int, name[1:])))
    first, later = (judged(faults)["incidents"] for faults in (before, {**before, **after}))
    assert {entry["fingerprint"] for entry in first} <= {entry["fingerprint"] for entry in later}
    assert len({entry["fingerprint"] for entry in later}) == len(later)
