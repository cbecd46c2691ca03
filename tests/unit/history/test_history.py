"""The history file: runs judged again, damage, odd files, deleted runs."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.evidence.document import from_document
from preflight.history.findings_history import first_seen, same_fault
from preflight.history.store import VERSION, HistoryError, HistoryStore
from preflight.incidents import changes, recorded
from tests.support.history_runs import healthy, node, run, verdict


def test_a_run_that_is_judged_again_takes_its_place(tmp_path: Path) -> None:
    run(tmp_path, [node("gpu001", 1)])
    run(tmp_path, [node("gpu001", 1)])
    with HistoryStore(tmp_path / "history.db") as store:
        assert len(store.runs()) == 1


@pytest.mark.parametrize("words", [["runs"], ["jobs"], ["figures"], ["node", "gpu001"]])
def test_a_history_that_is_not_there_is_not_an_empty_one(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(main, ["history", words[0], str(tmp_path / "misspelt.db"), *words[1:]])
    assert (done.exit_code, "history not found" in done.output) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_file_of_our_own_is_for_us_alone(tmp_path: Path) -> None:
    assert verdict(tmp_path, tmp_path / "h.db")[0] == 0
    assert stat.S_IMODE((tmp_path / "h.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path.write_bytes(b"no database" * 100), "cannot be used"),
        (lambda path: path.symlink_to("/etc/passwd"), "cannot be opened"),
        (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: (path.write_bytes(b""), path.chmod(0o666)), "the history is writable by others"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
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
    assert "was written by a newer preflight" in verdict(tmp_path, path)[1]


def test_a_history_that_breaks_in_mid_run_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise HistoryError("h.db: the history cannot be used: database or disk is full")

    monkeypatch.setattr(HistoryStore, "add", full)
    status, output = verdict(tmp_path, tmp_path / "h.db")
    assert status == 0
    assert "warning: h.db: the history cannot be used: database or disk is full; this run is not recorded" in output
    assert output.count("PASS") == 1


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


def test_runs_of_one_second_do_not_replace_each_other(tmp_path: Path) -> None:
    """Six fleets, or six nodes, are checked at the same time into one file."""
    report: dict[str, Any] = {
        "run": {"command": "check", "version": "1", "cluster_file": None}, "exit_status": 0,
        "nodes": [{"name": "n", "checks": {"a.b": "pass"}}], "findings": [],
    }  # fmt: skip
    other = {**report, "run": {**report["run"], "command": "judge"}, "nodes": [{"name": "m", "checks": {}}]}
    with HistoryStore(tmp_path / "h.db") as store:
        for document in (report, report, other, {**other, "nodes": report["nodes"]}, other):
            store.add("2026-11-01T03:00:00Z", document, [])
        assert [run.command for run in store.runs()] == ["judge", "judge", "check", "check"]


def test_a_file_of_the_first_version_keeps_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    run(tmp_path, [node("gpu001", 1)])
    (tmp_path / "history.db").rename(path)
    with sqlite3.connect(path, isolation_level=None) as db:  # in the format of that version
        (table,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'run'").fetchone()
        db.execute("PRAGMA foreign_keys = OFF")
        first = table.replace("TABLE run", "TABLE first").replace(
            "nodes were\n)", "nodes were\n, UNIQUE (at, command))"
        )
        assert first.count("UNIQUE") == 1
        for statement in (
            first,
            "INSERT INTO first SELECT * FROM run",
            "DROP TABLE run",
            "ALTER TABLE first RENAME TO run",
        ):
            db.execute(statement)
        db.execute("PRAGMA user_version = 1")
    db.close()
    with HistoryStore(path) as store:
        (earlier,) = store.runs()
        assert store.answered([earlier.id]) == {earlier.id: frozenset({"gpu001"})}
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert not db.execute("PRAGMA foreign_key_check").fetchall()
    db.close()
    assert verdict(tmp_path, path)[0] == 0


def test_a_node_with_a_clock_ahead_does_not_date_the_run(tmp_path: Path) -> None:
    ahead = from_document({**healthy()["gpu002"], "collected_at": "2041-01-01T00:00:00Z"}, "gpu002")
    run(tmp_path, [node("gpu001", 1), ahead])
    later = run(tmp_path, [node("gpu001", 2), node("gpu002", 2)])
    assert (later["history"]["previous"], later["history"]["later"]) == ("2026-11-01T03:00:00Z", 0)


def test_runs_that_are_dated_later_are_counted(tmp_path: Path) -> None:
    run(tmp_path, [node("gpu001", 5)])
    assert run(tmp_path, [node("gpu001", 2)])["history"]["later"] == 1
    status, output = verdict(tmp_path, tmp_path / "history.db")
    assert (status, "2 runs are dated later than this one and not compared" in output) == (0, True)


def test_findings_of_logs_have_a_past(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("gpu001:71:99 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer"
                   " 10.0.0.7<41000> with status=12 opcode=0 len=0 vendor err 129 (Send)\n")  # fmt: skip
    words = ("--only", "nccl.failures", "--log", str(log))
    first, second = (run(tmp_path, [node("gpu001", day)], *words) for day in (1, 2))
    failed = [finding for finding in second["findings"] if finding["check"] == "nccl.failures"]
    assert [entry["since"] for entry in failed[0]["history"]] == ["2026-11-01T03:00:00Z"]
    assert [incident["first_seen"] for incident in second["incidents"]] == ["2026-11-01T03:00:00Z"]
    assert second["history"]["incidents"] == []
    without = run(tmp_path, [node("gpu001", 3)], "--only", "nccl.failures")
    assert without["history"]["incidents"] == []  # no log: nothing is known about its incidents
    again = run(tmp_path, [node("gpu001", 4)], *words)  # compared with the last run that had a log
    assert again["history"]["incidents"] == []
    assert [incident["first_seen"] for incident in again["incidents"]] == ["2026-11-01T03:00:00Z"]
    judged = {"gpu001": ["nccl.failures"]}
    assert [
        row["change"] for row in changes(recorded(first), without, {**judged, "@run": ["nccl.failures"]}, judged)
    ] == ["unclear"]


@pytest.mark.parametrize(
    ("cause", "since"),
    [
        ({"since": None, "previous": "2026-11-03T03:00:00Z"}, ""),  # the cause is new, what it explains is older
        ({"since": "2026-11-02T03:00:00Z", "previous": "2026-11-03T03:00:00Z"}, "2026-11-02T03:00:00Z"),
        (None, "2026-11-01T03:00:00Z"),  # the cause was not judged before
    ],
)
def test_an_incident_is_as_old_as_its_cause(cause: dict[str, str | None] | None, since: str) -> None:
    older = {"since": "2026-11-01T03:00:00Z", "previous": "2026-11-03T03:00:00Z"}
    findings = [
        {"check": "rdma.port-state", "status": "fail", "history": [cause] if cause else []},
        {"check": "optics.module", "status": "warn", "history": [older]},
    ]
    assert first_seen({"findings": findings}, {"findings": [0, 1]}) == since


STATE, PHYSICAL = (f"file:/sys/class/infiniband/mlx5_5/ports/1/{name}" for name in ("state", "phys_state"))
POLLING, DISABLED = ({STATE: "1: DOWN\n", PHYSICAL: shown} for shown in ("2: Polling\n", "3: Disabled\n"))


def _since(folder: Path, *days: Any) -> str | None:
    """Return since when the incident of the last day has existed."""
    for day, changed in enumerate(days, start=1):
        report = run(folder, [node("gpu001", day, changed)])
    (incident,) = report["incidents"]
    return str(incident["first_seen"])[:10]


def test_another_fault_of_the_same_part_is_new(tmp_path: Path) -> None:
    assert _since(tmp_path, POLLING, POLLING, DISABLED) == "2026-11-03"


def test_a_fault_that_lasts_is_as_old_as_its_first_run(tmp_path: Path) -> None:
    assert _since(tmp_path, POLLING, POLLING, POLLING) == "2026-11-01"


def test_a_fault_that_returns_is_new(tmp_path: Path) -> None:
    assert _since(tmp_path, POLLING, None, POLLING) == "2026-11-03"


@pytest.mark.parametrize(
    ("subject", "first", "second", "same"),
    [
        ("GPU2", "GPU2: 1 uncorrectable memory error (0 SRAM, 1 DRAM)", "GPU2: 3 uncorrectable memory errors", True),
        ("0000:61:00.0", "0000:61:00.0: Xid 79: GPU has fallen off the bus, 3 h ago",
         "0000:61:00.0: Xid 79: GPU has fallen off the bus, 2 days ago; also Xid 154, 45", True),
        ("0000:61:00.0", "0000:61:00.0: Xid 79: GPU has fallen off the bus, 3 h ago",
         "0000:61:00.0: Xid 48: double-bit ECC error, 3 h ago", False),
        ("mlx5_4:1", "mlx5_4:1: the interface has MTU 1500, expected 9000", "mlx5_4:1: the interface has MTU 42", True),
        ("mlx5_4:1", "mlx5_4:1: the interface has MTU 1500, expected 9000", "mlx5_4:1: PFC is off", False),
    ],
)  # fmt: skip
def test_faults_are_compared_by_their_words(subject: str, first: str, second: str, same: bool) -> None:
    finding = {"check": "xid.gpu", "status": "fail", "subject": subject, "message": second}
    assert same_fault(finding, [("fail", first)]) is same
    assert same_fault(finding, [("unknown", "the record is missing")])
    assert same_fault({**finding, "check": "counters.loss"}, [("fail", first)])  # what grew most varies
