"""Pasted sessions and databases of switches: judged as far as a single switch allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.facts.switch import linux
from preflight.parsers.switch.linux_answers import BGP, LINK, answer
from preflight.recognition import open_sources, read
from preflight.recognition.detector import TextPart
from preflight.recognition.switch_output import EOS_SESSION, SONIC_DUMP
from tests.support.clos import Clos, sonic_session
from tests.support.eos import EosLeaf
from tests.support.junos import JunosLeaf
from tests.support.linux_switch import LinuxLeaf


def parts(tmp_path: Path, text: str) -> list[TextPart]:
    (tmp_path / "pasted.txt").write_text(text)
    return [part for source in open_sources((str(tmp_path / "pasted.txt"),)) for part in read(source)]


def statuses(part: TextPart) -> set[tuple[str, str]]:
    return {(finding["check"], finding["status"]) for finding in part.findings}


def test_a_healthy_session_passes_what_it_shows(tmp_path: Path) -> None:
    (part,) = parts(tmp_path, EosLeaf().session())
    assert (part.kind, part.taken.facts["name"], part.taken.facts["ports_up"]) == (EOS_SESSION, "leaf4", 8)
    assert statuses(part) == {("optics.switch-end", "pass"), ("optics.fec-margin", "pass")}
    assert part.read_in_full


@pytest.mark.parametrize(("state", "status"), [("Established", "pass"), ("Active", "fail"), ("Idle (Admin)", "pass")])
def test_a_session_of_linux_is_judged_by_its_bgp(tmp_path: Path, state: str, status: str) -> None:
    leaf = LinuxLeaf()
    leaf.peers["swp6"]["state"] = state
    (part,) = parts(tmp_path, leaf.session())
    assert (part.kind, part.taken.facts["name"], part.taken.facts["ports_up"]) == ("linux switch session", "leaf4", 8)
    assert statuses(part) == {("switch.bgp", status), ("optics.fec-margin", "unknown")}  # no port counts codewords
    assert part.read_in_full


@pytest.mark.parametrize(
    "command", ["cat /proc/uptime\n600000.25 7000.10", "nproc\n128", "date\nSat Nov 21 03:00:00 2026"]
)
def test_a_session_of_a_host_is_no_session_of_a_switch(tmp_path: Path, command: str) -> None:
    for prompt in ("root@gpu001:~# ", "root@gpu001# "):
        text = f"{prompt}show_gids\nDEV PORT INDEX GID\n{prompt}{command}\n{prompt}exit\n"
        assert not [part for part in parts(tmp_path, text) if part.kind.endswith("session")]


def test_a_session_of_junos_is_read(tmp_path: Path) -> None:
    (part,) = parts(tmp_path, JunosLeaf().session())
    assert (part.kind, part.taken.facts["name"], part.taken.facts["ports_up"]) == ("junos session", "leaf4", 8)
    assert {status for _, status in statuses(part)} <= {"unknown"}


def test_the_kernel_of_sonic_counts_only_its_own_packets() -> None:
    """Its ports have other names than those of Cumulus Linux, whose kernel shows the counters of the chip."""
    text = LinuxLeaf().texts()[LINK]
    rows = {name: answer(LINK, text.replace("swp1", name))["interfaces"][name] for name in ("swp1", "Ethernet0")}
    assert (rows["swp1"]["rx_bytes"], rows["Ethernet0"]["rx_bytes"]) == (7000, None)
    assert rows["swp1"]["mtu"] == rows["Ethernet0"]["mtu"] == 9216


@pytest.mark.parametrize(("port", "reason"), [
    ("swp", "no recorded answer of NVUE was available"), ("Ethernet", "on SONiC, its databases do"),
])  # fmt: skip
def test_what_the_kernel_does_not_show_is_unknown_for_the_reason_of_its_platform(
    tmp_path: Path, port: str, reason: str
) -> None:
    """SONiC has no NVUE: what its kernel does not show is in its databases."""
    (part,) = parts(tmp_path, LinuxLeaf().session().replace("swp", port))
    (tmp_path / "leaf4.txt").write_text(part.text)
    facts = linux.facts(*switch_documents([tmp_path / "leaf4.txt"]))
    assert facts.gaps["pfc"].endswith(reason)
    assert ("nv show" in facts.keys["pfc"]) == ("sonic-db-dump" not in facts.remedy) == (port == "swp")


@pytest.mark.parametrize(("low", "status"), [("1000000", "pass"), ("3000000", "fail")])
def test_a_session_of_sonic_is_judged_as_its_databases(tmp_path: Path, low: str, status: str) -> None:
    clos = Clos().set("leaf3", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold=low)
    (part,) = parts(tmp_path, sonic_session("leaf3", dict(clos.dumps("leaf3"))))
    assert (part.kind, part.taken.facts["name"], part.taken.facts["ports_up"]) == ("sonic session", "leaf3", 8)
    assert [item for item in statuses(part) if item[0] == "switch.ecn"] == [("switch.ecn", status)]
    assert ("switch.lossless-drops", "pass") in statuses(part)
    assert part.read_in_full


def test_lines_of_sudo_and_vtysh_are_no_part_of_an_answer() -> None:
    notes = "[sudo] password for cumulus:\n% Can't open configuration file /etc/frr/vtysh.conf\n"
    text = LinuxLeaf().texts()[BGP]
    assert answer(BGP, notes + text) == answer(BGP, text)
    with pytest.raises(ValueError, match="the answer is empty: '% BGP instance not found'"):
        answer(BGP, "% BGP instance not found\n")


def test_a_sick_session_fails_and_lists_what_is_not_read(tmp_path: Path) -> None:
    leaf = EosLeaf()
    for module in leaf.port("Ethernet2/1", "show interfaces transceiver dom thresholds"):
        module["parameters"]["rxPower"]["channels"]["4"] = -31.0
    (part,) = parts(tmp_path, leaf.session().replace("leaf4#exit", "leaf4#show clock\nSat Nov 21\nleaf4#exit"))
    assert ("optics.switch-end", "fail") in statuses(part)
    assert "the output of `show clock` is not read" in [gap.what for gap in part.taken.cut]


def test_a_table_in_a_session_is_read_too(tmp_path: Path) -> None:
    errors = (
        "leaf4#show interfaces counters errors\nPort     FCS   Align  Symbol\nEt7/1   4711       0       0\nleaf4#exit"
    )
    session, table = parts(tmp_path, EosLeaf().session().replace("leaf4#exit", errors))
    assert not [gap for gap in session.taken.cut if "errors" in gap.what]
    assert statuses(table) == {("counters.link-quality", "unknown")}


def test_a_session_that_is_cut_is_not_a_pass(tmp_path: Path) -> None:
    text = EosLeaf().session()
    (part,) = parts(tmp_path, text[: text.rindex('"lldpNeighbors"')])
    assert not part.read_in_full


@pytest.mark.parametrize(("low", "status"), [("1000000", "pass"), ("3000000", "fail")])
def test_a_configuration_of_sonic_is_judged(tmp_path: Path, low: str, status: str) -> None:
    clos = Clos().set("leaf3", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold=low)
    (part,) = parts(tmp_path, dict(clos.dumps("leaf3"))["CONFIG_DB.json"])
    assert (part.kind, part.taken.facts["name"], part.taken.facts["ports"]) == (SONIC_DUMP, "leaf3", 8)
    assert [item for item in statuses(part) if item[0] == "switch.ecn"] == [("switch.ecn", status)]


@pytest.mark.parametrize("value", [
    {"kind": "Pod", "PORT": "9216"}, {"PORT": []}, {"a": {"b": "PORT_QOS_MAP"}}, {}, {"QUEUE": {"type": "hash"}},
])  # fmt: skip
def test_other_objects_are_no_database(tmp_path: Path, value: Any) -> None:
    assert all(part.kind != SONIC_DUMP for part in parts(tmp_path, json.dumps(value)))


def test_a_prompt_of_a_host_is_no_session(tmp_path: Path) -> None:
    text = "gpu001# show version\nUsage: show\ngpu001# shutdown -r now\n"
    assert [part.kind for part in parts(tmp_path, text)] != [EOS_SESSION]
