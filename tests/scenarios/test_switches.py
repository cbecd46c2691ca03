"""A Clos of switches and hosts: a healthy one has no finding, a planted fault exactly its finding."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from preflight.archive import directory
from preflight.archive.switch_files import switch_documents
from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document, to_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from preflight.redact import Redactor
from preflight.reports.html_page import render
from preflight.schemas.conform import find_error
from tests.support.clos import Clos, Database
from tests.support.in_process import run
from tests.support.wide_switches import wide_switch

CHECKS = [check for check in registry().checks if check.switches]


def site(flows: int = 16) -> Cluster:
    """Return the expectations of the fabric."""
    table = {"roce_priority": 3, "roce_dscp": 26, "dcqcn": True, "oversubscription": 1, "flows": flows}
    return from_data({"switches": table}, "cluster.toml")


SITE = site()

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


PROFILE = "BUFFER_PROFILE|pg_lossless_400000_40m_profile"


def unused(clos: Clos, switch: str) -> None:
    """Add ports without a cable: PFC on, admin up, no link, counters at rest."""
    for place in range(8, 40):
        port = f"Ethernet{place * 8}"
        for key in ("PORT|{}", "PORT_QOS_MAP|{}", "QUEUE|{}|3", "BUFFER_PG|{}|3", "PFC_WD|{}"):
            row = clos.databases[switch]["CONFIG_DB"][key.format("Ethernet0")]
            clos.set(switch, "CONFIG_DB", key.format(port), **row)
        clos.set(switch, "CONFIG_DB", f"PORT|{port}", alias=f"etp{place + 1}")
        clos.set(switch, "CONFIG_DB", "CABLE_LENGTH|AZURE", **{port: "40m"})
        clos.set(switch, "APPL_DB", f"PORT_TABLE:{port}", alias=f"etp{place + 1}", oper_status="down",
                 admin_status="up", mtu="9216", speed="400000")  # fmt: skip
        for later in (False, True):
            counters = clos.later[switch] if later else clos.databases[switch]["COUNTERS_DB"]
            for kind, source, name in (("PORT", "Ethernet0", port), ("QUEUE", "Ethernet0:3", f"{port}:3"),
                                       ("PG", "Ethernet0:pg3", f"{port}:3")):  # fmt: skip
                oid = f"oid:0xff{place:04x}{kind.lower()}"
                counters[f"COUNTERS_{kind}_NAME_MAP"][name] = oid
                counters[f"COUNTERS:{oid}"] = dict(clos.counters(switch, source))


def one_link_to_each_leaf(clos: Clos) -> None:
    """Remove every second link to a spine, and give all switches one seed: no spine has a choice."""
    for leaf in ("leaf1", "leaf2", "leaf3", "leaf4"):
        clos.set(leaf, "APPL_DB", "SWITCH_TABLE:switch", ecmp_hash_seed="25")
        for port in ("Ethernet40", "Ethernet56", "Ethernet16", "Ethernet24"):
            shut(clos, leaf, port)
        clos.heard = {host: end for host, end in clos.heard.items() if end[1] not in ("etp3", "etp4")}
    for spine in ("spine1", "spine2"):
        for port in ("Ethernet8", "Ethernet24", "Ethernet40", "Ethernet56"):
            shut(clos, spine, port)


def shut(clos: Clos, switch: str, port: str) -> None:
    """Disable a port: no neighbour, no link."""
    clos.set(switch, "APPL_DB", f"PORT_TABLE:{port}", oper_status="down", admin_status="down")
    clos.set(switch, "CONFIG_DB", f"PORT|{port}", admin_status="down")
    clos.drop(switch, "APPL_DB", f"LLDP_ENTRY_TABLE:{port}")


def peer_link(clos: Clos) -> None:
    """Connect leaf1 and leaf2 without PFC; the cable carries almost nothing."""
    for switch, other in (("leaf1", "leaf2"), ("leaf2", "leaf1")):
        clos.set(switch, "CONFIG_DB", "PORT|Ethernet64", alias="etp9", speed="400000", mtu="9216", admin_status="up")
        clos.set(switch, "APPL_DB", "PORT_TABLE:Ethernet64", alias="etp9", speed="400000", mtu="9216",
                 oper_status="up", admin_status="up", fec="rs", flap_count="1")  # fmt: skip
        clos.set(switch, "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet64", lldp_rem_sys_name=other, lldp_rem_port_id="etp9")
        for later in (False, True):
            counters = clos.later[switch] if later else clos.databases[switch]["COUNTERS_DB"]
            counters["COUNTERS_PORT_NAME_MAP"]["Ethernet64"] = "oid:0xabcdef"
            counters["COUNTERS:oid:0xabcdef"] = dict(clos.databases[switch]["COUNTERS_DB"][
                "COUNTERS:" + counters["COUNTERS_PORT_NAME_MAP"]["Ethernet0"]])  # fmt: skip


def half_rate_uplinks(clos: Clos) -> None:
    """Give leaf2 two uplinks of 400 and two of 200 Gb/s, each loaded by its rate, and hosts at 200 Gb/s."""
    for switch, ports in (("leaf2", ("Ethernet48", "Ethernet56")), ("spine2", ("Ethernet16", "Ethernet24"))):
        for port in ports:
            clos.set(switch, "APPL_DB", f"PORT_TABLE:{port}", speed="200000")
            clos.set(switch, "STATE_DB", f"PORT_TABLE|{port}", speed="200000")
            clos.grow(switch, port, SAI_PORT_STAT_IF_OUT_OCTETS=-(10**12) // 2)
    for port in ("Ethernet16", "Ethernet24"):
        shut(clos, "leaf2", port)
    clos.heard = {host: end for host, end in clos.heard.items() if end not in (("leaf2", "etp3"), ("leaf2", "etp4"))}


def other_class(clos: Clos, group: str) -> None:
    """Give RoCE packets traffic class 5 at all leaves, with queue 3 and this group."""
    for leaf in ("leaf1", "leaf2", "leaf3", "leaf4"):
        clos.set(leaf, "CONFIG_DB", "DSCP_TO_TC_MAP|ROCE", **{"26": "5"})
        clos.set(leaf, "CONFIG_DB", "TC_TO_QUEUE_MAP|ROCE", **{"3": "1", "5": "3"})
        clos.set(leaf, "CONFIG_DB", "TC_TO_PRIORITY_GROUP_MAP|ROCE", **{"3": "0", "5": group})


def drain(clos: Clos) -> None:
    """Shut down the sessions of spine2 at its end, and let its cables carry nothing."""
    for switch, tables in clos.databases.items():
        for key, row in tables["CONFIG_DB"].items():
            if key.startswith("BGP_NEIGHBOR|") and "spine2" in (switch, row["name"]):
                row["admin_status"] = "down" if switch == "spine2" else "up"
                clos.set(switch, "STATE_DB", key.replace("BGP_NEIGHBOR", "NEIGH_STATE_TABLE"), state="Active")
    for leaf in ("leaf1", "leaf2", "leaf3", "leaf4"):
        for port in ("Ethernet48", "Ethernet56"):
            clos.load(leaf, port, 0.0)


def name_vrf(clos: Clos, switch: str) -> Clos:
    """Name the VRF in the keys of the sessions."""
    tables = clos.databases[switch]["CONFIG_DB"]
    for key in [key for key in tables if key.startswith("BGP_NEIGHBOR|")]:
        tables[key.replace("|", "|default|")] = tables.pop(key)
    return clos


#: Checks whose findings here have another one as their cause, within one incident.
EXPLAINED = ("ethernet.peers-equal", "link.errors")

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
        ("warn", "link.mtu", "leaf1 Ethernet48 - spine2 Ethernet0"),
    ),
    "MTU at a spine port below the hosts'": (
        lambda clos: clos.set("spine2", "APPL_DB", "PORT_TABLE:Ethernet0", mtu="8000"),
        ("fail", "link.mtu", "leaf1 Ethernet48 - spine2 Ethernet0"),
    ),
    "DSCP map of one spine": (
        lambda clos: clos.set("spine2", "CONFIG_DB", "DSCP_TO_TC_MAP|ROCE", **{"26": "0"}),
        ("fail", "link.dscp", "spine2"),
    ),
    "a port without a DSCP map": (
        lambda clos: clos.set("leaf1", "CONFIG_DB", "PORT_QOS_MAP|Ethernet8", dscp_to_tc_map=None),
        ("warn", "link.dscp", "leaf1"),
    ),
    "no port of a leaf has a DSCP map": (
        every_port("PORT_QOS_MAP|Ethernet{}", dscp_to_tc_map=None), ("warn", "link.dscp", "leaf3"),
    ),
    "FEC of a host": (
        lambda clos: clos.nic("gpu006", fec="Off"), ("fail", "link.speed-fec", "leaf2 Ethernet8 - gpu006 enp24s0"),
    ),
    "a session of a VRF": (
        lambda clos: name_vrf(clos, "leaf1").set(
            "leaf1", "STATE_DB", "NEIGH_STATE_TABLE|10.16.33.7", state="Active"),
        ("fail", "switch.bgp", "leaf1 10.16.33.7"),
    ),
    "notifications in the queue of RoCE packets": (
        lambda clos: clos.set("spine1", "CONFIG_DB", "DSCP_TO_TC_MAP|ROCE", **{"48": "3"}),
        ("warn", "link.dscp", "spine1"),
    ),
    "slow receiver behind two tiers": (
        lambda clos: clos.pause("leaf3", "Ethernet8", 0.3).pause("spine1", "Ethernet32", 0.1).pause(
            "leaf1", "Ethernet32", 0.05),
        ("fail", "fabric.pause-root", "gpu010"),
    ),
    "storm of a NIC": (
        lambda clos: clos.pause("leaf3", "Ethernet8", 0.6).load("leaf3", "Ethernet8", 0.001),
        ("fail", "fabric.host-storm", "gpu010"),
    ),
    "incast": (
        lambda clos: clos.load("leaf3", "Ethernet8", 0.97).pause("spine1", "Ethernet32", 0.1),
        ("warn", "fabric.pause-root", "leaf3 Ethernet8"),
    ),
    "uplink collision": (
        lambda clos: clos.load("leaf1", "Ethernet32", 0.97).nic("gpu001", grows={"rx_prio3_pause": 10**6}).grow(
            "leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6).grow(
            "leaf1", "Ethernet32:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=10**6),
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
    "lost codewords that damage frames": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES=30,
                               SAI_PORT_STAT_IF_IN_ERRORS=28),
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
    "pauses before marks: a small dynamic threshold": (
        lambda clos: clos.set("leaf2", "CONFIG_DB", PROFILE, dynamic_th="-8"),
        ("warn", "switch.ecn-before-pfc", "leaf2"),
    ),
    "pauses before marks: a static threshold": (
        lambda clos: clos.set("leaf2", "CONFIG_DB", PROFILE, dynamic_th=None, static_th="900000"),
        ("warn", "switch.ecn-before-pfc", "leaf2"),
    ),
    "shared headroom of a tenth": (
        lambda clos: clos.set("leaf2", "CONFIG_DB", PROFILE, size="19456").set(
            "leaf2", "CONFIG_DB", "BUFFER_POOL|ingress_lossless_pool", xoff="226918"),
        ("warn", "switch.buffer-pools", "leaf2"),
    ),
    "marks all the time": (
        lambda clos: clos.grow("leaf2", "Ethernet16:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=60_000_000),
        ("warn", "switch.marks", "leaf2"),
    ),
    "a spine that hashes as its leaves": (
        lambda clos: clos.set("spine2", "APPL_DB", "SWITCH_TABLE:switch", ecmp_hash_seed="0"),
        ("warn", "switch.hash", "leaf1, leaf2, leaf3, leaf4, spine2"),
    ),
    "too much light": (
        lambda clos: clos.set("leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", rx2power="6.5"),
        ("fail", "optics.switch-end", "leaf1 Ethernet8"),
    ),
    "a laser that fades": (
        lambda clos: clos.set("leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", tx1power="-12").set(
            "leaf1", "STATE_DB", "TRANSCEIVER_DOM_THRESHOLD|Ethernet8", txpowerlowalarm="-8"),
        ("fail", "optics.switch-end", "leaf1 Ethernet8"),
    ),
    "uneven lanes near the warning": (
        lambda clos: clos.set("leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", rx4power="-4.8"),
        ("warn", "optics.switch-end", "leaf1 Ethernet8"),
    ),
    "a weak lane that may be another port's": (
        lambda clos: clos.set("leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", rx5power="-40").set(
            "leaf1", "CONFIG_DB", "PORT|Ethernet8", lanes="1,2,3,4"),
        ("unknown", "optics.switch-end", "leaf1 Ethernet8"),
    ),
    "codewords at the limit of RS(528,514)": (
        lambda clos: clos.set("leaf1", "CONFIG_DB", "PORT|Ethernet8", lanes=",".join(map(str, range(16)))).grow(
            "leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S6=12),
        ("warn", "optics.fec-margin", "leaf1 Ethernet8"),
    ),
    "a port without a state loses codewords": (
        lambda clos: clos.set("leaf1", "APPL_DB", "PORT_TABLE:Ethernet8", oper_status=None).grow(
            "leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES=3),
        ("fail", "optics.fec-margin", "leaf1 Ethernet8"),
    ),
    "pauses of a priority that is not lossless": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_PFC_4_RX_PKTS=10**5),
        ("warn", "fabric.pause-root", "leaf1 Ethernet8"),
    ),
    "flaps of a host alone": (
        lambda clos: clos.nic("gpu002", grows={"link_downed": 1}),
        ("fail", "link.flaps", "leaf1 Ethernet8 - gpu002 enp24s0"),
    ),
    "flaps at both ends": (
        lambda clos: clos.nic("gpu002", grows={"link_downed": 1}).flap("leaf1", "Ethernet8"),
        ("fail", "link.flaps", "leaf1 Ethernet8 - gpu002 enp24s0"),
    ),
    "flaps at one end between switches": (
        lambda clos: clos.flap("spine1", "Ethernet0"), ("fail", "link.flaps", "leaf1 Ethernet32 - spine1 Ethernet0"),
    ),
    "a session that is down on a link that is up": (
        lambda clos: clos.set("leaf1", "STATE_DB", "NEIGH_STATE_TABLE|10.16.32.4", state="Active"),
        ("fail", "switch.bgp", "leaf1 10.16.32.4"),
    ),
    "a valid ECN threshold that no other leaf has": (
        lambda clos: clos.set("leaf3", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold="500000"),
        ("warn", "ethernet.peers-equal", "leaf3"),
    ),
    "pauses that the switch does not count": (
        lambda clos: clos.nic("gpu001", grows={"tx_prio3_pause": 300_000}),
        ("warn", "link.counters-agree", "leaf1 Ethernet0 - gpu001 enp24s0"),
    ),
    "damaged frames from a host, which loses packets": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_ERRORS=40).nic(
            "gpu002", grows={"out_of_sequence": 10**7}),
        ("fail", "link.errors", "leaf1 Ethernet8 - gpu002 enp24s0"),
    ),
    "one damaged frame between switches": (
        lambda clos: clos.grow("spine1", "Ethernet0", SAI_PORT_STAT_IF_IN_ERRORS=1),
        ("warn", "link.errors", "leaf1 Ethernet32 - spine1 Ethernet0"),
    ),
    "drops of which the host loses packets": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_IF_OUT_DISCARDS=900).nic(
            "gpu002", grows={"out_of_sequence": 10**7}),
        ("warn", "link.errors", "leaf1 Ethernet8 - gpu002 enp24s0"),
    ),
    "counters of a port that do not change": (
        lambda clos: clos.grow("spine2", "Ethernet0", SAI_PORT_STAT_IF_IN_OCTETS=-(10**12)),
        ("warn", "link.counters-agree", "leaf1 Ethernet48 - spine2 Ethernet0"),
    ),
    "headroom that was nearly full": (
        lambda clos: clos.grow_before("leaf2", "Ethernet16:pg3",
                                      "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES", 280_000),
        ("warn", "switch.queue-depth", "leaf2 Ethernet16"),
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
    named = [finding for finding in bad(judged) if finding == expected or finding[1] not in EXPLAINED]
    assert named == [expected]
    assert len(judged["incidents"]) == (expected[0] != "unknown")  # what is odd as well is explained
    assert judged["exit_status"] == {"fail": 1, "unknown": 3}.get(expected[0], 0)


#: A fault and its finding, whose consequences other checks find.
CAUSES: dict[str, tuple[Fault, tuple[str, str, str], str]] = {
    "an uplink at half of its speed": (
        lambda clos: clos.set("leaf1", "APPL_DB", "PORT_TABLE:Ethernet48", speed="200000").set(
            "leaf1", "STATE_DB", "PORT_TABLE|Ethernet48", speed="200000"),
        ("fail", "link.speed-fec", "leaf1 Ethernet48 - spine2 Ethernet0"), "ethernet.oversubscription",
    ),
    "a cable that is down at one end": (
        lambda clos: clos.set("spine1", "APPL_DB", "PORT_TABLE:Ethernet0", oper_status="down"),
        ("warn", "link.speed-fec", "leaf1 Ethernet32 - spine1 Ethernet0"), "ethernet.oversubscription",
    ),
    "a priority that pauses another queue": (
        lambda clos: clos.set("spine1", "CONFIG_DB", "MAP_PFC_PRIORITY_TO_QUEUE|ROCE", **{"3": "4"}),
        ("fail", "link.dscp", "spine1"), "switch.ecn",
    ),
    "a slow receiver that counts its pauses": (
        lambda clos: clos.pause("leaf1", "Ethernet16", 0.3).nic(
            "gpu003", grows={"tx_prio3_pause": 300_000, "tx_prio3_pause_duration": 18_000_000}),
        ("fail", "fabric.pause-root", "gpu003"), "counters.congestion",
    ),
    "a host that waits for a full uplink": (
        lambda clos: clos.load("leaf1", "Ethernet32", 0.97).nic(
            "gpu001", grows={"rx_prio3_pause": 10**6, "rx_prio3_pause_duration": 6_000_000}).grow(
            "leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6).grow(
            "leaf1", "Ethernet32:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=10**6),
        ("warn", "fabric.pause-root", "leaf1 Ethernet32"), "counters.congestion",
    ),
    "a cable that damages frames in both directions": (
        lambda clos: clos.grow("leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_ERRORS=400).nic(
            "gpu002", grows={"rx_crc_errors_phy": 300}),
        ("fail", "link.errors", "leaf1 Ethernet8 - gpu002 enp24s0"), "counters.link-quality",
    ),
    "drops of a lossless queue to a host": (
        lambda clos: clos.grow("leaf2", "Ethernet16:3", SAI_QUEUE_STAT_DROPPED_PACKETS=900).nic(
            "gpu007", grows={"out_of_sequence": 10**6}),
        ("fail", "switch.lossless-drops", "leaf2 Ethernet16"), "counters.loss",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_the_consequences_of_a_fault_are_in_its_incident(name: str) -> None:
    plant, expected, consequence = CAUSES[name]
    clos = Clos()
    plant(clos)
    checks = [*CHECKS, *(check for check in registry().checks if check.id.startswith("counters."))]
    judged = judge(clos.evidences(), checks, SITE)
    assert {entry[1] for entry in bad(judged) if entry[0] != "unknown"} == {expected[1], consequence}
    assert expected in bad(judged)
    assert [incident["subjects"] for incident in judged["incidents"]] == [[expected[2]]]


HEALTHY: dict[str, Fault] = {
    "RoCE in a traffic class of another number": lambda clos: other_class(clos, "3"),
    "a drained spine": drain,
    "sessions of a VRF": lambda clos: name_vrf(clos, "leaf1"),
    "shared headroom at SONiC's ratio": lambda clos: clos.set("leaf2", "CONFIG_DB", PROFILE, size="19456").set(
        "leaf2", "CONFIG_DB", "BUFFER_POOL|ingress_lossless_pool", xoff="1134592"),
    "thresholds above the headroom, far below the pool": lambda clos: clos.set(
        "leaf2", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold="1048576", green_max_threshold="2097152"),
    "a small chip: 32 MB, an eighth of the free pool": lambda clos: clos.set(
        "leaf2", "CONFIG_DB", "BUFFER_POOL|ingress_lossless_pool", size="32000000").set(
        "leaf2", "CONFIG_DB", PROFILE, dynamic_th="-3"),
    "a pool whose size the switch computes": lambda clos: clos.set(
        "leaf2", "CONFIG_DB", "BUFFER_POOL|ingress_lossless_pool", size=None).set(
        "leaf2", "APPL_DB", "BUFFER_POOL_TABLE:ingress_lossless_pool", size="120000000"),
    "unused ports with PFC": lambda clos: unused(clos, "leaf2"),
    "spines with one seed, and one link to each leaf": one_link_to_each_leaf,
    "an idle link between two leaves (MLAG)": peer_link,
    "two uplinks of half the rate, by design": half_rate_uplinks,
    "few flows on few uplinks": lambda clos: clos.load("leaf2", "Ethernet32", 0.7),
    "idle uplinks": lambda clos: [clos.grow("leaf2", f"Ethernet{n}", SAI_PORT_STAT_IF_OUT_OCTETS=10**6 * n - 10**12)
                                  for n in (32, 40, 48, 56)],
    "pauses with marks, below a thousandth": lambda clos: clos.grow(
        "leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=20).grow(
        "leaf1", "Ethernet32:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=10**6),
    "marks without pauses": lambda clos: clos.grow(
        "leaf1", "Ethernet32:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=10**6),
    "PFC on another priority beside the declared one": lambda clos: [
        clos.set("leaf1", "CONFIG_DB", f"PORT_QOS_MAP|Ethernet{n}", pfc_enable="3,4") for n in (0, 8, 16, 24)],
    "lanes of four wavelengths, far above their warning": lambda clos: clos.set(
        "leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", rx1power="2.0", rx3power="-1.6"),
    "a breakout port beside a dark one": lambda clos: clos.set(
        "leaf1", "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet8", rx5power="-40", rx6power="-40").set(
        "leaf1", "CONFIG_DB", "PORT|Ethernet8", lanes="1,2,3,4", subport="1"),
    "marking in one step": lambda clos: clos.set(
        "leaf2", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold="1048576", green_max_threshold="1048576"),
    "corrected codewords": lambda clos: clos.grow(
        "leaf1", "Ethernet8", SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S2=10**6),
    "drops without a loss at the host": lambda clos: clos.grow(
        "leaf1", "Ethernet8", SAI_PORT_STAT_IF_OUT_DISCARDS=900),
    "bytes of a window that began a second later": lambda clos: clos.grow(
        "spine2", "Ethernet0", SAI_PORT_STAT_IF_IN_OCTETS=-(5 * 10**10)),
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
    assert [finding for finding in bad(report(clos)) if finding[1] != "ethernet.peers-equal"] == []


def test_a_traffic_class_that_enters_a_lossy_group_fails() -> None:
    clos = Clos()
    other_class(clos, "0")
    assert {entry[:2] for entry in bad(report(clos))} == {
        ("fail", "switch.buffer-pools"),
        ("unknown", "switch.headroom"),
    }


@pytest.mark.parametrize(
    ("shown", "hostname", "failing"),
    [("gpu099", "gpu010", True), ("node77", "node77", False), ("gpu010-dpu", "gpu010", False)],
)
def test_a_switch_that_shows_another_host_contradicts_it(shown: str, hostname: str, failing: bool) -> None:
    """A host may be collected under another name; a DPU has one of its own."""
    clos = Clos().set("leaf3", "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet8", lldp_rem_sys_name=shown)
    own = {"file:/proc/sys/kernel/hostname": {"status": "ok", "out": f"{hostname}\n"}}
    checks = [check for check in CHECKS if check.id == "link.join"]
    judged = judge([*clos.hosts({"gpu010": own}), *clos.switches()], checks, SITE)
    by_status = {finding["status"]: finding for finding in judged["findings"]}
    assert ("fail" in by_status) == failing
    assert ("unknown" in by_status) == (shown == "gpu010-dpu")
    if failing:
        assert by_status["fail"]["subject"] == "leaf3 Ethernet8"
        assert "but leaf3 Ethernet8 shows gpu099 02:00:00:00:02:01" in by_status["fail"]["message"]


def test_a_session_that_the_neighbour_did_not_shut_down_still_fails() -> None:
    clos = Clos().set("spine2", "CONFIG_DB", "BGP_NEIGHBOR|10.16.33.0", admin_status="down")
    for address in ("10.16.33.6", "10.16.33.7"):
        clos.set("leaf1", "STATE_DB", f"NEIGH_STATE_TABLE|{address}", state="Active")
    assert {entry[:2] for entry in bad(report(clos))} == {("fail", "switch.bgp")}


def test_a_link_between_leaves_of_two_rails_brings_no_hosts_closer() -> None:
    clos = Clos(rails=2)
    for leaf, far in (("leaf1", "leaf2"), ("leaf2", "leaf1")):
        clos.set(leaf, "APPL_DB", "PORT_TABLE:Ethernet96", alias="etp13", speed="400000", oper_status="up")
        clos.set(leaf, "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet96", lldp_rem_sys_name=far, lldp_rem_port_id="etp13")
    (finding,) = judge(clos.evidences(), [check for check in CHECKS if check.id == "ethernet.hops"], SITE)["findings"]
    assert finding["status"] == "pass"


def test_without_hosts_no_leaf_is_known_and_nothing_passes_for_it() -> None:
    checks = [check for check in CHECKS if check.id in ("switch.uplink-balance", "switch.hash")]
    judged = judge(Clos().switches(), checks, SITE)
    assert [(finding["status"], finding["check"]) for finding in judged["findings"]] == [
        ("unknown", "switch.uplink-balance"), ("unknown", "switch.hash"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flows", "plant", "status"),
    [
        (16, lambda clos: clos.load("leaf4", "Ethernet56", 0.97), "pass"),  # as hashing 16 flows does
        (512, lambda clos: clos.load("leaf4", "Ethernet56", 0.97), "fail"),
        (None, lambda clos: clos.load("leaf4", "Ethernet56", 0.97), "unknown"),
        (16, lambda clos: clos.grow("leaf4", "Ethernet56", SAI_PORT_STAT_IF_OUT_OCTETS=-(10**12)), "pass"),
        (512, lambda clos: clos.grow("leaf4", "Ethernet56", SAI_PORT_STAT_IF_OUT_OCTETS=-(10**12)), "fail"),
        (None, lambda clos: clos, "pass"),  # even: no number of flows is more even
    ],
)
def test_the_imbalance_of_uplinks_is_judged_by_the_flows(flows: int | None, plant: Fault, status: str) -> None:
    clos = Clos()
    plant(clos)
    table: dict[str, Any] = {"roce_priority": 3, "dcqcn": True} | ({"flows": flows} if flows else {})
    judged = judge(clos.evidences(), [check for check in CHECKS if check.id == "switch.uplink-balance"],
                   from_data({"switches": table}, "cluster.toml"))  # fmt: skip
    statuses = {finding["status"] for finding in judged["findings"]}
    assert statuses == ({"pass"} if status == "pass" else {"pass", status})


@pytest.mark.parametrize(("flows", "status"), [(8, "pass"), (512, "fail")])
def test_three_times_the_mean_on_eight_uplinks(flows: int, status: str) -> None:
    clos = Clos(uplinks=4)
    for number in range(8):
        clos.load("leaf2", f"Ethernet{32 + 8 * number}", 0.3 if number == 0 else 0.5 / 7)
    judged = judge(clos.evidences(), CHECKS, site(flows=flows))
    assert bad(judged) == ([] if status == "pass" else [(status, "switch.uplink-balance", "leaf2")])
    assert len(judged["incidents"]) == (status != "pass")
    assert "3.00 times the mean" in str([f for f in judged["findings"] if f["check"] == "switch.uplink-balance"])


@pytest.mark.parametrize(
    ("host", "switch", "words"),
    [
        (True, False, "only gpu002 enp24s0 lost the link: suspect its NIC, firmware or driver"),
        (False, True, "only leaf1 Ethernet8 lost the link: suspect its port or module"),
        (True, True, "both ends lost the link: suspect the cable or a module"),
    ],
)
def test_flaps_name_the_end_that_saw_them(host: bool, switch: bool, words: str) -> None:
    clos = Clos()
    if host:
        clos.nic("gpu002", grows={"link_downed": 1})
    if switch:
        clos.flap("leaf1", "Ethernet8")
    judged = judge(clos.evidences(), [check for check in CHECKS if check.id == "link.flaps"], SITE)
    assert words in judged["findings"][0]["message"]


def test_the_page_draws_both_ends_of_a_faulty_cable() -> None:
    """The picture notes a cable that only one end shows; a healthy fabric has none."""
    clos = Clos().set("leaf1", "CONFIG_DB", "PORT_QOS_MAP|Ethernet8", pfc_enable="4")
    clos.set("spine2", "APPL_DB", "PORT_TABLE:Ethernet0", mtu="8000")
    clos.drop("spine2", "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet0")
    judged = report(clos)
    assert find_error(judged, "report-1") == "run is missing"  # it is added by the caller
    host, spine = judged["cables"]
    assert host["ends"][1] == {"device": "gpu002", "port": "enp24s0", "switch": False}
    assert {"name": "PFC", "values": ["4", "3"], "wrong": True} in host["rows"]
    assert {"name": "MTU", "values": ["9216", "9000"], "wrong": False} in host["rows"]
    assert (host["only"], spine["only"]) == ("", "leaf1")
    page = render(judged)
    assert "Cable leaf1 Ethernet8 - gpu002 enp24s0; speed: 400 Gb/s and 400 Gb/s; MTU: 9216 and 9000" in page
    assert "only leaf1 shows this cable" in page
    assert "cables" not in report(Clos())


def test_a_slow_receiver_is_quoted_with_the_cause_that_its_host_shows() -> None:
    clos = Clos().pause("leaf3", "Ethernet8", 0.3).nic("gpu010", lanes=8)
    checks = [check for check in registry().checks if check.id in ("fabric.pause-root", "pcie.nic-link")]
    judged = judge(clos.evidences(), checks, SITE)
    (message,) = [f["message"] for f in judged["findings"] if f["check"] == "fabric.pause-root"]
    assert message.startswith("gpu010 receives data more slowly")
    assert "its evidence shows PCIe of mlx5_0 at 252 Gb/s for a port of 400" in message
    assert len(judged["incidents"]) == 1


def test_a_slow_receiver_that_was_never_queried_is_only_probable() -> None:
    clos = Clos().pause("leaf3", "Ethernet8", 0.3)
    del clos.heard["gpu010"]
    judged = report(clos)
    # what is below an unread port is unknown with or without the fault
    assert bad(judged) == [("unknown", "ethernet.oversubscription", "leaf3"), ("warn", "fabric.pause-root", "gpu010")]
    (incident,) = judged["incidents"]
    assert incident["title"].startswith("gpu010 probably receives data more slowly")


def test_pauses_without_marks_are_one_incident_with_their_root() -> None:
    clos = Clos().load("leaf1", "Ethernet32", 0.97).grow("leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6)
    judged = report(clos.nic("gpu001", grows={"rx_prio3_pause": 10**6}))
    assert bad(judged) == [("warn", "fabric.pause-root", "leaf1 Ethernet32"), ("warn", "switch.marks", "leaf1")]
    assert len(judged["incidents"]) == 1


@pytest.mark.parametrize("why", ["polling is off", "the chip cannot", "not in the counters"])
def test_marks_that_are_not_counted_are_unknown_not_absent(why: str) -> None:
    clos = Clos().load("leaf1", "Ethernet32", 0.97).grow("leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6)
    if why == "polling is off":
        clos.set("leaf1", "CONFIG_DB", "FLEX_COUNTER_TABLE|WRED_ECN_QUEUE", FLEX_COUNTER_STATUS="disable")
    elif why == "the chip cannot":
        key = "QUEUE_COUNTER_CAPABILITIES|WRED_ECN_QUEUE_ECN_MARKED_PKT_COUNTER"
        clos.set("leaf1", "STATE_DB", key, isSupported="false")
    else:
        for place in range(8):
            for later in (False, True):
                del clos.counters("leaf1", f"Ethernet{place * 8}:3", later=later)[
                    "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS"
                ]
    assert ("unknown", "switch.marks", "leaf1") in bad(report(clos))


def of_2020(counters: Database) -> str:
    """Write counters as a dump of 2020.

    It counts no FEC, marks, pause time or drops of priority groups, and 20 queues a port.
    """
    later = re.compile("FEC|MARKED|WRED|DURATION|GROUP_STAT_DROPPED")
    rows = {key: {name: text for name, text in row.items() if not later.search(name)} for key, row in counters.items()}
    names = rows["COUNTERS_QUEUE_NAME_MAP"]
    for port, oid in rows["COUNTERS_PORT_NAME_MAP"].items():
        number = int(oid.removeprefix("oid:"), 16)
        rows[f"COUNTERS:{oid}"] |= {"SAI_PORT_STAT_PAUSE_RX_PKTS": "0", "SAI_PORT_STAT_IF_OUT_QLEN": "0"}
        for queue in range(8, 20):
            names[f"{port}:{queue}"] = f"oid:0x15{number:x}{queue:02x}"
            rows[f"COUNTERS:{names[f'{port}:{queue}']}"] = {"SAI_QUEUE_STAT_PACKETS": "0"}
        rows["COUNTERS_RIF_NAME_MAP"] = {"": "", port: f"oid:0x6{number:x}"}
    return json.dumps({key: {"expireat": 1599999999.25, "ttl": -0.001, "type": "hash", "value": row}
                       for key, row in rows.items()})  # fmt: skip


def test_a_release_of_2020_is_unknown_just_where_it_counts_nothing(tmp_path: Path) -> None:
    """Its leaf is one of a healthy fabric; then its counters alone are recognised by their keys."""
    clos = Clos()
    files = dict(clos.dumps("leaf1"))
    files["COUNTERS_DB_1.json"] = of_2020(clos.databases["leaf1"]["COUNTERS_DB"])
    files["COUNTERS_DB_2.json"] = of_2020(clos.later["leaf1"])
    (tmp_path / "leaf1").mkdir()
    for name, text in files.items():
        (tmp_path / "leaf1" / name).write_text(text)
    judged = judge([*clos.without("leaf1").evidences(), *switch_documents([tmp_path])], CHECKS, SITE)
    assert sorted(bad(judged)) == [
        ("unknown", "optics.fec-margin", "leaf1"), ("unknown", "switch.lossless-drops", "leaf1"),
    ]  # fmt: skip
    messages = [finding["message"] for finding in judged["findings"] if finding["status"] == "unknown"]
    assert "no drops of the lossless priority group are counted" in str(messages)

    (tmp_path / "t1.json").write_text(files["COUNTERS_DB_1.json"])
    (evidence,) = switch_documents([tmp_path / "t1.json"])
    statuses = {finding["status"] for finding in judge([evidence], CHECKS, SITE)["findings"]}
    assert (evidence.node, statuses) == ("t1", {"unknown"})


def test_pauses_of_a_release_of_2020_are_found_and_their_marks_unknown(tmp_path: Path) -> None:
    clos = Clos().load("leaf1", "Ethernet32", 0.97).grow("leaf1", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6)
    clos.nic("gpu001", grows={"rx_prio3_pause": 10**6})
    files = dict(clos.dumps("leaf1"))
    files["COUNTERS_DB_1.json"] = of_2020(clos.databases["leaf1"]["COUNTERS_DB"])
    files["COUNTERS_DB_2.json"] = of_2020(clos.later["leaf1"])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    judged = judge([*clos.without("leaf1").evidences(), *switch_documents([tmp_path])], CHECKS, SITE)
    assert ("warn", "fabric.pause-root", "leaf1 Ethernet32") in bad(judged)
    assert {entry[:2] for entry in bad(judged) if entry[0] != "unknown"} == {("warn", "fabric.pause-root")}
    assert ("unknown", "switch.marks", "leaf1") in bad(judged)


@pytest.mark.parametrize("swapped", [False, True])
def test_swapped_cables_of_two_rails_are_one_failure(swapped: bool) -> None:
    """Both switches and the host agree on what they see, so no end contradicts another."""
    clos = Clos(rails=2, uplinks=4)
    checks = [*CHECKS, *(check for check in registry().checks if check.id == "fleet.rail-leaf")]
    if swapped:
        clos.swap("gpu003")
    judged = judge(clos.evidences(), checks, SITE)
    of_rails = [finding for finding in judged["findings"] if finding["check"] == "fleet.rail-leaf"]
    # a rail of two leaves: what crosses the spines may stay on it
    others = {entry[:2] for entry in bad(judged) if entry[1] != "fleet.rail-leaf"}
    assert others == {("unknown", "switch.rail-traffic")}
    assert len(judged["incidents"]) == swapped
    assert [finding["nodes"] for finding in of_rails if finding["status"] == "fail"] == [["gpu003"]] * swapped
    if swapped:
        assert of_rails[0]["message"].startswith(
            "the cables of enp24s0 and enp64s0 are swapped: enp24s0 is on leaf2 port etp3, its peers' enp24s0 on "
            "leaf1; enp64s0 is on leaf1 port etp3, its peers' enp64s0 on leaf2"
        )


def test_a_lossless_priority_in_a_lossy_buffer_is_one_failure() -> None:
    clos = Clos().set("leaf2", "CONFIG_DB", "BUFFER_PROFILE|lossy", pool="ingress_lossy_pool", size="0", dynamic_th="3")
    clos.set("leaf2", "CONFIG_DB", "BUFFER_PG|Ethernet16|3", profile="lossy")
    judged = bad(report(clos))
    assert ("fail", "switch.buffer-pools", "leaf2") in judged
    assert [check for status, check, _ in judged if status == "fail"] == ["switch.buffer-pools"]


NO_BUFFER: dict[str, tuple[Fault, str]] = {
    "in no table": (lambda clos: None, "fail"),
    "computed by the buffer manager": (
        lambda clos: clos.set("leaf1", "APPL_DB", "BUFFER_PG_TABLE:Ethernet8:3",
                              profile="pg_lossless_400000_40m_profile"), ""),
    "computed, with a profile that is not shown": (
        lambda clos: clos.set("leaf1", "APPL_DB", "BUFFER_PG_TABLE:Ethernet8:3", profile="NULL"), "unknown"),
    "at a port that is down": (
        lambda clos: clos.set("leaf1", "APPL_DB", "PORT_TABLE:Ethernet8", oper_status="down"), ""),
    "at a port to a device that is not known": (
        lambda clos: [clos.heard.pop("gpu002"), clos.drop("leaf1", "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet8")],
        "unknown"),
    "at all ports of the switch": (
        lambda clos: [clos.drop("leaf1", "CONFIG_DB", f"BUFFER_PG|Ethernet{n * 8}|3") for n in range(8) if n != 1],
        "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("where", NO_BUFFER)
def test_a_lossless_priority_without_a_buffer(where: str) -> None:
    change, status = NO_BUFFER[where]
    clos = Clos()
    clos.drop("leaf1", "CONFIG_DB", "BUFFER_PG|Ethernet8|3")
    change(clos)
    judged = report(clos)
    assert [entry for entry in bad(judged) if entry[1] == "switch.buffer-pools"] == (
        [(status, "switch.buffer-pools", "leaf1")] if status else []
    )
    if status == "fail":
        assert {entry[:2] for entry in bad(judged)} == {
            ("fail", "switch.buffer-pools"), ("unknown", "switch.headroom"),
        }  # fmt: skip
        assert len(judged["incidents"]) == 1


@pytest.mark.parametrize(
    ("lacks", "words"), [("counters", "pauses are not counted"), ("speed", "the speed is not shown")]
)
def test_ports_with_an_unknown_pause_time_do_not_pass(lacks: str, words: str) -> None:
    """Frames are counted, but not their time: without the speed, they have no upper bound."""
    clos = Clos()
    for later in (False, True):
        row = clos.counters("leaf1", "Ethernet8", later=later)
        del row["SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"]
        if lacks == "counters":
            del row["SAI_PORT_STAT_PFC_3_RX_PKTS"]
    checks = [check for check in CHECKS if check.id == "fabric.pause-root"]
    if lacks == "speed":
        assert bad(judge(clos.evidences(), checks, SITE)) == []
        clos.set("leaf1", "APPL_DB", "PORT_TABLE:Ethernet8", speed=None)
        clos.set("leaf1", "STATE_DB", "PORT_TABLE|Ethernet8", speed=None)
        clos.set("leaf1", "CONFIG_DB", "PORT|Ethernet8", speed=None)
    judged = judge(clos.evidences(), checks, SITE)
    assert bad(judged) == [("unknown", "fabric.pause-root", "leaf1")]
    assert words in str(judged["findings"])


def test_a_spine_without_evidence_is_unknown_and_named() -> None:
    clos = Clos().without("spine1").pause("leaf1", "Ethernet32", 0.2)
    judged = bad(report(clos))
    assert ("unknown", "fabric.pause-root", "spine1") in judged
    assert {(status, check) for status, check, _ in judged} == {
        ("unknown", "fabric.pause-root"), ("unknown", "ethernet.oversubscription"),
    }  # fmt: skip


def test_ends_that_disagree_are_one_failure_and_their_cables_are_not_counted() -> None:
    judged = report(Clos().set("leaf1", "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet32", lldp_rem_sys_name="spine2"))
    assert bad(judged) == [
        ("fail", "link.join", "leaf1 Ethernet32"), ("unknown", "ethernet.oversubscription", "leaf1"),
    ]  # fmt: skip
    assert [incident["subjects"] for incident in judged["incidents"]] == [["leaf1 Ethernet32"]]


def test_a_window_shorter_than_the_polling_is_unknown() -> None:
    judged = report(Clos(), 5.0)
    assert {(status, check) for status, check, _ in bad(judged)} == {
        ("unknown", "switch.lossless-drops"), ("unknown", "switch.watchdog-fired"), ("unknown", "switch.marks"),
    }  # fmt: skip
    assert "polls its counters only every 10 s" in str(judged["findings"])


def test_512_ports_of_switches_are_judged_within_seconds() -> None:
    """The limit of 64 switches with 512 ports is measured by ``python -m benchmarks.switches``."""
    switches = [wide_switch(f"leaf{number}", 64) for number in range(1, 9)]
    begun = time.process_time()
    judged = judge(switches, CHECKS, SITE)
    assert time.process_time() - begun < 5  # a fiftieth of a second for each port: ten times the measured time
    assert "512" in str([finding["message"] for finding in judged["findings"] if finding["status"] == "pass"])


def test_counters_that_were_cleared_show_no_growth() -> None:
    clos = Clos()
    clos.grow("leaf2", "Ethernet0", SAI_PORT_STAT_IF_IN_OCTETS=-(10**12) - 5000)
    clos.grow("leaf2", "Ethernet0:3", SAI_QUEUE_STAT_DROPPED_PACKETS=5)
    assert {(status, subject) for status, check, subject in bad(report(clos)) if check != "switch.answers"} == {
        ("unknown", "leaf2")
    }


def test_many_switches_without_hosts_are_judged() -> None:
    """Large documents are judged in several processes, which have no host to judge here."""

    class Large(list[Evidence]):
        large = True

    judged = judge(Large(Clos(hosts=False).evidences()), CHECKS, SITE, processes=2)
    assert {finding["status"] for finding in judged["findings"]} >= {"pass"}


def test_without_switches_their_checks_are_not_planned() -> None:
    judged = judge(Clos().hosts(), CHECKS, SITE)
    assert judged["coverage"]["without_switches"] == [check.id for check in CHECKS]
    assert judged["coverage"]["planned"] == 0


def test_what_one_reading_cannot_show_is_not_planned() -> None:
    judged = report(Clos(), None)
    assert judged["coverage"]["without_window"] == [check.id for check in CHECKS if check.window]
    assert judged["coverage"]["planned"] == sum(not check.window for check in CHECKS)


def test_a_host_is_not_judged_as_a_switch_nor_a_switch_as_a_host(tmp_path: Path) -> None:
    """Coverage counts only the hosts; saved documents give the same findings."""
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
