"""JUnit XML: valid by its schema, what could not be told is no pass, foreign text is harmless."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from click.testing import CliRunner

from preflight.archive import save
from preflight.cli import main
from preflight.evidence import no_answer
from preflight.reports.junit import render
from tests.report_samples import HOSTILE
from tests.test_waivers import DOWN, node

#: The schema of Jenkins' xUnit plug-in, which most readers of JUnit XML follow; its licence is inside.
SCHEMA = xmlschema.XMLSchema10(str(Path(__file__).parent / "data" / "junit" / "junit-10.xsd"))


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
    assert "nothing says what to expect" in found.attrib["message"]


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
