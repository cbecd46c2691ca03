"""The history: what is new, what came back, what is gone, what creeps; a scripted fortnight, crashes and odd files."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.evidence.document import Evidence, from_document, no_answer
from preflight.history.store import VERSION, HistoryError, HistoryStore
from preflight.plugin_fixture import record
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.stopwatch import Stopwatch
from tests.unit.judge.test_waivers import DOWN

NODES = ("gpu001", "gpu002", "gpu003")
ONLY = ("--only", "rdma.port-state", "--only", "gpu.persistence", "--only", "host.memlock", "--only", "trend.*")
COUNTERS = "files:/sys/class/infiniband/mlx5_0/ports/1/counters"


@cache
def healthy() -> Mapping[str, Mapping[str, Any]]:
    return {document["node"]: document for document in fleet(hgx_h100("x"), len(NODES), 1)}


def node(name: str, day: int, changed: Mapping[str, Any] | None = None) -> Evidence:
    document = healthy()[name]
    records = {**document["records"], **{key: record(key, value) for key, value in (changed or {}).items()}}
    at = f"2026-11-{day:02d}T03:00:00Z"
    return from_document({**document, "collected_at": at, "records": records}, name)


def errors(number: int) -> dict[str, Any]:
    """Return records of a port with this many link downs."""
    values = dict(healthy()["gpu001"]["records"][COUNTERS]["value"])
    return {COUNTERS: {"status": "ok", "value": {**values, "link_downed": f"{number}\n"}}}


def run(folder: Path, nodes: list[Evidence], *words: str) -> dict[str, Any]:
    """Judge a run of one day, with the history."""
    saved = folder / nodes[0].collected_at[:10]
    save(saved, nodes)
    command = ["judge", str(saved), "--history", str(folder / "history.db"), *ONLY, *words, "--json", "-"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.stdout, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


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
    """Two weeks: gpu001's link flaps three times a day; gpu002's port is down on five days; gpu003 is silent once."""
    folder = tmp_path_factory.mktemp("fortnight")
    reports = {}
    for day in range(1, 15):
        sick = DOWN if day in (6, 9, 11, 12, 14) else None
        third = (
            node("gpu003", day) if day != 10 else no_answer("gpu003", "connect", "refused", f"2026-11-{day}T03:00:00Z")
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
    )  # of the 9th, 11th and 14th: the 6th is over a week ago


def test_what_trends(fortnight: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    reports = fortnight[1]
    early = [f for f in reports[2]["findings"] if f["check"] == "trend.links" and "gpu001" in f["nodes"]]
    assert [f["status"] for f in early] == ["unknown"]
    (creeps,) = (f for f in reports[5]["findings"] if f["check"] == "trend.links" and f["status"] == "warn")
    assert creeps["nodes"] == ["gpu001"]
    assert creeps["message"] == "mlx5_0:1: 3 times the link went down a day, over 4 days"
    assert past(reports[9], "trend.links", "gpu001")["said"] == "since 2026-11-03"


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
    words = ["judge", str(folder / "2026-11-14"), "--history", str(copy), *ONLY, "--html", str(page)]
    text = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert "new since yesterday, third time this week" in text
    assert "history: 1 new since 2026-11-13T03:00:00Z, 0 gone" in text
    assert "new since yesterday, third time this week" in page.read_text()


def test_a_run_that_is_judged_again_takes_its_place(tmp_path: Path) -> None:
    run(tmp_path, [node("gpu001", 1)])
    run(tmp_path, [node("gpu001", 1)])
    with HistoryStore(tmp_path / "history.db") as store:
        assert len(store.runs()) == 1


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


@pytest.mark.parametrize("words", [["runs"], ["jobs"], ["figures"], ["node", "gpu001"]])
def test_a_history_that_is_not_there_is_not_an_empty_one(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(main, ["history", words[0], str(tmp_path / "misspelt.db"), *words[1:]])
    assert (done.exit_code, "there is no such history" in done.output) == (2, True)
    assert not list(tmp_path.iterdir())


# --- damage to the file ----------------------------------------------------------------------------


def verdict(tmp_path: Path, history: Path) -> tuple[int, str]:
    save(tmp_path / "n", [node("gpu001", 1)])
    words = ["judge", str(tmp_path / "n"), "--only", "rdma.port-state", "--history", str(history)]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    return done.exit_code, done.output


def test_a_file_of_our_own_is_for_us_alone(tmp_path: Path) -> None:
    assert verdict(tmp_path, tmp_path / "h.db")[0] == 0
    assert stat.S_IMODE((tmp_path / "h.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path.write_bytes(b"no database" * 100), "cannot be used"),
        (lambda path: path.symlink_to("/etc/passwd"), "cannot be opened"),
        (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: (path.write_bytes(b""), path.chmod(0o666)), "others may write to the history"),
        (lambda path: os.mkfifo(path), "is no regular file"),
    ],
    ids=["no database", "link", "directory", "open to all", "pipe"],
)
def test_a_file_that_is_no_history_is_refused_before_any_node_is_contacted(
    tmp_path: Path, make: Any, expected: str
) -> None:
    path = tmp_path / "h.db"
    make(path)
    status, output = verdict(tmp_path, path)
    assert status == 2
    assert expected in output


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    with HistoryStore(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    assert "is of a newer preflight" in verdict(tmp_path, path)[1]


def test_a_history_that_breaks_in_mid_run_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise HistoryError("h.db: the history cannot be used: database or disk is full")

    monkeypatch.setattr(HistoryStore, "add", full)
    status, output = verdict(tmp_path, tmp_path / "h.db")
    assert status == 0
    assert "warning: h.db: the history cannot be used: database or disk is full; this run is not recorded" in output
    assert output.count("PASS") == 1


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_locked_history_is_reported_within_two_seconds(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "h.db"
    assert verdict(tmp_path, path)[0] == 0
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("UPDATE run SET version = 'x'")
    watch = Stopwatch()
    save(tmp_path / "kept", [node("gpu001", 1)])
    command = ["judge", str(tmp_path / "kept"), *ONLY]
    without = CliRunner().invoke(main, command)
    alone_s, watch = watch.elapsed, Stopwatch()
    report = tmp_path / "report.json"
    words = [*command, "--history", str(path), "--json", str(report)]
    result = CliRunner().invoke(main, words)
    assert watch.elapsed - alone_s < 2.5
    assert result.exit_code == without.exit_code == 0
    assert "another process holds the history locked" in result.output
    block = json.loads(report.read_text())["run"]["history"]
    assert (block["file"], block["recorded"]) == (str(path), False)
    assert "locked" in block["why"]
    other.execute("ROLLBACK")
    other.close()
    assert CliRunner().invoke(main, words).exit_code == 0
    assert json.loads(report.read_text())["run"]["history"] == {"file": str(path), "recorded": True}


def test_a_clock_that_jumps_ahead_lets_no_run_go(tmp_path: Path) -> None:
    report = {
        "run": {"command": "check", "version": "1", "cluster_file": None}, "exit_status": 0,
        "nodes": [{"name": "n", "checks": {"a.b": "pass"}}], "findings": [],
    }  # fmt: skip
    with HistoryStore(tmp_path / "h.db") as store:
        days = [f"2026-10-{day:02d}T03:00:00Z" for day in range(1, 9)]
        for at in (*days, "2041-01-01T03:00:00Z", "1970-01-01T00:00:10Z", "2026-10-09T03:00:00Z"):
            store.add(at, report, [])
        assert {one.at for one in store.runs()} >= {*days, "2026-10-09T03:00:00Z"}


def test_old_runs_are_let_go(tmp_path: Path) -> None:
    report = {
        "run": {"command": "check", "version": "1", "cluster_file": None}, "exit_status": 0,
        "nodes": [{"name": "n", "checks": {"a.b": "pass"}}], "findings": [],
    }  # fmt: skip
    path = tmp_path / "h.db"
    with HistoryStore(path, keep_days=3) as store:
        for day in range(1, 9):
            store.add(f"2026-11-{day:02d}T03:00:00Z", report, [])
        assert [one.at[8:10] for one in store.runs()] == ["08", "07", "06", "05"]
    with HistoryStore(path, keep_mib=1) as store:
        for day in range(9, 29):
            store.add(f"2026-11-{day:02d}T03:00:00Z", report, [("n", "m", f"s{i}" * 20, 1.0) for i in range(900)])
        days = [one.at[8:10] for one in store.runs()]
    assert days[0] == "28"
    assert 1 <= len(days) < 20
