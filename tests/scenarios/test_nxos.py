"""A Clos with a Cisco NX-OS leaf: text and JSON give one result, and hidden facts are unknown by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.evidence.document import Evidence, from_document, to_document
from preflight.facts.switch import nxos
from preflight.facts.switch.model import SwitchFacts
from preflight.judge import judge
from preflight.parsers.switch import nxos_answers
from preflight.redact import Redactor
from tests.scenarios.test_eos import CHECKS, SITE, wrong
from tests.support.nxos import NxosLeaf

PORT = "Ethernet1/1"
SHOW, DOM, LLDP = "show interface", "show interface transceiver details", "show lldp neighbors detail"


def document(tmp_path: Path, text: str) -> Evidence:
    (tmp_path / "pasted.txt").write_text(text)
    (evidence,) = switch_documents([tmp_path / "pasted.txt"])
    return evidence


def judged(tmp_path: Path, leaf: NxosLeaf, *, as_json: bool = False) -> dict[str, Any]:
    return judge(leaf.evidences(document(tmp_path, leaf.session(as_json=as_json))), CHECKS, SITE)


def test_a_healthy_leaf_raises_nothing_and_what_it_does_not_show_is_unknown(tmp_path: Path) -> None:
    report = judged(tmp_path, NxosLeaf())
    assert wrong(report) == []
    unknown = {finding["check"]: finding["message"] for finding in report["findings"] if finding["status"] == "unknown"}
    assert "no recorded NX-OS answer was available" in unknown["switch.ecn"]
    passed = {finding["check"]: finding["message"] for finding in report["findings"] if finding["status"] == "pass"}
    assert passed["link.join"].startswith("both ends of 32 cables")
    assert "32 cables" in passed["link.mtu"]
    assert "32 cables" in passed["link.speed-fec"]
    assert passed["optics.switch-end"].startswith("48 modules")
    leaf4 = [finding for finding in report["findings"] if finding["status"] == "pass" and "leaf4" in finding["message"]]
    assert leaf4 == []


def test_text_and_json_are_one_record_with_the_window_of_the_uptime(tmp_path: Path) -> None:
    """The findings are equal byte for byte."""
    leaf = NxosLeaf()
    leaf.ports[PORT]["rx"] = [-1.0, None, -12.5, -1.0]
    text, of_json = (document(tmp_path, leaf.session(as_json=as_json)) for as_json in (False, True))
    assert (text.node, text.platform, text.records) == (of_json.node, of_json.platform, of_json.records)
    assert nxos.facts(text).window_s == 60
    assert "SER0000" not in json.dumps(text.records)
    first, second = (json.dumps(judged(tmp_path, leaf, as_json=way)["findings"]) for way in (False, True))
    assert first == second
    assert wrong(judged(tmp_path, leaf)) == [("fail", "optics.switch-end", f"leaf4 {PORT}")]


def test_one_row_is_an_object_and_several_are_a_list() -> None:
    for command, answer in NxosLeaf().rows().items():
        for table, rows in answer.items():
            if table.startswith("TABLE_"):
                (name,) = rows
                row = rows[name][-1]
                as_list, as_object, as_tables = (
                    nxos_answers.record(command, json.dumps(shape))
                    for shape in ({table: {name: [row]}}, {table: {name: row}}, {table: [{name: row}]})
                )
                assert as_list == as_object == as_tables
                assert as_list["status"] == "ok"


def test_a_redacted_leaf_has_no_name_or_address(tmp_path: Path) -> None:
    original = to_document(document(tmp_path, NxosLeaf().session(as_json=False)))
    redactor = Redactor(key=b"0" * 32)
    redactor.learn_value(original)
    text = json.dumps(redactor.value(original))
    for name in ("leaf4", "spine2", "gpu013", "025e.0000.00aa", "0200.0000.0301"):
        assert name in json.dumps(original)
        assert name not in text, name
    assert from_document(json.loads(text), "redacted").platform == "nxos"


@pytest.mark.parametrize(("plant", "check", "subject"), [
    ({"mtu": 1500}, "link.mtu", f"leaf4 {PORT} - gpu013 enp24s0"),
    ({"speed": "200 Gb/s"}, "link.speed-fec", f"leaf4 {PORT} - gpu013 enp24s0"),
    ({"system": "gpu014"}, "link.join", f"leaf4 {PORT}"),
])  # fmt: skip
def test_a_fault_of_the_leaf_is_one_finding(tmp_path: Path, plant: dict[str, Any], check: str, subject: str) -> None:
    leaf = NxosLeaf()
    leaf.ports[PORT] |= plant
    assert wrong(judged(tmp_path, leaf)) == [("fail", check, subject)]


def test_a_weak_lane_that_may_be_another_breakout_port_is_unknown(tmp_path: Path) -> None:
    leaf = NxosLeaf()
    leaf.ports["Ethernet1/9/1"] = {**leaf.ports[PORT], "rx": [-1.0, -30.0, -1.0, -1.0], "system": "", "port": ""}
    report = judged(tmp_path, leaf)
    assert wrong(report) == []
    assert "leaf4 Ethernet1/9/1: lane 2 receives -30 dBm" in str(report["findings"])


def test_the_mtu_of_older_switches_is_in_a_policy_so_1500_is_unknown(tmp_path: Path) -> None:
    leaf = NxosLeaf(model="Nexus 5596")
    leaf.ports[PORT]["mtu"] = 1500
    report = judged(tmp_path, leaf)
    assert wrong(report) == []
    assert f"the MTU of leaf4 {PORT} is unknown" in str(report["findings"])


@pytest.mark.parametrize(("hurt", "gap"), [
    (lambda text: text.replace("Chassis id: ", "Chassis: "), "lldp"),
    (lambda text: text.replace("Ethernet1/", "port 1/"), "ports"),
    (lambda text: text.replace("NXOS: version", "version"), "name"),
    (lambda text: text.replace("transceiver is", "x").replace("Ethernet1", "\x1b[2JE1"), "optics"),
])  # fmt: skip
def test_another_form_of_an_answer_is_unknown(tmp_path: Path, hurt: Callable[[str], str], gap: str) -> None:
    facts = nxos.facts(document(tmp_path, hurt(NxosLeaf().session(as_json=False))))
    assert "show" in facts.gaps[gap]


def test_values_that_are_none_are_not_facts() -> None:
    row = {
        "interface": PORT,
        "state": ["up"],
        "admin_state": 7,
        "eth_mtu": "-",
        "eth_speed": "9" * 99,
        "eth_inbytes": -1,
    }
    value = {"TABLE_interface": {"ROW_interface": [row, 5, {"interface": "Ethernet1/1; reboot"}, {"interface": None}]}}
    made = nxos_answers.answer("show interface", json.dumps(value))["interfaces"]
    assert set(made) == {PORT}
    assert set(map(str, made[PORT].values())) == {"", "None"}


#: Two answers with damage -> a port, and its facts that are unknown then; no other value changes.
DAMAGED: dict[str, tuple[Callable[[dict[str, str]], dict[str, str]], Callable[[SwitchFacts], object]]] = {
    "a lane without its power": (
        lambda texts: edit(texts, DOM, r"(?s)(Lane Number:1.*?)  Rx Power[^\n]*\n", r"\1"),
        lambda facts: facts.optics[PORT].rx_dbm == (None, -2.0, -3.0, -4.0),
    ),
    "the head of a lane is lost": (
        lambda texts: edit(texts, DOM, r"    Lane Number:3[^\n]*\n", ""), lambda facts: PORT not in facts.optics,
    ),
    "the head of the next module is lost": (
        lambda texts: edit(texts, DOM, r"Ethernet1/2\n", ""), lambda facts: PORT not in facts.optics,
    ),
    "other columns of thresholds": (
        lambda texts: edit(texts, DOM, r"7\.00 dBm   -9\.90 dBm", "-9.90 dBm    7.00 dBm", 0),
        lambda facts: not [name for name in facts.optics[PORT].thresholds if name.startswith("rx")],
    ),
    "power in another unit": (
        lambda texts: edit(texts, DOM, r"(Rx Power +)-1\.00 dBm", r"\g<1> 0.79 mW "),
        lambda facts: facts.optics[PORT].rx_dbm[0] is None,
    ),
    "the head of the next port is lost": (
        lambda texts: edit(texts, SHOW, r"(?s)    7 output packets.*?(?=    7 unicast)", ""),
        lambda facts: facts.first.ports[PORT].in_octets is None and facts.ports[PORT].mtu is None,
    ),
    "an answer that ends within a word": (
        lambda texts: {**texts, SHOW: texts[SHOW].partition(f"{PORT} is up")[0] + f"{PORT} is u"},
        lambda facts: facts.ports[PORT].up is None and facts.ports[PORT].heard,
    ),
    "a description that looks like a value": (
        lambda texts: edit(texts, SHOW, r"  MTU", "  Description: to full-duplex, 10 Gb/s, 9 input errors\n  MTU"),
        lambda facts: (facts.ports[PORT].speed_gbps, facts.first.ports[PORT].in_errors) == (400, 0),
    ),
    "a state of another word": (
        lambda texts: edit(texts, SHOW, rf"{PORT} is up", f"{PORT} is initializing"),
        lambda facts: facts.ports[PORT].up is None,
    ),
    "a neighbour without its first lines": (
        lambda texts: edit(texts, LLDP, r"Chassis id[^\n]*\nPort id[^\n]*\n", ""),
        lambda facts: facts.ports[PORT].heard is None and "gpu014" in str(facts.ports["Ethernet1/2"].heard),
    ),
    "half of two neighbours": (
        lambda texts: edit(texts, LLDP, r"(?s)Local Port id.*?(?=Local Port id: Eth1/2)", ""),
        lambda facts: facts.ports[PORT].heard is None,
    ),
    "neighbours in another order of lines": (
        lambda texts: edit(texts, LLDP, r"(Chassis id[^\n]*\n)(Port id[^\n]*\n)(Local[^\n]*\n)", r"\3\1\2", 0),
        lambda facts: "lldp" in facts.gaps,
    ),
}  # fmt: skip


def edit(texts: dict[str, str], command: str, pattern: str, by: str, count: int = 1) -> dict[str, str]:
    edited, number = re.subn(pattern, by, texts[command], count=count)
    assert number, pattern
    return {**texts, command: edited}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_answer_makes_values_unknown_and_moves_none(name: str) -> None:
    damage, holds = DAMAGED[name]
    leaf = NxosLeaf()
    leaf.ports[PORT]["rx"] = [-1.0, -2.0, -3.0, -4.0]
    texts = damage(leaf.texts())
    read = nxos_answers.records((command, nxos_answers.record(command, text)) for command, text in texts.items())
    assert holds(nxos.facts(Evidence("leaf4", "", read, kind="switch", platform="nxos")))
