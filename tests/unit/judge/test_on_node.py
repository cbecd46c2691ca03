"""Nodes that a run lets judge themselves: the same report, and answers that no node can have made."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.archive import lazy
from preflight.checks import registry
from preflight.collector import own_verdict
from preflight.evidence.document import DocumentError, Evidence, from_document, read, to_document
from preflight.evidence.node_result import MOST_VERDICT
from preflight.evidence.self_judged import SelfJudged, of_answer
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load
from preflight.expectations.own_class import own_class
from preflight.judge import code_files, judge, on_node
from preflight.judge.code_files import archive, code_hash
from preflight.model import Check
from tests.support import fixture
from tests.support.command_line import run
from tests.support.paths import ROOT

DEMO = ROOT / "preflight" / "demo"
CLUSTER = load(DEMO / "cluster.toml")
NODES = ("gpu001", "gpu003", "gpu005", "gpu006", "gpu008")


def answer(evidence: Evidence, cluster: Cluster = CLUSTER, **wanted: Any) -> dict[str, Any] | None:
    """Return the answer of a node that judges itself; None if it has no verdict."""
    expectations = own_class(cluster, evidence.node)
    wanted = {"expectations": expectations, "complete": False, "windowed": False, **wanted}
    made = on_node.document(to_document(evidence), wanted)
    return json.loads(json.dumps(json.loads(made), sort_keys=True)) if made else None  # as frames sort it


def received(document: Mapping[str, Any], node: str) -> SelfJudged:
    """Return the answer as it is received."""
    raw = json.dumps(document).encode("ascii")
    return of_answer(document, node, zlib.compress(raw), len(raw))


def report(answers: Sequence[Evidence | SelfJudged], cluster: Cluster = CLUSTER, checks: Sequence[Check] = ()) -> Any:
    """Return the report of a run with these answers, and the nodes whose verdict was refused."""
    spool, refused = lazy.Spool(), dict[str, str]()
    for each in answers:
        spool.add(each)
    return judge(spool.documents(), checks or registry().checks, cluster, refused=refused), refused


def read_once(evidence: Evidence) -> Evidence:
    """Return the evidence of a node whose counters were read only once."""
    records = {key: {name: part for name, part in record.items() if name != "again"}
               for key, record in evidence.records.items()}  # fmt: skip
    return Evidence(evidence.node, evidence.collected_at, records, evidence.collector)


@pytest.fixture(scope="module")
def evidences() -> list[Evidence]:
    return [read(DEMO / f"{name}.json") for name in NODES]


@pytest.fixture(scope="module")
def answers(evidences: list[Evidence]) -> Mapping[str, dict[str, Any]]:
    """Return the answers of the demo's nodes, also of sick ones with only the quoted records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_node, "_is_sick", lambda result: False)
        made = {evidence.node: answer(evidence) for evidence in evidences}
    return {node: answered for node, answered in made.items() if answered is not None}


def test_the_demo_gives_the_same_report(
    evidences: list[Evidence], answers: Mapping[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(answers) == [name for name in NODES if name != "gpu008"], "gpu008 gave no answer"
    usual = json.dumps(report(evidences)[0])
    for held in (64, 0):  # in memory, and on disk
        monkeypatch.setattr(lazy, "HELD", held)
        judged = [received(answers[e.node], e.node) if e.node in answers else e for e in evidences]
        assert not any(item.complete for item in judged if isinstance(item, SelfJudged))
        result, refused = report(judged)
        assert refused == {}
        assert json.dumps(result) == usual


@pytest.mark.parametrize("name", ["cloned-machine-id", "one-guid-twice", "one-machine-by-two-names"])
def test_values_that_only_equal_nodes_need_are_sent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in fixture.cases("fleet.identity") if case.path.stem == name)
    (check,) = [check for check in registry().checks if check.id == case.check]
    monkeypatch.setattr(on_node, "registry", lambda: type("Only", (), {"checks": (check,)}))
    nodes = [from_document(json.loads(json.dumps(to_document(node), sort_keys=True)), "x") for node in case.evidences()]
    judged = [received(made, node.node) for node in nodes if (made := answer(node, Cluster()))]
    assert [item.complete for item in judged] == [False] * len(nodes)
    assert json.dumps(report(judged, Cluster(), [check])) == json.dumps(report(nodes, Cluster(), [check]))


def test_a_sick_node_sends_all_evidence_and_a_healthy_one_on_request(evidences: list[Evidence]) -> None:
    healthy, sick = evidences[0], evidences[2]
    made = answer(sick)
    assert made is not None
    assert "complete" not in made
    assert received(made, sick.node).read().records == sick.records
    for node, wanted in ((healthy, "complete"), (read_once(healthy), "windowed")):
        made = answer(node, **{wanted: True})  # type: ignore[arg-type]
        assert made is not None
        assert received(made, node.node).read().records == node.records


def _verdict(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["verdict"].update(fields)


def _finding(**fields: Any) -> Callable[[dict[str, Any]], None]:
    text = json.dumps([False, [{"status": "pass", "message": "good", **fields}]])
    return lambda document: document["verdict"]["outcomes"].update({"gpu.count": text})


#: Answers whose verdict is refused; a part of the evidence is then not judged either.
REFUSED: Mapping[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "other code": (_verdict(code="0" * 64), "other code"),
    "another class": (_verdict(cluster="0" * 64), "other code, or by another cluster file"),
    "no outcomes": (_verdict(outcomes={}), "malformed"),
    "outcomes in a list": (_verdict(outcomes=[]), "malformed"),
    "about another node": (_finding(nodes=["gpu003"]), "malformed"),
    "waived by itself": (_finding(status="fail", excused="agreed"), "malformed"),
    "caused by another": (_finding(status="fail", cause=["x", "gpu003"]), "malformed"),
    "reported by a check of the fleet": (_finding(status="warn", reported_by=["fleet.mtu-equal"]), "malformed"),
    "undecided": (_finding(status="warn", undecided=True), "malformed"),
    "about a cable": (_finding(status="fail", parts=["gpu003 mlx5_0"]), "malformed"),
    "without a message": (_finding(message=" "), "malformed"),
    "thousands of findings": (
        _verdict(outcomes={"gpu.count": json.dumps([False, [{"status": "fail", "message": "x"}] * 1001])}),
        "malformed",
    ),
    "no such status": (_finding(status="fine"), "malformed"),
    "another key": (_verdict(exit_status=0), "malformed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_verdict_that_is_refused_is_no_answer_and_touches_no_other_node(
    case: str, answers: Mapping[str, dict[str, Any]], evidences: list[Evidence]
) -> None:
    change, why = REFUSED[case]
    forged = json.loads(json.dumps(answers["gpu001"]))
    change(forged)
    few = [check for check in registry().checks if check.id in ("gpu.count", "fleet.mtu-equal")]
    honest = [received(answers[name], name) for name in ("gpu003", "gpu006")]
    result, refused = report([received(forged, "gpu001"), *honest], checks=few)
    assert why in refused.pop("gpu001")
    assert refused == {}
    nodes = {node["name"]: node for node in result["nodes"]}
    assert "did not send its evidence" in nodes["gpu001"]["no_answer"]["reason"]
    usual = {node["name"]: node for node in report(honest, checks=few)[0]["nodes"]}
    assert nodes["gpu003"]["checks"]["gpu.count"] == usual["gpu003"]["checks"]["gpu.count"]
    assert result["exit_status"] != 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(node="gpu003"), "another node"),
        (lambda d: d.update(verdict=[]), "not of type object"),
        (lambda d: d.pop("evidence"), "evidence is missing"),
        (lambda d: d.update(evidence=7), "not of type string"),
        (lambda d: d.update(complete=True), "complete is none of"),
        (lambda d: d.update(report={}), "unknown key"),
        (lambda d: d["verdict"].update(values={"x": "y" * MOST_VERDICT}), "at most"),
    ],
)
def test_an_answer_of_another_form_is_refused_at_once(
    change: Callable[[dict[str, Any]], Any], words: str, answers: Mapping[str, dict[str, Any]]
) -> None:
    forged = json.loads(json.dumps(answers["gpu001"]))
    change(forged)
    with pytest.raises(ValueError, match=words):
        received(forged, "gpu001")


@pytest.mark.parametrize(
    ("value", "text"),
    [("boards of NICs", '[null, ["file:/x", "\\u001b[31m<b>"]]'), ("identifiers", None),
     ("NVLink domain", '[[null, null, 1, {}], null]')],
)  # fmt: skip
def test_a_value_that_cannot_be_compared_is_unknown_on_its_node_only(
    value: str, text: str | None, answers: Mapping[str, dict[str, Any]]
) -> None:
    forged = json.loads(json.dumps(answers))
    forged["gpu001"]["verdict"]["values"][value] = text or "["
    fleet = [check for check in registry().checks if check.id.startswith("fleet.")]
    honest = report([received(answers[name], name) for name in answers if name != "gpu001"], checks=fleet)[0]
    result = report([received(forged[name], name) for name in forged], checks=fleet)[0]
    nodes = {node["name"]: node["checks"] for node in result["nodes"]}
    unknown = {check for check, status in nodes.pop("gpu001").items() if status == "unknown"}
    assert unknown
    for node in honest["nodes"]:
        assert {check: nodes[node["name"]][check] for check in unknown} == {
            check: node["checks"][check] for check in unknown
        }


def test_evidence_that_cannot_be_unpacked_costs_only_the_excerpts(answers: Mapping[str, dict[str, Any]]) -> None:
    forged = {**answers["gpu005"], "evidence": "no base64!"}
    result, refused = report([received(forged, "gpu005")])
    assert refused == {}
    assert [node["status"] for node in result["nodes"]] == ["fail"]
    assert not any(excerpt["key"] and not finding.get("quote") for finding in result["findings"]
                   for excerpt in finding.get("excerpts", ()) if excerpt["node"] != "gpu005")  # fmt: skip


def test_counters_that_were_not_sent_are_unknown(
    answers: Mapping[str, dict[str, Any]], evidences: list[Evidence]
) -> None:
    """A node that claims to have read its counters twice cannot make another pass, or the judge crash."""
    once = answer(read_once(evidences[0]))
    assert once is not None
    assert once["complete"] is False
    growth = [check for check in registry().checks if check.window and check.scope == "node"]
    result, _ = report([received(once, "gpu001"), received(answers["gpu003"], "gpu003")])
    (honest,) = [node for node in result["nodes"] if node["name"] == "gpu001"]
    assert {honest["checks"][check.id] for check in growth if check.id in honest["checks"]} == {"unknown"}


def test_a_file_with_a_part_of_the_evidence_is_refused(answers: Mapping[str, dict[str, Any]]) -> None:
    with pytest.raises(DocumentError, match="only a part"):
        from_document(answers["gpu001"], "n.json")


def test_a_node_learns_nothing_of_other_classes_waivers_or_nodes(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[class.a]\nnodes = "n[1-3]"\ngpus = 8\n[class.b]\nnodes = "secret7"\n[checks]\noff = ["host.*"]\n'
        '[[waiver]]\ncheck = "gpu.count"\nowner = "alice"\nreason = "r"\nuntil = 2027-01-01\n[leaves]\nl1 = "n1"\n'
    )
    part = own_class(load(tmp_path / "c.toml"), "n2")
    assert part == {"path": "c.toml", "tables": {"checks": {"off": ["host.*"]}, "class": {"a": {"gpus": 8}}}}
    assert own_class(load(tmp_path / "c.toml"), "elsewhere")["tables"] == {"checks": {"off": ["host.*"]}}


def test_the_hash_covers_the_checks_and_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, files = code_hash(), dict(code_files._files())
    for name in ("checks/gpu/presence.py", "judge/node_verdict.py", "parsers/nvidia/nvidia_smi.py"):
        name = name if name in files else next(file for file in files if file.startswith("parsers/"))
        monkeypatch.setattr(code_files, "_files", lambda name=name: {**files, name: files[name] + b"\n"})
        assert code_hash.__wrapped__() != usual
    generated = {**files, "_startup/generated_checks.py": b"x"}
    monkeypatch.setattr(code_files, "_files", lambda: generated)
    assert code_hash.__wrapped__() == usual, "it is generated from other files"


def test_the_archive_has_all_that_its_modules_import() -> None:
    """A module that is imported only for a rare fault must not be missing on the node."""
    files = set(code_files._files())
    missing = set()
    for name, content in code_files._files().items():
        for line in content.decode().splitlines() if name.endswith(".py") else ():
            words = line.split()
            if words[:1] in (["from"], ["import"]) and len(words) > 1 and words[1].startswith("preflight."):
                module = words[1].removeprefix("preflight.").rstrip(",").replace(".", "/")
                if f"{module}.py" not in files and f"{module}/__init__.py" not in files:
                    missing.add(f"{name} imports {words[1]}")
    assert missing == set()


# --- on the node: the archive, as it arrives ----------------------------------------------------------


@pytest.fixture
def judging(tmp_path: Path, evidences: list[Evidence]) -> Callable[..., dict[str, Any]]:
    """Return a function that lets a node judge itself by what is at the archive's place."""
    import hashlib
    import time

    def judged(content: bytes | None, wait_s: float = 0.2, **wanted: Any) -> dict[str, Any]:
        place = tmp_path / "preflight-x"
        if content is not None:
            place.write_bytes(content)
        plan = {"archive": str(place), "size": len(archive()), "sha256": hashlib.sha256(archive()).hexdigest(),
                "expectations": own_class(CLUSTER, "gpu001"), "complete": False, "windowed": False,
                **wanted}  # fmt: skip
        return own_verdict.judged(to_document(evidences[0]), plan, time.monotonic() + wait_s)

    return judged


def test_the_archive_judges_a_node_and_is_removed(
    judging: Callable[..., dict[str, Any]], tmp_path: Path, answers: Mapping[str, dict[str, Any]]
) -> None:
    assert judging(archive(), wait_s=60) == answers["gpu001"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "absent"),
        (archive()[:-1], "absent"),
        (archive()[:-1] + b"x", "damaged"),
        (archive() + b"x", "damaged"),
    ],
    ids=["none", "cut", "changed", "longer"],
)
def test_another_archive_is_not_run(
    content: bytes | None, why: str, judging: Callable[..., dict[str, Any]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(own_verdict, "execute", None)
    monkeypatch.setattr(own_verdict, "_GROWING_S", 0.1)
    result = judging(content)
    assert result["unjudged"] == why
    assert result["schema"] == "preflight.evidence/1"
    assert list(tmp_path.iterdir()) == [], "what was there is removed"


def test_a_link_of_another_user_is_not_followed(judging: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(archive())
    (tmp_path / "preflight-x").symlink_to(tmp_path / "elsewhere")
    assert judging(None)["unjudged"] == "absent"
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 3", "failed"), ("exit 97", "python"), ("echo [", "failed"), ("echo [1]", "failed"), ("true", "peers"),
     ("sleep 60", "late")],
)  # fmt: skip
def test_a_judge_that_fails_leaves_the_evidence(
    script: str, why: str, judging: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(own_verdict, "_python", lambda: str(python))
    assert judging(archive(), wait_s=0.5)["unjudged"] == why


def test_archives_that_killed_runs_left_are_removed(judging: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in ("preflight-old", "preflight-new", "notes"))
    for path in (old, new, other):
        path.write_text("x")
    for path in (old, other):
        os.utime(path, (0, 0))
    judging(None)
    assert sorted(tmp_path.iterdir()) == sorted((new, other))


def test_other_transports_are_refused() -> None:
    for options in (["--hosts", "n1"], [], ["--via", "kubectl", "--hosts", "n1"]):
        assert "--via srun" in run("check", "--judge-on-nodes", *options, expect=2)
