"""Similar hardware faults on several nodes: one incident or several."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from preflight.checks import registry
from preflight.incidents import incidents
from preflight.reports.sanitize import fold

CHECKS = registry().checks
DOWN, SLOW, HOT = "rdma.port-state", "rdma.port-rate", "gpu.temperature-margin"
WORN, LOST, XID = "gpu.row-remap", "gpu.driver", "xid.gpu"
MESSAGES = {
    DOWN: "{} is DOWN", SLOW: "{} runs at 200 Gb/s", HOT: "at its slowdown temperature",
    WORN: "a row remapping failed", LOST: "the driver does not see {}", XID: "Xid 79: GPU has fallen off the bus",
}  # fmt: skip
RAILS = tuple(f"mlx5_{number}:1" for number in range(8))

#: Check -> part -> numbers of the nodes on which it is at fault.
Faults = Mapping[str, Mapping[str, Sequence[int]]]


def node(number: int, rails: Sequence[str], leaves: Mapping[str, str]) -> dict[str, Any]:
    names = [rail.partition(":")[0] for rail in rails]
    nics = [{"name": name, "address": "", "compute": True, "label": name, "leaf": leaves.get(name)} for name in names]
    return {"name": f"gpu{number:03d}", "topology": {"numa": [{"switches": [{"gpus": [], "nics": nics}]}]}}


def report(
    count: int,
    faults: Faults,
    rails: Sequence[str] = RAILS,
    leaf: Mapping[int, str] | None = None,
    units: int = 0,
) -> dict[str, Any]:
    """Return a report of this many nodes; ``leaf`` names the leaf of the intact ports of a node.

    With ``units``, the cluster file declares a leaf, or group of leaves, for every that many nodes.
    """
    down = {(part, number) for parts in faults.values() for part, numbers in parts.items() for number in numbers}
    nodes = [
        node(number, rails, {
            rail.partition(":")[0]: f"{leaf[number]}-{rail}" for rail in rails
            if leaf and number in leaf and (rail, number) not in down
        })
        for number in range(1, count + 1)
    ]  # fmt: skip
    for number, made in enumerate(nodes if units else ()):
        made["leaf"] = f"unit{number // units}"
    failures = [
        {"check": check, "status": "fail", "subject": part, "message": MESSAGES[check].format(part), "action": "drain",
         "nodes": [f"gpu{number:03d}"], "found": "", "expected": "", "evidence": [], "fix": ""}
        for check, parts in faults.items() for part, numbers in parts.items() for number in numbers
    ]  # fmt: skip
    return {"nodes": nodes, "findings": failures}


def named(report: Mapping[str, Any]) -> list[str]:
    return sorted(
        f"{','.join(entry['subjects'])} @{fold(entry['nodes'])}" for entry in incidents(report, CHECKS)
    )  # fmt: skip


ALL = range(1, 9)


@pytest.mark.parametrize(
    ("count", "faults", "expected"),
    [
        # a dead rail, and a port with another cause
        (8, {DOWN: {RAILS[5]: ALL, RAILS[6]: [3]}}, ["mlx5_5:1 @gpu[001-008]", "mlx5_6:1 @gpu003"]),
        (12, {DOWN: {RAILS[5]: range(1, 7), RAILS[6]: [9]}}, ["mlx5_5:1 @gpu[001-006]", "mlx5_6:1 @gpu009"]),
        (12, {DOWN: {RAILS[5]: (1, 2, 3), RAILS[6]: [9]}}, ["mlx5_5:1 @gpu[001-003]", "mlx5_6:1 @gpu009"]),
        (12, {SLOW: {RAILS[5]: range(1, 7), RAILS[6]: [9]}}, ["mlx5_5:1 @gpu[001-006]", "mlx5_6:1 @gpu009"]),
        # two dead rails, and a port with another cause
        (8, {DOWN: {RAILS[5]: ALL, RAILS[6]: ALL, RAILS[1]: [3]}},
         ["mlx5_1:1 @gpu003", "mlx5_5:1 @gpu[001-008]", "mlx5_6:1 @gpu[001-008]"]),
        # all ports of all nodes, or of most
        (8, {DOWN: dict.fromkeys(RAILS, ALL)}, [f"{','.join(RAILS)} @gpu[001-008]"]),
        (12, {DOWN: dict.fromkeys(RAILS, ALL)}, [f"{','.join(RAILS)} @gpu[001-008]"]),
        (8, {DOWN: {rail: ALL if rail != RAILS[2] else range(1, 8) for rail in RAILS}},
         [f"{','.join(RAILS)} @gpu[001-008]"]),
        # different parts: few by chance, most not
        (8, {DOWN: {RAILS[0]: [1], RAILS[3]: [4], RAILS[6]: [7]}},
         ["mlx5_0:1 @gpu001", "mlx5_3:1 @gpu004", "mlx5_6:1 @gpu007"]),
        (8, {HOT: {"GPU0": [1], "GPU3": [4], "GPU6": [7]}}, ["GPU0 @gpu001", "GPU3 @gpu004", "GPU6 @gpu007"]),
        (8, {HOT: {f"GPU{number}": [number] for number in range(1, 7)}},
         ["GPU1,GPU2,GPU3,GPU4,GPU5,GPU6 @gpu[001-006]"]),
        # the same part of 30% of the nodes, and more parts of one of them
        (8, {HOT: {"GPU0": (1, 4, 7), "GPU3": [4]}}, ["GPU0,GPU3 @gpu[001,004,007]"]),
        (12, {HOT: {"GPU0": (1, 4, 7)}}, ["GPU0 @gpu001", "GPU0 @gpu004", "GPU0 @gpu007"]),
        # defects of the same part of several nodes, and of most nodes
        (8, {WORN: {"GPU3": (1, 4, 7)}}, ["GPU3 @gpu001", "GPU3 @gpu004", "GPU3 @gpu007"]),
        (8, {XID: {"GPU3": (1, 4, 7)}}, ["GPU3 @gpu001", "GPU3 @gpu004", "GPU3 @gpu007"]),
        (8, {WORN: {"GPU3": (1, 4, 7)}, HOT: {"GPU5": (1, 4, 7)}},
         ["GPU3 @gpu001", "GPU3 @gpu004", "GPU3 @gpu007", "GPU5 @gpu[001,004,007]"]),
        (8, {WORN: {"GPU3": range(1, 7)}}, ["GPU3 @gpu[001-006]"]),
        # a driver that lost the same GPU
        (8, {LOST: {"GPU3": (1, 4, 7)}}, ["GPU3 @gpu[001,004,007]"]),
    ],
)  # fmt: skip
def test_similar_faults(count: int, faults: Faults, expected: list[str]) -> None:
    assert named(report(count, faults)) == expected


def test_all_ports_of_nodes_with_two_ports_have_one_cause() -> None:
    two = RAILS[:2]
    assert named(report(8, {DOWN: dict.fromkeys(two, ALL)}, two)) == ["mlx5_0:1,mlx5_1:1 @gpu[001-008]"]
    assert named(report(8, {DOWN: {two[0]: ALL}}, two)) == ["mlx5_0:1 @gpu[001-008]"]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        # a leaf for all ports of its nodes; two of them
        ({DOWN: dict.fromkeys(RAILS, (*range(1, 5), *range(13, 17)))}, ["gpu[001-004]", "gpu[013-016]"]),
        # three leaves of three units, of different ports or all; with most leaves of the ports, the cause is the fleet
        ({DOWN: {RAILS[1]: range(1, 5), RAILS[5]: range(5, 9), RAILS[7]: range(13, 17)}},
         ["gpu[001-004]", "gpu[005-008]", "gpu[013-016]"]),
        ({DOWN: {RAILS[1]: range(1, 9), RAILS[5]: range(5, 13), RAILS[7]: (*range(1, 5), *range(13, 17))}},
         ["gpu[001-016]"]),
        # two leaves of a unit; one leaf of each of two units
        ({DOWN: dict.fromkeys(RAILS[4:6], range(5, 9))}, ["gpu[005-008]", "gpu[005-008]"]),
        ({DOWN: {RAILS[5]: (1, 2, 3, 9, 10, 11)}}, ["gpu[001-003]", "gpu[009-011]"]),
        # cables of several units, and of one unit
        ({DOWN: {RAILS[4]: (1, 2), RAILS[5]: (6, 10), RAILS[6]: (14,)}}, ["gpu001", "gpu002", "gpu006", "gpu010",
                                                                         "gpu014"]),
        ({DOWN: {RAILS[4]: (1,), RAILS[5]: (2,), RAILS[6]: (3,)}}, ["gpu001", "gpu002", "gpu003"]),
    ],
)  # fmt: skip
def test_declared_leaves(faults: Faults, expected: Sequence[str]) -> None:
    given = [entry.rpartition("@")[2] for entry in named(report(16, faults, units=4))]
    assert sorted(given) == sorted(expected)


@pytest.mark.parametrize(("leaves", "incidents_of"), [(16, 3), (4, 1)], ids=["few of the leaves", "most of them"])
def test_three_dead_leaves_of_which_live_ports_show_the_others(leaves: int, incidents_of: int) -> None:
    """The leaf of a dead port is inferred from the other ports of its peers."""
    leaf = {number: f"pod{(number - 1) % (leaves // 4)}" for number in range(1, 17)}
    pods = [[number for number in leaf if leaf[number] == f"pod{pod}"] for pod in range(leaves // 4)]
    faults: Faults = {DOWN: {RAILS[rail]: pods[rail % len(pods)] for rail in range(3)}}
    given = incidents(report(16, faults, leaf=leaf), CHECKS)
    assert len(given) == incidents_of
    assert all(entry["next"].startswith("Look at the switch that these ports have in common") for entry in given)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        # dead leaves of one rail: in one pod, in two of four; in most pods, the rail is the cause
        ({RAILS[5]: range(5, 9)}, ["pod of pod1-mlx5_0:1: @gpu[005-008]"]),
        ({RAILS[5]: (*range(1, 5), *range(9, 13))},
         ["pod of pod0-mlx5_0:1: @gpu[001-004]", "pod of pod2-mlx5_0:1: @gpu[009-012]"]),
        ({RAILS[5]: range(1, 13)}, ["@gpu[001-012]"]),
        # and one of another rail; or a pod without a live port, whose leaves are unknown
        ({RAILS[5]: (*range(1, 5), *range(9, 13)), RAILS[6]: range(13, 17)},
         ["pod of pod0-mlx5_0:1: @gpu[001-004]", "pod of pod2-mlx5_0:1: @gpu[009-012]",
          "pod of pod3-mlx5_0:1: @gpu[013-016]"]),
        ({RAILS[5]: range(5, 13)} | {rail: range(5, 9) for rail in RAILS if rail != RAILS[5]},
         ["@gpu[005-008]", "pod of pod2-mlx5_0:1: @gpu[009-012]"]),
        # cables: the leaf serves another node of the pod
        ({RAILS[5]: (1, 2, 9, 10)}, ["@gpu001", "@gpu002", "@gpu009", "@gpu010"]),
    ],
)  # fmt: skip
def test_dead_leaves_of_four_pods(faults: Mapping[str, Sequence[int]], expected: Sequence[str]) -> None:
    leaf = {number: f"pod{(number - 1) // 4}" for number in range(1, 17)}
    given = incidents(report(16, {DOWN: faults}, leaf=leaf), CHECKS)
    places = [f"{re.split('mlx5_[56]:1 ', entry['title'])[0]}@{fold(entry['nodes'])}" for entry in given]
    assert sorted(places) == expected


@pytest.mark.parametrize(
    ("status", "nodes", "expected"),
    [("unknown", range(1, 9), 1), ("unknown", range(1, 6), 5), ("fail", range(1, 9), 8)],  # fewer than 30% of 32
)
def test_a_driver_that_hangs_on_six_nodes_is_one_incident(status: str, nodes: Sequence[int], expected: int) -> None:
    hanging = report(32, {LOST: {"": nodes}})
    hanging["findings"] = [{**finding, "status": status, "impact": "blocks-job"} for finding in hanging["findings"]]
    assert len(incidents(hanging, CHECKS)) == expected


DRIVER = {"check": "fleet.driver-equal", "status": "warn", "subject": "NVIDIA driver", "action": "fix-site",
          "nodes": ["n1"], "found": "", "expected": "", "evidence": [], "fix": ""}  # fmt: skip
FAILED = {**DRIVER, "check": "nccl.failures", "subject": "cuda_ecc", "status": "fail", "nodes": ["@run"],
          "action": "fix-job"}  # fmt: skip


def printed(*findings: Mapping[str, Any]) -> list[str]:
    entries = incidents({"nodes": [], "findings": findings}, CHECKS)
    return sorted(entry["fingerprint"] for entry in entries)


def test_fingerprint_lasts_without_a_majority_and_in_another_log() -> None:
    minority = {**DRIVER, "message": "550.90.07; most nodes (12 of 16) have 570.124.06"}
    assert printed(minority) == printed({**DRIVER, "message": "the driver differs, and no value has a majority"})
    assert printed(minority) != printed({**minority, "subject": "CUDA version"})
    logs = [{**FAILED, "message": f"{name}:4 on gpu004: ECC", "evidence": [f"log:{name}"]} for name in ("a", "job-7")]
    assert printed(logs[0]) == printed(logs[1])
    assert printed(logs[0]) != printed({**logs[0], "message": "a:4 on gpu004: no memory"})


def fingerprint(*arguments: Any, **options: Any) -> str:
    (incident,) = incidents(report(*arguments, **options), CHECKS)
    return str(incident["fingerprint"])


def test_fingerprint_lasts_while_a_fault_spreads() -> None:
    """Also if the last peer that shows the leaf goes, and past 30% of the nodes."""
    rail = {fingerprint(12, {DOWN: {RAILS[5]: range(1, last)}}) for last in (4, 5, 13)}
    leaf = dict.fromkeys(range(1, 13), "leaf")
    of_pod = {fingerprint(12, {DOWN: {RAILS[5]: range(1, last)}}, leaf=leaf) for last in (4, 5, 12, 13)}
    assert len(rail) == len(of_pod) == 1
    hot = {fingerprint(8, {HOT: faults}) for faults in (
        {"GPU0": (1, 2, 3)}, {"GPU0": (1, 2, 3, 4)}, {"GPU0": range(1, 9), "GPU3": [4]}
    )}  # fmt: skip
    assert len(hot) == 1


def test_fingerprints_of_different_groups_differ() -> None:
    groups: list[Faults] = [
        {DOWN: {RAILS[5]: ALL}}, {DOWN: {RAILS[6]: ALL}}, {SLOW: {RAILS[5]: ALL}}, {DOWN: dict.fromkeys(RAILS, ALL)},
        {HOT: {"GPU0": (1, 2, 3)}}, {HOT: {"GPU1": (1, 2, 3)}},
    ]  # fmt: skip
    assert len({fingerprint(8, faults) for faults in groups}) == len(groups)
    two = report(12, {DOWN: {RAILS[5]: range(1, 7)}}, leaf={number: f"leaf{number % 2}" for number in range(1, 13)})
    assert len({entry["fingerprint"] for entry in incidents(two, CHECKS)}) == 2


def test_title_counts_the_parts_of_all_nodes() -> None:
    (incident,) = incidents(report(12, {DOWN: dict.fromkeys(RAILS, ALL)}), CHECKS)
    assert incident["title"] == "mlx5_0:1 (and 63 others) are DOWN"


def of_one_port(leaves: Sequence[str], rails: Sequence[str] = RAILS[:1]) -> list[str]:
    """Return the titles of three hosts with slow ports and a fault without a subject."""
    hosts = report(12, {SLOW: {"": (1, 2, 3)}}, rails)
    for number, host in enumerate(hosts["nodes"]):
        for rail, nic in enumerate(host["topology"]["numa"][0]["switches"][0]["nics"]):
            nic["leaf"] = leaves[(number + rail) % len(leaves)]
    return [entry["title"] for entry in incidents(hosts, CHECKS)]


def test_hosts_with_one_port_are_at_the_leaf_that_lldp_names() -> None:
    assert of_one_port(["leaf1"]) == ["all on leaf1:  runs at 200 Gb/s"]
    assert len(of_one_port(["leaf1", "leaf2"])) == 3  # at two leaves
    assert len(of_one_port(["leaf1", "leaf2"], RAILS[:2])) == 3  # each host at both
    assert len(of_one_port([""])) == 3  # without LLDP


def test_defects_in_most_of_a_rack_are_separate() -> None:
    hot, worn = (report(8, {check: {"GPU3": (1, 2, 3)}}) for check in (HOT, WORN))
    for node in [*hot["nodes"][:4], *worn["nodes"][:4]]:
        node["rack"] = "r1"
    assert [entry["title"] for entry in incidents(hot, CHECKS)] == ["all in rack r1: GPU3: " + MESSAGES[HOT]]
    assert len(incidents(worn, CHECKS)) == 3


def test_long_name_of_a_leaf_leaves_room_for_the_fault() -> None:
    assert of_one_port(["leaf-17.pod-3.row-b.hall-2.example.net"]) == [
        "all on leaf-17.pod-3.row-b.hal…:  runs at 200 Gb/s"
    ]


@pytest.mark.parametrize("lost", [True, False])
def test_a_defect_shows_the_address_of_its_gpu_if_the_numbers_may_change(lost: bool) -> None:
    """The number of a GPU is another one when the missing GPU is back; ports keep their names."""
    sick = report(1, {DOWN: {RAILS[5]: [1]}, WORN: {"0000:c3:00.0": [1]}, HOT: {"GPU2": [1]}}, RAILS)
    [group] = sick["nodes"][0]["topology"]["numa"][0]["switches"]
    group["gpus"] = [{"name": name, "address": address, "model": "", "answers": True}
                     for name, address in (("GPU4", "0000:c3:00.0"), ("GPU2", "0000:a1:00.0"))]  # fmt: skip
    sick["findings"][1]["message"] = "GPU4: a row remapping failed"
    sick["findings"][2]["message"] = "GPU2: no margin"
    missing = sick["findings"][0] | {"check": "gpu.count", "subject": "", "message": "found 7, expected 8"}
    sick["findings"] += [missing] * lost
    titles = {entry["title"] for entry in incidents(sick, CHECKS)} - {"found 7, expected 8"}
    assert titles == {
        "mlx5_5:1 is DOWN",
        "GPU4 (0000:c3:00.0): a row remapping failed" if lost else "GPU4: a row remapping failed",
        "GPU2 (0000:a1:00.0): no margin" if lost else "GPU2: no margin",
    }
