"""A run that is killed at any moment can be resumed without collecting a node twice: on real sshd hosts."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.collect import journal
from preflight.evidence.document import Evidence, no_answer
from preflight.nodeset import fold
from tests.support.paths import ROOT
from tests.support.sshfarm import SSHD, Farm

NUMBER, KILLS = 14, 10
PLAN = {"probes": [1, 2]}


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    if not SSHD:
        pytest.skip("openssh-server is not installed")
    with Farm(NUMBER) as made:
        yield made


def command(farm: Farm, folder: Path, *words: str) -> list[str]:
    return [
        sys.executable, "-m", "preflight", "check", "--hosts", fold(farm.hosts), "--ssh-config", str(farm.ssh_config),
        "--fanout", "2", "--only", "host.*", "--save", str(folder), "--history", str(folder.parent / "history.db"),
        "--json", str(folder.parent / "report.json"), *words,
    ]  # fmt: skip


def documents(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.json")}


def test_killed_ten_times_and_continued(farm: Farm, tmp_path: Path) -> None:
    folder, chance = tmp_path / "saved", random.Random(20261121)
    killed = 0
    while True:
        words = ["--resume"] if killed else []
        had, before = documents(folder), dict(farm.accepted)
        process = subprocess.Popen(
            command(farm, folder, *words), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            if killed < KILLS:
                # any moment between the journal and the next two answers
                until = time.monotonic() + 60
                wanted = len(had) + chance.choice((0, 1, 1, 2))
                while process.poll() is None and time.monotonic() < until:
                    if (folder / journal.JOURNAL).exists() and len(documents(folder)) >= wanted:
                        break
                    time.sleep(0.005)
                time.sleep(chance.uniform(0, 0.2))
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
            stderr = process.communicate(timeout=120)[1]
        finally:
            process.kill()
            process.wait()
        again = {host for host in had if farm.accepted[host] != before[host]}
        assert not again, f"collected twice: {again}"
        if process.returncode >= 0:
            break
    assert killed == KILLS, stderr
    assert process.returncode in (0, 1, 3), stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["coverage"]["nodes"] == {"planned": NUMBER, "answered": NUMBER, "no_answer": 0}
    assert sorted(node["name"] for node in report["nodes"]) == sorted(farm.hosts)
    assert documents(folder) == set(farm.hosts)
    database = sqlite3.connect(tmp_path / "history.db")
    try:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM run").fetchall() == [(1,)]
    finally:
        database.close()


# --- the journal -----------------------------------------------------------------------------------


def evidence(name: str) -> Evidence:
    return Evidence(name, "2026-11-21T03:00:00Z", {"file:/x": {"status": "ok", "out": ""}})


def requested(hosts: tuple[str, ...] = ("a", "b", "c"), **changed: Any) -> dict[str, Any]:
    return {**journal.describe_run(hosts, None, PLAN, {"sudo": False}), **changed}


def test_a_node_without_an_answer_is_collected_again(tmp_path: Path) -> None:
    journal.begin(tmp_path, requested())
    save(tmp_path, [evidence("a"), no_answer("b", "connect", "refused", "2026-11-21T03:00:00Z")])
    assert [one.node for one in journal.proceed(tmp_path, requested())] == ["a"]


def test_documents_of_earlier_runs_are_no_answers(tmp_path: Path) -> None:
    save(tmp_path, [evidence("a")])
    os.utime(tmp_path / "a.json", (1, 1))
    journal.begin(tmp_path, requested())
    save(tmp_path, [evidence("b")])
    assert [one.node for one in journal.proceed(tmp_path, requested())] == ["b"]


def test_half_a_document_and_another_nodes_are_no_answers(tmp_path: Path) -> None:
    journal.begin(tmp_path, requested())
    (tmp_path / "a.json").write_text('{"schema": "preflight.evidence/1", "node"')
    save(tmp_path, [evidence("x")])
    (tmp_path / "x.json").rename(tmp_path / "b.json")
    assert journal.proceed(tmp_path, requested()) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hosts": ["a", "b", "c", "d"]}, "d was not among its nodes"),
        ({"hosts": ["a"]}, "b,c were among its nodes|c were among its nodes"),
        ({"cluster_file": "0" * 64}, "its cluster file was different"),
        ({"plan": "0" * 64}, "it collected other records"),
        ({"options": {"sudo": True}}, "it ran with another --sudo"),
    ],
)
def test_another_run_is_not_continued(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    journal.begin(tmp_path, requested())
    with pytest.raises(journal.ResumeError, match=message):
        journal.proceed(tmp_path, requested(**changed))


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"schema": "preflight.run/1"}', "x" * 100])
def test_no_journal_or_none_that_can_be_read(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / journal.JOURNAL).write_text(content)
    with pytest.raises(journal.ResumeError, match="omit --resume"):
        journal.proceed(tmp_path, requested())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resume", "--hosts", "n1"), "--resume needs --save DIR"),
        (("--resume", "--save", "{}"), "--resume continues a run of many nodes"),
        (("--resume", "--save", "{}", "--hosts", "n1"), "has no run to resume"),
    ],
)
def test_a_run_that_cannot_be_continued_is_refused_before_any_collection(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = CliRunner().invoke(main, ["check", *(word.format(tmp_path) for word in words)], catch_exceptions=False)
    assert done.exit_code == 2
    assert message in done.output
