"""A history that another process holds locked."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from tests.support.history_runs import ONLY, node, verdict
from tests.support.stopwatch import Stopwatch


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
    assert watch.elapsed - alone_s < 8  # two openings, and BUSY_S
    assert result.exit_code == without.exit_code == 0
    assert "another process holds the history locked" in result.output
    block = json.loads(report.read_text())["run"]["history"]
    assert (block["file"], block["recorded"]) == (str(path), False)
    assert "locked" in block["why"]
    other.execute("ROLLBACK")
    other.close()
    assert CliRunner().invoke(main, words).exit_code == 0
    assert json.loads(report.read_text())["run"]["history"] == {"file": str(path), "recorded": True}
