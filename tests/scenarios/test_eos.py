"""A Clos with an Arista EOS leaf: visible facts are judged, hidden ones are unknown by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document, to_document
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from preflight.redact import Redactor
from tests.support.eos import NAME, EosLeaf

CHECKS = [check for check in registry().checks if check.switches]
SITE = from_data({"switches": {"roce_priority": 3, "roce_dscp": 26, "dcqcn": True, "oversubscription": 1, "flows": 16}},
                 "cluster.toml")  # fmt: skip


def document(tmp_path: Path, leaf: EosLeaf) -> Evidence:
    (tmp_path / "pasted.txt").write_text(leaf.session())
    (evidence,) = switch_documents([tmp_path / "pasted.txt"])
    return evidence


def judged(tmp_path: Path, leaf: EosLeaf) -> dict[str, Any]:
    return judge(leaf.evidences(document(tmp_path, leaf)), CHECKS, SITE)


def wrong(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(finding["status"], finding["check"], finding["subject"]) for finding in report["findings"]
            if finding["status"] in ("fail", "warn")]  # fmt: skip


def test_a_healthy_leaf_raises_nothing_and_what_it_does_not_show_is_unknown(tmp_path: Path) -> None:
    report = judged(tmp_path, EosLeaf())
    assert wrong(report) == []
    by_check: dict[str, set[str]] = {}
    for finding in report["findings"]:
        if finding["status"] == "unknown":
            by_check.setdefault(finding["check"], set()).add(finding["message"])
    unread = {check: words for check, words in by_check.items() if any("no recorded EOS answer" in w for w in words)}
    assert set(by_check) - set(unread) == {"switch.hash"}  # the seed of a leaf next to the spines is not shown
    assert "eos:show priority-flow-control" in str(unread["link.pfc"] | unread["switch.ecn"])
    passed = {finding["check"]: finding["message"] for finding in report["findings"] if finding["status"] == "pass"}
    assert passed["link.join"].startswith("both ends of 32 cables")
    assert "32 cables" in passed["link.mtu"]
    assert "32 cables" in passed["link.speed-fec"]
    assert passed["optics.switch-end"].endswith("; 8 of them show only received light")
    assert {"optics.fec-margin", "ethernet.oversubscription", "switch.uplink-balance"} <= set(passed)


def _uncorrected(leaf: EosLeaf) -> None:
    (phy,) = leaf.port("Ethernet3/1", "show interfaces phy detail", later=True)
    phy["phyStatuses"][2]["fec"]["uncorrectedCodewords"]["value"] += 7


def _ratio(leaf: EosLeaf, value: float) -> None:
    for phy in leaf.port("Ethernet3/1", "show interfaces phy detail"):
        phy["phyStatuses"][2]["preFecBer"]["value"] = value


def _dark_lane(leaf: EosLeaf) -> None:
    for module in leaf.port("Ethernet2/1", "show interfaces transceiver dom thresholds"):
        module["parameters"]["rxPower"]["channels"]["3"] = -12.5


def _other_neighbour(leaf: EosLeaf) -> None:
    for row in leaf.port("Ethernet5/1", "show lldp neighbors detail"):
        row["lldpNeighborInfo"][0]["systemName"] = "spine2"


@pytest.mark.parametrize(("plant", "check", "subject"), [
    (lambda leaf: leaf.change("Ethernet1/1", mtu=1500), "link.mtu", "leaf4 Ethernet1/1 - gpu013 enp24s0"),
    (lambda leaf: leaf.change("Ethernet1/1", bandwidth=200_000_000_000), "link.speed-fec",
     "leaf4 Ethernet1/1 - gpu013 enp24s0"),
    (_uncorrected, "optics.fec-margin", "leaf4 Ethernet3/1"),
    (lambda leaf: _ratio(leaf, 5e-4), "optics.fec-margin", "leaf4 Ethernet3/1"),
    (_dark_lane, "optics.switch-end", "leaf4 Ethernet2/1"),
    (_other_neighbour, "link.join", "leaf4 Ethernet5/1"),
])  # fmt: skip
def test_a_fault_of_the_leaf_is_one_finding(
    tmp_path: Path, plant: Callable[[EosLeaf], object], check: str, subject: str
) -> None:
    leaf = EosLeaf()
    plant(leaf)
    assert wrong(judged(tmp_path, leaf)) == [("fail", check, subject)]


def test_answers_in_files_give_the_findings_of_the_session(tmp_path: Path) -> None:
    leaf = EosLeaf()
    _dark_lane(leaf)
    folder = tmp_path / "leaf-b"
    folder.mkdir()
    for number, reading in ((1, leaf.now), (2, leaf.later)):
        for question, answer in reading.items():
            (folder / f"{question.replace(' ', '_')}_{number}.json").write_text(json.dumps(answer))
    (from_files,) = switch_documents([folder])
    session = document(tmp_path, leaf)
    assert {name for name in from_files.records if name not in session.records} == {"eos:show processes top once"}
    assert {name: from_files.records[name] for name in session.records} == session.records
    first, second = (judge(leaf.evidences(leaf4), CHECKS, SITE) for leaf4 in (from_files, session))
    assert {**first, "run": 0} == {**second, "run": 0}


def test_a_counter_of_one_reading_or_an_unknown_clock_shows_no_growth(tmp_path: Path) -> None:
    leaf = EosLeaf()
    for name in leaf.now["show interfaces"]["interfaces"]:
        leaf.port(name)[1].get("interfaceCounters", {}).pop("counterRefreshTime", None)
    messages = [f["message"] for f in judged(tmp_path, leaf)["findings"] if f["check"] == "optics.fec-margin"]
    assert "leaf4: the growth of its counters is unknown: the times of its two readings are not known" in messages


def test_serial_numbers_are_not_stored_and_a_redacted_leaf_has_no_name_or_address(tmp_path: Path) -> None:
    original = to_document(document(tmp_path, EosLeaf()))
    assert "SER0000" not in json.dumps(original)
    redactor = Redactor(key=b"0" * 32)
    redactor.learn_value(original)
    text = json.dumps(redactor.value(original))
    for name in (NAME, "spine2", "gpu013", "02:5e:00:00:00:13", "025e.0000.00aa", "0200.0000.0301", "example.net"):
        assert name not in text, name
    assert from_document(json.loads(text), "redacted").platform == "eos"
