"""Counters over a window and optics, on complete nodes: planted faults, false alarms, failing sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations import Cluster
from preflight.judge import judge
from tests.support import machines
from tests.support.fixture import whole_node
from tests.support.machines import Machine, hgx_h100, with_nic
from tests.support.machines.counters import BEGAN_S
from tests.support.whole_nodes import CHECKS, Fault, Faults, Findings, Table, both, loud, nic, node, site

IB, ROCE = "hgx-h100", "hgx-h100-roce"
MINE = tuple(check for check in CHECKS if check.id.startswith(("counters.", "optics.")))

PORT = "mlx5_5:1"


def grows(**counters: int) -> Fault:
    """Make counters of one port grow by this much in 60 s."""
    return nic("mlx5_5", grows=counters)


def want(status: str, check: str, subject: str = PORT) -> Findings:
    return {(status, check, subject)}


BOTH: Faults = {
    "acknowledgements time out": (grows(local_ack_timeout_err=40), want("warn", "counters.loss")),
    "acknowledgements time out all the time": (grows(local_ack_timeout_err=90), want("fail", "counters.loss")),
    "queue pair died": (grows(req_transport_retries_exceeded=1), want("fail", "counters.loss")),
    "gaps": (grows(out_of_sequence=40_000, packet_seq_err=39_000), want("warn", "counters.loss")),
    "one gap in ten million packets (no fault)": (grows(out_of_sequence=50), set()),
    "dropped on transmit": (
        grows(port_xmit_discards=700), {*want("warn", "counters.loss"), *want("warn", "counters.congestion", "")},
    ),
    "buffer overrun": (grows(excessive_buffer_overrun_errors=1), want("fail", "counters.loss")),
    "one symbol error": (grows(symbol_error=1), want("warn", "counters.link-quality")),
    "symbol errors all the time": (grows(symbol_error=60), want("fail", "counters.link-quality")),
    "link retrains": (grows(link_error_recovery=2), want("warn", "counters.link-quality")),
    "damaged packets": (grows(port_rcv_errors=9), want("fail", "counters.link-quality")),
    "damaged by another link": (
        grows(port_rcv_remote_physical_errors=12), want("warn", "counters.link-quality"),
    ),
    "link flaps": (grows(link_downed=1), want("fail", "counters.flaps")),
    "receiver not ready": (grows(rnr_nak_retry_err=3), want("warn", "counters.receiver")),
    "receiver gave up": (grows(req_rnr_retries_exceeded=1), want("fail", "counters.receiver")),
    "idle rail": (nic("mlx5_5", gbps=2.0), want("warn", "counters.balance")),
    "hot rail": (
        both(*(nic(f"mlx5_{number}", gbps=90.0) for number in (0, 3, 4, 6, 9, 10, 11))),
        want("warn", "counters.balance"),
    ),
    "CPUs full": (node(cpu_busy=0.97), want("warn", "counters.cpu", "")),
    "one CPU does all interrupts": (node(cpu_interrupts={12: 0.93}), want("warn", "counters.cpu", "")),
    "driver without byte counters": (
        nic("mlx5_5", lacks=("port_xmit_data", "port_rcv_data")), want("warn", "counters.visible"),
    ),
    "bit error ratio before FEC": (nic("mlx5_5", raw_ber=4e-7), want("warn", "optics.ber")),
    "bit error ratio of symbols": (nic("mlx5_5", symbol_ber=3e-9), want("warn", "optics.ber")),
}  # fmt: skip

INFINIBAND: Faults = {
    "module too hot": (nic("mlx5_5", module_c=84.0), want("fail", "optics.module")),
    "waits for credits: ticks of no fixed length": (
        nic("mlx5_5", stands={"port_xmit_wait": 0}, grows={"port_xmit_wait": 3_000_000_000}),
        want("unknown", "counters.congestion"),
    ),
    "waits for credits: the counter stands at its maximum": (
        nic("mlx5_5", stands={"port_xmit_wait": 4294967295}), want("unknown", "counters.congestion"),
    ),
}  # fmt: skip

ONLY_ROCE: Faults = {
    "discards in the NIC's port": (
        grows(rx_prio3_discards=1200, rx_discards_phy=1200),
        {*want("warn", "counters.loss"), *want("warn", "counters.congestion", "")},
    ),
    "damaged ICRC": (grows(rx_icrc_encapsulated=2), want("warn", "counters.loss")),
    "pause storm": (grows(tx_pause_storm_error_events=1), want("warn", "counters.loss")),
    "symbols that no FEC corrects": (grows(rx_pcs_symbol_err_phy=1), want("warn", "counters.link-quality")),
    "bit error ratio before FEC": (
        nic("mlx5_5", raw_ber=4e-7), {*want("warn", "counters.link-quality"), *want("warn", "optics.ber")},
    ),
    "packets without a buffer": (grows(out_of_buffer=900_000), want("warn", "counters.receiver")),
    "congestion notifications ignored": (grows(rp_cnp_ignored=77), want("warn", "counters.congestion")),
    "paused by the switch for 1.3% of the window": (
        grows(rx_prio3_pause=90_000, rx_prio3_pause_duration=800_000, tx_prio3_pause=12),
        want("warn", "counters.congestion"),
    ),
    "paused by the switch for 0.9% of the window (no fault)": (
        grows(rx_prio3_pause=90_000, rx_prio3_pause_duration=540_000, tx_prio3_pause=12), set(),
    ),
    "RDMA unmarked": (nic("mlx5_5", traffic_priority=0), want("fail", "counters.traffic-class")),
    "driver without ECN counters": (
        nic("mlx5_5", lacks=("np_", "rp_")), want("warn", "counters.visible"),
    ),
    "little light": (
        nic("mlx5_5", rx_mw=0.02,
            module_flags=tuple(f"Laser rx power low {level} (Chan 1)" for level in ("alarm", "warning"))),
        want("fail", "optics.module"),
    ),
    "alarm latched when the cable was plugged in": (
        nic("mlx5_5", module_flags=("Laser rx power low alarm (Chan 1)",)), want("warn", "optics.module"),
    ),
    "no FEC": (nic("mlx5_5", fec="Off"), want("warn", "optics.fec")),
    "another FEC": (nic("mlx5_5", fec="BaseR"), want("warn", "optics.fec")),
}  # fmt: skip

TABLES = [
    Table(IB, hgx_h100, {**BOTH, **INFINIBAND}),
    Table(ROCE, partial(hgx_h100, roce=True), {**BOTH, **ONLY_ROCE}),
]
PLANTED = [(table, *case) for table in TABLES for case in table.faults.items()]


@pytest.mark.parametrize(("table", "name", "case"), PLANTED, ids=lambda v: v if isinstance(v, str) else "")
def test_planted_fault(table: Table, name: str, case: tuple[Fault, Findings]) -> None:
    plant, expected = case
    assert loud(plant(table.describe(table.node)), site(table.node)) == expected, name


# --- false alarms ----------------------------------------------------------------------------------

Records = Mapping[str, Any]

SILENT: dict[str, tuple[str, Fault]] = {
    "life-long totals": (ROCE, nic("mlx5_5", stands={
        "link_downed": 200, "symbol_error": 41000, "port_rcv_errors": 900, "local_ack_timeout_err": 81234,
        "out_of_sequence": 10**8, "rx_discards_phy": 10**9, "link_down_events_phy": 40, "port_xmit_discards": 30000,
        "rnr_nak_retry_err": 5000, "out_of_buffer": 10**7, "rx_crc_errors_phy": 4000,
    })),
    "spare ports that are down": (ROCE, both(
        nic("mlx5_1", grows={"link_downed": 4, "symbol_error": 9, "local_ack_timeout_err": 999}),
        nic("mlx5_7", module_flags=("Module temperature high alarm",), fec="Off"),
    )),
    "port_xmit_wait of RoCE": (
        ROCE, nic("mlx5_5", stands={"port_xmit_wait": 5}, grows={"port_xmit_wait": 4_000_000_000}),
    ),
    "flush errors and other completions of a teardown": (ROCE, grows(
        req_cqe_error=812, req_cqe_flush_error=812, resp_cqe_flush_error=812, resp_local_length_error=3, lifespan=1,
    )),
    "multicast loops and dropped management packets": (IB, grows(port_rcv_switch_relay_errors=60, VL15_dropped=5)),
    "bits that FEC corrects": (ROCE, nic("mlx5_5", raw_ber=9e-8)),
    "reads and writes whose 32 bits wrapped": (
        ROCE, nic("mlx5_5", stands={"rx_write_requests": 2**32 - 1}, grows={"rx_write_requests": -4_000_000_000}),
    ),
    "ECN and CNPs": (ROCE, grows(np_ecn_marked_roce_packets=10**6, np_cnp_sent=10**6, rp_cnp_handled=10**6)),
}  # fmt: skip


def report(
    machine: Machine, name: str, records: Records | None = None, cluster: Cluster | None = None
) -> dict[str, Any]:
    document = machines.evidence(machine)
    for key, record in (records or {}).items():
        document["records"].pop(key, None)
        if record is not None:
            document["records"][key] = record
    return judge([from_document(document, name)], MINE, cluster or site(name))


def describe(name: str) -> Machine:
    return hgx_h100(name, roce=name == ROCE)


@pytest.mark.parametrize("case", SILENT)
def test_false_alarm_stays_silent(case: str) -> None:
    name, plant = SILENT[case]
    found = report(plant(describe(name)), name)
    assert {f["status"] for f in found["findings"]} <= {"pass", "skip"}, case


#: Growth that cannot be measured is neither a fault nor a pass.
UNCLEAR: dict[str, tuple[Fault, str]] = {
    "at its maximum of 16 bits": (nic("mlx5_5", stands={"symbol_error": 65535}), "counters.link-quality"),
    "at its maximum of 4 bits": (nic("mlx5_5", stands={"local_link_integrity_errors": 15}), "counters.link-quality"),
    "a wrap of 32 bits": (
        nic("mlx5_5", stands={"local_ack_timeout_err": 2**32 - 5}, grows={"local_ack_timeout_err": 9 - 2**32}),
        "counters.loss",
    ),
    "reset meanwhile": (
        nic("mlx5_5", stands={"rnr_nak_retry_err": 812}, grows={"rnr_nak_retry_err": -812}), "counters.receiver",
    ),
    "a failed driver's all ones": (
        nic("mlx5_5", stands={"rx_discards_phy": 2**64 - 1}, grows={"rx_discards_phy": 0}), "counters.loss",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCLEAR)
def test_growth_that_cannot_be_measured_is_unknown(case: str) -> None:
    plant, check = UNCLEAR[case]
    found = report(plant(describe(ROCE)), ROCE)
    assert {
        (f["status"], f["check"], f["subject"]) for f in found["findings"] if f["status"] not in ("pass", "skip")
    } == {("unknown", check, PORT)}
    passed = next(f["message"] for f in found["findings"] if f["check"] == check and f["status"] == "pass")
    assert "7 of 8" in passed


def test_an_8_bit_counter_of_flaps_at_its_maximum_leaves_the_others() -> None:
    """link_downed stops at 255: on InfiniBand the carrier still shows flaps; without it they are unknown."""
    machine = with_nic(describe(IB), "mlx5_5", stands={"link_downed": 255})
    assert report(machine, IB)["nodes"][0]["checks"]["counters.flaps"] == "pass"
    hidden = {f"file:/sys/class/net/{machine.nics[5].netdev(False)}/carrier_changes": None}
    assert report(machine, IB, hidden)["nodes"][0]["checks"]["counters.flaps"] == "unknown"


# --- one reading, and sources that fail ------------------------------------------------------------


def once(name: str) -> dict[str, Any]:
    document = machines.evidence(describe(name))
    document["records"] = {key: {field: value for field, value in record.items() if field not in ("again", "at_s")}
                           for key, record in document["records"].items()}  # fmt: skip
    return document


@pytest.mark.parametrize("name", [IB, ROCE])
def test_one_reading_is_history(name: str) -> None:
    """Without a window no check of growth is planned; the coverage names them, and their items stay open."""
    found = judge([from_document(once(name), name)], CHECKS, site(name))
    waiting = {check.id for check in CHECKS if check.window}
    assert set(found["coverage"]["without_window"]) == waiting
    assert not waiting & set(found["nodes"][0]["checks"])
    assert found["exit_status"] == 0
    item = next(item for item in found["checklists"] if item["id"] == "FP-LOSS-3")
    assert (item["status"], item["supply"]) == ("unknown", "preflight check --window 60")


def test_a_node_that_was_read_once_beside_one_that_was_read_twice() -> None:
    documents = [{**once(ROCE), "node": "a"}, {**machines.evidence(describe(ROCE)), "node": "b"}]
    found = judge([from_document(document, document["node"]) for document in documents], MINE, site(ROCE))
    statuses = {node["name"]: node["checks"]["counters.loss"] for node in found["nodes"]}
    assert statuses == {"a": "unknown", "b": "pass"}
    unknown = next(f for f in found["findings"] if f["status"] == "unknown" and f["check"] == "counters.loss")
    assert "was read once" in unknown["message"]
    assert "--window" in unknown["fix"]


FIRST = {"at_s": BEGAN_S}
FAILED: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"status": "missing", "why": "there is no ethtool in PATH"}, "there is no ethtool in PATH"),
    "hanging": ({"status": "timeout", "why": "no end after 10 s"}, "did not end within its time limit"),
    "refused": ({"status": "denied", "why": "Operation not permitted"}, "is not accessible"),
    "failing": ({"status": "ok", "rc": 71, "err": "Operation not supported\n", **FIRST}, "exit status 71"),
    "empty": ({"status": "ok", "rc": 0, **FIRST}, "no counter found"),
    "garbage": ({"status": "ok", "rc": 0, "out": "NIC statistics:\n  rx: <html>\n", **FIRST}, "not a number"),
    "second hanging": (
        {"status": "ok", "rc": 0, "out": "NIC statistics:\n  rx_discards_phy: 1\n", **FIRST,
         "again": {"status": "timeout", "why": "no end after 10 s"}}, "the second reading did not end",
    ),
    "second not reached": (
        {"status": "ok", "rc": 0, "out": "NIC statistics:\n  rx_discards_phy: 1\n", **FIRST,
         "again": {"status": "not-run", "why": "the run's deadline of 60 s came first"}}, "was not started before",
    ),
    "no time between": (
        {"status": "ok", "rc": 0, "out": "NIC statistics:\n  rx_discards_phy: 1\n", **FIRST,
         "again": {"status": "ok", "rc": 0, "out": "NIC statistics:\n  rx_discards_phy: 1\n", **FIRST}},
        "the time between its two readings is unknown",
    ),
}  # fmt: skip
_DEVICE = "mlx5_5"


CASES = [(source, kind) for source in ("ethtool", "counters", "hw_counters") for kind in FAILED
         if source == "ethtool" or kind not in ("failing", "garbage")]  # fmt: skip


@pytest.mark.parametrize(("source", "kind"), CASES)
def test_a_source_that_failed_is_named(source: str, kind: str) -> None:
    """Unknown with the record and its reason; no check that needs it passes, and the other ports are judged."""
    machine = describe(ROCE)
    netdev = next(one for one in machine.nics if one.device == _DEVICE).netdev(True)
    record, why = FAILED[kind]
    key = f"cmd:ethtool -S {netdev}"
    if source != "ethtool":
        key = f"files:/sys/class/infiniband/{_DEVICE}/ports/1/{source}"
        value = {"value": {"rx_x": "1"}}
        record = {field: part for field, part in record.items() if field not in ("rc", "out")}
        record = record if kind == "empty" else record | (value if record["status"] == "ok" else {})
        if "again" in record and record["again"]["status"] == "ok":
            record["again"] = {"status": "ok", **value, **FIRST}
        why = "not names and values" if kind == "empty" else why
    found = report(machine, ROCE, {key: record})
    vague = [f for f in found["findings"] if f["status"] == "unknown" and f["check"] == "counters.loss"]
    assert len(vague) == 1
    assert vague[0]["evidence"] == [key]
    assert why in vague[0]["message"], vague[0]["message"]
    assert vague[0]["fix"]
    passes = [f["message"] for f in found["findings"] if f["status"] == "pass" and f["check"] == "counters.loss"]
    assert len(passes) == 1
    assert "7 of 8" in passes[0]
    assert not [f for f in found["findings"] if f["status"] in ("fail", "warn")]


OPTICS_FAILED = {
    "missing": {"status": "missing", "why": "there is no such tool"},
    "hanging": {"status": "timeout", "why": "no end after 20 s"},
    "refused": {"status": "denied", "why": "Operation not permitted"},
    "empty": {"status": "ok", "rc": 0},
    "not supported": {"status": "ok", "rc": 1, "err": "netlink error: Operation not supported\n"},
}


@pytest.mark.parametrize("kind", OPTICS_FAILED)
@pytest.mark.parametrize(
    ("check", "key"),
    [("optics.module", "cmd:ethtool -m {}"), ("optics.fec", "cmd:ethtool --show-fec {}"),
     ("optics.ber", "cmd:mlxlink -d mlx5_5 -m -c")],
)  # fmt: skip
def test_an_optics_tool_that_failed_is_named(check: str, key: str, kind: str) -> None:
    machine = describe(ROCE)
    key = key.format(next(one for one in machine.nics if one.device == _DEVICE).netdev(True))
    found = report(machine, ROCE, {key: OPTICS_FAILED[kind]})
    loudly = {(f["status"], f["check"], f["subject"]) for f in found["findings"] if f["status"] not in ("pass", "skip")}
    assert loudly == {("unknown", check, PORT)}
    assert found["exit_status"] == 0, "optics report; they gate no job"


def test_an_idle_node_has_no_verdict_on_collectives() -> None:
    machine = describe(ROCE)
    for one in machine.nics:
        machine = with_nic(machine, one.device, gbps=0.01)
    found = report(machine, ROCE)
    vague = {f["check"] for f in found["findings"] if f["status"] == "unknown"}
    assert vague == {"counters.balance", "counters.congestion", "counters.traffic-class"}
    items = {item["id"]: item["status"] for item in found["checklists"]}
    assert [items[name] for name in ("FP-BW-4", "NT-LENS-7", "NT-CPU-1")] == ["unknown"] * 3
    assert found["nodes"][0]["checks"]["counters.loss"] == "pass"


#: Names and values of rxe's hw_counters, from a guest with two Soft-RoCE devices after ordinary traffic.
RXE = {
    "ack_deferred": 0, "completer_retry_err": 22, "duplicate_request": 6, "lifespan": 12, "link_downed": 0,
    "out_of_seq_request": 0, "rcvd_pkts": 9378, "rcvd_rnr_err": 0, "rcvd_seq_err": 0, "rdma_recvs": 408,
    "rdma_sends": 409, "retry_exceeded_err": 0, "retry_rnr_exceeded_err": 0, "send_err": 0, "send_rnr_err": 0,
    "sent_pkts": 357101,
}  # fmt: skip


def test_software_devices_are_not_judged_by_their_noise() -> None:
    """Retries that rxe counts grow under ordinary traffic, as in the recorded guest."""
    name = "soft-roce"
    document = whole_node(name)
    before, after = ({one: str(value * end) for one, value in RXE.items()} for end in (0, 1))
    read = {"status": "ok", "value": before, "at_s": 1.0, "again": {"status": "ok", "value": after, "at_s": 61.0}}
    ports = {f"files:/sys/class/infiniband/{device}/ports/1/hw_counters": read for device in ("rxe0", "rxe1")}
    found = judge([from_document({**document, "records": {**document["records"], **ports}}, name)], MINE, site(name))
    statuses = {f["check"]: f["status"] for f in found["findings"]}
    assert statuses.pop("counters.cpu") == "unknown", "it was not asked"
    assert set(statuses.values()) == {"skip"}


def test_what_a_host_cannot_see_of_a_fabric_stays_unknown() -> None:
    """Bytes of the switches' uplinks: even rails, or NCCL's part of balancing, do not pass an item that needs both."""
    found = judge([from_document(machines.evidence(describe(IB)), IB)], registry().checks, site(IB))
    items = {item["id"]: item for item in found["checklists"]}
    assert (items["FP-CON-5"]["status"], items["AN-7"]["status"]) == ("unknown", "unknown")
    assert items["FP-CON-5"]["missing"] == "not judged: fabric.uplink-balance"
    assert [question["status"] for question in items["AN-7"]["questions"]] == [
        "pass",
        "pass",
        "unknown",
        "skip",
        "unknown",
    ]
    assert items["FP-CON-5"]["supply"] == "preflight check --fabric --window 60"


def test_a_finding_shows_both_ends_of_the_window() -> None:
    found = report(grows(symbol_error=60)(describe(IB)), IB)
    (shown,) = (f for f in found["findings"] if f["status"] == "fail")
    assert [one["text"] for one in shown["excerpts"]] == ["symbol_error: 0 -> 60, 60 s apart"]
    assert shown["found"] == "symbol_error +60 (1/s) in 60 s"


def test_the_rate_that_is_certain() -> None:
    """One symbol error in a minute is not 120 an hour; the limit is computed from the growth itself."""
    for errors, status in ((1, "warn"), (5, "warn"), (6, "warn"), (7, "warn"), (8, "fail")):
        machine = replace(describe(IB), name=IB)
        found = report(with_nic(machine, "mlx5_5", grows={"symbol_error": errors}), IB)
        assert found["nodes"][0]["checks"]["counters.link-quality"] == status, errors
