"""Comparison of nodes: majorities, outliers, duplicate identifiers, and faults shared by a site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.facts.majority import ENOUGH, near, outliers, shared, systemic, vote
from preflight.facts.unique_ids import guid, mac
from preflight.judge import judge
from preflight.model import Scope
from preflight.reports.verdict_line import headline
from tests.support.machines import evidence, hgx_h100
from tests.support.machines.cloud_vm import cloud_vm
from tests.support.machines.fleet import fleet, machines
from tests.support.machines.p5 import aws_p5
from tests.support.machines.pod import pod
from tests.support.whole_nodes import every_gpu, nic, node

FLEET = [check for check in registry().checks if check.scope is Scope.FLEET]


# --- the rules -------------------------------------------------------------------------------------


def node_values(*values: str) -> list[tuple[str, str]]:
    return [(f"n{number}", value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "usual"),
    [
        ("aa", "a"), ("ab", None), ("aab", "a"), ("abc", None), ("aaabb", "a"), ("aabb", None), ("aaabbb", None),
        ("aaaaabbb", "a"), ("aaaaabbbb", None), ("a", "a"), ("", None),
    ],
)  # fmt: skip
def test_a_majority_is_three_fifths_of_at_least_three(values: str, usual: str | None) -> None:
    assert vote(node_values(*values)).usual == usual


@given(st.lists(st.sampled_from("abc"), max_size=30), st.randoms())
def test_a_vote_counts_everybody_once_in_any_order(values: list[str], chance: Any) -> None:
    pairs = node_values(*values)
    found = vote(pairs)
    assert sum(map(len, found.values.values())) == found.total == len(values)
    assert len(found.holders) + sum(map(len, found.odd.values())) == len(values)
    chance.shuffle(pairs)
    assert vote(pairs).usual == found.usual


@given(st.lists(st.floats(1, 1e6), min_size=ENOUGH, max_size=40), st.floats(1e-6, 100))
def test_no_number_within_the_floor_is_an_outlier(numbers: list[float], floor: float) -> None:
    named = {f"n{place}": number for place, number in enumerate(numbers)}
    for one in outliers(named, floor):
        assert abs(one.number - one.usual) > max(floor, 3.5 * one.spread)
    assert len(outliers(named, floor)) <= len(numbers) // 2
    assert outliers(dict.fromkeys(named, 7.0), 0) == []


def test_four_numbers_have_no_outlier() -> None:
    assert outliers({"a": 1, "b": 1, "c": 1, "d": 1000}, 1) == []
    assert [one.name for one in outliers({"a": 1, "b": 1, "c": 1, "e": 1, "d": 1000}, 1)] == ["d"]
    assert outliers({"a": 1, "b": 1, "c": 1, "e": 1, "d": 1000}, 1, up=False) == []


def test_numbers_within_the_tolerance_count_as_equal() -> None:
    assert len(set(near({"a": 100, "b": 100.5, "c": 101, "d": 90}, 0.01).values())) == 2
    assert near({}, 0.01) == {}


def test_shared_names_the_owners_of_what_stands_twice() -> None:
    assert shared([("a", "x"), ("b", "x"), ("a", "x"), ("c", "y")]) == {"x": ("a", "b")}


@pytest.mark.parametrize(
    ("hit", "of", "site"), [(3, 10, True), (2, 3, False), (3, 11, False), (37, 64, True), (19, 64, False)]
)
def test_three_tenths_of_a_fleet_are_the_sites(hit: int, of: int, site: bool) -> None:
    assert systemic(hit, of) is site


@pytest.mark.parametrize("text", ["", "0x", "a088:c203:zz", "a088c20300180000ff", "\x1b[31m"])
def test_what_is_no_guid(text: str) -> None:
    with pytest.raises(ValueError, match="not a GUID"):
        guid(text)


@pytest.mark.parametrize("text", ["", "02:fc", "02-fc-00-00-00-01", "02:fc:00:00:00:01:02"])
def test_what_is_no_mac(text: str) -> None:
    with pytest.raises(ValueError, match="not the address"):
        mac(text)


# --- fleets ----------------------------------------------------------------------------------------


def report(evidences: list[Evidence], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = judge(evidences, more.get("checks", FLEET))
    return found


def urgent(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (one["status"], one["check"], one["subject"])
        for one in found["findings"]
        if one["status"] not in ("pass", "skip")
    }


def documents(machine: Any, count: int, faults: Any = None) -> list[Evidence]:
    return [from_document(one, one["node"]) for one in fleet(machine, count, 5, faults)]


def test_two_nodes_that_differ_do_not_show_which_one_is_wrong() -> None:
    found = report(documents(hgx_h100("x"), 2, {"gpu002": node(driver="570.86.10")}))
    (driver,) = [one for one in found["findings"] if one["check"] == "fleet.driver-equal"]
    assert driver["status"] == "fail"
    assert driver["nodes"] == ["gpu001", "gpu002"]
    assert "which one is wrong is not known" in driver["message"]
    assert driver["undecided"]


def test_three_values_on_three_nodes_have_no_majority() -> None:
    faults = {f"gpu{number:03d}": every_gpu(vbios=f"96.00.0{number}.00.01") for number in (1, 2, 3)}
    (one,) = [
        one for one in report(documents(hgx_h100("x"), 3, faults))["findings"] if one["subject"] == "VBIOS"
    ]  # fmt: skip
    assert one["nodes"] == ["gpu001", "gpu002", "gpu003"]
    assert "no value has a majority" in one["message"]


def test_a_container_and_a_virtual_machine_are_no_outliers_for_what_they_hide() -> None:
    for family in (pod, cloud_vm):
        assert urgent(report(documents(family("x"), 3))) <= {("unknown", "fleet.software", "")}
    assert urgent(report(documents(aws_p5("x"), 3))) == set()


def test_what_hides_in_one_container_is_unknown_there_and_nobodys_outlier() -> None:
    nodes = list(machines(hgx_h100("x", roce=True), 4))
    hidden = replace(pod("gpu004"), number=nodes[3].number, name="gpu004")
    found = report([from_document(evidence(one), one.name) for one in (*nodes[:3], hidden)])
    bad = [one for one in found["findings"] if one["status"] in ("fail", "warn")]
    assert [one for one in bad if one["check"] not in ("fleet.identity",)] == []
    assert all(one["nodes"] == ["gpu004"] for one in found["findings"] if one["status"] == "unknown")


def test_evidence_of_an_older_version_is_compared_by_what_it_has() -> None:
    """It lacks new records; values whose difference breaks no job are listed as not shown, and gate nothing."""
    new = ("machine-id", "boot_id", "/dmi/", "cpuinfo", "meminfo", "transparent", "version.json", "nvidia-ctk", "netns")
    old = []
    for document in fleet(hgx_h100("x"), 3):
        document["records"] = {
            key: one for key, one in document["records"].items() if not any(word in key for word in new)
        }
        old.append(from_document(document, document["node"]))
    found = report(old)
    assert urgent(found) == set()
    (host,) = [one for one in found["findings"] if one["check"] == "fleet.host"]
    assert "no node shows BIOS version, server model, CPU model" in host["message"]


def test_what_fails_on_many_nodes_is_called_the_sites_problem() -> None:
    slow = nic("mlx5_4", rate="200 Gb/sec (2X NDR)")
    faults = {f"gpu{number:03d}": slow for number in range(1, 5)}
    checks = [check for check in registry().checks if check.id in ("rdma.port-rate", "gpu.count")]
    from preflight.expectations.cluster_file import decode

    site = decode(b'[class.a]\nports.compute = "mlx5_4"\nports.rate_gbps = 400\n', "cluster.toml")
    found = judge(documents(hgx_h100("x"), 10, faults), checks, site)
    assert [(one["check"], one["nodes"], one["of"]) for one in found["systemic"]] == [("rdma.port-rate", 4, 10)]
    assert headline(found) == (
        "FAIL: 4 of 10 nodes have problems; rdma.port-rate failed on 4 of 10: look for one cause"
    )
    few = judge(documents(hgx_h100("x"), 10, {"gpu001": slow, "gpu002": slow}), checks, site)
    assert "systemic" not in few
    assert "one cause" not in headline(few)


def test_a_made_fleet_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    one, same = list(fleet(hgx_h100("x"), 3, 1)), list(fleet(hgx_h100("x"), 3, 1))
    assert one == same
    assert one != list(fleet(hgx_h100("x"), 3, 2))
    assert [document["node"] for document in one] == ["gpu001", "gpu002", "gpu003"]


def test_a_rack_of_two_domains_is_compared_domain_by_domain() -> None:
    from preflight.facts.nvidia.model import GpuFabric
    from tests.support.machines.gb200 import gb200_tray

    def rack(uuid: str, hosts: str) -> Any:
        def plant(machine: Any) -> Any:
            found = every_gpu(fabric=GpuFabric("Completed", "Success", (), 32766, uuid))(machine)
            return replace(found, settings={"/etc/nvidia-imex/nodes_config.cfg": hosts})

        return plant

    other = rack("11111111-2222-3333-4444-555555555555", "198.51.100.1\n198.51.100.2")
    faults = {"gpu004": other, "gpu005": other, "gpu006": other}
    assert urgent(report(documents(gb200_tray("x"), 6, faults))) == set()


@pytest.mark.parametrize("roce", [False, True])
def test_rails_that_are_down_are_no_difference_of_the_others(roce: bool) -> None:
    down = {"state": "DOWN", "physical": "Polling"}
    faults = {f"gpu{number:03d}": nic(f"mlx5_{number + 2}", **down) for number in range(1, 5)}
    assert urgent(report(documents(hgx_h100("x", roce=roce), 6, faults))) == set()


def test_a_rail_without_a_majority_is_named() -> None:
    faults = {f"gpu{number:03d}": nic("mlx5_4", sm_lid=number) for number in (2, 3, 4)}
    (one,) = [one for one in report(documents(hgx_h100("x"), 4, faults))["findings"] if one["status"] == "fail"]
    assert one["message"].startswith("InfiniBand subnet of each rail, mlx5_4:1 differs, and no value has a majority")


def test_pods_of_one_machine_may_show_the_same_devices() -> None:
    """They share the adapters and the boot id of their machine, and have separate addresses and GPUs."""
    one, other = (replace(pod(name), number=number) for number, name in ((1, "pod-a"), (2, "pod-b")))
    first, second = evidence(one), evidence(other)
    shared_keys = [key for key in first["records"] if key.endswith(("_guid", "boot_id", "/gids/0"))]
    second["records"] |= {key: first["records"][key] for key in shared_keys}
    found = report([from_document(document, document["node"]) for document in (first, second)])
    assert [
        entry for entry in found["findings"] if entry["check"] == "fleet.identity" and entry["status"] != "pass"
    ] == []


def test_virtual_functions_share_the_system_guid_of_their_adapter() -> None:
    nodes = list(fleet(cloud_vm("x"), 2))
    for key in [key for key in nodes[0]["records"] if key.endswith("sys_image_guid")]:
        nodes[1]["records"][key] = nodes[0]["records"][key]
    found = report([from_document(document, document["node"]) for document in nodes])
    assert [
        entry for entry in found["findings"] if entry["check"] == "fleet.identity" and entry["status"] != "pass"
    ] == []
