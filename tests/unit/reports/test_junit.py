"""JUnit XML: valid by its schema, an unknown result does not pass, foreign text is harmless."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.evidence.document import no_answer
from preflight.reports.junit import render
from preflight.reports.verdict_line import headline
from tests.support import paths
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.report_samples import HOSTILE
from tests.unit.judge.test_waivers import DOWN, node

#: The schema of Jenkins' xUnit plug-in, followed by most readers of JUnit XML; it contains its licence.
SCHEMA = xmlschema.XMLSchema10(str(paths.DATA / "junit" / "junit-10.xsd"))


def tree(text: str) -> ElementTree.Element:
    SCHEMA.validate(text)
    return ElementTree.fromstring(text)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> ElementTree.Element:
    folder = tmp_path_factory.mktemp("junit")
    silent = no_answer("gpu003", "connect", "refused", "2026-11-21T00:00:00Z")
    save(folder / "saved", [node("gpu001", DOWN), node("gpu002"), silent])
    CliRunner().invoke(main, ["judge", str(folder / "saved"), "--junit", str(folder / "j.xml")], catch_exceptions=False)
    return tree((folder / "j.xml").read_text())


def case(root: ElementTree.Element, check: str, name: str) -> ElementTree.Element:
    found = root.find(f"testsuite[@name='{check}']/testcase[@name='{name}']")
    assert found is not None
    return found


def test_a_sick_a_well_and_a_silent_node(written: ElementTree.Element) -> None:
    failure = case(written, "rdma.port-state", "gpu001").find("failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("mlx5_3:1 is DOWN")
    assert "fix: " in (failure.text or "")
    assert list(case(written, "rdma.port-state", "gpu002")) == []
    silent = case(written, "preflight.answer", "gpu003").find("error")
    assert silent is not None
    assert silent.attrib["message"] == "no answer: refused (connect)"


def test_the_counts_are_those_of_the_cases(written: ElementTree.Element) -> None:
    assert int(written.attrib["tests"]) == len(written.findall("testsuite/testcase"))
    for attribute, tag in (("failures", "failure"), ("errors", "error")):
        assert int(written.attrib[attribute]) == len(written.findall(f"testsuite/testcase/{tag}"))
        for suite in written:
            assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))


def test_unknown_is_an_error(written: ElementTree.Element) -> None:
    found = case(written, "rdma.device-count", "gpu002").find("error")
    assert found is not None
    assert "no expected value is declared" in found.attrib["message"]


def test_a_non_gating_unknown_result_is_skipped_with_the_reason() -> None:
    unknown = {"check": "a.b", "status": "unknown", "gating": False, "message": "no record", "found": "",
               "expected": "", "why": "", "fix": ""}  # fmt: skip
    report = {
        "run": {"at": "2026-11-21T03:00:00Z", "seconds": 1.0},
        "nodes": [{"name": name, "checks": {"a.b": "unknown"}} for name in ("n1", "n2", "n3")],
        "findings": [{**unknown, "nodes": ["n1", "n2"]}, {**unknown, "nodes": ["n2"], "gating": True}],
    }
    root = tree(render(report))
    skipped = case(root, "a.b", "n1").find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "unknown, non-gating: no record"
    for name in ("n2", "n3"):  # one of its findings gates; without a finding, it gates
        assert case(root, "a.b", name).find("error") is not None
    assert (root[0].attrib["errors"], root[0].attrib["skipped"], root.attrib["errors"]) == ("2", "1", "2")


def test_a_run_in_which_no_unknown_gates_has_no_error(tmp_path: Path) -> None:
    """Healthy nodes, and one sick node; every unknown check is in shadow in the cluster file."""
    for document in fleet(hgx_h100("gpu"), 3):
        (tmp_path / f"{document['node']}.json").write_text(json.dumps(document))
    open_checks = {finding["check"] for finding in judged(tmp_path)["findings"] if finding["status"] == "unknown"}
    assert open_checks
    (tmp_path / "site.toml").write_text(f"[checks]\nshadow = {json.dumps(sorted(open_checks))}\n")
    report = judged(tmp_path, "--cluster", tmp_path / "site.toml", "--junit", tmp_path / "j.xml")
    root = tree((tmp_path / "j.xml").read_text())
    assert (report["exit_status"], root.attrib["failures"], root.attrib["errors"]) == (0, "0", "0")
    skipped = [element.attrib["message"] for element in root.iter("skipped")]
    assert sum(message.startswith("unknown, non-gating: ") for message in skipped) == report["coverage"]["unknown"] > 0

    save(tmp_path, [node("sick", DOWN)])
    report = judged(tmp_path, "--cluster", tmp_path / "site.toml", "--only", "rdma.*", "--only", "gpu.*")
    assert report["exit_status"] == 1
    assert headline(report) == "FAIL: 1 of 4 nodes has problems"
    assert [each["status"] for each in report["nodes"]].count("unknown") == 3


def judged(folder: Path, *more: object) -> dict[str, Any]:
    words = ["judge", *sorted(folder.glob("*.json")), *more, "--json", "-"]
    report: dict[str, Any] = json.loads(CliRunner().invoke(main, [str(word) for word in words]).stdout)
    return report


@pytest.mark.parametrize("text", [HOSTILE, "]]>", "<!--", "&amp;", "\x00\x1b[31m\ud800\ufffe", "x" * 10_000])
def test_hostile_text(text: str) -> None:
    finding: dict[str, Any] = {
        "check": "a.b", "status": "fail", "message": text, "nodes": [text], "found": text, "expected": text,
        "why": text, "fix": text,
    }  # fmt: skip
    report = {
        "run": {"at": "2026-11-21T03:00:00Z", "seconds": 1.0},
        "nodes": [
            {"name": text, "checks": {"a.b": "fail"}},
            {"name": text + "2", "checks": {}, "no_answer": {"reason": text}},
        ],
        "findings": [finding, {**finding, "check": "run.c", "nodes": ["@run"], "status": "unknown"}],
    }  # fmt: skip
    root = tree(render(report))
    assert [suite.attrib["name"] for suite in root] == ["preflight.answer", "a.b", "run.c"]
    assert not re.search("[\x00-\x08]", render(report))
