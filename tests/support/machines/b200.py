"""HGX B200: eight GPUs, NVSwitches behind ConnectX-7 bridges, so some RDMA devices belong to no network.

The order of the sixteen RDMA devices and their codes follow public outputs of `nvidia-smi topo -m` on such boards
(sgl-project/sglang issue 26541, vllm-project/vllm issue 42186): the bridges' four functions first, then each GPU's NIC,
a dual-port BlueField-3 on either socket. PCI addresses follow the DGX B200; those of the bridges, and firmware and
GUIDs, are made up. The fabric manager guide names the bridges' functions: two for traffic, two limited ones.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.platform import BLUEFIELD_3, H100, InstalledFunction, Platform

NAME = "hgx-b200"

#: An idle B200, with the memory and power limit that driver 575 shows of one.
B200 = replace(
    H100, name="NVIDIA B200", memory_total_mib=183359, memory_reserved_mib=717, memory_used_mib=0,
    bar1_total_mib=262144, remap_banks=(4352, 0, 0, 0, 0), power_limit_w=1000.0, power_enforced_w=1000.0,
    power_default_w=1000.0, temperature_c=31, temperature_margin_c=54, vbios="97.00.88.00.0f",
    inforom="G525.0225.00.05", sm_clock_mhz=1965, sm_clock_max_mhz=1965, cuda_cores=18944, link_gbytes_s=53.125,
)  # fmt: skip

ORIGIN = (
    "wiring after the DGX B200 user guide, the fabric manager user guide (ConnectX-7 bridges of the NVSwitches) and "
    "public outputs of `nvidia-smi topo -m` on HGX B200 boards"
)

INTEL = Platform(
    origin=ORIGIN,
    kernel="6.8.0-1032-nvidia",
    boot_options="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1032-nvidia root=/dev/md0 iommu=pt",
    gpu=B200,
    gpu_architecture="Blackwell",
)

#: The same board beside AMD processors: host bridges of an EPYC 9005.
AMD = replace(INTEL, functions=(InstalledFunction("0000:00:00.0", "60000", "1022:153A"),))

GPU_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)

#: RDMA device -> bus of the NIC behind the PCIe switch of GPU 0 to 7.
COMPUTE = ((4, 0x18), (7, 0x40), (8, 0x4F), (9, 0x5E), (10, 0x9A), (13, 0xC0), (14, 0xCE), (15, 0xDC))

#: RDMA devices of the NVSwitches' bridges: InfiniBand ports that lead to no network.
BRIDGES = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")

CLUSTER = f"""# A site of HGX B200 nodes on InfiniBand; made by hand.
[cluster]
name = "b200-example"

[class.b200]
nodes = "{NAME}"
gpus = 8
hcas = 8

[class.b200.ports]
compute = "mlx5_[4,7-10,13-15]"
storage = "mlx5_[5,11]"
management = "mlx5_[6,12]"
link_layer = "InfiniBand"
rate_gbps = 400
mtu = 4096

[class.b200.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
"""


def hgx_b200(name: str = NAME, platform: Platform = INTEL) -> Machine:
    """Describe a healthy node: DGX B200, its compute ports on InfiniBand."""
    nics = [Nic(f"mlx5_{number}", bus, 0, index // 4, index) for index, (number, bus) in enumerate(COMPUTE)]
    for number, device in enumerate(BRIDGES):
        bus, function = 0x05 + number // 2, number % 2
        nics.append(Nic(device, bus, function, interface=f"ibp{bus}s0f{function}"))
    for first, bus, numa in ((5, 0x29, 0), (11, 0xAA, 1)):
        for port in (0, 1):
            nics.append(_bluefield(f"mlx5_{first + port}", bus, port, numa))
    nics.sort(key=lambda nic: int(nic.device.split("_")[1]))
    gpus = tuple(Gpu(bus, index // 4) for index, bus in enumerate(GPU_BUSES))
    return Machine(
        name, gpus, tuple(nics), gpu_id="2901", gpu_name="NVIDIA B200", nvswitches=(), driver="570.172.08",
        platform=platform, default_route="enp41s0f1np1",
        nccl_conf="NCCL_IB_HCA==mlx5_4,mlx5_7,mlx5_8,mlx5_9,mlx5_10,mlx5_13,mlx5_14,mlx5_15\n",
    )  # fmt: skip


def _bluefield(device: str, bus: int, port: int, numa: int) -> Nic:
    """One port of a BlueField-3 at 200 Gb/s: the first for storage, the second for the node's own traffic."""
    address = f"198.51.{100 + numa}.{1 + 16 * port}/28"
    return Nic(
        device, bus, port, numa, model=BLUEFIELD_3, layer="Ethernet", rate="200 Gb/sec (4X HDR)",
        interface=f"enp{bus}s0f{port}np{port}", ip=address, pfc=(), ecn=False,
    )  # fmt: skip


NODES = {NAME: (hgx_b200, CLUSTER)}
