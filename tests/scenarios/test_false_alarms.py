"""Facts that look like faults are not reported on a complete node; errors of other tools (L…) are not repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data, load
from preflight.judge import judge
from preflight.model import Scope
from tests.support import machines
from tests.support.fixture import FIXTURES
from tests.support.machines import Machine, hgx_h100, one_pair, with_gpu, with_nic
from tests.support.machines.records import ok
from tests.support.whole_nodes import LESS_PER_GPU

CHECKS = [check for check in registry().checks if check.scope is Scope.NODE]
Change = Callable[[Machine], Machine]
Records = dict[str, Any]


def loud(machine: Machine, records: Records | None = None, cluster: Cluster | None = None) -> set[tuple[str, str, str]]:
    """Return failures and warnings; a record of None is removed."""
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
    rows = ["\t".join([*cells[:width], *cells[width + len(machine.nics) :]]) for cells in lines
            if not cells[0].startswith("NIC")]  # fmt: skip
    return "\n".join(rows) + "\n"


def compute(machine: Machine, **changes: Any) -> Machine:
    """Change every NIC of the compute fabric."""
    for nic in machine.nics:
        if nic.gpu is not None:
            machine = with_nic(machine, nic.device, **changes)
    return machine


def every_gpu(machine: Machine, **changes: Any) -> Machine:
    """Change the driver's report on every GPU."""
    for index in range(len(machine.gpus)):
        machine = with_gpu(machine, index, health=changes)
    return machine


def expecting(*, hcas: int = 8, qos: dict[str, Any] | None = None, share: float | None = None, **ports: Any) -> Cluster:
    """Return a cluster file with one class of such nodes; ``share`` is the NIC bandwidth that each GPU needs, Gb/s."""
    body: dict[str, Any] = {"gpus": 8, "hcas": hcas, "ports": {"compute": "mlx5_[0,3-6,9-11]", **ports}}
    if not hcas:
        del body["hcas"], body["ports"]
    if share is not None:
        body["thresholds"] = {"nic_gbps_per_gpu": share}
    return from_data({"class": {"h100": body | ({"qos": qos} if qos else {})}}, "cluster.toml")


def log(*lines: str) -> tuple[str, ...]:
    return tuple(f"<4>[421000.{number}] {line}" for number, line in enumerate(lines))


#: A card in a PCIe slot: no NVLink, no fabric.
CARD = every_gpu(
    replace(one_pair("card"), gpu_id="2331", gpu_name="NVIDIA H100 PCIe", nvlinks=0),
    name="NVIDIA H100 PCIe", fabric=None, links=(), link_gbytes_s=None, cuda_cores=14592,
)  # fmt: skip

_PORT = "file:/sys/class/infiniband/mlx5_0/ports/1"

#: Facts that look like faults on a healthy node, with a cluster file if it is not the node's own.
SILENT: dict[str, tuple[Machine, Records] | tuple[Machine, Records, Cluster]] = {
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
    "an active RoCE port whose speed the kernel does not know": (
        with_nic(roce(), "mlx5_5", rate="40 Gb/sec (4X QDR)"), {},
    ),
    "200 Gb/s in two lanes": (
        compute(infiniband(), rate="200 Gb/sec (2X NDR)"), {}, expecting(rate_gbps=200, share=200),
    ),
    "25 Gb/s Ethernet in one lane": (
        compute(roce(), rate="25 Gb/sec (1X EDR)"), {}, expecting(rate_gbps=25, link_layer="Ethernet", share=25),
    ),
    "50 Gb/s Ethernet in one lane": (
        compute(roce(), rate="50 Gb/sec (1X HDR)"), {}, expecting(rate_gbps=50, link_layer="Ethernet", share=50),
    ),
    "100 Gb/s Ethernet in one lane": (
        compute(roce(), rate="100 Gb/sec (1X NDR)"), {}, expecting(rate_gbps=100, link_layer="Ethernet", share=100),
    ),
    "no RDMA device where the cloud has none": (
        replace(infiniband(where="vm"), nics=()), {}, expecting(hcas=0),
    ),
    "a bus that the hypervisor flattened": (infiniband(where="vm", every_path="PHB"), {}),
    "PCIe rests while the GPU is idle": (every_gpu(infiniband(), pcie_generation=1), {}),
    "no NVLink fabric on a PCIe card": (CARD, {}, from_data({"class": {"card": {"gpus": 1}}}, "cluster.toml")),
    "errors of applications": (
        infiniband(kernel_log=log(
            "NVRM: Xid (PCI:0000:61:00): 13, pid=4711, name=python3, Graphics SM Warp Exception",
            "NVRM: Xid (PCI:0000:61:00): 31, pid=4712, name=python3, Ch 00000008, intr 00000000. MMU Fault",
            "NVRM: Xid (PCI:0000:61:00): 43, pid=4712, name=python3, Ch 00000008",
            "NVRM: Xid (PCI:0000:61:00): 45, pid=4712, name=python3, Ch 00000008",
        )), {},
    ),
    "words of the kernel that are no fault of a GPU or of a compute port": (
        infiniband(kernel_log=log(
            "mlx5_core 0000:29:00.0: Port module event: module 0, Cable unplugged",
            "mlx5_core 0000:aa:00.0 enp170s0f0: Link down",
            "mlx5_core 0000:07:00.0: ACCESS_REG 0x9009 failed",
            "NVRM: Xid (PCI:0000:61:00): 63, pid=4711, name=python3, Row Remapper: New row marked for remapping",
        )), {},
    ),
    "a node that was rebooted on purpose: its links come and go, a device refuses a request": (
        infiniband(kernel_log=(
            *(f"<6>[{20 + 9 * n}.{state == 'up':d}] mlx5_core 0000:18:00.0 ibp24s0: Link {state}"
              for n in range(4) for state in ("down", "up")),
            "<4>[25.1] nvme 0000:05:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            "<6>[26.1] mlx5_core 0000:18:00.0: 252.048 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x16",
            "<4>[27.1] mlx5_core 0000:18:00.0: mlx5_pcie_event:301: Detected insufficient power on the PCIe slot",
        )), {},
    ),
    "a node with heavy input and output: one task waits for NFS, whose server comes back; jobs reach their limits": (
        infiniband(kernel_log=(
            "<3>[431000.1] INFO: task python3:4711 blocked for more than 120 seconds.",
            "<6>[431000.1]  rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]",
            "<3>[431010.1] nfs: server 192.0.2.9 not responding, still trying",
            "<3>[431020.1] nfs: server 192.0.2.9 OK",
            "<3>[431030.1] Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB",
        )), {},
    ),
    "a login node: a virtual CD, a USB stick, a link unplugged once, one corrected error": (
        infiniband(kernel_log=(
            "<5>[429990.1] sd 8:0:0:0: [sdc] Attached SCSI removable disk",
            "<3>[430000.1] blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700",
            "<3>[430000.2] Buffer I/O error on dev sdc1, logical block 0, async page read",
            "<6>[430001.1] mlx5_core 0000:aa:00.0 enp170s0f0: Link down",
            "<4>[430002.1] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
            "<6>[430002.2] mce: [Hardware Error]: Machine check events logged",
        )), {},
    ),
    "an ARM node whose firmware corrected an error": (
        infiniband(kernel_log=(
            "<6>[430002.1] {1}[Hardware Error]: event severity: corrected",
            "<6>[430002.1] {1}[Hardware Error]:   section_type: memory error",
        )), {},
    ),
    "counters that are no errors, or whose life-long total says nothing": (
        with_nic(roce(), "mlx5_0", stands={
            "lifespan": 10, "port_xmit_wait": 4294967295, "link_downed": 3, "local_ack_timeout_err": 81234,
        }, grows={"req_cqe_flush_error": 812, "resp_cqe_flush_error": 812, "lifespan": 1}), {},
    ),
    "a traffic class without ECN bits on mlx5": (roce(env={"NCCL_IB_TC": "104"}), {}),
    "a GID index of its own in a pod": (
        compute(roce(where="container", env={"NCCL_IB_GID_INDEX": "5"}), gid_index=5), {},
    ),
    "lossy RoCE by design": (
        compute(roce(), pfc=(), ecn=False), {}, expecting(link_layer="Ethernet", qos={"lossless": False}),
    ),
    "errors of the GPU's whole life": (
        every_gpu(infiniband(), ecc_aggregate_dram_uncorrected=3, ecc_aggregate_dram_corrected=10**9), {},
    ),
    "eight rows remapped": (every_gpu(infiniband(), remapped_uncorrected=8, remap_banks=(2552, 8, 0, 0, 0)), {}),
    "the power cap under load, and idle clocks": (every_gpu(infiniband(), event_reasons=0x05), {}),
    "93 degrees on a GPU that may have more": (
        every_gpu(infiniband(), temperature_c=93, temperature_margin_c=9), {},
    ),
    "a power limit above the default": (every_gpu(infiniband(), power_limit_w=750.0, power_enforced_w=750.0), {}),
    "a kernel without frequency scaling": (infiniband(governor=""), {}),
    "NCCL_IB_HCA with two equals signs": (
        infiniband(), {"file:/etc/nccl.conf": ok("NCCL_IB_HCA==" + ",".join(
            nic.device for nic in infiniband().nics if nic.gpu is not None) + "\n")},
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
    """L05: the PCI bus shows GPUs; no check of GPUs skips."""
    report = judge([from_document(machines.evidence(infiniband(driver_loaded=False)), "x")], CHECKS)
    skips = {
        f["check"] for f in report["findings"] if f["status"] == "skip" and f["check"].startswith(("gpu.", "numa."))
    }
    assert not skips & {"gpu.count", "gpu.driver", "numa.affinity", "numa.memory"}
    assert "fail" in {f["status"] for f in report["findings"] if f["check"] == "gpu.driver"}


def test_every_device_is_looked_at_not_the_first() -> None:
    """L61: of eight NICs, only the last one has half its lanes and no address."""
    assert loud(with_nic(roce(), "mlx5_11", lanes=8)) == {("fail", "pcie.nic-link", "mlx5_11"), LESS_PER_GPU}
    assert loud(with_nic(roce(), "mlx5_11", ip="")) == {("fail", "roce.chain", "mlx5_11:1")}


def test_a_link_is_compared_with_its_own_maximum() -> None:
    """L27: x8 is normal for a NIC with eight lanes."""
    base = "file:/sys/class/infiniband/mlx5_5/device"
    slower = {f"{base}/current_link_width": ok("8\n"), f"{base}/max_link_width": ok("8\n")}
    machine = with_nic(infiniband(), "mlx5_5", rate="200 Gb/sec (4X HDR)")
    assert {check for _, check, _ in loud(machine, slower)} == {"rdma.port-rate", "rdma.bandwidth-per-gpu"}, (
        "not the link"
    )


def test_what_is_not_a_compute_port_is_not_judged() -> None:
    """L25: the storage NICs may have half the lanes, small reads and another subnet."""
    machine = infiniband()
    for device in ("mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"):
        machine = with_nic(machine, device, lanes=4, max_read_request=512)
    assert loud(machine) == set()


def test_limits_of_a_container_are_not_faults_of_the_host() -> None:
    """L33: no tools of the host's daemons and no modules in /sys: unknown, not a fault."""
    hidden = dict.fromkeys(("dir:/sys/module", "cmd:chronyc -n tracking", "cmd:lspci -Dnvv"))
    assert loud(infiniband(where="container"), dict(hidden)) == set()


def test_tools_that_are_missing_are_no_fault() -> None:
    """L23: a node without lspci, chrony, ip and find is not unhealthy."""
    keys = [key for key in machines.evidence(infiniband())["records"] if key.startswith("cmd:")]
    mine = ("lspci", "chronyc", "find", "ip ")
    gone = {"status": "missing", "why": "there is no such tool"}
    assert loud(infiniband(), {key: gone for key in keys if key[4:].startswith(mine)}) == set()
