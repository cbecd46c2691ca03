"""What looks like a fault and is none: each stays silent on a whole node; and what other tools got wrong (L…)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from preflight.checks import registry
from preflight.cluster import Cluster, load
from preflight.evidence import from_document
from preflight.judge import judge
from preflight.model import Scope
from tests import machines
from tests.fixture import FIXTURES
from tests.machines import Machine, hgx_h100, with_nic
from tests.machines.records import ok

CHECKS = [check for check in registry().checks if check.scope is Scope.NODE]
Change = Callable[[Machine], Machine]
Records = dict[str, Any]


def loud(machine: Machine, records: Records | None = None, cluster: Cluster | None = None) -> set[tuple[str, str, str]]:
    """Return what fails or warns; a record that is None is taken away."""
    document = machines.evidence(machine)
    for key, record in (records or {}).items():
        document["records"].pop(key, None)
        if record is not None:
            document["records"][key] = record
    report = judge([from_document(document, machine.name)], CHECKS, cluster or site(machine))
    return {(f["status"], f["check"], f["subject"]) for f in report["findings"] if f["status"] in ("fail", "warn")}


def site(machine: Machine) -> Cluster:
    return load(FIXTURES / "nodes" / f"{machine.name}.toml")


def infiniband(**changes: Any) -> Machine:
    return replace(hgx_h100("hgx-h100"), **changes)


def roce(**changes: Any) -> Machine:
    return replace(hgx_h100("hgx-h100-roce", roce=True), **changes)


def matrix_without_nics(machine: Machine) -> str:
    text: str = machines.evidence(machine)["records"]["cmd:nvidia-smi topo -m"]["out"]
    lines = [line.split("\t") for line in text.split("NIC Legend")[0].splitlines()]
    width = 1 + len(machine.gpus)
    kept = ["\t".join([*cells[:width], *cells[width + len(machine.nics) :]]) for cells in lines
            if not cells[0].startswith("NIC")]  # fmt: skip
    return "\n".join(kept) + "\n"


#: formats-node.md, end of section 8.
SILENT: dict[str, tuple[Machine, Records]] = {
    "ports of storage are down": (infiniband(), {}),
    "an IPoIB interface is down": (infiniband(), {"file:/sys/class/net/ibp24s0/operstate": ok("down\n")}),
    "RoCE ports have LID 0 and no subnet manager": (roce(), {}),
    "no peer-memory module where DMA-BUF works": (infiniband(peer_modules=()), {}),
    "no NIC rows in a container": (
        infiniband(where="container"), {"cmd:nvidia-smi topo -m": ok(matrix_without_nics(infiniband()))},
    ),
    "an active port whose speed the kernel does not know": (
        with_nic(infiniband(), "mlx5_5", rate="10 Gb/sec (4X SDR)"), {},
    ),
    "strict rp_filter, each rail in its own subnet": (
        roce(), {"file:/proc/sys/net/ipv4/conf/all/rp_filter": ok("1\n")},
    ),
    "ACS on in a virtual machine": (infiniband(where="vm", acs=("SrcValid", "ReqRedir", "CmpltRedir")), {}),
    "no IOMMU at all": (infiniband(iommu=""), {}),
    "a rank that is bound near its own GPU": (
        infiniband(env={"LOCAL_RANK": "7", "LOCAL_WORLD_SIZE": "8"}, allowed_cpus="98-111"), {},
    ),
    "NUMA balancing as memory tiering": (infiniband(numa_balancing=2), {}),
    "timedatectl where chrony is not installed": (
        infiniband(), {"cmd:chronyc -n tracking": None, "cmd:timedatectl show": ok("NTPSynchronized=yes\n")},
    ),
    "an ordinary user sees no ACS": (
        infiniband(), {"cmd:lspci -Dnvv": ok("0000:18:00.0 0207: 15b3:1021\n\tCapabilities: <access denied>\n")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_false_alarm_stays_silent(name: str) -> None:
    assert loud(*SILENT[name]) == set()


def test_source_validation_alone_does_not_fail() -> None:
    assert loud(infiniband(acs=("SrcValid",))) == {("warn", "gpudirect.path", "")}


def test_a_dead_driver_is_no_node_without_gpus() -> None:
    """L05: the PCI bus tells that there are GPUs; no check of GPUs skips."""
    report = judge([from_document(machines.evidence(infiniband(driver_loaded=False)), "x")], CHECKS)
    skips = {
        f["check"] for f in report["findings"] if f["status"] == "skip" and f["check"].startswith(("gpu.", "numa."))
    }
    assert not skips & {"gpu.count", "gpu.driver", "numa.affinity", "numa.memory"}
    assert "fail" in {f["status"] for f in report["findings"] if f["check"] == "gpu.driver"}


def test_every_device_is_looked_at_not_the_first() -> None:
    """L61: eight NICs, the last one is the one with half its lanes, and with no address."""
    assert loud(with_nic(roce(), "mlx5_11", lanes=8)) == {("fail", "pcie.nic-link", "mlx5_11")}
    assert loud(with_nic(roce(), "mlx5_11", ip="")) == {("fail", "rails.subnets", "enp220s0")}


def test_a_link_is_compared_with_its_own_maximum() -> None:
    """L27: x8 is no fault of a NIC that has eight lanes."""
    base = "file:/sys/class/infiniband/mlx5_5/device"
    slower = {f"{base}/current_link_width": ok("8\n"), f"{base}/max_link_width": ok("8\n")}
    machine = with_nic(infiniband(), "mlx5_5", rate="200 Gb/sec (4X HDR)")
    assert {check for _, check, _ in loud(machine, slower)} == {"rdma.port-rate"}, "the port's rate, not the link"


def test_what_is_not_a_compute_port_is_not_judged() -> None:
    """L25: the storage NICs may have half the lanes, small reads and another subnet."""
    machine = infiniband()
    for device in ("mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"):
        machine = with_nic(machine, device, lanes=4, max_read_request=512)
    assert loud(machine) == set()


def test_limits_of_a_container_are_not_faults_of_the_host() -> None:
    """L33: no tools of the host's daemons, no /sys of modules: unknown, not a fault."""
    hidden = dict.fromkeys(("dir:/sys/module", "cmd:chronyc -n tracking", "cmd:lspci -Dnvv"))
    assert loud(infiniband(where="container"), dict(hidden)) == set()


def test_tools_that_are_missing_are_no_fault() -> None:
    """L23: a node without lspci, chrony, ip and find is not unhealthy."""
    keys = [key for key in machines.evidence(infiniband())["records"] if key.startswith("cmd:")]
    mine = ("lspci", "chronyc", "find", "ip ")
    gone = {"status": "missing", "why": "there is no such tool"}
    assert loud(infiniband(), {key: gone for key in keys if key[4:].startswith(mine)}) == set()
