"""A compute tray of GB200 NVL72: four GPUs on two Grace processors, NVLink to the rack's switches.

Addresses of GPUs and NICs, interface names and SYS in every cell between GPU and NIC follow public descriptions of such
trays (NVIDIA/NVSentinel, design of its NIC health monitor; DGX GB200 user guide: mlx5_0, 1, 4 and 5 are the fabric's,
all other devices are BlueField-3 ports). NUMA nodes of GPU memory follow the same sources and the kernel's nvgrace-gpu
documents: CPU nodes 0 and 1, then eight for each GPU, of which the first holds its memory while MIG is off. GUIDs,
firmware and the cluster's UUID are made up.
"""

from __future__ import annotations

from dataclasses import replace

from preflight.facts.nvidia.model import GpuFabric
from tests.support.machines.b200 import B200
from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.platform import BLUEFIELD_3, InstalledFunction, Platform

NAME = "gb200-tray"

#: NVLink domain of the rack, as reported by every GPU in it.
FABRIC = GpuFabric("Completed", "Success", (), 32766, "5a9f6c1e-2d43-4b7a-9c58-0e1f2a3b4c5d")

#: An idle GB200, with the memory and power limit that drivers 580 to 595 show of one.
GB200 = replace(
    B200, name="NVIDIA GB200", memory_total_mib=189471, memory_used_mib=0, power_limit_w=1200.0,
    power_enforced_w=1200.0, power_default_w=1200.0, temperature_c=37, temperature_margin_c=47, vbios="97.00.b9.00.69",
    inforom="G548.0201.00.06", fabric=FABRIC,
)  # fmt: skip

#: PCI domains of the root ports above GPUs (22b1) and NICs (22b2, 22b8), by socket. Grace has no host bridges.
GPU_DOMAINS = ((0x08, 0), (0x09, 0), (0x18, 1), (0x19, 1))
NIC_DOMAINS = ((0x00, 0), (0x02, 0), (0x10, 1), (0x12, 1))
BLUEFIELD_DOMAINS = ((0x06, 0), (0x16, 1))

ROOT_PORTS = (
    *(InstalledFunction(f"{domain:04x}:00:00.0", "60400", "10DE:22B1", "pcieport", numa)
      for domain, numa in GPU_DOMAINS),
    *(InstalledFunction(f"{domain:04x}:00:00.0", "60400", "10DE:22B2", "pcieport", numa)
      for domain, numa in (*NIC_DOMAINS, *BLUEFIELD_DOMAINS)),
)  # fmt: skip

GRACE = Platform(
    origin="wiring after the DGX GB200 user guide and public descriptions of GB200 NVL72 compute trays",
    architecture="aarch64",
    kernel="6.8.0-1032-nvidia-64k",
    boot_options="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1032-nvidia-64k root=/dev/md0 iommu.passthrough=1 init_on_alloc=0",
    functions=ROOT_PORTS,
    cuda="13.0",
    gpu=GB200,
    gpu_architecture="Blackwell",
    gpu_xml={"addressing_mode": "ATS", "c2c_mode": "Enabled"},
    libraries="/usr/lib/aarch64-linux-gnu",
)

#: CPUs of the two processors; NUMA nodes of GPU memory have none.
CPUS = ("0-71", "72-143", *("",) * 32)

CLUSTER = f"""# A site of GB200 NVL72 compute trays on InfiniBand; made by hand.
[cluster]
name = "gb200-example"

[class.gb200]
nodes = "{NAME}"
gpus = 4
hcas = 4

[class.gb200.ports]
compute = "mlx5_[0-1,4-5]"
storage = "mlx5_[2,6]"
management = "mlx5_[3,7]"
link_layer = "InfiniBand"
rate_gbps = 400
mtu = 4096

[class.gb200.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
"""


def gb200_tray(name: str = NAME) -> Machine:
    """Describe a healthy tray: DMA-BUF instead of a peer-memory module, IMEX running."""
    gpus = tuple(_gpu(index, domain, numa) for index, (domain, numa) in enumerate(GPU_DOMAINS))
    fabric = [_connectx(f"mlx5_{number}", *at) for number, at in zip((0, 1, 4, 5), NIC_DOMAINS, strict=True)]
    others = [
        _bluefield(f"mlx5_{first + port}", domain, numa, port)
        for first, (domain, numa) in zip((2, 6), BLUEFIELD_DOMAINS, strict=True)
        for port in (0, 1)
    ]
    nics = sorted([*fabric, *others], key=lambda nic: nic.device)
    return Machine(
        name, gpus, tuple(nics), gpu_id="2941", gpu_name="NVIDIA GB200", nvswitches=(), driver="580.95.05",
        platform=GRACE, every_path="SYS", cpus=CPUS, allowed_cpus="0-143", memory_nodes="0-2,10,18,26",
        imex=True, peer_modules=(), shm_gib=852, default_route="enP6p3s0f1np1",
        nccl_conf="NCCL_IB_HCA=^=mlx5_2,mlx5_3,mlx5_6,mlx5_7\n",
    )  # fmt: skip


def _gpu(index: int, domain: int, numa: int) -> Gpu:
    first = 2 + 16 * numa
    return Gpu(
        0x01, numa, domain=domain, above=(f"{domain:04x}:00:00.0",), memory_node=2 + 8 * index,
        numa_affinity=f"{numa},{first}-{first + 15}",
    )  # fmt: skip


def _connectx(device: str, domain: int, numa: int) -> Nic:
    """A ConnectX-7 of the compute fabric, behind its own PCIe switch on the board."""
    name = f"ibP{domain}p3s0" if domain else "ibp3s0"
    return Nic(device, 0x03, numa=numa, domain=domain, above=_switch(domain), interface=name, gbps=300.0)


def _bluefield(device: str, domain: int, numa: int, port: int) -> Nic:
    """One port of a BlueField-3 at 200 Gb/s: the first for storage, the second for the node's own traffic."""
    return Nic(
        device, 0x03, port, numa, domain=domain, above=_switch(domain), model=BLUEFIELD_3, layer="Ethernet",
        rate="200 Gb/sec (4X HDR)", interface=f"enP{domain}p3s0f{port}np{port}",
        ip=f"198.51.{100 + numa}.{1 + 16 * port}/28", pfc=(), ecn=False,
    )  # fmt: skip


def _switch(domain: int) -> tuple[str, ...]:
    return tuple(f"{domain:04x}:{bus:02x}:00.0" for bus in range(3))


NODES = {NAME: (gb200_tray, CLUSTER)}
