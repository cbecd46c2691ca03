"""DGX A100: eight A100 on six NVSwitches, two AMD processors in NPS4, two compute NICs for every two GPUs.

The matrix and the CPU affinity (GPUs on the NUMA nodes 3, 1, 7 and 5, in this order) follow public outputs of
`nvidia-smi topo -m` (NVIDIA/nccl issue 1505); buses, interface names and port roles follow the DGX A100 user guide. The
bridges between GPUs and NICs, firmware and GUIDs are made up.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.platform import H100, InstalledFunction, NicModel, Platform

NAME = "dgx-a100"

#: An idle A100 SXM4 80 GB, as driver 550 shows it: no fabric state, recovery action or temperature margin.
A100 = replace(
    H100, name="NVIDIA A100-SXM4-80GB", memory_total_mib=81920, memory_reserved_mib=634, remap_banks=(640, 0, 0, 0, 0),
    power_limit_w=400.0, power_enforced_w=400.0, power_default_w=400.0, temperature_c=29, temperature_margin_c=None,
    temperature_slowdown_c=89, pcie_generation=4, pcie_generation_max=4, recovery_action=None, fabric=None,
    vbios="92.00.45.00.03", inforom="G506.0210.00.03", sm_clock_mhz=1410, sm_clock_max_mhz=1410, cuda_cores=6912,
    links=(True,) * 12, link_gbytes_s=25.0,
)  # fmt: skip

CONNECTX_6 = NicModel("15B3:101B", "MT4123", 4123, "20.41.1000", "MT_0000000223", "16.0 GT/s PCIe")

#: Root complexes of the EPYC 7742: one for each of the eight NUMA nodes.
ROME = tuple(InstalledFunction(f"0000:{bus:02x}:00.0", "60000", "1022:1480", numa=numa) for bus, numa in (
    (0x00, 3), (0x20, 2), (0x40, 1), (0x60, 0), (0x80, 7), (0xA0, 6), (0xB0, 5), (0xE0, 4),
))  # fmt: skip

PLATFORM = Platform(
    origin="wiring after the DGX A100 user guide and public outputs of `nvidia-smi topo -m` on such nodes",
    kernel="5.15.0-1055-nvidia",
    boot_options="BOOT_IMAGE=/boot/vmlinuz-5.15.0-1055-nvidia root=/dev/md0 ro iommu=pt",
    functions=ROME,
    cuda="12.4",
    gpu=A100,
    gpu_architecture="Ampere",
    nvswitch_id="1AF1",
    nvswitch_numa=5,
)

#: CPUs of the eight NUMA nodes: 16 cores each, and their second threads.
CPUS = tuple(f"{16 * node}-{16 * node + 15},{128 + 16 * node}-{143 + 16 * node}" for node in range(8))

#: Bus of the root complex -> its NUMA node, the buses of its GPUs, RDMA device and bus of its compute NICs.
GROUPS = (
    (0x00, 3, (0x07, 0x0F), ((0, 0x0C), (1, 0x12))),
    (0x40, 1, (0x47, 0x4E), ((2, 0x4B), (3, 0x54))),
    (0x80, 7, (0x87, 0x90), ((6, 0x8D), (7, 0x94))),
    (0xB0, 5, (0xB7, 0xBD), ((8, 0xBA), (9, 0xCC))),
)

#: Dual-port storage adapters: first RDMA device, bus, NUMA node.
STORAGE = ((4, 0x61, 0), (10, 0xE1, 4))

CLUSTER = f"""# A site of DGX A100 nodes on InfiniBand; made by hand.
[cluster]
name = "a100-example"

[class.a100]
nodes = "{NAME}"
gpus = 8
hcas = 8

[class.a100.ports]
compute = "mlx5_[0-3,6-9]"
storage = "mlx5_[4-5,10-11]"
link_layer = "InfiniBand"
rate_gbps = 200
mtu = 4096

[class.a100.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
"""


def dgx_a100(name: str = NAME) -> Machine:
    """Describe a healthy node; the second ports of its storage adapters have no cable."""
    gpus, nics = list[Gpu](), list[Nic]()
    for root, numa, gpu_buses, adapters in GROUPS:
        first = len(gpus)
        gpus += [Gpu(bus, numa, above=_cascade(root, bus)) for bus in gpu_buses]
        for place, (number, bus) in enumerate(adapters):
            nics.append(_connectx(f"mlx5_{number}", bus, numa, gpu=first + place, above=_cascade(root, bus)))
    for number, bus, numa in STORAGE:
        port = _connectx(f"mlx5_{number}", bus, numa, layer="Ethernet", rate="100 Gb/sec (2X HDR)", pfc=(), ecn=False)
        nics += [port, replace(port, device=f"mlx5_{number + 1}", function=1, state="DOWN", physical="Disabled",
                               rate="40 Gb/sec (4X QDR)")]  # fmt: skip
    nics.sort(key=lambda nic: int(nic.device.split("_")[1]))
    return Machine(
        name, tuple(gpus), tuple(nics), gpu_id="20B2", gpu_name="NVIDIA A100-SXM4-80GB", nvlinks=12, cpus=CPUS,
        allowed_cpus="0-255", memory_nodes="0-7", nvswitches=(0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9),
        driver="550.127.08", open_driver=False, shm_gib=1008, platform=PLATFORM,
        nccl_conf="NCCL_IB_HCA=^=mlx5_4,mlx5_5,mlx5_10,mlx5_11\n",
    )  # fmt: skip


def _cascade(root: int, bus: int) -> tuple[str, ...]:
    """Return the bridges of two PCIe switches in a row: a group's own, and one of the board's."""
    group = (f"0000:{root:02x}:01.1", f"0000:{root + 1:02x}:00.0", f"0000:{root + 2:02x}:{bus & 0x1F:02x}.0")
    return (*group, f"0000:{bus - 2:02x}:00.0", f"0000:{bus - 1:02x}:00.0")


def _connectx(
    device: str, bus: int, numa: int, *, gpu: int | None = None, above: tuple[str, ...] = (), **changes: object
) -> Nic:
    nic = Nic(device, bus, 0, numa, gpu, rate="200 Gb/sec (4X HDR)", model=CONNECTX_6, above=above)
    return replace(nic, **changes)  # type: ignore[arg-type]


NODES = {NAME: (dgx_a100, CLUSTER)}
