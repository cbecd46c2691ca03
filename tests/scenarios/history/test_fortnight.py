"""The history of a scripted fortnight: new, recurring and gone findings, and slow changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.evidence.document import no_answer
from preflight.history.store import HistoryStore
from tests.support.history_runs import ONLY, healthy, node, run
from tests.unit.judge.test_waivers import DOWN

COUNTERS = "files:/sys/class/infiniband/mlx5_0/ports/1/counters"


def errors(number: int) -> dict[str, Any]:
    """Return records of a port with this many link downs."""
    values = dict(healthy()["gpu001"]["records"][COUNTERS]["value"])
    return {COUNTERS: {"status": "ok", "value": {**values, "link_downed": f"{number}\n"}}}


def waits(day: int) -> dict[str, Any]:
    """Return records of a port with constant traffic that waits longer each day."""
    values = dict(healthy()["gpu003"]["records"][COUNTERS]["value"])
    grown = dict.fromkeys(("port_xmit_packets", "port_rcv_packets"), f"{100000000 * day}\n")
    grown["port_xmit_wait"] = f"{sum(50_000_000 + 25_000_000 * past for past in range(day + 1))}\n"
    return {COUNTERS: {"status": "ok", "value": {**values, **grown}}}


def past(report: Mapping[str, Any], check: str, name: str) -> Mapping[str, Any]:
    (found,) = (
        one
        for finding in report["findings"]
        if finding["check"] == check and finding["status"] in ("fail", "warn")
        for one in finding.get("history", [])
        if name in one["nodes"]
    )
    return dict(found)


@pytest.fixture(scope="module")
def fortnight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, dict[str, Any]]]:
    """Two weeks: gpu001's link flaps three times a day; gpu002's port is down on five days; gpu003 fails once."""
    folder = tmp_path_factory.mktemp("fortnight")
    reports = {}
    for day in range(1, 15):
        sick = DOWN if day in (6, 9, 11, 12, 14) else None
        third = (
            node("gpu003", day, waits(day))
            if day != 10
            else no_answer("gpu003", "connect", "refused", f"2026-11-{day}T03:00:00Z")
        )
        reports[day] = run(folder, [node("gpu001", day, errors(3 * day)), node("gpu002", day, sick), third])
    return folder, reports


def test_the_first_run_knows_nothing(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    first = fortnight[1][1]
    assert first["history"]["runs"] == 0
    assert first["history"]["previous"] is None
    assert not any("history" in finding for finding in first["findings"])


def test_what_is_new(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    new = past(fortnight[1][6], "rdma.port-state", "gpu002")
    assert new["new"]
    assert new["said"] == "new since yesterday"
    assert new["times"] == 1


def test_what_is_gone(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    gone = [one for one in fortnight[1][7]["history"]["gone"] if one["check"] == "rdma.port-state"]
    assert gone == [{"check": "rdma.port-state", "subject": "mlx5_3:1", "nodes": ["gpu002"]}]
    assert fortnight[1][8]["history"]["gone"] == []


def test_what_came_back(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    reports = fortnight[1]
    assert past(reports[9], "rdma.port-state", "gpu002")["said"] == "new since yesterday, second time this week"
    assert past(reports[11], "rdma.port-state", "gpu002")["said"] == "new since yesterday, third time this week"
    again = past(reports[12], "rdma.port-state", "gpu002")
    assert not again["new"]
    assert again["said"] == "since yesterday, third time this week"
    assert (
        past(reports[14], "rdma.port-state", "gpu002")["times"] == 3
    )  # on the 9th, 11th and 14th: the 6th is over a week ago


def test_what_trends(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    reports = fortnight[1]
    early = [f for f in reports[2]["findings"] if f["check"] == "trend.links" and "gpu001" in f["nodes"]]
    assert [f["status"] for f in early] == ["unknown"]
    (creeps,) = (f for f in reports[5]["findings"] if f["check"] == "trend.links" and f["status"] == "warn")
    assert creeps["nodes"] == ["gpu001"]
    assert creeps["message"] == "mlx5_0:1: link downs increase by 3 a day, over 4 days"
    assert past(reports[9], "trend.links", "gpu001")["said"] == "since 2026-11-03"


def test_what_waits_longer_for_each_packet(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    reported = {
        day: [
            finding
            for finding in fortnight[1][day]["findings"]
            if finding["check"] == "trend.congestion" and node in finding["nodes"]
        ]
        for day, node in ((1, "gpu003"), (7, "gpu003"), (14, "gpu003"), (13, "gpu001"))
    }
    assert [finding["status"] for finding in reported[1]] == ["skip"]
    assert {finding["status"] for finding in reported[7]} == {"unknown"}  # six intervals
    assert {finding["status"] for finding in reported[13]} == {"unknown"}  # idle ports
    (grown,) = (finding for finding in reported[14] if finding["status"] == "warn")
    assert grown["message"] == (
        "mlx5_0:1: the port waited 3.62 ticks for credit per packet sent, compared with 1.38 about 12 days earlier"
    )


def test_a_node_that_was_silent_is_neither_new_nor_gone(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    assert not any("gpu003" in one["nodes"] for day in (10, 11) for one in fortnight[1][day]["history"]["gone"])


def test_the_history_is_in_the_text_report(fortnight: tuple[Path, dict[int, dict[str, Any]]], tmp_path: Path) -> None:
    folder, _ = fortnight
    page = tmp_path / "page.html"
    copy = tmp_path / "history.db"
    with HistoryStore(folder / "history.db"):
        pass
    copy.write_bytes((folder / "history.db").read_bytes())
    copy.chmod(0o600)
    words = ["judge", str(folder / "2026-11-14"), "--history", str(copy), *ONLY, "--html", str(page), "-v"]
    text = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert "new since yesterday, third time this week" in text
    assert "since 2026-11-13T03:00:00Z: 1 new (#1)" in text
    assert "new since yesterday, third time this week" in page.read_text()


def test_commands(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    file = str(fortnight[0] / "history.db")
    invoke = CliRunner().invoke
    listed = json.loads(invoke(main, ["history", "runs", file, "--json"]).stdout)
    assert [one["at"][:10] for one in listed][:2] == ["2026-11-14", "2026-11-13"]
    output = invoke(main, ["history", "node", file, "gpu002"]).stdout
    assert sum("rdma.port-state" in line for line in output.splitlines()) == 5
    assert "gpu999: answered in 0 of " in invoke(main, ["history", "node", file, "gpu999"]).output
    for number, seconds in enumerate((100, 102, 98, 150)):
        words = ["history", "job", file, f"job{number}", "--seconds", str(seconds), "--name", "llama", "--nodes", "8"]
        assert invoke(main, words).exit_code == 0
    jobs = {one["id"]: one for one in json.loads(invoke(main, ["history", "jobs", file, "--json"]).stdout)}
    assert jobs["job3"]["of_usual"] == pytest.approx(150 / 101, abs=0.001)
