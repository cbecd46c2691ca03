"""Judging many nodes: one process and several give the same report, with exactly the planted differences."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight._startup.lightclass import replace
from preflight.archive import directory
from preflight.archive.lazy import HELD, Saved, Spool, load
from preflight.checks import registry
from preflight.evidence.document import Evidence, dump, from_document, no_answer
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load as load_cluster
from preflight.judge import evidence_reload, judge
from tests.support import planted_fleet
from tests.support.fixture import FIXTURES, whole_node
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.fleet import machines

NODES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, planted_fleet.Reported]:
    return planted_fleet.write(folder / "evidence", NODES)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Cluster:
    (folder / "cluster.toml").write_text(planted_fleet.CLUSTER)
    return load_cluster(folder / "cluster.toml")


@pytest.fixture(scope="module")
def screen(folder: Path, expected: dict[str, planted_fleet.Reported], cluster: Cluster) -> str:
    """The command as users run it, with one process per core of this machine."""
    command = ["judge", str(folder / "evidence"), "--cluster", str(folder / "cluster.toml")]
    outputs = ["--json", str(folder / "report.json"), "--html", str(folder / "report.html")]
    ran = subprocess.run([sys.executable, "-m", "preflight", *command, *outputs], capture_output=True, text=True,
                         timeout=300, check=False)  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


@pytest.fixture(scope="module")
def judged(folder: Path, screen: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_all_planted_differences_are_reported_and_nothing_else(
    judged: dict[str, Any], expected: dict[str, planted_fleet.Reported]
) -> None:
    assert len(expected) == 25
    assert planted_fleet.reported(judged) == expected
    coverage = judged["coverage"]
    parts = ("passed", "warned", "failed", "unknown", "skipped", "no_answer")
    assert coverage["planned"] == sum(coverage[part] for part in parts)


def test_each_planted_difference_is_an_incident(
    judged: dict[str, Any], expected: dict[str, planted_fleet.Reported], screen: str
) -> None:
    assert len(judged["incidents"]) == 25
    assert sorted(",".join(entry["nodes"]) for entry in judged["incidents"]) == sorted(expected)
    shown = [line for line in screen.splitlines() if re.match(r" {1,2}\d+  \w", line)]
    assert len(shown) == 10
    assert "     and 15 more" in screen.splitlines()
    assert len(screen.splitlines()) <= 24


def test_healthy_nodes_share_their_findings(
    judged: dict[str, Any], expected: dict[str, planted_fleet.Reported]
) -> None:
    """Each has its own temperatures, counts and offsets; the message of a pass has only their common part."""
    healthy = {node["name"] for node in judged["nodes"]} - expected.keys()
    assert len(healthy) > 250
    alone = [finding for finding in judged["findings"] if 0 < len(healthy & set(finding["nodes"])) < len(healthy)]
    assert [(finding["check"], finding["message"]) for finding in alone] == []
    (clock,) = [f for f in judged["findings"] if f["check"] == "host.time-sync" and f["status"] == "pass"]
    assert re.fullmatch(r"(-?[\d.]+ ms, ){2}-?[\d.]+ ms and \d+ other values", clock["found"])


def test_the_page_is_small_and_names_every_sick_node(
    judged: dict[str, Any], folder: Path, expected: dict[str, planted_fleet.Reported]
) -> None:
    page = (folder / "report.html").read_text()
    assert len(page) < 5_000_000
    assert all(re.search(rf"\b{name}\b", page) for name in expected)


def fleet_of(machine: Machine, count: int) -> list[Evidence]:
    return [from_document(evidence(one), one.name) for one in machines(machine, count, seed=3)]


#: Other input of a fleet's checks: nodes without an answer, with half of one, or with foreign content.
ODD: dict[str, Any] = {
    "silent": lambda found: [*found[:-1], no_answer(found[-1].node, "connect", "no route", "")],
    "empty": lambda found: [*found[:-1], Evidence(found[-1].node, "", {})],
    "no driver": lambda found: _without(found, "nvml:gpus", "cmd:nvidia-smi -q -x", "file:/proc/driver/nvidia/version"),
    "no addresses": lambda found: _without(found, "cmd:ip -j addr"),
    "no neighbours": lambda found: _without(found, "cmd:lldpcli -f json0 show neighbors"),
    "once only": lambda found: [*found[:-2], *map(_read_once, found[-2:])],
}


def _without(found: Sequence[Evidence], *keys: str) -> list[Evidence]:
    def strip(one: Evidence) -> Evidence:
        records = {key: record for key, record in one.records.items() if key not in keys}
        return Evidence(one.node, one.collected_at, records, one.collector, origin=one.origin)

    return [*map(strip, found[:2]), *found[2:]]


def _read_once(one: Evidence) -> Evidence:
    records = {key: {k: v for k, v in record.items() if k != "again"} for key, record in one.records.items()}
    return Evidence(one.node, one.collected_at, records, one.collector, origin=one.origin)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["hgx-h100", "hgx-h100-roce"])
def test_reduced_evidence_gives_the_report_of_complete_evidence(
    name: str, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fleet checks on cached answers, and on evidence that is read again, one node at a time."""
    found = ODD[odd](fleet_of(hgx_h100("", roce="roce" in name), 5))
    cluster = load_cluster(FIXTURES / "nodes" / f"{name}.toml")
    expected = judge(found, registry().checks, cluster)
    monkeypatch.setattr("preflight.judge.HELD", 0)
    monkeypatch.setattr(evidence_reload, "HELD", 1)
    assert judge(found, registry().checks, cluster) == expected


# --- documents on shared storage --------------------------------------------------------------------


def save(folder: Path, count: int = HELD + 6) -> None:
    base = whole_node("soft-roce")
    for number in range(count):
        one = from_document({**base, "node": f"n{number:03d}"}, "node")
        (folder / f"n{number:03d}.json").write_text(dump(one))


def test_half_written_files_are_nodes_without_an_answer(tmp_path: Path) -> None:
    """`preflight judge DIR` is the reduce step of any launcher: some of its tasks were killed while writing."""
    save(tmp_path)
    text = (tmp_path / "n007.json").read_text()
    (tmp_path / "n007.json").write_text(text[: len(text) // 2])
    (tmp_path / "n008.json").write_text("")
    (tmp_path / "n009.json").write_text(text.replace('"n007"', '"n009"')[:-1])  # all except its last line end
    (tmp_path / ".n010.json.x7").write_text(text[:99])  # the temporary file of a killed writer
    (tmp_path / "report.json").write_text('{"schema": "preflight.report/1"}')
    for processes in (1, 2):
        evidences, _ = load([tmp_path])
        report = judge(evidences, registry().checks, processes=processes)
        nodes = {node["name"]: node.get("no_answer") for node in report["nodes"]}
        assert len(nodes) == HELD + 6
        assert {name for name, silence in nodes.items() if silence} == {"n007", "n008"}
        assert nodes["n007"]["phase"] == "read"
        assert report["exit_status"] in (1, 3)


def test_a_file_that_changes_while_it_is_judged(tmp_path: Path) -> None:
    save(tmp_path)
    evidences, _ = load([tmp_path])
    (tmp_path / "n003.json").unlink()
    (tmp_path / "n004.json").write_text((tmp_path / "n005.json").read_text())
    report = judge(evidences, registry().checks)
    silent = {node["name"]: node["no_answer"]["reason"] for node in report["nodes"] if node.get("no_answer")}
    assert set(silent) == {"n003", "n004"}
    assert "replaced" in silent["n004"]


def test_many_documents_are_loaded_as_few_are(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "run.json").write_text(dump(Evidence("@run", "", {"log:a": {"status": "ok", "out": "a"}})))
    (tmp_path / "odd.json").write_text(json.dumps({**whole_node("soft-roce"), "node": 'a "quoted" name'}))
    few, run = directory.load([tmp_path])
    many, its_run = load([tmp_path])
    assert isinstance(many, Saved)
    assert [one.node for one in many] == [one.node for one in few]
    assert list(many) == few
    assert its_run == run


def test_many_answers_wait_on_disk(tmp_path: Path) -> None:
    spool = Spool()
    base = from_document(whole_node("soft-roce"), "node")
    for number in reversed(range(HELD + 3)):
        name = f"n{number:03d}"
        spool.add(no_answer(name, "connect", "refused", "") if number == 5 else replace(base, node=name))
    found = spool.documents()
    assert isinstance(found, Saved)
    assert [one.node for one in found] == [f"n{number:03d}" for number in range(HELD + 3)]
    assert found[0] == replace(base, node="n000")
    assert [one.node for one in spool.silent] == ["n005"]


def test_a_node_that_is_described_twice_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "again.json").write_text((tmp_path / "n001.json").read_text())
    with pytest.raises(directory.ArchiveError, match="both describe node n001"):
        load([tmp_path])


# --- processes ------------------------------------------------------------------------------------------


class Counted(evidence_reload.EvidenceCache):
    """Counts the nodes that were read again."""

    again = 0

    def of(self, node: evidence_reload.ReloadedNode) -> Evidence:
        Counted.again += id(node) not in self._held
        return super().of(node)


@pytest.fixture(scope="module")
def alone(folder: Path, expected: dict[str, planted_fleet.Reported], cluster: Cluster) -> tuple[Saved, dict[str, Any]]:
    """Return some of the nodes, and the report of one process on them."""
    evidences, _ = load([folder / "evidence"])
    assert isinstance(evidences, Saved)
    some = evidences[:72]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("preflight.judge.EvidenceCache", Counted)
        return some, judge(some, registry().checks, cluster)


def test_ballots_are_enough_for_the_checks_of_the_fleet(alone: tuple[Saved, dict[str, Any]]) -> None:
    """No fleet check reads all nodes again, which would take as long as judging them."""
    assert Counted.again < 24


def test_a_worker_that_is_killed_costs_no_node(
    alone: tuple[Saved, dict[str, Any]], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from preflight.judge import process_pool

    killed: list[int] = []
    share = process_pool._share

    def kill(batch: Any, known: Any) -> None:
        share(batch, known)
        if not killed:
            killed.append(_a_worker())
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(process_pool, "_share", kill)
    monkeypatch.setattr(process_pool, "BATCH", 8)
    some, report = alone
    assert json.dumps(judge(some, registry().checks, cluster, processes=2)) == json.dumps(report)
    assert killed


def _a_worker() -> int:
    """Return one of the processes that the pool's server started for us."""
    from multiprocessing import forkserver

    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return int(children[0])


def test_workers_end_with_the_command_that_started_them(
    folder: Path, expected: dict[str, planted_fleet.Reported]
) -> None:
    """Kill -9 of the command leaves nothing behind."""
    command = [sys.executable, "-m", "preflight", "judge", str(folder / "evidence")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    workers: set[int] = set()
    while process.poll() is None and len(workers) < 2:
        workers = {pid for pid in _session(process.pid) if pid != process.pid}
    process.kill()
    process.wait()
    for _ in range(1200):
        if not _session(process.pid):
            break
        subprocess.run(["sleep", "0.05"], check=True)
    assert workers
    assert not _session(process.pid)


def _session(leader: int) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.add(int(entry.parent.name))
    return found
