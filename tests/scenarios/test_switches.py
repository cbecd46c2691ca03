"""A Clos of switches and hosts: a healthy one raises nothing, a planted fault exactly its finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.archive import directory
from preflight.checks import registry
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from tests.support.clos import Clos
from tests.support.in_process import run

CHECKS = [check for check in registry().checks if check.switches]
SITE = from_data({"switches": {"roce_priority": 3, "dcqcn": True}}, "cluster.toml")

Fault = Callable[[Clos], object]


def report(clos: Clos, window_s: float | None = 60.0) -> dict[str, Any]:
    return judge(clos.evidences(window_s), CHECKS, SITE)


def bad(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return status, check and subject of all findings that are neither a pass nor a skip."""
    return [
        (finding["status"], finding["check"], finding["subject"])
        for finding in report["findings"]
        if finding["status"] not in ("pass", "skip")
    ]


def every_port(key: str, **fields: str | None) -> Fault:
    return lambda clos: [clos.set("leaf3", "CONFIG_DB", key.format(n * 8), **fields) for n in range(8)]


FAULTS: dict[str, tuple[Fault, tuple[str, str, str]]] = {
    "ECN off": (every_port("QUEUE|Ethernet{}|3", wred_profile=None), ("fail", "switch.ecn", "leaf3")),
    "lower threshold above the upper": (
        lambda clos: clos.set("leaf3", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold="2500000"),
        ("fail", "switch.ecn", "leaf3"),
    ),
    "headroom of nothing": (
        lambda clos: clos.set("spine1", "CONFIG_DB", "BUFFER_PROFILE|pg_lossless_400000_40m_profile", xoff="18432"),
        ("fail", "switch.headroom", "spine1 Ethernet0"),
    ),
    "headroom below the worst case": (
        lambda clos: clos.set("spine1", "CONFIG_DB", "BUFFER_PROFILE|pg_lossless_400000_40m_profile", xoff="80000"),
        ("warn", "switch.headroom", "spine1 Ethernet0"),
    ),
}  # fmt: skip


def test_a_healthy_fabric_raises_nothing() -> None:
    judged = report(Clos())
    assert bad(judged) == []
    assert judged["exit_status"] == 0
    assert {finding["check"] for finding in judged["findings"]} == {check.id for check in CHECKS}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_finding_and_changes_nothing_else(name: str) -> None:
    plant, expected = FAULTS[name]
    clos = Clos()
    plant(clos)
    judged = report(clos)
    assert bad(judged) == [expected]
    assert len(judged["incidents"]) == 1
    assert judged["exit_status"] == (1 if expected[0] == "fail" else 0)


def test_without_switches_their_checks_are_not_planned() -> None:
    judged = judge(Clos().hosts(), CHECKS, SITE)
    assert judged["coverage"]["without_switches"] == [check.id for check in CHECKS]
    assert judged["coverage"]["planned"] == 0


def test_what_one_reading_cannot_show_is_not_planned() -> None:
    judged = report(Clos(), None)
    assert judged["coverage"]["without_window"] == [check.id for check in CHECKS if check.window]
    assert judged["coverage"]["planned"] == sum(not check.window for check in CHECKS)


def test_a_host_is_not_judged_as_a_switch_nor_a_switch_as_a_host(tmp_path: Path) -> None:
    """Coverage counts the hosts alone; saved documents give the same findings."""
    clos = Clos()
    every_port("QUEUE|Ethernet{}|3", wred_profile=None)(clos)
    direct = report(clos)
    assert direct["coverage"]["nodes"] == {"planned": 16, "answered": 16, "no_answer": 0}
    directory.save(tmp_path / "all", clos.evidences())
    for file, text in clos.dumps("leaf3"):
        (tmp_path / "switches" / "leaf3").mkdir(parents=True, exist_ok=True)
        (tmp_path / "switches" / "leaf3" / file).write_text(text)
    (tmp_path / "all" / "leaf3.json").unlink()
    (tmp_path / "cluster.toml").write_text("[switches]\nroce_priority = 3\ndcqcn = true\n")
    printed = run(
        "judge", str(tmp_path / "all"), "--switch-files", str(tmp_path / "switches"), "--only", "switch.ecn",
        "--cluster", str(tmp_path / "cluster.toml"), "--save", str(tmp_path / "saved"), expect=(1,),
    )  # fmt: skip
    assert "ECN is off on the lossless queue 3" in printed
    assert (tmp_path / "saved" / "leaf3.json").read_text().count("preflight.evidence/2") == 1
