"""Nodes without a class in the cluster file, and listed nodes without evidence."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from preflight.cli.app import main
from preflight.evidence.document import Evidence
from preflight.expectations.cluster_file import decode
from preflight.gate import evaluate
from preflight.judge import judge
from preflight.model import Status
from preflight.redact import own_output
from preflight.reports.html_page import render as html
from preflight.reports.text_report import render as text
from preflight.reports.verdict_line import headline
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.unit.gate.test_gate import AT, made

SCHEMA = json.loads((files("preflight.schemas") / "report-1.json").read_text())
#: Four of five nodes are in the class, which lists two more.
CLASS = 'nodes = "{}"\ngpus = 8\nhcas = 8\nports.compute = "mlx5_[0,3-6,9-11]"\n'
OUTSIDE = "1 node in no class of cluster.toml: gpu005; no class expectations apply to them"
MISSING = "2 nodes of cluster.toml not judged: gpu[006-007]"


def preflight(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five healthy nodes."""
    folder = tmp_path_factory.mktemp("evidence")
    for document in fleet(hgx_h100("gpu"), 5):
        (folder / f"{document['node']}.json").write_text(json.dumps(document))
    return folder


def judged(evidence: Path, work: Path, nodes: str, *options: object) -> tuple[dict[str, Any], str]:
    (work / "cluster.toml").write_text("[class.h100]\n" + CLASS.format(nodes))
    done = preflight("judge", evidence, "--cluster", work / "cluster.toml", "--json", work / "report.json", *options)
    return json.loads((work / "report.json").read_text()), " ".join(done.output.split())


def test_a_node_in_no_class_is_named_in_each_report(evidence: Path, tmp_path: Path) -> None:
    report, shown = judged(evidence, tmp_path, "gpu[001-004]", "--html", tmp_path / "report.html")
    assert OUTSIDE in shown
    assert report["coverage"]["without_class"] == ["gpu005"]
    assert "without_evidence" not in report["coverage"]
    assert [node["class"] for node in report["nodes"]] == ["h100"] * 4 + [None]
    page = (tmp_path / "report.html").read_text()
    assert 'in no class of cluster.toml: <span class="names">gpu005</span>' in page
    jsonschema.validate(report, SCHEMA)


def test_the_headline_of_a_pass_counts_them() -> None:
    nodes = [Evidence(f"n{at}", AT, {"file:/x": {"status": "ok", "out": ""}}) for at in range(1, 6)]
    some = decode(b'[class.gpu]\nnodes = "n[1-4]"\n', "cluster.toml")
    every = decode(b'[class.gpu]\nnodes = "n[1-5]"\n', "cluster.toml")
    rest = decode(b'[class.gpu]\nnodes = "n[1-4]"\n[class.other]\n', "cluster.toml")
    report = judge(nodes, [made(1, [Status.PASS])], some)
    assert (report["exit_status"], report["coverage"]["without_class"]) == (0, ["n5"])
    assert "; 1 node in no class of the cluster file" in headline(report)
    for cluster in (every, rest, None, decode(b"[gate]\n", "cluster.toml")):
        other = judge(nodes, [made(1, [Status.PASS])], cluster)
        assert "without_class" not in other["coverage"]
        assert "in no class" not in headline(other) + text(other) + html(other)


def test_many_nodes_are_one_line() -> None:
    nodes = [Evidence(f"n{at}", AT, {"file:/x": {"status": "ok", "out": ""}}) for at in range(1, 301)]
    report = judge(nodes, [made(1, [Status.PASS])], decode(b'[class.gpu]\nnodes = "n[1-4]"\n', "cluster.toml"))
    (line,) = [line for line in text(report, width=400).splitlines() if "in no class of" in line and ": n[" in line]
    assert line.startswith("296 nodes in no class of the cluster file: n[5-300];")


def test_hints_name_a_table_that_can_be_added(evidence: Path, tmp_path: Path) -> None:
    """Hints never name a class ``default`` beside classes of other names."""
    report, _ = judged(evidence, tmp_path, "gpu[001-004]")
    assert "class.default" not in json.dumps(report)
    assert "class.NAME." in json.dumps(report)
    alone = preflight("judge", evidence / "gpu001.json", "--json", tmp_path / "alone.json")
    assert alone.exit_code in (0, 1, 3)
    assert "class.default." in (tmp_path / "alone.json").read_text()


def test_nodes_of_the_file_without_evidence_are_named(evidence: Path, tmp_path: Path) -> None:
    report, shown = judged(evidence, tmp_path, "gpu[001-007]", "--html", tmp_path / "report.html")
    assert MISSING in shown
    assert report["coverage"]["without_evidence"] == ["gpu006", "gpu007"]
    assert 'not judged: <span class="names">gpu[006-007]</span>' in (tmp_path / "report.html").read_text()
    complete, shown = judged(evidence, tmp_path, "gpu[001-005]")
    assert "without_evidence" not in complete["coverage"]
    assert "not judged" not in shown
    assert complete["exit_status"] == report["exit_status"]
    files = preflight("judge", evidence / "gpu001.json", "--cluster", tmp_path / "cluster.toml")
    assert "4 nodes of cluster.toml not judged: gpu[002-005]" in " ".join(files.output.split())


def test_a_full_name_is_its_node(evidence: Path, tmp_path: Path) -> None:
    cluster = decode(b'[class.gpu]\nnodes = "n[1-3]"\n', "cluster.toml")
    assert cluster.unjudged(["n1.example.org", "n2"]) == ["n3"]


def test_the_gate_names_a_node_in_no_class() -> None:
    good = [made(1, [Status.PASS])]
    node5 = Evidence("n5", AT, {"file:/x": {"status": "ok", "out": ""}})
    raw = b'[class.gpu]\nnodes = "n[1-4]"\ngpus = 0\nhcas = 0\n'
    for expects, status in ((True, "unknown"), (False, "pass")):
        selection = evaluate.CheckSelection(tuple(good), (), ())
        cluster = decode(raw, "/etc/preflight/cluster.toml")
        verdict = evaluate.evaluate_node(node5, cluster, selection, hook="ci", expects=expects, gpus=None)
        assert verdict.status == status
        (line,) = verdict.lines
        assert "n5 is in no class of cluster.toml" in line
        assert ("n5 is in no class" in verdict.reason) == expects
    inside = evaluate.evaluate_node(
        Evidence("n4", AT, node5.records), cluster, selection, hook="ci", expects=True, gpus=None
    )  # fmt: skip
    assert (inside.status, inside.lines) == ("pass", ())


def test_the_checklist_uses_the_cluster_file_saved_with_evidence(evidence: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("[class.h100]\n" + CLASS.format("gpu[001-004]"))
    saved = tmp_path / "saved"
    preflight("judge", evidence, "--cluster", tmp_path / "cluster.toml", "--save", saved)
    by_itself = preflight("checklist", saved)
    given = preflight("checklist", saved, "--cluster", tmp_path / "cluster.toml")
    without = preflight("checklist", evidence)
    assert by_itself.stdout.splitlines()[0] == f"judged by: {saved}/expected/cluster.toml"
    assert OUTSIDE in by_itself.stdout
    assert by_itself.stdout.splitlines()[1:] == given.stdout.splitlines()[1:]
    assert without.stdout.startswith("judged without a cluster file")
    assert without.stdout.splitlines()[1:] != by_itself.stdout.splitlines()[2:]
    as_json = preflight("checklist", saved, "--json")
    assert isinstance(json.loads(as_json.stdout), list)
    assert f"judged by: {saved}/expected/cluster.toml" in as_json.stderr
    assert not preflight("checklist").stdout.startswith("judged")


@pytest.mark.parametrize("width", [60, 100])
def test_the_names_are_found_by_redact(evidence: Path, tmp_path: Path, width: int) -> None:
    report, _ = judged(evidence, tmp_path, "gpu[001-004],spare[001-030],odd1")
    names: list[str] = []

    def learn(kind: str, name: str) -> str:
        names.append(name)
        return name

    own_output.in_text(text(report, width=width), learn, set())
    assert {"spare[001-030]", "odd1", "gpu005"} <= set(names)
    assert {"without_class", "without_evidence"} <= own_output.KEYS
