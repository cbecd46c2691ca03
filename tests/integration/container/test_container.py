"""A real container: the collector inside bubblewrap reports its view, and hidden things are not absent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from tests.support import machines
from tests.support.machines import one_pair
from tests.support.paths import ROOT

CHECKS = registry().checks


def bubblewrap() -> str | None:
    """Return the path of a bubblewrap that works here."""
    tool = shutil.which("bwrap")
    if tool is None:
        return None
    tried = subprocess.run([tool, "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
    return tool if tried.returncode == 0 else None


BWRAP = bubblewrap()
pytestmark = pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed, or may not make namespaces here")


def collect(*view: str, **environment: str) -> Evidence:
    """Collect in a container: this machine read-only, a private /dev, and ``view`` on top."""
    assert BWRAP is not None
    command = [BWRAP, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
               "--tmpfs", "/dev/shm", *view]  # fmt: skip
    command += [sys.executable, "-m", "preflight", "collect"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
                          env={**os.environ, **environment})  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    return from_document(json.loads(done.stdout), "pod")


def sysfs(root: Path, records: Mapping[str, Any]) -> Path:
    """Write the /sys of a made machine below a directory."""
    for key, record in records.items():
        kind, _, path = key.partition(":")
        if not path.startswith("/sys/") or "*" in path or record["status"] != "ok":
            continue
        place = root / path.removeprefix("/sys/")
        if kind == "dir":
            place.mkdir(parents=True, exist_ok=True)
            for name, entry in record["entries"].items():
                _entry(root, place / name, entry)
    for key, record in records.items():
        if key.startswith("file:/sys/") and "*" not in key and record["status"] == "ok":
            place = root / key.removeprefix("file:/sys/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(record["out"])
    return root


def _entry(root: Path, place: Path, entry: Mapping[str, Any]) -> None:
    if entry["type"] != "link":
        place.mkdir(parents=True, exist_ok=True)
        return
    target = root / "devices" / entry["target"].split("/devices/", 1)[1]
    target.mkdir(parents=True, exist_ok=True)
    if not place.is_symlink():
        place.symlink_to(os.path.relpath(target, place.parent))


def verdicts(evidence: Evidence, cluster: Cluster | None = None) -> dict[str, list[tuple[str, str, str]]]:
    """Return check -> (status, message, fix) of all its findings."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for finding in judge([evidence], CHECKS, cluster)["findings"]:
        found.setdefault(finding["check"], []).append((finding["status"], finding["message"], finding["fix"]))
    return found


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """The /sys of a host with one GPU and one InfiniBand HCA."""
    return sysfs(tmp_path / "sys", machines.evidence(one_pair("host1"))["records"])


def test_without_device_nodes_the_missing_piece_is_named(box: Path) -> None:
    evidence = collect("--ro-bind", str(box), "/sys", KUBERNETES_SERVICE_HOST="192.0.2.1", NVIDIA_VISIBLE_DEVICES="all")
    assert evidence.collector["where"] == "container"
    results = verdicts(evidence)
    ((status, message, fix),) = results["rdma.device-nodes"]
    assert (status, message) == ("fail", "there is no /dev/infiniband in this container")
    assert "rdma/hca_shared_devices_a" in fix
    ((status, message, fix),) = results["container.gpu-devices"]
    assert (status, message) == ("fail", "this container has no GPU device; the PCI bus has 1 GPU")
    assert "nvidia.com/gpu" in fix
    ((status, message, fix),) = results["container.networks"]
    assert status == "unknown"
    assert "downward API" in fix
    assert results["kernel.modules"][0][0] == "pass"
    assert results["rdma.port-state"][0][0] == "pass"
    assert results["gpudirect.iommu"][0][0] == "pass"


def test_with_device_nodes_the_same_container_passes(box: Path, tmp_path: Path) -> None:
    nodes = tmp_path / "infiniband"
    nodes.mkdir()
    (nodes / "uverbs0").touch()
    (nodes / "rdma_cm").touch()
    results = verdicts(collect("--ro-bind", str(box), "/sys", "--bind", str(nodes), "/dev/infiniband"))
    assert results["rdma.device-nodes"][0][0] == "pass"


def test_what_a_restricted_sys_hides_is_unknown_never_absent() -> None:
    evidence = collect("--tmpfs", "/sys")
    assert evidence.collector["where"] == "container"
    wrong = {
        check: results
        for check, results in verdicts(evidence).items()
        if check.startswith(("gpu.", "gpudirect.", "pcie.", "rdma.", "topology.", "roce.", "rails.", "numa."))
        and any(status != "unknown" for status, *_ in results)
    }
    assert not wrong, "nothing was seen of /sys: neither a fault nor 'does not apply'"


def test_a_hidden_rdma_class_is_not_a_node_without_rdma(box: Path) -> None:
    """L33: the bus shows the NIC but the class does not: that is the container's view, not a fault of the host."""
    hide = ("--tmpfs", "/sys/class/infiniband", "--tmpfs", "/sys/class/infiniband_verbs")
    results = verdicts(collect("--ro-bind", str(box), "/sys", *hide))
    for check in ("rdma.registered", "rdma.device-nodes", "rdma.port-state", "gpudirect.path"):
        assert [status for status, *_ in results[check]] == ["unknown"], (check, results[check])


def test_a_promised_hca_that_the_container_lacks_fails(box: Path) -> None:
    """L20: a missing device that the cluster file expects is a failure, in a container too."""
    cluster = from_data({"class": {"pod": {"hcas": 1, "ports": {"compute": ["mlx5_0"]}}}}, "cluster.toml")
    results = verdicts(collect("--ro-bind", str(box), "/sys", "--tmpfs", "/sys/class/infiniband"), cluster)
    assert results["rdma.device-count"][0][0] == "fail"
