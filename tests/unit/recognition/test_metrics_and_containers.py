"""Metrics of dcgm-exporter and ``docker inspect``: each fault beside a healthy text of the same form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.recognition import read_text
from preflight.recognition.detector import TextPart

HEALTHY = {
    "GPU_TEMP": "41", "XID_ERRORS": "0", "ECC_DBE_VOL_TOTAL": "0", "ECC_SBE_VOL_TOTAL": "2", "ROW_REMAP_FAILURE": "0",
    "UNCORRECTABLE_REMAPPED_ROWS": "0", "PCIE_REPLAY_COUNTER": "3", "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "0",
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "0", "CLOCK_THROTTLE_REASONS": "0", "THERMAL_VIOLATION": "0",
    "POWER_VIOLATION": "4711000000", "FB_USED": "2048", "FB_FREE": "79000", "ENFORCED_POWER_LIMIT": "700",
}  # fmt: skip


def scrape(changes: dict[str, str], host: str = "gz-04", gpus: tuple[int, ...] = (0, 1, 2, 3)) -> str:
    """Return a scrape of four GPUs, in which GPU 1 has other values."""
    return "".join(
        f"# TYPE DCGM_FI_DEV_{name} gauge\n" + "".join(
            f'DCGM_FI_DEV_{name}{{gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:{gpu + 1}8:00.0",'
            f'modelName="NVIDIA H200",Hostname="{host}"}} {changes.get(name, value) if gpu == 1 else value}\n'
            for gpu in gpus
        )
        for name, value in HEALTHY.items()
    )  # fmt: skip


def only(text: str, kind: str) -> TextPart:
    (part,) = read_text(text, "pasted")
    assert part.kind == kind
    return part


def remarks(part: TextPart) -> set[tuple[str, str]]:
    return {(item["status"], item["check"]) for item in part.findings if item["status"] != "pass"}


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, set()),
    ({"XID_ERRORS": "79"}, {("fail", "xid.gpu")}), ({"XID_ERRORS": "13"}, {("warn", "xid.gpu")}),
    ({"ECC_DBE_VOL_TOTAL": "2"}, {("fail", "gpu.ecc-uncorrected")}),
    ({"ECC_SBE_VOL_TOTAL": "90000000"}, {("warn", "gpu.ecc-corrected")}),
    ({"ROW_REMAP_FAILURE": "1"}, {("fail", "gpu.row-remap")}),
    ({"CLOCK_THROTTLE_REASONS": "64"}, {("fail", "gpu.throttling")}),
    ({"CLOCK_THROTTLE_REASONS": "1"}, set()),  # idle
    ({"THERMAL_VIOLATION": "88000000"}, {("unknown", "gpu.throttling")}),
    ({"NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "5511"}, {("warn", "nvlink.errors")}),
    ({"PCIE_REPLAY_COUNTER": "90210"}, {("unknown", "pcie.replay")}),
    ({"GPU_TEMP": "91"}, {("warn", "gpu.temperature-margin")}),
    ({"ENFORCED_POWER_LIMIT": "500"}, {("warn", "gpu.power-limit")}),
    ({"GPU_TEMP": "NaN"}, {("unknown", "gpu.driver")}),
    ({"FB_USED": "9223372036854775794"}, {("unknown", "gpu.driver")}),  # DCGM's blank value
])  # fmt: skip
def test_metrics_of_a_gpu(changes: dict[str, str], expected: set[tuple[str, str]]) -> None:
    assert remarks(only(scrape(changes), "dcgm-exporter")) == expected


def test_a_lost_gpu_and_the_host_are_named() -> None:
    text = scrape({"XID_ERRORS": "79"}) + scrape({}, "gz-05", (0, 1, 3))
    part = only(text, "dcgm-exporter")
    messages = [item["message"] for item in part.findings if item["status"] != "pass"]
    assert [message for message in messages if message.startswith("gz-04: 0000:28:00.0: Xid 79")]
    assert [message for message in messages if message.startswith("gz-05: GPU 2 has no metric")]


CONTAINER: dict[str, Any] = {
    "Name": "/tune", "State": {"Status": "running", "OOMKilled": False, "ExitCode": 0}, "RestartCount": 0,
    "HostConfig": {
        "ShmSize": 32 << 30, "IpcMode": "private", "NetworkMode": "host", "Privileged": False, "Runtime": "runc",
        "CapAdd": [], "Ulimits": [{"Name": "memlock", "Hard": -1, "Soft": -1}],
        "Devices": [{"PathOnHost": "/dev/infiniband", "PathInContainer": "/dev/infiniband"}],
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}],
    },
}  # fmt: skip


@pytest.mark.parametrize(("host", "state", "expected"), [
    ({}, {}, set()),
    ({"ShmSize": 64 << 20}, {}, {("warn", "host.shm")}),
    ({"IpcMode": "host", "ShmSize": 64 << 20}, {}, {("unknown", "host.shm")}),
    ({"Ulimits": []}, {}, {("warn", "host.memlock")}),
    ({"Ulimits": [], "CapAdd": ["CAP_IPC_LOCK"]}, {}, set()),
    ({"Ulimits": [{"Name": "RLIMIT_MEMLOCK", "Hard": 65536, "Soft": 65536}]}, {}, {("warn", "host.memlock")}),
    ({"Devices": []}, {}, {("unknown", "rdma.device-nodes")}),
    ({"Devices": [], "Privileged": True}, {}, set()),
    ({"DeviceRequests": None}, {}, {("unknown", "container.gpu-devices")}),
    ({"NetworkMode": "bridge"}, {}, {("unknown", "container.networks")}),
    ({}, {"Status": "exited", "ExitCode": 137, "OOMKilled": True}, {("fail", "container.state")}),
    ({}, {"Status": "exited", "ExitCode": 1}, {("fail", "container.state")}),
    ({}, {"Status": "exited"}, set()),
    ({}, {"Status": "restarting"}, {("warn", "container.state")}),
])  # fmt: skip
def test_a_container(host: dict[str, object], state: dict[str, object], expected: set[tuple[str, str]]) -> None:
    entry = {**CONTAINER, "HostConfig": {**CONTAINER["HostConfig"], **host}, "State": {**CONTAINER["State"], **state}}
    assert remarks(only(json.dumps([entry], indent=4), "docker inspect")) == expected
    excerpt = json.dumps(entry["HostConfig"], indent=2)
    assert remarks(only(excerpt, "docker inspect")) == {item for item in expected if item[1] != "container.state"}


def test_a_cut_object_is_read_as_far_as_it_goes() -> None:
    text = json.dumps([{**CONTAINER, "HostConfig": {"IpcMode": "private", "ShmSize": 64 << 20}}], indent=4)
    part = only(text[: text.index('"ShmSize"') + 20], "docker inspect")
    assert remarks(part) == {("warn", "host.shm")}
    assert not part.read_in_full


@pytest.mark.parametrize("text", ['{"kind": "Pod", "ShmSize": 1}', '[{"name": "x", "Runtime": "go"}]', "{}"])
def test_other_objects_are_no_container(text: str) -> None:
    assert all(part.kind != "docker inspect" for part in read_text(text, "pasted"))
