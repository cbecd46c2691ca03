"""Numbers of nodes compared with those of their peers: unread ones do not pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.judge import judge
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.fleet import machines
from tests.support.whole_nodes import Fault, every_gpu, every_rail

CHECKS = {check.id: check for check in registry().checks}
ODD = "gpu003"
NAMES = {f"gpu00{number}" for number in range(1, 9)}
BUSY = every_gpu(temperature_c=62, temperature_margin_c=25, utilisation_pct=99, event_reasons=0, sm_clock_mhz=1755)


@cache
def fleet(roce: bool) -> tuple[Machine, ...]:
    return tuple(machines(hgx_h100("node", roce=roce), 8, seed=7))


def judged(
    check: str, fault: Fault, on: set[str], *, roce: bool = False,
    records: Callable[[dict[str, Any]], None] = lambda records: None,
) -> dict[str, list[Mapping[str, Any]]]:  # fmt: skip
    """Return the findings of each node."""
    documents = []
    for machine in fleet(roce):
        planted = fault(machine) if machine.name in on else machine
        document = deepcopy(evidence(planted))
        if machine.name in on:
            records(document["records"])
        documents.append(from_document(document, machine.name))
    report = judge(documents, [CHECKS[check]])
    return {name: [finding for finding in report["findings"] if name in finding["nodes"]] for name in sorted(NAMES)}


def statuses(results: Mapping[str, list[Mapping[str, Any]]], on: set[str]) -> set[str]:
    return {finding["status"] for name in on for finding in results[name]}


def healthy(machine: Machine) -> Machine:
    return machine


def without_clock(records: dict[str, Any]) -> None:
    records["cmd:chronyc -n tracking"] = {"status": "missing", "why": "not installed"}
    records.pop("cmd:timedatectl show", None)


def without_hw_counters(records: dict[str, Any]) -> None:
    for key in [key for key in records if key.endswith("/hw_counters")]:
        records[key] = {"status": "missing", "why": "No such file or directory"}


def test_a_temperature_that_was_not_read_passes_nothing() -> None:
    unread = every_gpu(temperature_c=None, temperature_margin_c=None)
    results = judged("fleet.outliers", unread, {ODD})
    assert statuses(results, {ODD}) == {"unknown"}
    assert "temperature of idle GPUs" in results[ODD][0]["message"]
    assert statuses(results, NAMES - {ODD}) == {"pass"}
    results = judged("fleet.outliers", unread, NAMES)
    assert all("temperature" not in finding["message"] for name in NAMES for finding in results[name])


def test_an_offset_that_was_not_read_passes_nothing() -> None:
    results = judged("fleet.outliers", healthy, {ODD}, records=without_clock)
    assert statuses(results, {ODD}) == {"unknown"}
    assert statuses(results, NAMES - {ODD}) == {"pass"}


def test_a_pass_names_only_what_was_compared_on_that_node() -> None:
    results = judged("fleet.outliers", BUSY, NAMES - {ODD})
    (alone,) = results[ODD]
    assert alone["message"].endswith("kind: clock offset")
    (other,) = results["gpu001"]
    assert "temperature of busy GPUs, SM clock of busy GPUs" in other["message"]


def test_counters_that_were_not_read_pass_nothing() -> None:
    results = judged("fleet.rates", healthy, {ODD}, records=without_hw_counters)
    assert statuses(results, {ODD}) == {"unknown"}
    assert statuses(results, NAMES - {ODD}) == {"pass"}


def test_where_nothing_ran_no_traffic_is_compared() -> None:
    results = judged("fleet.rates", every_rail(gbps=0), NAMES)
    assert statuses(results, NAMES) == {"unknown"}
    results = judged("fleet.rates", every_rail(gbps=0), {ODD})
    assert statuses(results, {ODD}) == {"warn"}
    assert statuses(results, NAMES - {ODD}) == {"pass"}


def test_idle_ports_that_differ_are_no_outliers() -> None:
    results = judged("fleet.rates", lambda machine: every_rail(gbps=0.1 * (machine.name == ODD) + 0.2)(machine), NAMES)
    assert statuses(results, NAMES) == {"unknown"}


def test_packets_out_of_order_miss_no_expectation_of_another_counter() -> None:
    results = judged("fleet.rates", every_rail(grows={"out_of_sequence": 3_000_000}), NAMES, roce=True)
    assert {finding["subject"] for name in NAMES for finding in results[name]} == {"out-of-order packets"}
