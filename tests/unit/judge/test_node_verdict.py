"""Verdicts that nodes saved with their evidence: the same report, and nothing that only the evidence may decide."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.archive import lazy
from preflight.checks import registry
from preflight.evidence import node_result as result_file
from preflight.evidence.document import DocumentError, Evidence, decode, dump, read
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode as cluster_of
from preflight.facts.node import NodeFacts
from preflight.judge import judge, node_result, node_verdict
from preflight.judge.node_verdict import verdict
from preflight.judge.typed_json import plain, typed
from preflight.model import Finding, Status
from tests.support import planted_fleet
from tests.support.command_line import run
from tests.support.paths import ROOT

DEMO = ROOT / "preflight" / "demo"

#: 28 nodes, 25 of which differ.
COUNT = 28


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with evidence, the same evidence with verdicts, and their cluster file."""
    folder = tmp_path_factory.mktemp("fleet")
    planted_fleet.write(folder / "evidence", COUNT)
    (folder / "cluster.toml").write_text(planted_fleet.CLUSTER)
    (folder / "results").mkdir()
    for path in (folder / "evidence").glob("*.json"):
        (folder / "results" / path.name).write_text(judged(path, cluster(folder)))
    return folder


@pytest.fixture(autouse=True)
def _read_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat each fleet as a large one."""
    monkeypatch.setattr(lazy, "HELD", 0)


def cluster(folder: Path) -> Cluster:
    return cluster_of((folder / "cluster.toml").read_bytes(), "cluster.toml")


def judged(path: Path, expectations: Cluster) -> str:
    """Return the document of a node that judges itself."""
    evidence = read(path)
    result = verdict(evidence, registry().checks, expectations)
    assert result is not None
    return result_file.dump(evidence.node, result, dump(evidence))


def report(folder: Path, expectations: Cluster) -> str:
    return json.dumps(judge(lazy.load([folder])[0], registry().checks, expectations), sort_keys=True)


def test_a_fleet_gives_the_same_report_by_verdicts_as_by_evidence(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No value is computed again: all of them are in the verdicts."""
    undecoded = []
    remember = NodeFacts.remember_for_fleet

    def spy(self: NodeFacts, name: str, *rest: Any, **more: Any) -> Any:
        if isinstance(self, node_verdict.JudgedNode) and name not in self.fleet_answers:
            undecoded.append((self.node, name))
        return remember(self, name, *rest, **more)

    expectations = cluster(fleet)
    usual = report(fleet / "evidence", expectations)
    monkeypatch.setattr(NodeFacts, "remember_for_fleet", spy)
    monkeypatch.setattr(node_verdict, "judge_node", None)  # no node is judged again
    assert report(fleet / "results", expectations) == usual
    assert undecoded == []
    assert json.loads(usual)["exit_status"] == 1


@pytest.mark.parametrize("which", ["no cluster file", "another cluster file"])
def test_a_verdict_by_other_expectations_is_not_used(fleet: Path, which: str) -> None:
    text = (fleet / "cluster.toml").read_bytes()
    other = Cluster() if which == "no cluster file" else cluster_of(text + b'\n[racks]\nr1 = "n1"\n', "cluster.toml")
    some = sorted(path.name for path in (fleet / "results").iterdir())[:3]
    folders = [fleet / "evidence", fleet / "results"]
    reports = [
        json.dumps(judge(lazy.load([folder / name for name in some])[0], registry().checks, other), sort_keys=True)
        for folder in folders
    ]
    assert reports[0] == reports[1]


def _set(*keys: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to

    return change


def _drop(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


def _outcome(**fields: Any) -> str:
    return json.dumps([False, [{"status": "pass", "message": "good", **fields}]])


#: Verdicts that a node cannot have made with this version; the evidence is judged instead.
UNUSABLE: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "another version": _set("verdict", "version", to="0.0.9"),
    "no verdict": _set("verdict", to=None),
    "a list": _set("verdict", to=[]),
    "a check is missing": _drop("verdict", "outcomes", "gpu.count"),
    "no outcomes": _set("verdict", "outcomes", to={}),
    "an outcome is not JSON": _set("verdict", "outcomes", "gpu.count", to="[false"),
    "an outcome without a finding": _set("verdict", "outcomes", "gpu.count", to="[false, []]"),
    "an unknown status": _set("verdict", "outcomes", "gpu.count", to=_outcome(status="fine")),
    "an unknown action": _set("verdict", "outcomes", "gpu.count", to=_outcome(action="rm -rf /")),
    "an unknown field": _set("verdict", "outcomes", "gpu.count", to=_outcome(gating=False)),
    "a finding about another node": _set("verdict", "outcomes", "gpu.count", to=_outcome(nodes=["n7"])),
    "a waived finding": _set("verdict", "outcomes", "gpu.count", to=_outcome(status="fail", excused="agreed")),
    "a finding with a cause": _set("verdict", "outcomes", "gpu.count", to=_outcome(cause=["x", "n7"])),
    "a number for a text": _set("verdict", "outcomes", "gpu.count", to=_outcome(message=7)),
    "a very long message": _set("verdict", "outcomes", "gpu.count", to=_outcome(message="x" * 300_000)),
    "deep nesting": _set("verdict", "outcomes", "gpu.count", to="[" * 100_000),
    "an unknown key": _set("verdict", "exit_status", to=0),
    "a drawing of another shape": _set("verdict", "more", to=json.dumps({"topology": {"numa": "x", "nvlink": []}})),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_verdict_is_replaced_by_the_evidence(
    case: str, fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sorted(path.name for path in (fleet / "results").iterdir())[0]
    document = json.loads((fleet / "results" / name).read_text())
    UNUSABLE[case](document)
    (tmp_path / name).write_text(json.dumps(document, indent=0) + "\n")
    again: list[str] = []

    def spy(evidence: Evidence, *rest: Any, **more: Any) -> Any:
        again.append(evidence.node)
        return node_result.judge_node(evidence, *rest, **more)

    monkeypatch.setattr(node_verdict, "judge_node", spy)
    result = json.loads(report(tmp_path, cluster(fleet)))
    assert again == [document["node"]]
    assert result["coverage"]["nodes"]["answered"] == 1


def test_a_value_of_another_type_is_read_from_the_evidence(fleet: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (fleet / "results").iterdir())[:3]
    for number, name in enumerate(names):
        document = json.loads((fleet / "results" / name).read_text())
        if number == 0:
            values = document["verdict"]["values"]
            document["verdict"]["values"] = dict.fromkeys(values, '[{"a": [1]}, null]') | {
                "leaves": "[",
                "identifiers": "0",
            }
        (tmp_path / name).write_text(json.dumps(document, indent=0) + "\n")
    evidence = [fleet / "evidence" / name for name in names]
    usual = json.dumps(judge(lazy.load(evidence)[0], registry().checks, cluster(fleet)), sort_keys=True)
    assert report(tmp_path, cluster(fleet)) == usual


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("evidence", to="no base64!"), "cannot be unpacked"),
        (_set("evidence", to=base64.b64encode(b"no zlib").decode()), "cannot be unpacked"),
        (_set("evidence", to=base64.b64encode(zlib.compress(b"{}")).decode()), "not that of its node"),
        (_set("evidence", to=base64.b64encode(zlib.compress(b"x" * 9000)[:-9]).decode()), "incomplete"),
        (_drop("evidence"), "evidence is missing"),
        (_set("node", to="another"), "not that of its node"),
    ],
)
def test_evidence_that_cannot_be_unpacked_is_an_error(
    change: Callable[[dict[str, Any]], None], words: str, fleet: Path
) -> None:
    path = next((fleet / "results").iterdir())
    document = json.loads(path.read_text())
    change(document)
    with pytest.raises(DocumentError, match=words):
        decode(json.dumps(document).encode(), "n.json")


def test_evidence_that_unpacks_to_more_than_a_document_is_an_error(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_file, "MOST", 1000)
    with pytest.raises(DocumentError, match="longer than"):
        read(next((fleet / "results").iterdir()))


def test_collect_saves_the_verdict_of_this_node(tmp_path: Path) -> None:
    """`judge` of the document gives the report of `judge` of the evidence."""
    where = tmp_path / "here.json"
    run("collect", "--judge", "-o", str(where), "--node", "here")
    document = json.loads(where.read_text())
    assert document["schema"] == "preflight.node-result/1"
    (tmp_path / "evidence.json").write_text(dump(read(where)))
    reports = []
    for path in (where, tmp_path / "evidence.json"):
        run("judge", str(path), "--json", str(tmp_path / "report"), expect=3)
        reports.append(json.loads((tmp_path / "report").read_text()))
        del reports[-1]["run"]
    assert reports[0] == reports[1]
    assert "--cluster is for --judge" in run("collect", "--cluster", str(DEMO / "cluster.toml"), expect=2)


@pytest.mark.parametrize("form", ["as written", "in a list", "without its end", "twice the same key"])
def test_redaction_never_passes_on_compressed_evidence(form: str, fleet: Path, tmp_path: Path) -> None:
    """The document becomes redacted evidence; what is not such a document is left out."""
    text = next((fleet / "results").iterdir()).read_text()
    node = json.loads(text)["node"]
    if form != "as written":
        text = {"in a list": f"[{text}]", "without its end": text[:-3],
                "twice the same key": text.replace("{", '{"node": "x", ', 1)}[form]  # fmt: skip
    (tmp_path / "n.json").write_text(text)
    run("redact", str(tmp_path / "n.json"), "-o", str(tmp_path / "out"), expect=0 if form == "as written" else 1)
    if form == "as written":
        document = json.loads((tmp_path / "out").read_text())
        assert document["schema"] == "preflight.evidence/1"
        assert node not in json.dumps(document)
    else:
        assert not (tmp_path / "out").exists()


def test_nodes_that_need_their_peers_have_no_verdict(tmp_path: Path) -> None:
    """A node without an answer; the demo has one."""
    silent = read(DEMO / "gpu008.json")
    assert verdict(silent, registry().checks, Cluster()) is None


_TEXT = st.text(max_size=5)
_VALUES = {
    "str | float | None": st.none() | _TEXT | st.floats(allow_nan=False),
    "tuple[str, tuple[int, ...]]": st.tuples(_TEXT, st.lists(st.integers()).map(tuple)),
    "dict[int, frozenset[str]]": st.dictionaries(st.integers(), st.frozensets(_TEXT)),
    "tuple[IPv4Address, ...]": st.lists(st.integers(0, 2**32 - 1).map(IPv4Address)).map(tuple),
    "Finding": st.builds(Finding, st.sampled_from(Status), _TEXT, evidence=st.lists(_TEXT).map(tuple)),
}


@pytest.mark.parametrize("kind", _VALUES)
@given(st.data())
def test_values_survive_json(kind: str, data: st.DataObject) -> None:
    value = data.draw(_VALUES[kind])
    assert typed(json.loads(json.dumps(plain(value))), eval(kind)) == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, int), (1, bool), ("1", int), (None, str), ([1], tuple[int, int]), ({"a": 1}, list[int]),
     ("1.2.3", IPv4Address), ({"status": "pass", "message": "x", "nodes": "n1"}, Finding)],
)  # fmt: skip
def test_values_of_another_type_are_rejected(value: object, kind: Any) -> None:
    with pytest.raises(ValueError, match=r"not|argument|octets"):
        typed(value, kind)
