"""Facts of GPUs: NVML and ``nvidia-smi -q -x`` agree, damaged text is rejected."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.checks import in_module
from preflight.checks.gpu import link_errors as link_error_checks
from preflight.checks.gpu import xid as xid_checks
from preflight.checks.gpu.xid_policy import POLICY, Act
from preflight.collector import libraries
from preflight.collector.records import Deadline
from preflight.evidence.document import SCHEMA, Evidence, EvidenceError, from_document
from preflight.expectations import Cluster
from preflight.expectations.catalogue import GPUS, PARTS
from preflight.facts import kernel_log, xid
from preflight.facts.node import NodeFacts
from preflight.facts.nvidia import link_errors, nvml, smi_xml
from preflight.facts.nvidia.health import health
from preflight.facts.nvidia.model import GpuFabric, GpuHealth, Health, Process
from preflight.facts.nvidia.query import NVML
from preflight.judge import judge
from preflight.model import Check
from preflight.parsers.host import services
from preflight.parsers.host.kernel_log import KernelLogLine
from preflight.parsers.host.kernel_log import parse as parse_kernel_log
from preflight.parsers.nvidia import nvlink_status
from preflight.parsers.nvidia.nvlink_errors import NVLINK_ERRORS
from tests.support import machines, paths
from tests.support.fixture import whole_node
from tests.support.machines import Machine, gpu_health, gpu_services, hgx_h100, with_gpu
from tests.support.machines.platform import H100

#: Values that only NVML reports.
NVML_ONLY = {"cuda_cores", "links", "link_gbytes_s"}


def node(machine: Machine, **records: Any) -> Evidence:
    document = machines.evidence(machine)
    document["records"] |= {key.replace("__", ":"): value for key, value in records.items()}
    return from_document(document, machine.name)


def document(records: dict[str, Any]) -> Evidence:
    return from_document({"schema": SCHEMA, "node": "node1", "collected_at": "", "records": records}, "node1")


def common_fields(gpu: GpuHealth) -> dict[str, Any]:
    return {f.name: getattr(gpu, f.name) for f in fields(gpu) if f.compare and f.name not in NVML_ONLY}


# --- the same facts from both ------------------------------------------------------------------------

SICK: dict[str, dict[str, Any]] = {
    "healthy": {},
    "errors": {
        "ecc_volatile_sram_uncorrected": 3, "ecc_volatile_dram_corrected": 77, "ecc_aggregate_dram_uncorrected": 5,
        "ecc_aggregate_sram_corrected": 9, "sram_threshold_exceeded": True, "remapped_corrected": 1,
        "remapped_uncorrected": 8, "remap_pending": True, "remap_failure": True, "remap_banks": (2500, 50, 8, 1, 1),
    },
    "hot": {"temperature_c": 86, "temperature_margin_c": -1, "event_reasons": 0x48, "power_enforced_w": 612.5},
    "older part": {
        "temperature_margin_c": None, "temperature_slowdown_c": 92, "fabric": None, "recovery_action": None,
        "retired_single": 2, "retired_double": 1, "retired_pending": True, "remapped_corrected": None,
        "remapped_uncorrected": None, "remap_pending": None, "remap_failure": None, "remap_banks": None,
    },
    "consumer part": {
        "ecc": None, "ecc_pending": None, "mig": None, "mig_pending": None, "sram_threshold_exceeded": None,
        **dict.fromkeys((f.name for f in fields(GpuHealth) if f.name.startswith("ecc_")), None),
    },
    "busy": {
        "processes": (Process(7, "python3", 1024), Process(8, "python3", None)), "utilisation_pct": 100,
        "memory_utilisation_pct": 31, "memory_used_mib": 1028, "performance_state": 2, "event_reasons": 0x4,
    },
    "not joined": {"fabric": GpuFabric("Not Started", "Success", (), 0, "00000000-0000-0000-0000-000000000000")},
    "degraded": {"fabric": GpuFabric("Completed", "Success", ("degraded bandwidth", "route unhealthy"), 7, "4f8a-1")},
    "to be reset": {"recovery_action": "Drain and Reset", "persistence": False, "mig_pending": True, "pcie_width": 8},
    "exclusive": {"compute_mode": "Exclusive_Process", "pcie_generation": 1, "ecc_pending": False},
}  # fmt: skip


@pytest.mark.parametrize("case", SICK)
def test_nvml_and_nvidia_smi_agree(case: str) -> None:
    machine = with_gpu(hgx_h100("node1"), 3, health=SICK[case])
    first, second = nvml.read_health(node(machine)), smi_xml.read_health(node(machine))
    assert (first.driver, len(first.gpus)) == (second.driver, len(second.gpus)) == ("570.124.06", 8)
    for one, other in zip(first.gpus, second.gpus, strict=True):
        assert common_fields(one) == common_fields(other)
    described = SICK[case]
    assert {name: getattr(first.gpus[3], name) for name in described} == described


@pytest.mark.parametrize("case", SICK)
def test_both_drive_the_same_checks(case: str) -> None:
    """One source alone gives the findings of the other, except for values that only NVML reports."""
    machine = with_gpu(hgx_h100("node1"), 3, health=SICK[case])
    checks = [check for check in _node_checks() if check.id != "gpu.right-part"]
    found = [
        {(f["status"], f["check"], f["subject"], f["message"]) for f in judge([evidence], checks)["findings"]}
        for evidence in (
            node(machine, **{"cmd__nvidia-smi -q -x": {"status": "missing", "why": "no nvidia-smi"}}),
            node(machine, **{"nvml__gpus": {"status": "missing", "why": "no pynvml"}}),
        )
    ]
    assert found[0] == found[1]


def _node_checks() -> list[Check]:
    names = ("gpu.memory", "gpu.state", "gpu.processes", "gpu.part", "gpu.nvlink", "gpu.nvlink_fabric", "gpu.xid")
    return [c for name in names for c in in_module(__import__(f"preflight.checks.{name}", fromlist=["_"]))]


def test_second_source_fills_what_the_first_could_not_read() -> None:
    machine = hgx_h100("node1")
    records = machines.evidence(machine)["records"]
    raw = records[NVML]["value"]["gpus"][2]
    del raw["temperature_margin_c"]
    raw["errors"]["temperature_margin_c"] = "Function Not Found"
    found = NodeFacts(document(records)).gpu_health
    assert found.gpus[2].temperature_margin_c == 56
    assert found.evidence == (NVML, smi_xml.XML)
    records[smi_xml.XML] = {"status": "missing", "why": "no nvidia-smi"}
    assert NodeFacts(document(records)).gpu_health.gpus[2].why("temperature_margin_c") == "Function Not Found"


def test_not_supported_is_never_a_value() -> None:
    gpu = nvml.read_health(node(with_gpu(hgx_h100("node1"), 0, health={"ecc": None, "ecc_pending": None}))).gpus[0]
    assert gpu.ecc is None
    assert gpu.not_reported("ecc")
    assert not gpu.not_reported("persistence")


def test_gpus_read_before_nvml_hung_are_reported() -> None:
    """L41: NVML hangs in the third of eight GPUs; two are reported, the rest is unknown."""
    records = machines.evidence(hgx_h100("node1"))["records"]
    value = records[NVML]["value"]
    value["gpus"] = [*value["gpus"][:2], {"index": 2, "errors": {}}]
    records[NVML] = {"status": "timeout", "why": "no end after 20 s; no answer for GPU 2", "value": value}
    records[smi_xml.XML] = {"status": "timeout", "why": "no end after 20 s"}
    found = health(document(records))
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    assert "no answer for GPU 2" in found.partial
    report = judge([document(records)], [c for c in _node_checks() if c.id == "gpu.ecc-mode"])
    assert {f["status"] for f in report["findings"]} == {"pass", "unknown"}


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    records = machines.evidence(hgx_h100("node1"))["records"]
    records[NVML]["value"]["gpus"][4] = {"index": 4, "errors": {"handle": "GPU is lost"}}
    found = nvml.read_health(document(records))
    assert len(found.gpus) == 7
    assert "GPU is lost" in found.silent[0]


def test_the_collector_reads_every_field_from_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for NVML, compiled here: the values read through pynvml give the expected facts."""
    pytest.importorskip("pynvml")
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler for a stand-in of NVML")
    source = paths.DATA / "nvml" / "healthy_h100.c"
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    record = libraries.call_library("nvml", ["gpus"], 5.0, Deadline(9), 1_000_000)["gpus"]
    assert record["status"] == "ok", record
    first, second = nvml.read_health(document({NVML: record})).gpus
    assert first == replace(H100, address="0000:1b:00.0", uuid="GPU-1")
    assert second == replace(
        H100, index=1, address="0000:43:00.0", uuid="GPU-2", remapped_uncorrected=1, remap_pending=True,
        processes=(Process(4711, "python3", 1024),), links=tuple(link != 4 for link in range(18)),
    )  # fmt: skip
    counts = link_errors.totals(document({NVML: record}))
    assert counts["GPU-1"] == {link: {"replay": 0, "recovery": 0, "CRC": 0} for link in range(18)}
    assert counts["GPU-2"][7] == {"replay": 0, "recovery": 0, "CRC": 4211}
    assert "--token" not in str(record), "of a command line only the program's name leaves the node"


def test_nvlink_errors_come_from_nvml_where_there_is_no_nvidia_smi() -> None:
    def read(crc: int) -> dict[str, Any]:
        made: dict[str, Any] = machines.evidence(hgx_h100("node1"))["records"][NVML]["value"]
        for number, gpu in enumerate(made["gpus"]):
            gpu["nvlink_errors"] = {"4": {"161": 0, "162": 0, "163": crc if number == 3 else 0}}
        return made

    records = machines.evidence(hgx_h100("node1"))["records"]
    records[NVLINK_ERRORS] = {"status": "missing", "why": "there is no nvidia-smi in PATH"}
    again = {"status": "ok", "at_s": 61.0, "value": read(5211)}
    records[NVML] = {"status": "ok", "at_s": 1.0, "value": read(4211), "again": again}
    report = judge([document(records)], list(in_module(link_error_checks)))
    warnings = {(f["status"], f["check"], f["message"][:26], *f["evidence"]) for f in report["findings"]
             if f["check"] in ("nvlink.errors", "counters.gpu-links") and "CRC" in f["message"]}  # fmt: skip
    assert warnings == {
        ("warn", "nvlink.errors", "GPU3: 4211 CRC errors on i", NVML),
        ("warn", "counters.gpu-links", "GPU3: link 4 gained 1000 C", NVML),
    }


@pytest.mark.parametrize("damaged", [{"x": {"163": 1}}, {"4": 7}, {"4": {"163": "many"}}, {"4": {"163": -1}}, [4]])
def test_damaged_counters_of_nvml_are_no_counters(damaged: Any) -> None:
    records = machines.evidence(hgx_h100("node1"))["records"]
    records[NVLINK_ERRORS] = {"status": "missing", "why": "there is no nvidia-smi in PATH"}
    records[NVML]["value"]["gpus"][3]["nvlink_errors"] = damaged
    with pytest.raises(EvidenceError):
        link_errors.totals(document(records))


_NO_ROW_REMAPPER: dict[str, Any] = {
    "remapped_corrected": None, "remapped_uncorrected": None, "remap_pending": None, "remap_failure": None,
    "remap_banks": None,
}  # fmt: skip
_MULTI_NODE = GpuFabric("Completed", "Success", (), 32766, "4f8a3d23-0000-0000-0000-000000000001")

#: Healthy parts as shown by their tools: the differences from an HGX H100 and its GPUs.
HEALTHY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "HGX H100": ({}, {}),
    "HGX H100, driver 535": ({"driver": "535.129.03"}, {"recovery_action": None, "sram_threshold_exceeded": None}),
    "DGX A100": (
        {"gpu_id": "20b2", "gpu_name": "NVIDIA A100-SXM4-80GB", "nvlinks": 12},
        {"memory_total_mib": 81920, "cuda_cores": 6912, "links": (True,) * 12, "link_gbytes_s": 25.0, "fabric": None,
         "temperature_margin_c": None, "temperature_slowdown_c": 92, "pcie_generation": 4, "pcie_generation_max": 4,
         "power_limit_w": 400.0, "power_enforced_w": 400.0, "power_default_w": 400.0, "remap_banks": (640, 0, 0, 0, 0)},
    ),
    "HGX B200": (
        {"gpu_id": "2901", "gpu_name": "NVIDIA B200", "nvswitches": ()},
        {"memory_total_mib": 183359, "cuda_cores": 18944, "link_gbytes_s": 53.125},
    ),
    "GB200 tray": (
        {"gpu_id": "2941", "gpu_name": "NVIDIA GB200", "nvswitches": (), "imex": True},
        {"memory_total_mib": 189471, "cuda_cores": 19456, "link_gbytes_s": 53.125, "fabric": _MULTI_NODE},
    ),
    "L40S box": (
        {"gpu_id": "26b9", "gpu_name": "NVIDIA L40S", "nvlinks": 0, "nvswitches": ()},
        {"memory_total_mib": 46068, "cuda_cores": 18176, "links": None, "link_gbytes_s": None, "fabric": None,
         "pcie_generation": 1, "pcie_generation_max": 4, "remap_banks": (192, 0, 0, 0, 0)},
    ),
    "T4 box": (
        {"gpu_id": "1eb8", "gpu_name": "Tesla T4", "nvlinks": 0, "nvswitches": ()},
        {"memory_total_mib": 15360, "cuda_cores": 2560, "links": None, "link_gbytes_s": None, "fabric": None,
         "pcie_generation": 1, "pcie_generation_max": 3, "pcie_width": 8, "pcie_width_max": 8, "retired_single": 0,
         "retired_double": 0, "retired_pending": False, "mig": None, "mig_pending": None, **_NO_ROW_REMAPPER},
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", HEALTHY)
def test_healthy_parts_are_silent(part: str) -> None:
    """L26, L27: rules state the hardware that they apply to, and compare a device with its own limits."""
    changes, health_of_each = HEALTHY[part]
    machine = replace(hgx_h100("node1"), **changes)
    for index in range(8):
        machine = with_gpu(machine, index, health=health_of_each)
    report = judge([node(machine)], _node_checks())
    loud = [(f["check"], f["message"]) for f in report["findings"] if f["status"] not in ("pass", "skip")]
    assert loud == []


def test_a_part_from_nowhere_is_unknown_not_well() -> None:
    """L02: a check that needs a catalogue value is unknown and named; the rest is judged."""
    report = judge([node(replace(hgx_h100("node1"), gpu_id="ffff", gpu_name="NVIDIA X900"))], _node_checks())
    checks = report["nodes"][0]["checks"]
    assert {check for check, status in checks.items() if status == "unknown"} == {"gpu.right-part"}
    assert {checks["gpu.ecc-uncorrected"], checks["xid.gpu"], checks["nvlink.links"]} == {"pass"}


def test_a_failed_remapping_is_one_finding_with_its_fix() -> None:
    """L14: a state that requires an action is a finding with that action."""
    machine = with_gpu(hgx_h100("node1"), 3, health={"remap_failure": True, "remapped_uncorrected": 600})
    report = judge([node(machine)], _node_checks())
    (finding,) = [f for f in report["findings"] if f["status"] == "fail"]
    assert (finding["check"], finding["subject"]) == ("gpu.row-remap", "0000:61:00.0")
    assert "replaced" in finding["fix"]


def test_what_a_container_cannot_see_is_no_fault() -> None:
    """L33: two of eight GPUs, no process, no visible kernel log or systemd: unknown or passed, never failed."""
    machine = replace(with_gpu(hgx_h100("node1"), 0, health={"memory_used_mib": 30000}), where="container")
    records = machines.evidence(machine)
    value = records["records"][NVML]["value"]
    value["gpus"] = value["gpus"][:2]
    denied = {"status": "ok", "rc": 1, "err": "dmesg: read kernel buffer failed: Operation not permitted\n"}
    no_systemd = {"status": "ok", "rc": 1, "err": "System has not been booted with systemd as init system\n"}
    records["records"] |= {kernel_log.DMESG: denied, services.SERVICES: no_systemd}
    report = judge([from_document(records, "node1")], _node_checks())
    assert {f["status"] for f in report["findings"]} == {"pass", "skip", "unknown"}
    unsure = {check for check, status in report["nodes"][0]["checks"].items() if status == "unknown"}
    assert unsure == {"xid.gpu", "xid.nvswitch", "nvlink.fabric-manager"}


# --- nvidia-smi -q -x ---------------------------------------------------------------------------------


def full_xml() -> str:
    text: str = whole_node("hgx-h100")["records"][smi_xml.XML]["out"]
    return text


RENAMED: dict[str, tuple[str, str]] = {
    "clocks_throttle_reasons until R530": ("clocks_event_reason", "clocks_throttle_reason"),
    "power_readings until R530": ("gpu_power_readings", "power_readings"),
    "power_limit until R530": ("requested_power_limit", "power_limit"),
    "enforced_power_limit until R530": ("current_power_limit", "enforced_power_limit"),
}


def test_names_before_r535_give_the_same_facts() -> None:
    text = full_xml()
    for new, old in RENAMED.values():
        assert new in text
        text = text.replace(new, old)
    text = re.sub(r"<sram_uncorrectable_parity>0</sram_uncorrectable_parity>\s*", "", text)
    text = text.replace("sram_uncorrectable_secded", "sram_uncorrectable").replace("570.124.06", "530.30.02")
    text = re.sub(r"<gpu_recovery_action>.*?</gpu_recovery_action>\s*", "", text)
    older, newer = smi_xml.parse(text), smi_xml.parse(full_xml())
    for one, other in zip(older.gpus, newer.gpus, strict=True):
        assert common_fields(replace(one, gsp=other.gsp, recovery_action=other.recovery_action)) == common_fields(other)
        assert one.not_reported("recovery_action"), "drivers before 565 do not say"


NO_DATA = {
    "[N/A]": "N/A", "N/A": "N/A", "Requested functionality has been deprecated": "N/A",
    "Unknown Error": "Unknown Error", "GPU requires reset": "GPU requires reset",
    "Insufficient Permissions": "Insufficient Permissions", "[GPU is lost]": "[GPU is lost]", "ERR!": "ERR!",
    "": "persistence_mode is empty", "Perhaps": "persistence_mode is 'Perhaps'",
}  # fmt: skip


@pytest.mark.parametrize("word", NO_DATA)
def test_words_that_are_not_data(word: str) -> None:
    """L17: only the good word is good; an unknown word is not a value."""
    text = full_xml().replace("<persistence_mode>Enabled", f"<persistence_mode>{word}")
    gpu = smi_xml.parse(text).gpus[0]
    assert gpu.persistence is None
    assert gpu.why("persistence") == NO_DATA[word]


def test_half_an_xml_names_the_place() -> None:
    text = full_xml()
    with pytest.raises(ValueError, match=r"ends or breaks at line \d+, in GPU 00000000:(1B|43):00.0: '"):
        smi_xml.parse(text[: text.index("<gpu_temp>", text.index('id="00000000:43'))])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No devices were found\n", "begins 'No devices were found'"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "version mismatch"),
        ("", "begins ''"),
        ("<nvidia_smi_log></nvidia_smi_log>", "driver version is ''"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><!ENTITY</nvidia_smi_log>', "declares entities"),
    ],
)
def test_what_is_no_xml_is_refused_with_its_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        smi_xml.parse(text)


def test_noise_round_the_document_does_no_harm() -> None:
    text = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n" + full_xml() + "WARNING: infoROM is corrupted\n"
    assert len(smi_xml.parse(text).gpus) == 8


def test_a_gpu_without_a_name_of_its_own_is_silent_not_healthy() -> None:
    text = re.sub(r"<uuid>GPU-[^<]*1b</uuid>", "<uuid>Unknown Error</uuid>", full_xml())
    found = smi_xml.parse(text)
    assert len(found.gpus) == 7
    assert found.silent == ("GPU 00000000:1B:00.0: Unknown Error",)


# --- NVLink, services ---------------------------------------------------------------------------------


def test_nvlink_status() -> None:
    gpus = [replace(H100, uuid="GPU-a", name="NVIDIA X", links=(True, False)), replace(H100, index=1, uuid="GPU-b")]
    found = nvlink_status.parse(gpu_services.nvlink(gpus))
    assert found["GPU-a"] == nvlink_status.Links((True, False), 26.562)
    assert sum(found["GPU-b"].up) == 18


@pytest.mark.parametrize("word", ["<inactive>", "<inActive>", "inactive"])
def test_inactive_in_any_letter_case(word: str) -> None:
    """L59: the tool itself varies the case."""
    text = f"GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: {word}\n"
    assert nvlink_status.parse(text)["GPU-1"] == nvlink_status.Links((False,), None)


def test_all_links_inactive_is_no_link_up() -> None:
    text = "GPU 0: NVIDIA A100 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
    assert nvlink_status.parse(text)["GPU-1"] == nvlink_status.Links((), None)


def test_services() -> None:
    found = services.parse("Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\n\nId=b.service\n"
                           "LoadState=not-found\nActiveState=inactive\nSubState=dead\n")  # fmt: skip
    assert found["a.service"].active == "active"
    assert not found["b.service"].known
    assert services.fabric_manager_version("Fabric Manager version is : 570.124.06\n") == "570.124.06"


def test_the_catalogue_is_consistent() -> None:
    ids = [device for gpu in GPUS for device in gpu.device_ids]
    assert len(ids) == len(set(ids)), "an id belongs to one model"
    assert all(gpu.source and gpu.generation for gpu in GPUS)
    assert {gpu.link_gbytes_s for gpu in GPUS if gpu.nvlinks} == {25, 50}
    assert all(part.gpu in GPUS for part in PARTS)


# --- the kernel's log ---------------------------------------------------------------------------------

FELL = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

FORMS = {
    "dmesg --raw": f"<4>[  431.250000] {FELL}",
    "dmesg": f"[  431.250000] {FELL}",
    "dmesg with caller": f"[  431.250000][ T1234] {FELL}",
    "dmesg -T": f"[Sun Feb 23 16:24:18 2025] {FELL}",
    "dmesg -x --time-format iso": f"kern  :err   : 2025-03-19T06:41:07,218350+00:00 {FELL}",
    "journalctl -k": f"Feb 23 16:24:18 gpu001 kernel: {FELL}",
    "syslog with the kernel's time": f"Feb 23 16:24:18 gpu001 kernel: [  431.250000] {FELL}",
    "rsyslog": f"2025-03-19T06:41:07.218350+00:00 gpu001 kernel: {FELL}",
    "/dev/kmsg": f"4,1227,431250000,-;{FELL}",
    "/dev/kmsg with a caller": f"4,1227,431250000,-,caller=T1;{FELL}",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_the_kernels_log(form: str) -> None:
    (line,) = parse_kernel_log(FORMS[form] + "\n")
    assert line.text == FELL
    (event,) = xid.events([line]).gpus
    assert (event.address, event.code) == ("0000:1b:00.0", 79)


@pytest.mark.parametrize(
    ("written", "address"),
    [("PCI:0000:10:1c", "0000:10:1c.0"), ("PCI:0019:01:00", "0019:01:00.0"), ("0000:1B:00.0", "0000:1b:00.0"),
     ("PCI:00000000:1b:00", "0000:1b:00.0")],
)  # fmt: skip
def test_forms_of_the_address(written: str, address: str) -> None:
    (event,) = xid.events([KernelLogLine(1, f"NVRM: Xid ({written}): 31, x")]).gpus
    assert event.address == address


def test_repetitions_within_a_minute_count_once() -> None:
    lines = [KernelLogLine(at, FELL) for at in (0, 30, 80, 130, 200)]
    assert [event.at_s for event in xid.events(lines).gpus] == [0, 200]


#: The policy of lessons.md section 3: code -> effect of one line on a node without other evidence.
VERDICT = {
    **dict.fromkeys((8, 11, 13, 25, 31, 32, 60, 69, 14, 37, 38, 44, 66, 67, 39, 41, 70, 77, 85, 126, 135), "pass"),
    **dict.fromkeys((46, 48, 54, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 150, 151, 155, 156, 158), "fail"),
    **dict.fromkeys((167, 168, 169, 171, 172), "fail"),
    **dict.fromkeys((56, 57, 58, 65, 73, 81, 74, 144, 149, 154, 164, 165, 166, 170, 173, 175, 176, 174, 999), "warn"),
    **dict.fromkeys((43, 45, 63, 68, 80, 82, 96, 105, 139, 142, 78, 92, 93, 94, 121, 106, 153, 108, 137, 141), "pass"),
    **dict.fromkeys((147, 148, 157, 159, 160, 161, 162, 163), "pass"),
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(VERDICT))
def test_policy_of_each_code(code: int) -> None:
    """L32: an application's errors never fail a node; every hardware code does, an unknown one warns."""
    records = dict(whole_node("hgx-h100")["records"])
    for key in (NVML, smi_xml.XML):
        records[key] = {"status": "missing", "why": "nobody to ask"}
    out = f"<4>[ 9.0] x\n<4>[431.25] NVRM: Xid (PCI:0000:1b:00): {code}, pid=1, name=python3\n"
    records[kernel_log.DMESG] = {"status": "ok", "rc": 0, "out": out}
    (finding,) = judge([document(records)], [xid_checks.gpu], Cluster())["findings"]
    assert finding["status"] == VERDICT[code], finding["message"]
    assert str(code) in finding["message"]
    if VERDICT[code] == "warn":
        assert f"{code}, pid=1" in finding["found"], "the line is quoted"


def test_every_code_of_the_policy_has_a_meaning_and_those_that_act_a_fix() -> None:
    for code, policy in POLICY.items():
        assert policy.meaning, code
        if policy.act in (Act.OUT, Act.RESET, Act.WARN):
            assert policy.fix, code


def test_judging_the_log_twice_gives_the_same() -> None:
    """L08: a verdict is a function of the evidence; judging twice changes nothing."""
    machine = replace(hgx_h100("node1"), kernel_log=(f"<4>[431000.1] {FELL}",))
    assert judge([node(machine)], _node_checks()) == judge([node(machine)], _node_checks())


def test_reasons_begin_with_the_fault() -> None:
    """L47: subject and fault are in the first 60 characters, since schedulers cut reasons there."""
    machine = replace(hgx_h100("node1"), kernel_log=(f"<4>[431000.1] {FELL}",))
    for index, sick in enumerate(SICK.values()):
        machine = with_gpu(machine, index % 8, health=sick)
    for finding in judge([node(machine)], _node_checks())["findings"]:
        if finding["status"] in ("fail", "warn") and finding["subject"]:
            assert re.match(r"GPU[0-7]:? \S|Xid [0-9]+: \S", finding["message"]), finding["message"]


def test_fixes_name_the_jobs_they_interrupt() -> None:
    """L43: a reset ends all jobs on the GPU, and the text warns of it."""
    for policy in POLICY.values():
        if "nvidia-smi -r" in policy.fix:
            assert "ends all jobs" in policy.fix
    for check in _node_checks():
        if "reset the GPU" in check.fix:
            assert re.search(r"Drain|no job uses|fabricmanager|all GPUs|no process owns", check.fix), check.id


def test_dead_driver_with_gpus_on_the_bus_is_never_no_gpus() -> None:
    """L04, L05, L23: a missing or dead tool makes the health unknown, never passed or skipped."""
    for status in ("missing", "denied", "timeout", "error", "not-run"):
        records = dict(whole_node("hgx-h100")["records"])
        for key in (
            NVML,
            smi_xml.XML,
            nvlink_status.NVLINK,
            kernel_log.DMESG,
            services.SERVICES,
            services.FABRIC_MANAGER,
        ):
            records[key] = {"status": status, "why": "made"}
        report = judge([document(records)], _node_checks())
        assert {finding["status"] for finding in report["findings"]} == {"unknown"}, status


# --- properties ---------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_nvml_answers_of_any_shape(data: st.DataObject) -> None:
    raw = gpu_health.nvml(replace(H100, address="0000:1b:00.0", uuid="GPU-1"), "2330")
    for key in data.draw(st.lists(st.sampled_from(sorted(raw)), max_size=5)):
        raw[key] = data.draw(JSON)
    value = {"driver": "570.124.06", "gpus": [raw]}
    try:
        found = nvml.read_health(document({NVML: {"status": "ok", "value": value}}))
    except EvidenceError:
        return
    assert isinstance(found, Health)
