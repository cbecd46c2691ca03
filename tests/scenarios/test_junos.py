"""A leaf with Juniper Junos in a Clos of SONiC: what it shows is judged, what it does not show is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.judge import judge
from preflight.parsers.switch import junos_answers
from preflight.redact import Redactor
from tests.scenarios.test_eos import CHECKS, SITE, wrong
from tests.support.junos import JunosLeaf


def judged(folder: Path, leaf: JunosLeaf) -> dict[str, Any]:
    (folder / "pasted.txt").write_text(leaf.session())
    return judge([*leaf.clos.evidences(), *switch_documents([folder / "pasted.txt"])], CHECKS, SITE)


def test_a_healthy_leaf_raises_nothing(tmp_path: Path) -> None:
    report = judged(tmp_path, JunosLeaf())
    assert wrong(report) == []
    passed = {finding["check"]: finding["message"] for finding in report["findings"] if finding["status"] == "pass"}
    for check in ("link.join", "link.mtu", "link.speed-fec"):
        assert "32 cables" in passed[check], check
    assert {"ethernet.oversubscription", "ethernet.hops"} <= set(passed)
    unknown = {finding["check"] for finding in report["findings"]
               if finding["status"] == "unknown" and finding["subject"].startswith("leaf4")}  # fmt: skip
    assert unknown >= {"switch.ecn", "switch.headroom", "switch.lossless-drops", "fabric.pause-root", "switch.bgp"}


FAULTS: dict[str, tuple[Callable[[JunosLeaf], object], tuple[str, str, str]]] = {
    "MTU at an uplink": (
        lambda leaf: leaf.ports["et-0/0/5"].update(mtu=8014),
        ("fail", "link.mtu", "leaf4 et-0/0/5 - spine1 Ethernet48"),
    ),
    "an uplink at half of its speed": (
        lambda leaf: leaf.ports["et-0/0/6"].update(speed="200Gbps"),
        ("fail", "link.speed-fec", "leaf4 et-0/0/6 - spine1 Ethernet56"),
    ),
    "another neighbour than the host's": (
        lambda leaf: leaf.ports["et-0/0/2"].update(system="gpu015"), ("fail", "link.join", "leaf4 et-0/0/2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_incident(tmp_path: Path, name: str) -> None:
    plant, expected = FAULTS[name]
    leaf = JunosLeaf()
    plant(leaf)
    report = judged(tmp_path, leaf)
    assert expected in wrong(report)
    assert len(report["incidents"]) == 1


def test_a_session_without_its_names_gives_the_same_findings(tmp_path: Path) -> None:
    leaf = JunosLeaf()
    redactor = Redactor(key=b"0" * 32)
    redactor.learn(leaf.session())
    text = redactor.text(leaf.session())
    for name in ("leaf4", "spine1", "gpu013", "02:5e:00:00:00:aa", "02:00:00:00:"):
        assert name in leaf.session()
        assert name not in text, name
    (tmp_path / "pasted.txt").write_text(text)
    (evidence,) = switch_documents([tmp_path / "pasted.txt"])
    assert {record["status"] for record in evidence.records.values()} == {"ok"}
    assert len(evidence.records["junos:show lldp neighbors"]["value"]["neighbours"]) == 8


@pytest.mark.parametrize(("text", "why"), [
    ("                      ^\nunknown command.\n", "not JSON: '^'"),
    ("{\n \"other\": []}", "no interface-information"),
    ("<html>log in</html>", "not JSON"), ("{\n \"interface-information\": [", "line 2"), ("", "not JSON"),
    ("Physical interface: et-0/0/0, Enabled, Physical link is Up\n", "not JSON: 'Physical interface"),
])  # fmt: skip
def test_answers_that_are_none(text: str, why: str) -> None:
    record = junos_answers.record("show interfaces", text)
    assert (record["status"], why in record.get("why", "")) == ("error", True), record


def test_a_cut_or_strange_answer_is_no_fault(tmp_path: Path) -> None:
    text = JunosLeaf().session()
    for command in ("show interfaces", "show lldp neighbors"):
        begin = text.index(f"> {command} |") + len(command) + 30
        for strange in (text[:begin], text[: begin + 900], text.replace(text[begin : begin + 200], "%\n")):
            (tmp_path / "pasted.txt").write_text(strange)
            leaf = JunosLeaf()
            documents = switch_documents([tmp_path / "pasted.txt"])
            assert wrong(judge([*leaf.clos.evidences(), *documents], CHECKS, SITE)) == []
