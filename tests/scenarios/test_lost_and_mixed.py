"""Nodes that lost all GPUs while other records show them, and classes with several GPU models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.checks import registry
from preflight.cli.app import main
from preflight.evidence.document import Evidence, from_document
from preflight.expectations.cluster_file import decode
from preflight.facts.container import GPU_NODES
from preflight.facts.kernel import NVIDIA_VERSION
from preflight.facts.kernel_log import DMESG
from preflight.judge import judge
from preflight.model import Check
from tests.support.machines import evidence, hgx_h100
from tests.support.machines.fleet import machines

CHECKS = list(registry().checks)
COUNT = [check for check in CHECKS if check.id == "gpu.count"]
SETTINGS = [check for check in CHECKS if check.id == "fleet.gpu-settings"]
RAILS = 'ports.compute = "mlx5_[0,3-6,9-11]"\n'

Change = Callable[[dict[str, Any]], None]


def without_gpus(*changes: Change, name: str = "gpu001") -> Evidence:
    """Return a node with all its NVIDIA GPUs gone from the PCI bus; its NICs are still there."""
    made = json.loads(json.dumps(evidence(replace(hgx_h100(name), name=name))))
    records = made["records"]
    for address in list(records["dir:/sys/bus/pci/devices"]["entries"]):
        if "PCI_ID=10DE" in records.get(f"file:/sys/bus/pci/devices/{address}/uevent", {}).get("out", ""):
            del records["dir:/sys/bus/pci/devices"]["entries"][address]
    for key in list(records):
        if key.startswith(("nvml:", "cmd:nvidia-smi")):
            records[key] = {"status": "missing", "why": "there is no such tool"}
    records[NVIDIA_VERSION] = {"status": "missing", "why": "no such file"}
    records[GPU_NODES] = {"status": "ok", "rc": 0, "out": "", "err": ""}
    for change in changes:
        change(made)
    return from_document(made, name)


def driver_loaded(made: dict[str, Any]) -> None:
    made["records"][NVIDIA_VERSION] = {
        "status": "ok",
        "out": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (x)\n",
    }


def device_nodes(made: dict[str, Any]) -> None:
    made["records"][GPU_NODES]["out"] = "/dev/nvidiactl\n/dev/nvidia0\n/dev/nvidia1\n"


def xids(made: dict[str, Any]) -> None:
    line = "<4>[ 1200.000000] NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.\n"
    made["records"][DMESG] = {"status": "ok", "rc": 0, "out": line, "err": ""}


def only_tools(made: dict[str, Any]) -> None:
    """Keep only the files of an image shared by all nodes, which do not suggest a GPU."""
    made["records"][GPU_NODES]["out"] = "/dev/nvidia-caps\n"
    line = "<4>[   12.000000] NVRM: No NVIDIA GPU found.\n"
    made["records"][DMESG] = {"status": "ok", "rc": 0, "out": line, "err": ""}


def found(checks: Sequence[Check], documents: list[Evidence], cluster: str = "") -> dict[str, Any]:
    return judge(documents, checks, decode(cluster.encode(), "cluster.toml") if cluster else None)


@pytest.mark.parametrize("declared", ["", f'[class.a]\nhcas = 8\n{RAILS}ports.link_layer = "InfiniBand"\n'])
@pytest.mark.parametrize(
    ("change", "words"),
    [(driver_loaded, "driver is loaded"), (device_nodes, "device nodes of GPUs"), (xids, "log has Xids")],
)
def test_a_node_that_lost_its_gpus_does_not_pass(change: Change, words: str, declared: str) -> None:
    report = found(COUNT, [without_gpus(change)], declared)
    (one,) = report["findings"]
    assert (one["status"], report["exit_status"]) == ("unknown", 3)
    assert words in one["message"]
    alone = found(CHECKS, [without_gpus(change)], declared)
    assert alone["exit_status"] == 3 or alone["nodes"][0]["status"] == "fail"
    assert "gpus = 0" in one["fix"]
    declared_none = f"[class.a]\ngpus = 0\n{RAILS}"
    assert found(COUNT, [without_gpus(change)], declared_none)["findings"][0]["status"] == "pass"
    assert found(COUNT, [without_gpus(change)], f"[class.a]\ngpus = 8\n{RAILS}")["findings"][0]["status"] == "fail"


def test_the_record_that_has_the_xids_is_named() -> None:
    def other(made: dict[str, Any]) -> None:
        line = "<6>[   12.000000] NVRM: loading NVIDIA UNIX Open Kernel Module\n"
        made["records"]["cmd:dmesg --raw --level=info"] = {"status": "ok", "rc": 0, "out": line, "err": ""}

    (one,) = found(COUNT, [without_gpus(xids, other)])["findings"]
    assert [key for key in one["evidence"] if "dmesg" in key] == [DMESG]


def server(product: str, *devices: str) -> Change:
    """Give a node a product name, and other devices by their PCI class and id."""

    def change(made: dict[str, Any]) -> None:
        records = made["records"]
        records["file:/sys/class/dmi/id/product_name"] = {"status": "ok", "out": f"{product}\n"}
        for number, device in enumerate(devices):
            address = f"0000:ee:{number:02x}.0"
            records["dir:/sys/bus/pci/devices"]["entries"][address] = {
                "type": "link", "target": f"../../../devices/pci0000:ee/{address}"
            }  # fmt: skip
            text = "PCI_CLASS={}\nPCI_ID={}\nPCI_SLOT_NAME=".format(*device.split()) + f"{address}\n"
            records[f"file:/sys/bus/pci/devices/{address}/uevent"] = {"status": "ok", "out": text}

    return change


@pytest.mark.parametrize("product", [
    "DGXA100 920-23687-2531-001", "DGXH100", "NVIDIA DGX H100", "DGX-2", "PowerEdge XE9680", "PowerEdge XE8545",
    "SYS-821GE-TNHR", "AS -8125GS-TNHR", "AS -4124GO-NART+", "HPE Cray XD670", "ThinkSystem SR680a V3", "p5.48xlarge",
    "p4d.24xlarge", "p6-b200.48xlarge", "g6e.48xlarge",
])  # fmt: skip
def test_a_server_that_is_sold_with_gpus_only_does_not_pass_without(product: str) -> None:
    """The node was rebooted after it lost all of its GPUs: only its model shows that it had some."""
    report = found(COUNT, [without_gpus(server(product))])
    (finding,) = report["findings"]
    assert (finding["status"], report["exit_status"]) == ("unknown", 3)
    assert f"the server is a {product}, sold only with GPUs" in finding["message"]
    assert "file:/sys/class/dmi/id/product_name" in finding["evidence"]
    declared = found(COUNT, [without_gpus(server(product))], f"[class.storage]\ngpus = 0\n{RAILS}")
    assert declared["findings"][0]["status"] == "pass"


@pytest.mark.parametrize("product", [
    "", "PowerEdge R750xa", "PowerEdge R760", "SYS-420GP-TNR", "SYS-221H-TN24R", "AS -1125HS-TNR", "ProLiant DL380",
    "ThinkSystem SR675 V3", "c5n.18xlarge", "hpc7a.96xlarge", "Virtual Machine", "DGXtender", "g4ad.16xlarge",
])  # fmt: skip
def test_a_server_for_storage_or_cpu_work_is_not_suspected(product: str) -> None:
    assert found(COUNT, [without_gpus(server(product), only_tools)])["findings"][0]["status"] == "skip"


def test_a_server_with_accelerators_of_another_vendor_has_its_own() -> None:
    for other in ("120000 1002:74A1", "120000 1DA3:1060", "38000 1002:740F"):
        assert found(COUNT, [without_gpus(server("PowerEdge XE9680", other))])["findings"][0]["status"] == "skip"
    matrox = "30000 102B:0536"  # the BMC's console
    assert found(COUNT, [without_gpus(server("PowerEdge XE9680", matrox))])["findings"][0]["status"] == "unknown"


def judged_with_history(evidence: Evidence, folder: Path) -> tuple[int, str]:
    save(folder / evidence.collected_at, [evidence])
    (folder / "cluster.toml").write_text(f"[class.a]\n{RAILS}")
    options = (
        "--cluster",
        str(folder / "cluster.toml"),
        "--history",
        str(folder / "history.db"),
        "--only",
        "gpu.count",
        "--only",
        "rdma.port-state",
    )
    done = CliRunner().invoke(
        main, ["judge", "-v", str(folder / evidence.collected_at), *options], catch_exceptions=False
    )
    return done.exit_code, " ".join(done.output.split())


def test_a_node_with_gpus_in_the_history_does_not_pass_without(tmp_path: Path) -> None:
    good = from_document(evidence(hgx_h100("gpu001")), "gpu001")
    today, tomorrow = "2026-11-21T03:00:00Z", "2026-11-22T03:00:00Z"
    lost = replace(without_gpus(), collected_at=tomorrow)
    assert judged_with_history(lost, tmp_path / "never")[0] == 0
    assert judged_with_history(replace(good, collected_at=today), tmp_path)[0] == 0
    status, text = judged_with_history(lost, tmp_path)
    assert status == 3
    assert "earlier runs in the history found GPUs" in text
    other = replace(lost, node="store1")
    assert judged_with_history(replace(other, collected_at="2026-11-22T04:00:00Z"), tmp_path)[0] == 0


@pytest.mark.parametrize("changes", [(), (only_tools,)])
def test_a_node_for_storage_is_judged_by_its_nics(changes: tuple[Change, ...]) -> None:
    (one,) = found(COUNT, [without_gpus(*changes)])["findings"]
    assert one["status"] == "skip"
    assert one["message"].startswith("GPUs were not judged")
    assert "class.default.gpus" in one["message"]


def test_a_container_does_not_see_what_the_host_lost() -> None:
    def inside(made: dict[str, Any]) -> None:
        made["collector"]["where"] = "container"

    assert found(COUNT, [without_gpus(driver_loaded, inside)])["findings"][0]["status"] == "skip"


# --- several GPU models in one class ---------------------------------------------------------------


def mixed(h200: int) -> list[Evidence]:
    made = []
    for number, machine in enumerate(machines(hgx_h100("h100"), 5, seed=3)):
        other = replace(machine, gpu_id="2335", gpu_name="NVIDIA H200") if number < h200 else machine
        made.append(from_document(evidence(other), machine.name))
    return made


def blamed(report: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    return {
        name: (one["status"], bool(one.get("undecided"))) for one in report["findings"]
        if one["status"] in ("fail", "warn") and one["subject"] == "GPU model" for name in one["nodes"]
    }  # fmt: skip


def test_one_node_of_another_model_in_a_class_is_named() -> None:
    report = found(SETTINGS, mixed(1), "[class.a]\n")
    assert blamed(report) == {"gpu001": ("fail", False)}
    (one,) = [one for one in report["findings"] if one["status"] == "fail"]
    assert one["message"] == "GPU model within a class: HGX H200; most nodes (4 of 5) have HGX H100"
    assert "their own class" in one["fix"]


def test_models_in_classes_of_their_own_are_no_fault() -> None:
    assert blamed(found(SETTINGS, mixed(1), '[class.b]\nnodes = "gpu001"\n[class.a]\n')) == {}
    assert blamed(found(SETTINGS, mixed(1))) == {}, "without a cluster file nothing says that they are one kind"
    assert blamed(found(SETTINGS, mixed(0), "[class.a]\n")) == {}


def test_a_tie_of_models_names_both_sides() -> None:
    report = found(SETTINGS, mixed(2)[:4], "[class.a]\n")
    assert blamed(report) == dict.fromkeys(["gpu001", "gpu002", "gpu003", "gpu004"], ("fail", True))


def test_a_part_that_is_declared_decides() -> None:
    """With a declared model, the majority has no vote."""
    cluster = '[class.a]\ngpu_settings.model = "NVIDIA H100 80GB HBM3"\n'
    check = [check for check in CHECKS if check.id == "node.expected"]
    report = found(check, mixed(4), cluster)
    assert set(blamed(report)) == {"gpu001", "gpu002", "gpu003", "gpu004"}
