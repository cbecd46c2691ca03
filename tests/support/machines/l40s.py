"""A box of eight L40S cards: no NVLink, no NVSwitch, and one RoCE NIC for every two GPUs.

Two PCIe switches, one below each Xeon, with four cards and two ConnectX-7 each, as in NVIDIA's OVX reference design and
in servers of several vendors. What the driver shows of an L40S follows public outputs of `nvidia-smi -q`; addresses,
firmware and GUIDs are made up.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.platform import H100, InstalledFunction, NicModel, Platform

NAME = "l40s-pcie"

#: An idle L40S as shown by driver 570: its PCIe link is in a low-power state; no NVLink, no fabric, no MIG.
L40S = replace(
    H100, name="NVIDIA L40S", memory_total_mib=46068, memory_reserved_mib=599, memory_used_mib=1, bar1_total_mib=65536,
    mig=None, mig_pending=None, remap_banks=(192, 0, 0, 0, 0), power_limit_w=350.0, power_enforced_w=350.0,
    power_default_w=350.0, temperature_c=30, temperature_margin_c=57, pcie_generation=1, pcie_generation_max=4,
    performance_state=8, fabric=None, vbios="95.02.66.00.02", inforom="G133.0242.00.03", sm_clock_mhz=210,
    sm_clock_max_mhz=2520, cuda_cores=18176, links=None, link_gbytes_s=None,
)  # fmt: skip

CONNECTX_7 = NicModel("15B3:1021", "MT4129", 4129, "28.43.2026", "MT_0000000834")
#: The board's own dual-port adapter for management, 25 Gb/s.
CONNECTX_6_LX = NicModel("15B3:101F", "MT4127", 4127, "26.43.2026", "MT_0000000531", "16.0 GT/s PCIe", lanes=8)

PLATFORM = Platform(
    origin="layout of dual-switch servers for PCIe cards; driver's words after public outputs for L40S cards",
    kernel="6.8.0-60-generic",
    boot_options="BOOT_IMAGE=/vmlinuz-6.8.0-60-generic root=/dev/mapper/vg0-root ro intel_iommu=on iommu=pt",
    functions=(
        InstalledFunction("0000:00:00.0", "60000", "8086:09A2"),
        InstalledFunction("0000:80:00.0", "60000", "8086:09A2", numa=1),
    ),
    gpu=L40S,
    gpu_architecture="Ada Lovelace",
)

#: Root bus of a PCIe switch, its NUMA node.
SWITCHES = ((0x15, 0), (0x97, 1))

CLUSTER = f"""# A site of L40S servers on lossless RoCE; made by hand.
[cluster]
name = "l40s-example"

[class.l40s]
nodes = "{NAME}"
gpus = 8
hcas = 4

[class.l40s.ports]
compute = "mlx5_[0-1,4-5]"
management = "mlx5_[2-3]"
link_layer = "Ethernet"
load_balancing = "spray"
rate_gbps = 200
mtu = 4096
netdev_mtu = 9000

[class.l40s.qos]
lossless = true
pfc_priority = 3
ecn = true

[class.l40s.checkpoint]
path = "/shared/checkpoints"
interval_min = 30

[class.l40s.thresholds]
nic_gbps_per_gpu = 100
"""


def l40s_pcie(name: str = NAME) -> Machine:
    """Describe a healthy node: DMA-BUF and no peer-memory module, the management port up at 25 Gb/s."""
    gpus, nics = list[Gpu](), list[Nic]()
    for place, (root, numa) in enumerate(SWITCHES):
        nics += [
            Nic(
                f"mlx5_{4 * place + number}", root + 7 + number, 0, numa, gpu=4 * place + 2 * number,
                rate="200 Gb/sec (2X NDR)", model=CONNECTX_7, above=_switch(root, 4 + number),
            )
            for number in range(2)
        ]  # fmt: skip
        gpus += [Gpu(root + 3 + number, numa, nvlink=False, above=_switch(root, number)) for number in range(4)]
    port = Nic("mlx5_2", 0x31, numa=0, rate="25 Gb/sec (1X EDR)", netdev_mtu=1500, model=CONNECTX_6_LX, lanes=8,
               interface="eno1np0", ip="192.0.2.65/26", pfc=(), ecn=False)  # fmt: skip
    down = replace(port, device="mlx5_3", function=1, interface="eno2np1", state="DOWN", physical="Disabled",
                   rate="40 Gb/sec (4X QDR)", ip="")  # fmt: skip
    nics = sorted([*nics, port, down], key=lambda nic: nic.device)
    return Machine(
        name, tuple(gpus), tuple(nics), gpu_id="26B9", gpu_name="NVIDIA L40S", nvlinks=0, roce=True, nvswitches=(),
        cpus=("0-31,64-95", "32-63,96-127"), allowed_cpus="0-127", peer_modules=(), shm_gib=504, platform=PLATFORM,
        management="eno1np0", default_route="eno1np0",
        nccl_conf="NCCL_IB_HCA=^=mlx5_2,mlx5_3\n",
    )  # fmt: skip


def _switch(root: int, port: int) -> tuple[str, ...]:
    """Return root port, upstream port and a downstream port of the one PCIe switch of a socket."""
    return f"0000:{root:02x}:01.0", f"0000:{root + 1:02x}:00.0", f"0000:{root + 2:02x}:{port:02x}.0"


NODES = {NAME: (l40s_pcie, CLUSTER)}
