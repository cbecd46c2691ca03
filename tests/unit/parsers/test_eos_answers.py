"""Sessions and answers of EOS switches, healthy and hostile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.archive.directory import ArchiveError
from preflight.archive.switch_files import switch_documents
from preflight.evidence.document import EvidenceError
from preflight.facts.switch import eos
from preflight.parsers.switch import eos_answers
from preflight.parsers.switch.session import COMMANDED
from preflight.parsers.switch.session import parse as session_parse
from tests.support.eos import EosLeaf

VERSION = '{"modelName": "X", "systemMacAddress": "02:5e:00:00:00:13"}'


@pytest.mark.parametrize(("typed", "question"), [
    ("show interfaces | json", "show interfaces"), ("sh int phy det | json", "show interfaces phy detail"),
    ("show  lldp neighbors detail | json | no-more", "show lldp neighbors detail"), ("sh ver|json", "show version"),
    ("show running-config", None), ("sh", None), ("configure", None), ("show interfaces status", None), ("", None),
])  # fmt: skip
def test_typed_commands(typed: str, question: str | None) -> None:
    assert eos_answers.question(typed) == question


@pytest.mark.parametrize("platform", ["eos", "nxos"])
def test_every_command_only_shows(platform: str) -> None:
    assert all(command.startswith("show ") and "|" not in command for command in COMMANDED[platform].commands)


@pytest.mark.parametrize(("answer", "why"), [
    ("% Invalid input", "not JSON: '% Invalid input'"), ("", "not JSON"), ("<html>log in</html>", "not JSON: '<html>"),
    ('{"modelName": "X", ', "line 1"), ('{"errors": ["Invalid input (at token 1)"]}', "rejected the command: Invalid"),
    ('{"bios_ver_str": "07.66"}', "none of the fields modelName, version"), 
    ("Arista vEOS\n", "not JSON: 'Arista vEOS'"),
])  # fmt: skip
def test_answers_that_are_none(answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".*") as raised:
        eos_answers.answer("show version", answer)
    assert why in str(raised.value)


@pytest.mark.parametrize("prompt", ["leaf4#", "leaf4>", "leaf4(s1)#", "leaf4.14:02:11#", "leaf4(s1)(config)# "])
def test_prompts(prompt: str) -> None:
    session = session_parse(f"motd: no # here\r\n{prompt}sh ver | json\r\n{VERSION}\r\n{prompt}\r\n")
    assert session is not None
    assert (session.name, [command for command, _ in session.answers]) == ("leaf4", ["show version"])


def test_a_pager_and_escapes_of_a_terminal_are_removed() -> None:
    half = len(VERSION) // 2
    text = f"leaf4#show version | json\n{VERSION[:half]}\n --More-- \r\x1b[K{VERSION[half:]}\nleaf4#"
    session = session_parse(text)
    assert session is not None
    with pytest.raises(ValueError, match="line 1"):  # a value cannot continue on the next line
        eos_answers.answer(*session.answers[0])
    paged = session_parse(f"leaf4#show version | json\n{{\n --More-- \r\x1b[K{VERSION[1:]}\nleaf4#")
    assert paged is not None
    assert eos_answers.answer(*paged.answers[0])["modelName"] == "X"


def test_a_text_without_a_question_is_no_session() -> None:
    assert session_parse("root@gpu001:~# nvidia-smi\n# show version\nleaf4# configure\n") is None


def test_one_refused_command_is_unknown_and_the_others_are_read(tmp_path: Path) -> None:
    leaf = EosLeaf()
    text = leaf.session()
    dom = json.dumps(leaf.now["show interfaces transceiver dom thresholds"], indent=4)
    (tmp_path / "a.log").write_text(text.replace(dom, "% Invalid input"))
    (evidence,) = switch_documents([tmp_path / "a.log"])
    facts = eos.facts(evidence)
    assert "% Invalid input" in facts.gaps["optics"]
    assert len(facts.ports) == 8
    with pytest.raises(EvidenceError):
        evidence.complete_record("eos:show interfaces transceiver dom thresholds")


def test_hostile_values_are_not_facts(tmp_path: Path) -> None:
    leaf = EosLeaf()
    leaf.change("Ethernet1/1", mtu=-5, bandwidth="fast", interfaceStatus=["x"], lineProtocolStatus=None)
    leaf.change("Ethernet2/1", mtu=True, bandwidth=1e400, interfaceCounters=[1, 2])
    for reading in (leaf.now, leaf.later):
        reading["show interfaces"]["interfaces"]["Ethernet9/1; reboot"] = {"mtu": 1}
        reading["show interfaces"]["interfaces"]["Ethernet3/1"] = "gone"
        reading["show lldp neighbors detail"]["lldpNeighbors"]["Ethernet1/1"]["lldpNeighborInfo"] *= 2
        reading["show lldp neighbors detail"]["lldpNeighbors"]["Ethernet2/1"] = {"lldpNeighborInfo": {"a": 1}}
    (tmp_path / "a.log").write_text(leaf.session())
    (evidence,) = switch_documents([tmp_path / "a.log"])
    facts = eos.facts(evidence)
    port = facts.ports["Ethernet1/1"]
    assert (port.mtu, port.speed_gbps, port.up, port.admin_up, port.heard) == (None, None, None, None, None)
    assert facts.ports["Ethernet2/1"].mtu is None
    assert facts.ports["Ethernet2/1"].heard is None
    assert set(facts.ports) == {f"Ethernet{number}/1" for number in (1, 2, 4, 5, 6, 7, 8)}


def test_a_file_of_another_device_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "show_version.json").write_text('{"header_str": "Some Operating System"}')
    with pytest.raises(ArchiveError, match=r"none of the fields modelName.*header_str"):
        switch_documents([tmp_path / "show_version.json"])
    (tmp_path / "other.txt").write_text("\n Ethernet1 is up\n")
    with pytest.raises(ArchiveError, match="begins with 'Ethernet1 is up'"):
        switch_documents([tmp_path / "other.txt"])
