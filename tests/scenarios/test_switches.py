"""A Clos of switches and hosts: a healthy one raises nothing, a planted fault exactly its finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from preflight.archive import directory
from preflight.checks import registry
from preflight.evidence.document import from_document, to_document
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from preflight.redact import Redactor
from tests.support.clos import Clos
from tests.support.in_process import run

CHECKS = [check for check in registry().checks if check.switches]
SITE = from_data(
    {"switches": {"roce_priority": 3, "roce_dscp": 26, "dcqcn": True, "oversubscription": 1}}, "cluster.toml"
)

Fault = Callable[[Clos], object]


def report(clos: Clos, window_s: float | None = 60.0) -> dict[str, Any]:
    return judge(clos.evidences(window_s), CHECKS, SITE)


def bad(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return status, check and subject of all findings that are neither a pass nor a skip."""
    return [
        (finding["status"], finding["check"], finding["subject"])
        for finding in report["findings"]
        if finding["status"] not in ("pass", "skip")
    ]


def every_port(key: str, **fields: str | None) -> Fault:
    return lambda clos: [clos.set("leaf3", "CONFIG_DB", key.format(n * 8), **fields) for n in range(8)]


FAULTS: dict[str, tuple[Fault, tuple[str, str, str]]] = {
    "ECN off": (every_port("QUEUE|Ethernet{}|3", wred_profile=None), ("fail", "switch.ecn", "leaf3")),
    "lower threshold above the upper": (
        lambda clos: clos.set("leaf3", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold="2500000"),
        ("fail", "switch.ecn", "leaf3"),
    ),
    "headroom of nothing": (
        lambda clos: clos.set("spine1", "CONFIG_DB", "BUFFER_PROFILE|pg_lossless_400000_40m_profile", xoff="18432"),
        ("fail", "switch.headroom", "spine1 Ethernet0"),
    ),
    "headroom below the worst case": (
        lambda clos: clos.set("spine1", "CONFIG_DB", "BUFFER_PROFILE|pg_lossless_400000_40m_profile", xoff="80000"),
        ("warn", "switch.headroom", "spine1 Ethernet0"),
    ),
    "PFC on another priority at one leaf port": (
        lambda clos: clos.set("leaf1", "CONFIG_DB", "PORT_QOS_MAP|Ethernet8", pfc_enable="4"),
        ("fail", "link.pfc", "leaf1 Ethernet8 - gpu002 enp24s0"),
    ),
    "MTU at a spine port": (
        lambda clos: clos.set("spine2", "APPL_DB", "PORT_TABLE:Ethernet0", mtu="9000"),
        ("fail", "link.mtu", "leaf1 Ethernet48 - spine2 Ethernet0"),
    ),
    "DSCP map of one spine": (
        lambda clos: clos.set("spine2", "CONFIG_DB", "DSCP_TO_TC_MAP|ROCE", **{"26": "0"}),
        ("fail", "link.dscp", "spine2"),
    ),
    "slow receiver behind two tiers": (
        lambda clos: clos.pause("leaf3", "Ethernet8", 0.3).pause("spine1", "Ethernet32", 0.1).pause(
            "leaf1", "Ethernet32", 0.05),
        ("fail", "fabric.pause-root", "gpu010"),
    ),
    "storm of a NIC": (
        lambda clos: clos.pause("leaf3", "Ethernet8", 0.6).load("leaf3", "Ethernet8", 0.001),
        ("fail", "fabric.pause-root", "gpu010"),
    ),
    "incast": (
        lambda clos: clos.load("leaf3", "Ethernet8", 0.97).pause("spine1", "Ethernet32", 0.1),
        ("warn", "fabric.pause-root", "leaf3 Ethernet8"),
    ),
    "uplink collision": (
        lambda clos: clos.load("leaf1", "Ethernet32", 0.97).grow(
            "leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6),
        ("warn", "fabric.pause-root", "leaf1 Ethernet32"),
    ),
    "switches that wait for each other": (
        lambda clos: clos.pause("leaf1", "Ethernet32", 0.9).pause("spine1", "Ethernet16", 0.9).pause(
            "leaf2", "Ethernet48", 0.9).pause("spine2", "Ethernet0", 0.9),
        ("fail", "fabric.pause-root", "leaf1, leaf2, spine1, spine2"),
    ),
    "watchdog fired": (
        lambda clos: clos.grow("leaf1", "Ethernet8:3", PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED=1),
        ("fail", "switch.watchdog-fired", "leaf1 Ethernet8"),
    ),
    "lost codewords": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES=3),
        ("fail", "optics.fec-margin", "leaf1 Ethernet8"),
    ),
    "codewords near the limit": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S9=12),
        ("warn", "optics.fec-margin", "leaf1 Ethernet8"),
    ),
    "dark lane": (
        lambda clos: clos.set("leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", rx3power="-11.5"),
        ("fail", "optics.switch-end", "leaf1 Ethernet8"),
    ),
    "one lost packet": (
        lambda clos: clos.grow("leaf2", "Ethernet16:3", SAI_QUEUE_STAT_DROPPED_PACKETS=1),
        ("fail", "switch.lossless-drops", "leaf2 Ethernet16"),
    ),
}  # fmt: skip


def test_a_healthy_fabric_raises_nothing() -> None:
    judged = report(Clos())
    assert bad(judged) == []
    assert judged["exit_status"] == 0
    assert {finding["check"] for finding in judged["findings"]} == {check.id for check in CHECKS}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_finding_and_changes_nothing_else(name: str) -> None:
    plant, expected = FAULTS[name]
    clos = Clos()
    plant(clos)
    judged = report(clos)
    assert bad(judged) == [expected]
    assert len(judged["incidents"]) == (expected[0] != "unknown")
    assert judged["exit_status"] == {"fail": 1, "unknown": 3}.get(expected[0], 0)


HEALTHY: dict[str, Fault] = {
    "marks without pauses": lambda clos: clos.grow(
        "leaf1", "Ethernet32:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=10**6),
    "corrected codewords": lambda clos: clos.grow(
        "leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S2=10**6),
    "a full uplink without pauses": lambda clos: clos.load("leaf1", "Ethernet32", 0.98),
    "pauses below a thousandth": lambda clos: clos.pause("leaf1", "Ethernet32", 0.0005),
    "storms that ended before the window": lambda clos: [
        clos.grow_before("leaf1", "Ethernet8:3", f"PFC_WD_QUEUE_STATS_DEADLOCK_{what}", 4)
        for what in ("DETECTED", "RESTORED")
    ],
    "drops of a lossy queue": lambda clos: clos.grow("leaf2", "Ethernet16:0", SAI_QUEUE_STAT_DROPPED_PACKETS=900),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_what_looks_like_a_fault_and_is_none(name: str) -> None:
    clos = Clos()
    HEALTHY[name](clos)
    assert bad(report(clos)) == []


def test_a_spine_without_evidence_is_unknown_and_named() -> None:
    clos = Clos().without("spine1").pause("leaf1", "Ethernet32", 0.2)
    judged = bad(report(clos))
    assert ("unknown", "fabric.pause-root", "spine1") in judged
    assert {(status, check) for status, check, _ in judged} == {
        ("unknown", "fabric.pause-root"), ("unknown", "ethernet.oversubscription"),
    }  # fmt: skip


def test_ends_that_disagree_are_one_failure_and_their_cables_are_not_counted() -> None:
    clos = Clos().set("leaf1", "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet32", lldp_rem_sys_name="spine2")
    assert bad(report(clos)) == [
        ("fail", "link.join", "leaf1 Ethernet32"), ("unknown", "ethernet.oversubscription", "leaf1"),
    ]  # fmt: skip


def test_a_window_shorter_than_the_polling_is_unknown() -> None:
    judged = report(Clos(), 5.0)
    assert {(status, check) for status, check, _ in bad(judged)} == {
        ("unknown", "switch.lossless-drops"), ("unknown", "switch.watchdog-fired"),
    }  # fmt: skip
    assert "polled every 10 s" in str(judged["findings"])


def test_counters_that_were_cleared_show_no_growth() -> None:
    clos = Clos()
    clos.grow("leaf2", "Ethernet0", SAI_PORT_STAT_IF_IN_OCTETS=-(10**12) - 5000)
    clos.grow("leaf2", "Ethernet0:3", SAI_QUEUE_STAT_DROPPED_PACKETS=5)
    assert {(status, subject) for status, check, subject in bad(report(clos)) if check != "switch.answers"} == {
        ("unknown", "leaf2")
    }


def test_without_switches_their_checks_are_not_planned() -> None:
    judged = judge(Clos().hosts(), CHECKS, SITE)
    assert judged["coverage"]["without_switches"] == [check.id for check in CHECKS]
    assert judged["coverage"]["planned"] == 0


def test_what_one_reading_cannot_show_is_not_planned() -> None:
    judged = report(Clos(), None)
    assert judged["coverage"]["without_window"] == [check.id for check in CHECKS if check.window]
    assert judged["coverage"]["planned"] == sum(not check.window for check in CHECKS)


def test_a_host_is_not_judged_as_a_switch_nor_a_switch_as_a_host(tmp_path: Path) -> None:
    """Coverage counts the hosts alone; saved documents give the same findings."""
    clos = Clos()
    every_port("QUEUE|Ethernet{}|3", wred_profile=None)(clos)
    direct = report(clos)
    assert direct["coverage"]["nodes"] == {"planned": 16, "answered": 16, "no_answer": 0}
    directory.save(tmp_path / "all", clos.evidences())
    for file, text in clos.dumps("leaf3"):
        (tmp_path / "switches" / "leaf3").mkdir(parents=True, exist_ok=True)
        (tmp_path / "switches" / "leaf3" / file).write_text(text)
    (tmp_path / "all" / "leaf3.json").unlink()
    (tmp_path / "cluster.toml").write_text("[switches]\nroce_priority = 3\ndcqcn = true\n")
    printed = run(
        "judge", str(tmp_path / "all"), "--switch-files", str(tmp_path / "switches"), "--only", "switch.ecn",
        "--cluster", str(tmp_path / "cluster.toml"), "--save", str(tmp_path / "saved"), expect=(1,),
    )  # fmt: skip
    assert "ECN is off on the lossless queue 3" in printed
    assert (tmp_path / "saved" / "leaf3.json").read_text().count("preflight.evidence/2") == 1


def test_a_redacted_switch_has_no_name_or_address_and_the_same_verdicts() -> None:
    clos = Clos()
    every_port("QUEUE|Ethernet{}|3", wred_profile=None)(clos)
    redactor = Redactor(key=b"0" * 32)
    documents = [to_document(evidence) for evidence in clos.switches()]
    for document in documents:
        redactor.learn_value(document)
    redacted = [redactor.value(document) for document in documents]
    text = json.dumps(redacted)
    for original in ("leaf1", "spine2", "gpu007", "02:5e:00:00:00:10", "02:00:00:00:01:03"):
        assert original not in text, original
    judged = judge([from_document(document, "redacted") for document in redacted], CHECKS, SITE)
    original_report = judge(clos.switches(), CHECKS, SITE)
    assert sorted(map(itemgetter(0, 1), bad(judged))) == sorted(map(itemgetter(0, 1), bad(original_report)))
