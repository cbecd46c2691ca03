"""Changes of incidents between two runs: new, worse, changed, first judged, unclear, gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from preflight.checks import registry
from preflight.diff import Snapshot, compare
from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import decode
from preflight.incidents import changes, recorded
from preflight.judge import judge
from tests.scenarios.incidents.combinations import HALF
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.planted_fleet import CLUSTER
from tests.support.whole_nodes import Fault, both, gpu, health, nic, node

DOWN = nic("mlx5_5", state="DOWN", physical="Polling")
OTHER_DOWN = nic("mlx5_9", state="DOWN", physical="Polling")
MTU = nic("mlx5_4", netdev_mtu=1500)
NO_LINKS = gpu(6, nvlink=False)
HOT = health(0, temperature_c=87, temperature_margin_c=0, event_reasons=0x48)


def report(count: int = 4, without: str = "", /, **faults: Fault) -> Mapping[str, Any]:
    documents = fleet(hgx_h100("", roce=True), count, 7, faults)
    evidences = [from_document(document, document["node"]) for document in documents]
    checks = [check for check in registry().checks if check.id != without]
    return judge(evidences, checks, decode(CLUSTER.encode(), "cluster.toml"))


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return change, first node and the start of the title."""
    then, now = ({node["name"]: node["checks"] for node in side["nodes"]} for side in (before, after))
    return [(row["change"], row["nodes"][0], row["title"][:13]) for row in changes(recorded(before), after, then, now)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, []),
        ({"gpu001": DOWN}, {"gpu001": DOWN}, []),
        ({}, {"gpu001": DOWN}, [("new", "gpu001", "mlx5_5:1 is D")]),
        ({"gpu001": DOWN}, {}, [("gone", "gpu001", "mlx5_5:1 is D")]),
        # the cable was moved: another port of the same node
        ({"gpu001": DOWN}, {"gpu001": OTHER_DOWN},
         [("new", "gpu001", "mlx5_9:1 is D"), ("gone", "gpu001", "mlx5_5:1 is D")]),
        # more nodes, fewer nodes
        ({"gpu001": MTU}, {"gpu001": MTU, "gpu002": MTU}, [("worse", "gpu001", "mlx5_4:1: the")]),
        ({"gpu001": MTU, "gpu002": MTU}, {"gpu001": MTU}, [("changed", "gpu001", "mlx5_4:1: the")]),
        # two ports that failed independently are one incident with a third
        ({"gpu001": DOWN, "gpu002": DOWN}, {"gpu001": DOWN, "gpu002": DOWN, "gpu003": DOWN},
         [("worse", "gpu001", "all on leaf-5")]),
        # what another fault hides is not gone
        ({"gpu001": NO_LINKS}, {"gpu001": both(NO_LINKS, node(driver_loaded=False))},
         [("new", "gpu001", "no NVIDIA dri"), ("unclear", "gpu001", "GPU6: 0 of 18")]),
        # next to an incident that stays
        ({"gpu001": DOWN, "gpu002": HOT}, {"gpu001": DOWN}, [("gone", "gpu002", "GPU0: at its ")]),
    ],
)  # fmt: skip
def test_changes(before: dict[str, Fault], after: dict[str, Fault], expected: list[tuple[str, str, str]]) -> None:
    assert compared(report(**before), report(**after)) == expected


def bad_memory(*counts: int) -> Fault:
    """Plant uncorrectable memory errors in the first GPUs."""
    return both(*(health(number, ecc_volatile_dram_uncorrected=count) for number, count in enumerate(counts)))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (gpu(6, on_bus=False), both(gpu(6, on_bus=False), gpu(2, on_bus=False)), ["worse"]),
        (both(gpu(6, on_bus=False), gpu(2, on_bus=False)), gpu(6, on_bus=False), ["changed"]),
        (bad_memory(1), bad_memory(9), ["worse"]),
        (bad_memory(9), bad_memory(1), ["changed"]),
        (bad_memory(5, 1), bad_memory(5, 9), ["worse"]),
        (health(0, remap_pending=True), health(0, remap_failure=True), ["worse"]),  # reset, then replace
        (health(0, remap_failure=True), health(0, remap_pending=True), ["changed"]),
        (bad_memory(9), health(0, ecc_volatile_dram_uncorrected=9, sram_threshold_exceeded=True), ["worse"]),
        (nic("mlx5_5", rate=HALF), nic("mlx5_5", rate="100 Gb/sec (1X NDR)"), ["worse"]),
        (HOT, health(0, temperature_c=90, temperature_margin_c=-3, event_reasons=0x48), ["changed"]),
    ],
)
def test_an_incident_is_worse_if_one_of_its_findings_is(before: Fault, after: Fault, expected: list[str]) -> None:
    sides = [Snapshot("", {"exit_status": 1, **report(gpu001=fault)}) for fault in (before, after)]
    result = compare(*sides)
    assert [row["change"] for row in result["incidents"]] == expected
    assert ("worse" in {row["change"] for row in result["findings"]}) == (expected == ["worse"])


def test_a_node_that_was_not_judged_again_is_unclear() -> None:
    before, after = report(gpu004=DOWN), report(3)
    assert [row[0] for row in compared(before, after)] == ["unclear"]


def test_a_node_that_came_makes_nothing_worse() -> None:
    assert compared(report(3, gpu001=MTU), report(4, gpu001=MTU, gpu004=MTU)) == []


def test_a_failure_that_was_a_warning_is_worse() -> None:
    few, many = nic("mlx5_5", grows={"symbol_error": 1}), nic("mlx5_5", grows={"symbol_error": 60})
    assert [row[0] for row in compared(report(gpu001=few), report(gpu001=many))] == ["worse"]


def test_an_incident_of_a_check_that_did_not_run_before_is_not_new() -> None:
    """An older version lacks the check, or it was disabled: the fault may be old."""
    before, after = report(4, "rdma.port-state", gpu001=DOWN), report(gpu001=DOWN, gpu002=MTU)
    assert compared(before, after) == [("new", "gpu002", "mlx5_4:1: the"), ("first judged", "gpu001", "mlx5_5:1 is D")]
    assert [row[0] for row in compared(after, before)] == ["changed", "gone"]  # an effect is judged, and a warning


def test_a_node_that_came_has_new_incidents_of_any_check() -> None:
    before, after = report(3, "rdma.port-state"), report(4, gpu004=DOWN)
    assert [row[0] for row in compared(before, after)] == ["new"]


def test_an_effect_that_only_a_new_check_explains_goes_on() -> None:
    """Without nvlink.links the GPU without links is an incident of topology.nvlink."""
    old, new = report(4, "nvlink.links", gpu001=NO_LINKS), report(gpu001=NO_LINKS)
    assert [row[:2] for row in compared(old, new)] == [("first judged", "gpu001")]
    assert [row[:2] for row in compared(new, old)] == [("changed", "gpu001")]
