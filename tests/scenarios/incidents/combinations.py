"""Combinations of two and three faults with their expected incidents, written before they were run.

An incident is identified by the check of its cause, its subjects and, in a fleet, its nodes. Rows under *similar* seem
to have one cause but have two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.facts.kernel_log import NOTICES
from preflight.facts.nvidia.query import NVML, QUERY
from preflight.facts.nvidia.smi_xml import XML
from preflight.facts.rdma_ports import DEVINFO
from preflight.facts.rdma_ports import ROOT as RDMA
from preflight.facts.system_settings import MEMINFO
from preflight.parsers.host.mounts import MOUNTS
from preflight.parsers.host.services import FAILED as UNITS_FAILED
from preflight.parsers.nvidia.nvlink_errors import NVLINK_ERRORS
from preflight.parsers.nvidia.nvlink_status import NVLINK
from preflight.probes.declared import space
from tests.support import whole_nodes
from tests.support.machines.inventory import DISKS, SHARED, unit_list
from tests.support.machines.records import ok, ran
from tests.support.planted_fleet import DIFFERENCES
from tests.support.whole_nodes import Fault, both, every_rail, gpu, health, nic, node, record, set_too

NODE = "hgx-h100-roce"

#: The faults planted in that node, by name.
PLANTED: Mapping[str, Fault] = {
    name: fault
    for table in whole_nodes.tables() if table.node == NODE
    for name, (fault, _) in table.faults.items()
}  # fmt: skip

#: Records of a command that does not end, of one that is not installed, and of a file that the kernel does not return.
HANGS, ABSENT = {"status": "timeout", "why": "no end after 20 s"}, {"status": "missing", "why": "not installed"}
ONLINE, SMT = "file:/sys/devices/system/cpu/online", "file:/sys/devices/system/cpu/smt/control"
STUCK = {"status": "abandoned", "why": "the kernel has not answered for 9.0 s"}

HALF = "200 Gb/sec (2X NDR)"


def _unit(name: str) -> Fault:
    """Plant a systemd unit that failed."""
    return record(UNITS_FAILED, ran(unit_list(f"{name}.service loaded failed failed {name}")))


#: Faults in addition to those planted in nodes.
MORE: Mapping[str, Fault] = {
    "port 9 down": nic("mlx5_9", state="DOWN", physical="Polling"),
    "port 10 down": nic("mlx5_10", state="DOWN", physical="Polling"),
    "port 5 slow": nic("mlx5_5", rate=HALF),
    "port 5 flaps": nic("mlx5_5", grows={"link_downed": 1}),
    "port 9 flaps": nic("mlx5_9", grows={"link_downed": 1}),
    "port 5 flapped in the kernel log": record(NOTICES, ok("".join(
        f"<6>[{at}.{event}] mlx5_core 0000:5e:00.0 enp94s0: Link {'down' if event == 1 else 'up'}\n"
        for at in range(421000, 422000, 100) for event in (1, 3)
    ))),
    "port 5 loses packets": nic("mlx5_5", grows={"req_transport_retries_exceeded": 2}),
    "port 9 loses packets": nic("mlx5_9", grows={"req_transport_retries_exceeded": 2}),
    "symbol errors on port 9": nic("mlx5_9", grows={"symbol_error": 60}),
    "NIC 9 on half its lanes": nic("mlx5_9", lanes=8),
    "GPU3 without NVLink": gpu(3, nvlink=False),
    "GPU5 off the bus": gpu(5, on_bus=False),
    "driver lost GPU5": gpu(5, answers=False),
    "GPU3 needs a reset": health(3, recovery_action="Reset"),
    "GPU4 too hot": health(4, temperature_c=87, temperature_margin_c=0, event_reasons=0x48),
    "row of GPU2 pending": health(2, remap_pending=True, remapped_uncorrected=1),
    "memory of GPU6 held": health(6, memory_used_mib=70004),
    "GPU1 replays": gpu(1, replay_gain=5000),
    "MTU 1500 on port 9": nic("mlx5_9", netdev_mtu=1500),
    "MTU 1500 on port 5": nic("mlx5_5", netdev_mtu=1500),
    "PFC off on NIC 4": nic("mlx5_4", pfc=(), switch_pfc=()),
    "PFC off in the switch of port 10": nic("mlx5_10", switch_pfc=()),
    "ECN off on port 9": nic("mlx5_9", ecn=False),
    "another misspelt name": set_too(NCCL_IB_TIMEOUTS="22"),
    "NCCL_IB_DISABLE too": set_too(NCCL_IB_DISABLE="1"),
    "leaf 7": every_rail(leaf="leaf-07"),
    "leaf 8": every_rail(leaf="leaf-08"),
    "port 5 of leaf 7 down": both(every_rail(leaf="leaf-07"), nic("mlx5_5", state="DOWN", physical="Polling")),
    "port 5 of leaf 8 down": both(every_rail(leaf="leaf-08"), nic("mlx5_5", state="DOWN", physical="Polling")),
    "port 5 of leaf 7 slow": both(every_rail(leaf="leaf-07"), nic("mlx5_5", rate=HALF)),
    "port 9 of leaf 7 slow": both(every_rail(leaf="leaf-07"), nic("mlx5_9", rate=HALF)),
    "port 10 of leaf 7 slow": both(every_rail(leaf="leaf-07"), nic("mlx5_10", rate=HALF)),
    "port 10 of leaf 8 slow": both(every_rail(leaf="leaf-08"), nic("mlx5_10", rate=HALF)),
    "two ports at MTU 1500": both(nic("mlx5_4", netdev_mtu=1500), nic("mlx5_9", netdev_mtu=1500)),
    "every rail at MTU 1500": every_rail(netdev_mtu=1500),
    "drive 3 dead": record("file:/sys/class/nvme/nvme3/state", ok("dead\n")),
    "drive 5 dead": record("file:/sys/class/nvme/nvme5/state", ok("dead\n")),
    "driver hangs": both(*(record(key, HANGS) for key in (NVML, QUERY, XML, NVLINK, NVLINK_ERRORS))),
    "RDMA device hangs": record(DEVINFO, HANGS),
    "RDMA state hangs": both(*(
        record(f"file:{RDMA}/mlx5_5/ports/1/{name}", STUCK) for name in ("state", "phys_state", "rate")
    )),
    "RDMA read too late": record(DEVINFO, {"status": "timeout", "why": "the run's deadline of 5 s expired first"}),
    "tools of RDMA hung": node(kernel_log=(
        "<3>[431000.1] INFO: task ibv_devinfo:4711 blocked for more than 120 seconds.",
        "<3>[431000.2] INFO: task ibstat:4712 blocked for more than 120 seconds.",
    )),
    "SMT off": both(record(SMT, ok("off\n")), record(ONLINE, ok("0-111\n"))),
    "half the logical CPUs": record(ONLINE, ok("0-111\n")),
    "persistence daemon failed": _unit("nvidia-persistenced"),
    "another unit failed": _unit("chronyd"),
    "NIC without driver": nic("mlx5_5", bound=False),
    "firmware of NIC 5 stopped": node(kernel_log=(
        "<3>[425000.1] mlx5_core 0000:5e:00.0: mlx5_health_check_fatal_sensors:310:(pid 0): Fatal error 1 detected",
    )),
    "memory module has an uncorrected error": node(kernel_log=(
        "<4>[425200.0] EDAC MC2: 1 UE memory read error on CPU_SrcID#1_MC#2_Chan#0_DIMM#0 (channel:0 slot:0)",
    )),
    "a CPU locked up, and a task hung": node(kernel_log=(
        "<0>[425200.0] watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:5120]",
        "<3>[425201.0] INFO: task python3:5120 blocked for more than 120 seconds.",
    )),
    "a CPU locked up, and another task hung": node(kernel_log=(
        "<0>[425200.0] watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:5120]",
        "<3>[425201.0] INFO: task python3:5121 blocked for more than 120 seconds.",
    )),
    "a disk of an array failed": node(kernel_log=(
        "<3>[430001.0] I/O error, dev nvme4n1, sector 88123 op 0x1:(WRITE) flags 0x800 phys_seg 4 prio class 0",
        "<2>[430001.1] XFS (md0): Corruption of in-memory data (0x8) detected at xfs_trans_cancel "
        "(fs/xfs/xfs_trans.c:1095).  Shutting down filesystem.",
    )),
    "no tool to query the driver": both(*(record(key, ABSENT) for key in (NVML, QUERY, XML, NVLINK))),
    "GSP of GPU2 silent": node(kernel_log=(
        "<4>[421000.1] NVRM: Xid (PCI:0000:52:00): 119, pid=4711, name=python3, Timeout after 6s of waiting for RPC "
        "response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL).",
        "<3>[431000.1] INFO: task nvidia-smi:4711 blocked for more than 120 seconds.",
    )),
    "shared storage hangs": record(space(SHARED).key, HANGS),
    "shared storage read too late": record(
        space(SHARED).key, {"status": "timeout", "why": "the run's deadline of 5 s expired first"}
    ),
    "file server silent": node(kernel_log=("<4>[431100.1] nfs: server 192.0.2.200 not responding, still trying",)),
    "another file server silent": node(
        kernel_log=("<4>[431100.1] nfs: server 192.0.2.20 not responding, still trying",)
    ),
    "two cards of memory gone": record(MEMINFO, ok("MemTotal:       1981452288 kB\n")),
    "/scratch read-only": record(MOUNTS, ok(DISKS.replace("xfs /dev/md0 rw", "xfs /dev/md0 ro"))),
    "rail 4 at leaf 9": nic("mlx5_4", leaf="leaf-9"),
    "rail 5 at leaf 9": nic("mlx5_5", leaf="leaf-9"),
    "cables of rails 4 and 9 swapped": both(nic("mlx5_4", leaf="leaf-9"), nic("mlx5_9", leaf="leaf-4")),
    "nothing to lock": node(memlock="65536"),
    **{name: fault for name, (fault, _) in DIFFERENCES.items()},
}  # fmt: skip

#: Faults on one node, in this order, and the incidents.
ONE_NODE: Sequence[tuple[tuple[str, ...], tuple[str, ...]]] = (
    # similar: the same fault on two parts
    (("port down", "port 9 down"), ("rdma.port-state mlx5_5:1", "rdma.port-state mlx5_9:1")),
    (("slow port", "port 5 slow"), ("rdma.port-rate mlx5_9:1", "rdma.port-rate mlx5_5:1")),
    (("port down", "slow port"), ("rdma.port-state mlx5_5:1", "rdma.port-rate mlx5_9:1")),
    (("port down", "NIC 9 on half its lanes"), ("rdma.port-state mlx5_5:1", "pcie.nic-link mlx5_9")),
    (("NIC with half its PCIe lanes", "NIC 9 on half its lanes"), ("pcie.nic-link mlx5_5", "pcie.nic-link mlx5_9")),
    (("a GPU without NVLink", "GPU3 without NVLink"), ("nvlink.links 0000:d1:00.0", "nvlink.links 0000:61:00.0")),
    (("too hot", "GPU4 too hot"), ("gpu.temperature-margin 0000:1b:00.0", "gpu.temperature-margin 0000:9d:00.0")),
    (("row remapping failed", "row of GPU2 pending"), ("gpu.row-remap 0000:c3:00.0", "gpu.row-remap 0000:52:00.0")),
    (("driver asks for a reset", "GPU3 needs a reset"),
     ("gpu.recovery-action 0000:9d:00.0", "gpu.recovery-action 0000:61:00.0")),
    (("symbol errors all the time", "symbol errors on port 9"),
     ("counters.link-quality mlx5_5:1", "counters.link-quality mlx5_9:1")),
    (("port 5 flaps", "port 9 flaps"), ("counters.flaps mlx5_5:1", "counters.flaps mlx5_9:1")),
    # similar: two unrelated faults of one part
    (("slow port", "NIC 9 on half its lanes"), ("rdma.port-rate mlx5_9:1", "pcie.nic-link mlx5_9")),
    (("PFC off in the switch", "MTU 1500 on port 9"), ("switch.pfc enp192s0", "roce.chain mlx5_9:1")),
    (("a GPU without NVLink", "another VBIOS"), ("nvlink.links 0000:d1:00.0", "gpu.firmware")),
    (("ECC off", "row of GPU2 pending"), ("gpu.ecc-mode 0000:52:00.0", "gpu.row-remap 0000:52:00.0")),
    (("process left over", "driver asks for a reset"),
     ("gpu.left-over-processes 0000:9d:00.0", "gpu.recovery-action 0000:9d:00.0")),
    (("GPU that lost processors", "GPU3 without NVLink"), ("gpu.right-part 0000:61:00.0", "nvlink.links 0000:61:00.0")),
    (("compute prohibited", "persistence off"), ("gpu.compute-mode 0000:df:00.0", "gpu.persistence 0000:df:00.0")),
    # similar: two settings of one kind
    (("NCCL_P2P_DISABLE left over", "NCCL_IB_DISABLE too"),
     ("nccl.left-over-disables NCCL_P2P_DISABLE", "nccl.left-over-disables NCCL_IB_DISABLE")),
    (("misspelt name", "another misspelt name"),
     ("nccl.unknown-variables NCCL_SOCKET_IFNAMES", "nccl.unknown-variables NCCL_IB_TIMEOUTS")),
    (("no uverbs device", "uverbs not usable"), ("rdma.device-nodes mlx5_11", "rdma.device-nodes mlx5_0")),
    (("PFC off on one port, at both ends", "ECN off on one port"), ("roce.chain mlx5_9:1", "roce.chain mlx5_10:1")),
    (("interface left at MTU 1500", "PFC off on one port, at both ends"),
     ("roce.chain mlx5_4:1", "roce.chain mlx5_9:1")),
    (("low memlock", "small /dev/shm"), ("host.memlock", "host.shm")),
    (("ACS redirects", "IOMMU translates"), ("gpudirect.path", "gpudirect.iommu")),
    (("ACS redirects", "no peer memory, old driver"), ("gpudirect.path", "gpudirect.peer-memory")),
    (("NUMA balancing on", "governor powersave"), ("kernel.numa-balancing", "kernel.cpu-governor")),
    (("CPUs full", "one CPU does all interrupts"), ("counters.cpu", "counters.cpu")),
    (("driver upgraded without a reboot", "fabric manager of another version"),
     ("versions.driver-files", "nvlink.fabric-manager")),
    (("storage in the network of a rail", "rails not point to point"), ("storage.network /data", "rails.subnets")),
    (("clock behind", "few open files"), ("host.time-sync", "host.open-files")),
    # one fact about several parts of a node, which the check itself reports together
    (("interface left at MTU 1500", "MTU 1500 on port 5"), ("roce.chain",)),
    (("driver lost a GPU", "driver lost GPU5"), ("gpu.driver",)),
    # one explains the other, as declared, and only where both concern one part
    (("NIC with half its PCIe lanes", "discards in the NIC's port"), ("pcie.nic-link mlx5_5",)),
    (("NIC 9 on half its lanes", "discards in the NIC's port"), ("pcie.nic-link mlx5_9", "counters.loss mlx5_5:1")),
    (("NIC with half its PCIe lanes", "port 5 loses packets"), ("pcie.nic-link mlx5_5", "counters.loss mlx5_5:1")),
    (("uncorrectable error", "row of GPU2 pending"), ("gpu.ecc-uncorrected 0000:52:00.0",)),
    (("uncorrectable error", "row remapping pending"), ("gpu.ecc-uncorrected 0000:52:00.0",
                                                        "gpu.row-remap 0000:c3:00.0")),
    (("GPU off the bus in the log", "GPU fell off the bus"), ("gpu.count",)),
    (("GPU off the bus in the log", "GPU5 off the bus"), ("gpu.count", "xid.gpu 0000:61:00.0")),
    (("GPU off the bus in the log", "driver lost a GPU"), ("gpu.driver 0000:61:00.0",)),
    (("GPU off the bus in the log", "driver lost GPU5"), ("gpu.driver 0000:c3:00.0", "xid.gpu 0000:61:00.0")),
    (("GPU off the bus in the log", "GPU3 needs a reset"), ("xid.gpu 0000:61:00.0",)),
    (("GPU off the bus in the log", "driver asks for a reset"),
     ("xid.gpu 0000:61:00.0", "gpu.recovery-action 0000:9d:00.0")),
    (("symbol errors all the time", "port 5 flaps"), ("counters.link-quality mlx5_5:1",)),
    (("port 5 flaps", "port 5 loses packets"), ("counters.flaps mlx5_5:1",)),
    (("port 5 flaps", "discards in the NIC's port"), ("counters.flaps mlx5_5:1", "counters.loss mlx5_5:1")),
    (("port 5 flaps", "port 9 loses packets"), ("counters.flaps mlx5_5:1", "counters.loss mlx5_9:1")),
    (("port 5 flapped in the kernel log", "port 5 flaps"), ("counters.flaps mlx5_5:1",)),
    (("port 5 flapped in the kernel log", "port 9 flaps"), ("kernel.events enp94s0", "counters.flaps mlx5_9:1")),
    (("port 5 flapped in the kernel log", "port 5 loses packets"), ("kernel.events enp94s0",)),
    (("port 5 flapped in the kernel log", "port 9 loses packets"),
     ("kernel.events enp94s0", "counters.loss mlx5_9:1")),
    (("port 5 flapped in the kernel log", "discards in the NIC's port"),
     ("kernel.events enp94s0", "counters.loss mlx5_5:1")),
    (("port 5 flapped in the kernel log", "symbol errors all the time"), ("counters.link-quality mlx5_5:1",)),
    (("port 5 flapped in the kernel log", "symbol errors on port 9"),
     ("kernel.events enp94s0", "counters.link-quality mlx5_9:1")),
    (("port 5 flapped in the kernel log", "little light"), ("optics.module mlx5_5:1",)),
    (("port 5 flapped in the kernel log", "port down"), ("rdma.port-state mlx5_5:1",)),
    (("port 5 flapped in the kernel log", "port 9 down"), ("kernel.events enp94s0", "rdma.port-state mlx5_9:1")),
    (("symbol errors all the time", "port 5 loses packets"), ("counters.link-quality mlx5_5:1",)),
    (("symbol errors all the time", "port 9 flaps"), ("counters.link-quality mlx5_5:1", "counters.flaps mlx5_9:1")),
    (("little light", "symbol errors all the time"), ("optics.module mlx5_5:1",)),
    (("little light", "symbol errors on port 9"), ("optics.module mlx5_5:1", "counters.link-quality mlx5_9:1")),
    (("GPU with half its PCIe lanes", "GPU1 replays"), ("gpu.pcie-link 0000:43:00.0",)),
    (("GPU with half its PCIe lanes", "PCIe replays by the thousand"),
     ("gpu.pcie-link 0000:43:00.0", "counters.gpu-links 0000:61:00.0")),
    (("too hot", "row of GPU2 pending"), ("gpu.temperature-margin 0000:1b:00.0", "gpu.row-remap 0000:52:00.0")),
    (("ib_uverbs not loaded", "no uverbs device"), ("kernel.modules ib_uverbs",)),
    (("NVSwitch off the bus", "GPU not joined to the fabric"), ("nvlink.switches",)),
    (("NVSwitch off the bus", "a GPU without NVLink"), ("nvlink.switches",)),
    (("fabric manager of another version", "GPU not joined to the fabric"), ("nvlink.fabric-manager",)),
    (("NVSwitch link error", "one NVLink down"), ("xid.nvswitch 0000:08:00.0",)),
    (("process left over", "memory of GPU6 held"),
     ("gpu.left-over-processes 0000:9d:00.0", "gpu.memory-headroom 0000:d1:00.0")),
    # one hides the other
    (("interface left at MTU 1500", "PFC off on NIC 4"), ("roce.chain mlx5_4:1",)),  # a chain is repaired in its order
    (("driver not loaded", "a GPU without NVLink"), ("gpu.driver",)),
    (("driver not loaded", "ECC off"), ("gpu.driver",)),
    (("driver not loaded", "fabric manager stopped after it joined all"), ("gpu.driver",)),  # it needs the driver
    (("driver not loaded", "NVLink between nodes required on one chassis"), ("gpu.driver",)),
    (("driver not loaded", "PyTorch for a newer driver"), ("gpu.driver",)),
    (("driver lost a GPU", "fabric manager stopped after it joined all"),
     ("gpu.driver 0000:61:00.0", "nvlink.fabric-manager")),
    # without the driver, or with fewer GPUs than ranks, the GPU of the rank is unknown
    (("driver not loaded", "rank bound near its GPU"), ("gpu.driver",)),
    (("GPU fell off the bus", "rank bound near its GPU"), ("gpu.count",)),
    # of different kinds
    (("driver not loaded", "port down"), ("gpu.driver", "rdma.port-state mlx5_5:1")),
    (("driver not loaded", "HCA without driver"), ("gpu.driver", "rdma.registered")),
    (("driver not loaded", "low memlock"), ("gpu.driver", "host.memlock")),
    (("HCA without driver", "port down"), ("rdma.registered", "rdma.port-state mlx5_5:1")),
    (("HCA without driver", "GPU fell off the bus"), ("rdma.registered", "gpu.count")),
    (("HCA without driver", "ACS redirects"), ("rdma.registered", "gpudirect.path")),
    (("MIG left on", "row remapping failed"), ("gpu.mig 0000:df:00.0", "gpu.row-remap 0000:c3:00.0")),
    (("NCCL_P2P_DISABLE left over", "a GPU without NVLink"),
     ("nccl.left-over-disables NCCL_P2P_DISABLE", "nvlink.links 0000:d1:00.0")),
    (("carriage returns in /etc/nccl.conf", "NCCL_P2P_DISABLE left over"),
     ("nccl.variable-values NCCL_SOCKET_IFNAME", "nccl.left-over-disables NCCL_P2P_DISABLE")),
    # what hangs is unknown, and an incident
    (("driver hangs", "port down"), ("gpu.driver", "rdma.port-state mlx5_5:1")),
    (("driver hangs", "GSP of GPU2 silent"), ("xid.gpu 0000:52:00.0",)),
    (("driver hangs", "uncorrectable error"), ("gpu.driver",)),
    (("no tool to query the driver", "port down"), ("rdma.port-state mlx5_5:1",)),
    (("RDMA device hangs", "tools of RDMA hung"), ("rdma.device-nodes",)),
    (("RDMA device hangs", "driver hangs"), ("rdma.device-nodes", "gpu.driver")),
    (("RDMA device hangs", "no uverbs device"), ("rdma.device-nodes", "rdma.device-nodes mlx5_11")),
    (("RDMA state hangs", "port 9 down"), ("rdma.device-nodes", "rdma.port-state mlx5_9:1")),
    (("persistence daemon failed", "persistence off"), ("host.failed-units nvidia-persistenced.service",)),
    (("another unit failed", "persistence off"),
     ("host.failed-units chronyd.service", "gpu.persistence 0000:df:00.0")),
    (("memory module has an uncorrected error", "two cards of memory gone"),
     ("kernel.events CPU_SrcID#1_MC#2_Chan#0_DIMM#0",)),
    (("a CPU locked up, and a task hung", "port down"), ("kernel.events", "rdma.port-state mlx5_5:1")),
    (("a CPU locked up, and another task hung", "port down"),
     ("kernel.events", "kernel.events", "rdma.port-state mlx5_5:1")),
    (("a disk of an array failed", "drive 5 dead"), ("kernel.events nvme4n1", "host.inventory nvme5")),
    (("RDMA read too late", "port down"), ("rdma.port-state mlx5_5:1",)),
    (("shared storage hangs", "file server silent"), ("kernel.events 192.0.2.200",)),
    (("shared storage hangs", "another file server silent"), ("host.mounts /shared", "kernel.events 192.0.2.20")),
    (("shared storage read too late", "another file server silent"), ("kernel.events 192.0.2.20",)),
    # three
    (("driver lost a GPU", "driver lost GPU5", "GPU off the bus in the log"), ("gpu.driver",)),
    (("a GPU without NVLink", "GPU3 without NVLink", "driver lost GPU5"),
     ("nvlink.links 0000:d1:00.0", "nvlink.links 0000:61:00.0", "gpu.driver 0000:c3:00.0")),
    (("port down", "port 9 down", "port 10 down"), ("rdma.port-state mlx5_5:1,mlx5_9:1,mlx5_10:1",)),
    (("GPU fell off the bus", "port down", "low memlock"), ("gpu.count", "rdma.port-state mlx5_5:1", "host.memlock")),
    (("interface left at MTU 1500", "NCCL_IB_DISABLE left over", "ECC off"),
     ("roce.chain mlx5_4:1", "nccl.left-over-disables NCCL_IB_DISABLE", "gpu.ecc-mode 0000:52:00.0")),
    (("GPU off the bus in the log", "GPU fell off the bus", "a GPU without NVLink"),
     ("gpu.count", "nvlink.links 0000:d1:00.0")),
    (("little light", "symbol errors all the time", "port 9 flaps"),
     ("optics.module mlx5_5:1", "counters.flaps mlx5_9:1")),
    (("driver not loaded", "GPU fell off the bus", "port down"),
     ("gpu.driver", "gpu.count", "rdma.port-state mlx5_5:1")),
    (("NCCL_P2P_DISABLE left over", "NCCL_IB_DISABLE too", "another misspelt name"),
     ("nccl.left-over-disables NCCL_P2P_DISABLE", "nccl.left-over-disables NCCL_IB_DISABLE",
      "nccl.unknown-variables NCCL_IB_TIMEOUTS")),
)  # fmt: skip

#: All ports of a node at the leaf of its rack.
TWO_LEAVES = {number: "leaf 7" if number <= 6 else "leaf 8" for number in range(1, 13)}

#: Faults in a fleet: its size, the faults of nodes by number, and the incidents.
FLEET: Sequence[tuple[int, Mapping[int, str], tuple[str, ...]]] = (
    # similar: independent hardware faults of two nodes
    (12, {1: "port down", 2: "port down"}, ("rdma.port-state mlx5_5:1 @gpu001", "rdma.port-state mlx5_5:1 @gpu002")),
    (12, {1: "port down", 2: "port 9 down", 3: "port 10 down"},
     ("rdma.port-state mlx5_5:1 @gpu001", "rdma.port-state mlx5_9:1 @gpu002", "rdma.port-state mlx5_10:1 @gpu003")),
    (12, {1: "port down", 2: "port 5 slow"}, ("rdma.port-state mlx5_5:1 @gpu001", "rdma.port-rate mlx5_5:1 @gpu002")),
    (12, {1: "GPU fell off the bus", 2: "GPU fell off the bus"}, ("gpu.count @gpu001", "gpu.count @gpu002")),
    (12, {1: "a GPU without NVLink", 2: "a GPU without NVLink"},
     ("nvlink.links 0000:d1:00.0 @gpu001", "nvlink.links 0000:d1:00.0 @gpu002")),
    (12, {1: "GPU off the bus in the log", 2: "GPU fell off the bus"},
     ("xid.gpu 0000:61:00.0 @gpu001", "gpu.count @gpu002")),
    (12, {**TWO_LEAVES, 1: "port 9 of leaf 7 slow", 2: "port 10 of leaf 7 slow"},
     ("rdma.port-rate mlx5_9:1 @gpu001", "rdma.port-rate mlx5_10:1 @gpu002")),
    (12, {1: "acknowledgements time out all the time", 2: "acknowledgements time out all the time"},
     ("counters.loss mlx5_5:1 @gpu001", "counters.loss mlx5_5:1 @gpu002")),
    (12, {1: "drive 3 dead", 2: "drive 3 dead"}, ("host.inventory nvme3 @gpu001", "host.inventory nvme3 @gpu002")),
    (12, {1: "drive 3 dead", 2: "drive 5 dead"}, ("host.inventory nvme3 @gpu001", "host.inventory nvme5 @gpu002")),
    (12, {1: "rail 4 at leaf 9", 2: "rail 5 at leaf 9"}, ("fleet.rail-leaf @gpu001", "fleet.rail-leaf @gpu002")),
    (12, {1: "cables of rails 4 and 9 swapped", 2: "port 9 down", 3: "port 10 down"},
     ("fleet.rail-leaf @gpu001", "rdma.port-state mlx5_9:1 @gpu002", "rdma.port-state mlx5_10:1 @gpu003")),
    # many: one cause
    (12, {1: "port down", 2: "port down", 3: "port down"}, ("rdma.port-state mlx5_5:1 @gpu[001-003]",)),
    (12, {**TWO_LEAVES, 1: "port 5 of leaf 7 slow", 2: "port 9 of leaf 7 slow", 3: "port 10 of leaf 7 slow"},
     ("rdma.port-rate mlx5_5:1,mlx5_9:1,mlx5_10:1 @gpu[001-003]",)),
    (12, {**TWO_LEAVES, 1: "port 5 of leaf 7 slow", 2: "port 9 of leaf 7 slow", 7: "port 10 of leaf 8 slow"},
     ("rdma.port-rate mlx5_5:1 @gpu001", "rdma.port-rate mlx5_9:1 @gpu002", "rdma.port-rate mlx5_10:1 @gpu007")),
    (12, dict.fromkeys((1, 2, 3, 4), "GPU fell off the bus"), ("gpu.count @gpu[001-004]",)),
    (12, {**TWO_LEAVES, **dict.fromkeys((1, 2, 3), "port 5 of leaf 7 slow"), 8: "port 10 of leaf 8 slow"},
     ("rdma.port-rate mlx5_5:1 @gpu[001-003]", "rdma.port-rate mlx5_10:1 @gpu008")),
    # one wrong setting
    (12, {1: "low memlock", 2: "low memlock"}, ("host.memlock @gpu[001-002]",)),
    (12, {1: "low memlock", 2: "nothing to lock"}, ("host.memlock @gpu[001-002]",)),
    (12, {1: "interface left at MTU 1500", 2: "MTU 1500 on port 9"}, ("roce.chain mlx5_4:1,mlx5_9:1 @gpu[001-002]",)),
    (12, {1: "ECC off", 2: "ECC off"}, ("gpu.ecc-mode 0000:52:00.0 @gpu[001-002]",)),
    (12, {1: "NCCL_P2P_DISABLE left over", 2: "NCCL_P2P_DISABLE left over"},
     ("nccl.left-over-disables NCCL_P2P_DISABLE @gpu[001-002]",)),
    (12, {1: "interface left at MTU 1500", 2: "two ports at MTU 1500", 3: "every rail at MTU 1500"},
     ("roce.chain mlx5_4:1 @gpu[001-003]",)),
    # similar: two wrong settings
    (12, {1: "NCCL_P2P_DISABLE left over", 2: "NCCL_IB_DISABLE left over"},
     ("nccl.left-over-disables NCCL_P2P_DISABLE @gpu001", "nccl.left-over-disables NCCL_IB_DISABLE @gpu002")),
    (12, {1: "PFC off on one port, at both ends", 2: "ECN off on port 9"},
     ("roce.chain mlx5_9:1 @gpu001", "roce.chain mlx5_9:1 @gpu002")),
    (12, {1: "low memlock", 2: "small /dev/shm"}, ("host.memlock @gpu001", "host.shm @gpu002")),
    (12, {1: "another kernel", 2: "another BIOS"},
     ("fleet.host kernel release @gpu001", "fleet.host BIOS version @gpu002")),
    (12, {1: "SMT off", 2: "half the logical CPUs"},
     ("node.expected logical CPUs @gpu002", "node.expected multithreading (SMT) @gpu001")),
    (12, {1: "another driver", 2: "another kernel"},
     ("fleet.driver-equal @gpu001", "fleet.host kernel release @gpu002")),
    (12, {1: "another DSCP of CNPs", 2: "interface left at MTU 1500"},
     ("fleet.roce-equal @gpu001", "roce.chain mlx5_4:1 @gpu002")),
    (12, {1: "another driver", 2: "GPU fell off the bus"}, ("fleet.driver-equal @gpu001", "gpu.count @gpu002")),
    (12, {1: "PFC off in the switch", 2: "PFC off on one port, at both ends"},
     ("switch.pfc enp192s0 @gpu001", "roce.chain mlx5_9:1 @gpu002")),
)  # fmt: skip
