"""Machines made by hand: whole-node evidence rendered from a description of the hardware.

Every text below is written in the format that the tool documents (`nvidia-smi topo -m`, `ibstat`,
`ibv_devinfo`, sysfs ABI, dcb(8), mlnx_qos); wiring after the DGX H100 user guide. Nothing here was
recorded on hardware, and every document says so in its ``origin``. A fault is a change of the
description, so all tools of a sick node agree with each other as they would on a real one.

``python -m tests.machines`` writes ``fixtures/nodes`` and ``preflight/demo``; a test holds them equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ORIGIN = (
    "made by hand: rendered from a description of the hardware in the documented formats of each tool; "
    "wiring after the DGX H100 user guide; nothing was recorded on hardware"
)
COLLECTED_AT = "2026-11-21T03:00:00Z"
DRIVER = "570.124.06"

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Gpu:
    """One GPU on its PCIe switch."""

    bus: int
    numa: int
    on_bus: bool = True
    answers: bool = True
    nvlink: bool = True


@dataclass(frozen=True)
class Nic:
    """One RDMA device with one port."""

    device: str
    bus: int
    function: int = 0
    numa: int = 0
    gpu: int | None = None  # index of the GPU below the same PCIe switch
    state: str = "ACTIVE"
    physical: str = "LinkUp"
    rate: str = "400 Gb/sec (4X NDR)"
    netdev_mtu: int = 9000
    pfc: tuple[int, ...] = (3,)
    ecn: bool = True
    uverbs: bool = True
    bound: bool = True  # whether the RDMA driver registered it
    mode: str = "0666"

    @property
    def address(self) -> str:
        return f"0000:{self.bus:02x}:00.{self.function}"

    def netdev(self, roce: bool) -> str:
        return f"{'en' if roce else 'ib'}p{self.bus}s0" + (f"f{self.function}" if self.gpu is None else "")


@dataclass(frozen=True)
class Machine:
    """A node: what it is made of and how it is set up."""

    name: str
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    gpu_id: str = "2330"
    gpu_name: str = "NVIDIA H100 80GB HBM3"
    nvlinks: int = 18
    roce: bool = False
    cpus: tuple[str, ...] = ("0-55,112-167", "56-111,168-223")
    allowed_cpus: str = "0-223"
    nvswitches: tuple[int, ...] = (0x07, 0x08, 0x09, 0x0A)
    driver: str = DRIVER
    driver_loaded: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    memlock: str = "unlimited"
    shm_gib: float = 1008
    ports: str = "32768\t60999\n"
    where: str = "host"


def hgx_h100(name: str, roce: bool = False) -> Machine:
    """A DGX H100 as its user guide wires it: eight GPUs, eight compute and four storage ports."""
    gpu_buses = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
    compute = ((0, 0x18), (3, 0x40), (4, 0x4F), (5, 0x5E), (6, 0x9A), (9, 0xC0), (10, 0xCE), (11, 0xDC))
    nics = [Nic(f"mlx5_{number}", bus, 0, index // 4, index) for index, (number, bus) in enumerate(compute)]
    for number, bus, function, numa in ((1, 0x29, 0, 0), (2, 0x29, 1, 0), (7, 0xAA, 0, 1), (8, 0xAA, 1, 1)):
        nics.append(Nic(f"mlx5_{number}", bus, function, numa, state="DOWN", physical="Disabled",
                        rate="10 Gb/sec (4X SDR)" if not roce else "40 Gb/sec (4X QDR)"))  # fmt: skip
    nics.sort(key=lambda nic: int(nic.device.split("_")[1]))
    return Machine(name, tuple(Gpu(bus, index // 4) for index, bus in enumerate(gpu_buses)), tuple(nics), roce=roce)


def with_nic(machine: Machine, device: str, **changes: Any) -> Machine:
    """Change one NIC."""
    nics = tuple(replace(nic, **changes) if nic.device == device else nic for nic in machine.nics)
    return replace(machine, nics=nics)


def with_gpu(machine: Machine, index: int, **changes: Any) -> Machine:
    """Change one GPU."""
    gpus = tuple(replace(gpu, **changes) if i == index else gpu for i, gpu in enumerate(machine.gpus))
    return replace(machine, gpus=gpus)


# --- rendering -------------------------------------------------------------------------------------

Records = dict[str, Any]


def evidence(machine: Machine) -> dict[str, Any]:
    """Render the machine's Evidence document."""
    records: Records = {}
    for render in (_pci, _gpu_tools, _rdma_sysfs, _rdma_tools, _netdevs, _host):
        records.update(render(machine))
    return {
        "schema": "preflight.evidence/1",
        "node": machine.name,
        "collected_at": COLLECTED_AT,
        "origin": ORIGIN,
        "collector": {
            "python": "3.10.12", "platform": "Linux-5.15.0-1063-nvidia-x86_64", "user": "root", "uid": 0,
            "seconds": 1.1, "deadline_s": 60, "sudo": False, "where": machine.where, "notes": [],
        },
        "records": dict(sorted(records.items())),
    }  # fmt: skip


def _ok(text: str) -> dict[str, Any]:
    return {"status": "ok", "out": text}


def _ran(text: str, rc: int = 0, err: str = "") -> dict[str, Any]:
    record: dict[str, Any] = {"status": "ok", "rc": rc, "seconds": 0.1}
    return record | ({"out": text} if text else {}) | ({"err": err} if err else {})


def _link(target: str) -> dict[str, Any]:
    return {"type": "link", "mode": "0777", "uid": 0, "gid": 0, "access": "r", "target": target}


def _listing(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": "ok", "entries": dict(entries)}


_DIRECTORY = {"type": "dir", "mode": "0755", "uid": 0, "gid": 0, "access": "r"}
_MISSING = {"status": "missing", "why": "No such file or directory"}


def _path(bus: int, below: int, function: int = 0) -> str:
    """Place a device below a PCIe switch whose upstream port is the first bus of its group."""
    root = below - 4
    return (
        f"../../../devices/pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{root + 1:02x}:00.0/"
        f"0000:{root + 2:02x}:{0 if bus == below else 1:02x}.0/0000:{bus:02x}:00.{function}"
    )


def _nic_path(machine: Machine, nic: Nic) -> str:
    if nic.gpu is None:
        return f"../../../devices/pci0000:{nic.bus - 1:02x}/0000:{nic.bus - 1:02x}:01.0/{nic.address}"
    return _path(nic.bus, nic.bus)


def _pci(machine: Machine) -> Records:
    functions: list[tuple[str, str, str, str, str, int]] = []  # address, target, class, id, driver, numa
    for index, gpu in enumerate(machine.gpus):
        near = next((nic for nic in machine.nics if nic.gpu == index), None)
        target = _path(gpu.bus, near.bus if near else gpu.bus)
        if gpu.on_bus:
            address = f"0000:{gpu.bus:02x}:00.0"
            driver = "nvidia" if machine.driver_loaded else ""
            functions.append((address, target, "30200", f"10DE:{machine.gpu_id}", driver, gpu.numa))
    for nic in machine.nics:
        kind = "20000" if machine.roce else "20700"
        functions.append((nic.address, _nic_path(machine, nic), kind, "15B3:1021", "mlx5_core", nic.numa))
    for bus in machine.nvswitches:
        address = f"0000:{bus:02x}:00.0"
        target = f"../../../devices/pci0000:00/0000:00:02.0/{address}"
        functions.append((address, target, "68000", "10DE:22A3", "nvidia-nvswitch", 0))
    functions.append(("0000:00:00.0", "../../../devices/pci0000:00/0000:00:00.0", "60000", "8086:09A2", "", 0))
    records: Records = {
        "dir:/sys/bus/pci/devices": _listing({address: _link(target) for address, target, *_ in functions})
    }
    for address, _, kind, ids, driver, numa in functions:
        base = f"file:/sys/bus/pci/devices/{address}"
        uevent = (f"DRIVER={driver}\n" if driver else "") + f"PCI_CLASS={kind}\nPCI_ID={ids}\nPCI_SLOT_NAME={address}\n"
        records[f"{base}/uevent"] = _ok(uevent)
        records[f"{base}/numa_node"] = _ok(f"{numa}\n")
        records[f"{base}/local_cpulist"] = _ok(f"{machine.cpus[numa]}\n")
    return records


def _answering(machine: Machine) -> list[tuple[int, Gpu]]:
    """Return the GPUs that the driver lists, with the index it gives them."""
    alive = [gpu for gpu in machine.gpus if gpu.on_bus and gpu.answers]
    return list(enumerate(alive))


def _topo(machine: Machine) -> str:
    """Render ``nvidia-smi topo -m`` as driver 535 and newer prints it, underlined header included."""
    gpus = _answering(machine)
    nics = [nic for nic in machine.nics if nic.bound]
    names = [f"GPU{index}" for index, _ in gpus] + [f"NIC{index}" for index in range(len(nics))]
    head = "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = [f"\x1b[4m{head}\x1b[0m"]
    for index, gpu in gpus:
        cells = [_gpu_gpu(machine, gpu, other) for _, other in gpus]
        cells += [_gpu_nic(machine, gpu, nic) for nic in nics]
        lines.append(f"GPU{index}\t" + "\t".join(cells) + f"\t{machine.cpus[gpu.numa]}\t{gpu.numa}\t\tN/A")
    for index, nic in enumerate(nics):
        cells = [_gpu_nic(machine, gpu, nic) for _, gpu in gpus]
        cells += [_nic_nic(nic, other) for other in nics]
        lines.append(f"NIC{index}\t" + "\t".join(cells) + "\t\t\t\t")
    legend = [
        "", "Legend:", "", "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks", "", "NIC Legend:", "",
    ]  # fmt: skip
    legend += [f"  NIC{index}: {nic.device}" for index, nic in enumerate(nics)]
    return "\n".join([*lines, *legend, ""])


def _far(one: int, other: int) -> str:
    return "NODE" if one == other else "SYS"


def _gpu_gpu(machine: Machine, one: Gpu, other: Gpu) -> str:
    if one is other:
        return " X "
    return f"NV{machine.nvlinks}" if one.nvlink and other.nvlink else _far(one.numa, other.numa)


def _gpu_nic(machine: Machine, gpu: Gpu, nic: Nic) -> str:
    if nic.gpu is not None and machine.gpus[nic.gpu] is gpu:
        return "PXB"
    return _far(gpu.numa, nic.numa)


def _nic_nic(one: Nic, other: Nic) -> str:
    if one is other:
        return " X "
    return "PIX" if one.bus == other.bus else _far(one.numa, other.numa)


def _uuid(gpu: Gpu) -> str:
    return f"GPU-00000000-0000-0000-0000-0000000000{gpu.bus:02x}"


def _gpu_tools(machine: Machine) -> Records:
    topo, query = (
        "cmd:nvidia-smi topo -m",
        ("cmd:nvidia-smi --query-gpu=index,pci.bus_id,name,uuid,driver_version --format=csv,noheader"),
    )
    version = "file:/proc/driver/nvidia/version"
    if not machine.driver_loaded:
        said = (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return {
            topo: _ran(said, 9), query: _ran(said, 9), version: _MISSING,
            "nvml:gpus": {"status": "missing", "why": "no NVIDIA driver is loaded"},
        }  # fmt: skip
    gpus = _answering(machine)
    rows = [
        f"{index}, 00000000:{gpu.bus:02X}:00.0, {machine.gpu_name}, {_uuid(gpu)}, {machine.driver}\n"
        for index, gpu in gpus
    ]
    nvml = [
        {"index": index, "bus_id": f"00000000:{gpu.bus:02X}:00.0", "name": machine.gpu_name, "uuid": _uuid(gpu),
         "memory_total_bytes": 85520809984, "pci_device_id": f"0x{machine.gpu_id}10DE"}
        for index, gpu in gpus
    ]  # fmt: skip
    kernel = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {machine.driver}  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    return {
        topo: _ran(_topo(machine)),
        query: _ran("".join(rows)),
        version: _ok(kernel),
        "nvml:gpus": {
            "status": "ok",
            "value": {"driver": machine.driver, "cuda": "12.8", "count": len(nvml), "gpus": nvml},
        },
    }


def _verbs(machine: Machine) -> list[tuple[int, Nic]]:
    return [(number, nic) for number, nic in enumerate(nic for nic in machine.nics if nic.bound)]


def _guid(nic: Nic) -> str:
    return f"a088:c203:00{nic.bus:02x}:{nic.function:04x}"


def _rdma_sysfs(machine: Machine) -> Records:
    base = "/sys/class/infiniband"
    states = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}
    physical = {"Polling": 2, "Disabled": 3, "LinkUp": 5}
    verbs = _verbs(machine)
    records: Records = {
        f"dir:{base}": _listing(
            {nic.device: _link(f"{_nic_path(machine, nic)[3:]}/infiniband/{nic.device}") for _, nic in verbs}
        ),
        "file:/sys/class/infiniband_verbs/*/ibdev": {"status": "ok", "value": {"matches": len(verbs)}},
        "dir:/dev/infiniband": _listing(
            {"rdma_cm": _node("0666")} | {f"uverbs{n}": _node(nic.mode) for n, nic in verbs if nic.uverbs}
        ),
    }
    for number, nic in verbs:
        device, port = f"{base}/{nic.device}", f"{base}/{nic.device}/ports/1"
        netdev = nic.netdev(machine.roce)
        records |= {
            f"file:{device}/fw_ver": _ok("28.43.2026\n"),
            f"file:{device}/hca_type": _ok("MT4129\n"),
            f"file:{device}/board_id": _ok("MT_0000000838\n"),
            f"file:{device}/node_guid": _ok(f"{_guid(nic)}\n"),
            f"dir:{device}/ports": _listing({"1": _DIRECTORY}),
            f"dir:{device}/device/net": _listing({netdev: _DIRECTORY}),
            f"file:{port}/state": _ok(f"{states[nic.state]}: {nic.state}\n"),
            f"file:{port}/phys_state": _ok(f"{physical[nic.physical]}: {nic.physical}\n"),
            f"file:{port}/rate": _ok(f"{nic.rate}\n"),
            f"file:{port}/link_layer": _ok("Ethernet\n" if machine.roce else "InfiniBand\n"),
            f"file:{port}/lid": _ok("0x0\n" if machine.roce else f"0x{nic.bus:x}\n"),
            f"file:{port}/sm_lid": _ok("0x1\n" if not machine.roce and nic.state == "ACTIVE" else "0x0\n"),
            f"file:/sys/class/infiniband_verbs/uverbs{number}/ibdev": _ok(f"{nic.device}\n"),
        }
        if machine.roce:
            records[f"file:{port}/gid_attrs/ndevs/0"] = _ok(f"{netdev}\n")
    return records


def _node(mode: str) -> dict[str, Any]:
    access = {"6": "rw", "4": "r", "0": ""}[mode[-1]]
    return {"type": "char", "mode": mode, "uid": 0, "gid": 0, "access": access}


def active_mtu(machine: Machine, nic: Nic) -> int:
    """Return the RDMA MTU: under RoCE the largest step that fits in the interface's, less 96 bytes."""
    if not machine.roce:
        return 4096
    return max((step for step in (256, 512, 1024, 2048, 4096) if step <= nic.netdev_mtu - 96), default=256)


_IBSTAT_STATE = {"ACTIVE": "Active", "DOWN": "Down", "INIT": "Initializing", "ARMED": "Armed"}


def _rdma_tools(machine: Machine) -> Records:
    layer = "Ethernet" if machine.roce else "InfiniBand"
    ibstat, devinfo = "", ""
    for _, nic in _verbs(machine):
        guid, lid = _guid(nic), 0 if machine.roce else nic.bus
        sm_lid = 1 if not machine.roce and nic.state == "ACTIVE" else 0
        plain = "0x" + guid.replace(":", "")
        ibstat += (
            f"CA '{nic.device}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.43.2026\n"
            f"\tHardware version: 0\n\tNode GUID: {plain}\n\tSystem image GUID: {plain}\n\tPort 1:\n"
            f"\t\tState: {_IBSTAT_STATE[nic.state]}\n\t\tPhysical state: {nic.physical}\n"
            f"\t\tRate: {nic.rate.split()[0]}\n\t\tBase lid: {lid}\n\t\tLMC: 0\n\t\tSM lid: {sm_lid}\n"
            f"\t\tCapability mask: 0xa651e848\n\t\tPort GUID: {plain}\n\t\tLink layer: {layer}\n"
        )
        mtu = active_mtu(machine, nic)
        codes = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
        state = {"ACTIVE": "PORT_ACTIVE (4)", "DOWN": "PORT_DOWN (1)", "INIT": "PORT_INIT (2)"}[nic.state]
        if nic.uverbs:
            devinfo += (
                f"hca_id:\t{nic.device}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.43.2026\n"
                f"\tnode_guid:\t\t\t{guid}\n\tvendor_part_id:\t\t\t4129\n\tphys_port_cnt:\t\t\t1\n"
                f"\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tmax_mtu:\t\t4096 (5)\n"
                f"\t\t\tactive_mtu:\t\t{mtu} ({codes[mtu]})\n\t\t\tsm_lid:\t\t\t{sm_lid}\n"
                f"\t\t\tport_lid:\t\t{lid}\n\t\t\tport_lmc:\t\t0x00\n\t\t\tlink_layer:\t\t{layer}\n\n"
            )
    if not devinfo:
        return {"cmd:ibstat": _ran(ibstat), "cmd:ibv_devinfo": _ran("", 255, "No IB devices found\n")}
    return {"cmd:ibstat": _ran(ibstat), "cmd:ibv_devinfo": _ran(devinfo)}


def _netdevs(machine: Machine) -> Records:
    records: Records = {}
    interfaces: list[tuple[str, int, str]] = [("lo", 65536, "unknown"), ("eno1", 1500, "up")]
    for _, nic in _verbs(machine):
        up = "up" if nic.state == "ACTIVE" else "down"
        interfaces.append((nic.netdev(machine.roce), nic.netdev_mtu if machine.roce else 4092, up))
    for name, mtu, state in interfaces:
        records[f"file:/sys/class/net/{name}/mtu"] = _ok(f"{mtu}\n")
        records[f"file:/sys/class/net/{name}/operstate"] = _ok(f"{state}\n")
    if not machine.roce:
        return records
    for _, nic in _verbs(machine):
        name = nic.netdev(True)
        bits = [priority in nic.pfc for priority in range(8)]
        pfc = {"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": bits}
        records[f"cmd:dcb -j pfc show dev {name}"] = _ran(json.dumps(pfc))
        enabled = "   ".join("1" if bit else "0" for bit in bits)
        records[f"cmd:mlnx_qos -i {name}"] = _ran(
            "DCBX mode: OS controlled\nPriority trust state: dscp\nCable len: 7\nPFC configuration:\n"
            f"\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {enabled}   \n"
        )
        for role in ("np", "rp"):
            for priority in range(8):
                on = nic.ecn and priority == 3
                records[f"file:/sys/class/net/{name}/ecn/roce_{role}/enable/{priority}"] = _ok(f"{int(on)}\n")
    return records


def _host(machine: Machine) -> Records:
    soft = f"{machine.memlock:<20} {machine.memlock:<20}"
    return {
        "env:process": {"status": "ok", "value": dict(machine.env)},
        "file:/etc/nccl.conf": _MISSING,
        "file:~/.nccl.conf": _MISSING,
        "file:/proc/self/status": _ok(
            "Name:\tpython3\nCapEff:\t0000000000000000\n"
            f"Cpus_allowed_list:\t{machine.allowed_cpus}\nMems_allowed_list:\t0-1\n"
        ),
        "file:/proc/self/limits": _ok(
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max open files            1048576              1048576              files     \n"
            f"Max locked memory         {soft} bytes     \n"
        ),
        **{
            f"file:/sys/devices/system/node/node{number}/cpulist": _ok(f"{cpus}\n")
            for number, cpus in enumerate(machine.cpus)
        },
        "statvfs:/dev/shm": {
            "status": "ok",
            "value": {
                "total_bytes": int(machine.shm_gib * 2**30), "free_bytes": int(machine.shm_gib * 2**30),
                "type": "tmpfs",
            },
        },
        "file:/proc/sys/net/ipv4/ip_local_port_range": _ok(machine.ports),
        "file:/proc/cmdline": _ok("BOOT_IMAGE=/boot/vmlinuz-5.15.0-1063 root=/dev/md0 iommu=pt\n"),
        "file:/proc/sys/kernel/osrelease": _ok("5.15.0-1063-nvidia\n"),
    }  # fmt: skip


# --- the whole nodes and the demo cluster ------------------------------------------------------------

COMPUTE = "mlx5_[0,3-6,9-11]"


def cluster_toml(nodes: str, roce: bool) -> str:
    """Return the cluster file of a site with such nodes."""
    return f"""# A site of DGX H100 nodes on {"lossless RoCE" if roce else "InfiniBand"}; made by hand.
[cluster]
name = "{"roce" if roce else "infiniband"}-example"

[class.h100]
nodes = "{nodes}"
gpus = 8
hcas = 8

[class.h100.ports]
compute = "{COMPUTE}"
storage = "mlx5_[1-2,7-8]"
link_layer = "{"Ethernet" if roce else "InfiniBand"}"
rate_gbps = 400
mtu = 4096
""" + ("""netdev_mtu = 9000

[class.h100.qos]
lossless = true
pfc_priority = 3
ecn = true
""" if roce else "")  # fmt: skip


Fault = Callable[[Machine], Machine]

DEMO: tuple[tuple[str, Fault], ...] = (
    ("gpu001", lambda m: m),
    ("gpu002", lambda m: with_nic(m, "mlx5_5", state="DOWN", physical="Polling", rate="40 Gb/sec (4X QDR)")),
    ("gpu003", lambda m: with_nic(m, "mlx5_4", netdev_mtu=1500)),
    ("gpu004", lambda m: with_nic(replace(m, env={"NCCL_P2P_DISABLE": "1"}), "mlx5_9", pfc=())),
    ("gpu005", lambda m: with_nic(with_gpu(m, 6, nvlink=False), "mlx5_10", rate="200 Gb/sec (2X NDR)")),
    ("gpu006", lambda m: with_nic(replace(m, memlock="8388608", driver="550.90.07"), "mlx5_11", uverbs=False)),
    ("gpu007", lambda m: with_gpu(m, 3, on_bus=False)),
)

DEMO_SILENT = ("gpu008", "connect", "connection refused on port 22: is sshd running?")

JOB_LOG = """gpu001:41210:41210 [0] NCCL INFO Bootstrap: Using eno1:192.0.2.1<0>
gpu001:41210:41210 [0] NCCL INFO NCCL version 2.26.2+cuda12.8
gpu001:41210:41305 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
gpu001:41210:41305 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [2]mlx5_4:1/RoCE \
[3]mlx5_5:1/RoCE [RO]; OOB eno1:192.0.2.1<0>
gpu001:41210:41305 [0] NCCL INFO Using network IB
gpu006:38122:38214 [0] NCCL INFO NET/IB : No device found.
gpu006:38122:38214 [0] NCCL INFO NET/IB : Using [RO]; OOB eno1:192.0.2.6<0>
gpu006:38122:38214 [0] NCCL INFO NET/Socket : Using [0]eno1:192.0.2.6<0>
gpu006:38122:38214 [0] NCCL INFO Using network Socket
gpu001:41210:41305 [0] NCCL INFO comm 0x55d0c8a0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
gpu006:38122:38214 [0] NCCL INFO comm 0x55e1a2b0 rank 8 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
gpu006:38122:38230 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0
gpu006:38122:38230 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yield every file that is rendered, with its text."""
    nodes, demo = ROOT / "fixtures" / "nodes", ROOT / "preflight" / "demo"
    for name, roce in (("hgx-h100", False), ("hgx-h100-roce", True)):
        yield nodes / f"{name}.json", _dump(evidence(hgx_h100(name, roce)))
        yield nodes / f"{name}.toml", cluster_toml(name, roce)
    for name, fault in DEMO:
        yield demo / f"{name}.json", _dump(evidence(fault(hgx_h100(name, roce=True))))
    node, phase, reason = DEMO_SILENT
    silent = {
        "schema": "preflight.evidence/1", "node": node, "collected_at": COLLECTED_AT, "origin": ORIGIN,
        "collector": {}, "records": {}, "no_answer": {"phase": phase, "reason": reason},
    }  # fmt: skip
    yield demo / f"{node}.json", _dump(silent)
    yield demo / "cluster.toml", cluster_toml("gpu[001-008]", roce=True)
    yield demo / "job.log", JOB_LOG


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write all rendered files."""
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
