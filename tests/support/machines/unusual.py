"""Healthy nodes of unusual design: shared NICs, two ports for each GPU, one GPU with its own Grace.

An H20 board on which every second GPU has a NIC, a bond of two ports, behind its own PCIe switch; it follows public
outputs of `nvidia-smi topo -m` on such servers. A node with sixteen 200 Gb/s RoCE ports, two of a card for each H100,
and the provider's settings for NCCL (traffic class 41, priority 5); it follows OCI's published shape and launch
scripts. A GH200 with its one NIC on the processor; it follows public outputs of the same command. Addresses, firmware
and GUIDs are made up.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.machines.machine import Gpu, Machine, Nic, Queues
from tests.support.machines.platform import H100, InstalledFunction, NicModel, Platform

SHARED, TWO_PORTS, GRACE = "h20-shared-nics", "h100-two-ports", "gh200"

H20 = replace(
    H100, name="NVIDIA H20", memory_total_mib=97871, memory_reserved_mib=659, remap_banks=(3072, 0, 0, 0, 0),
    power_limit_w=500.0, power_enforced_w=500.0, power_default_w=500.0, cuda_cores=9984, vbios="96.00.d0.00.03",
)  # fmt: skip

GH200 = replace(
    H100, name="NVIDIA GH200 120GB", memory_total_mib=97871, remap_banks=(3072, 0, 0, 0, 0), fabric=None, links=None,
    power_limit_w=900.0, power_enforced_w=900.0, power_default_w=900.0, link_gbytes_s=None,
)  # fmt: skip

#: Adapters for the node's own traffic: two ports of 25 Gb/s in one bond; 100 Gb/s.
CONNECTX_6_LX = NicModel("15B3:101F", "MT4127", 4127, "26.43.2026", "MT_0000000531", "16.0 GT/s PCIe", lanes=8)
CONNECTX_6_DX = NicModel("15B3:101D", "MT4125", 4125, "22.43.2026", "MT_0000000359", "16.0 GT/s PCIe")


def switch(root: int, port: int) -> tuple[str, ...]:
    """Return root port, upstream port and a downstream port of the PCIe switch of a root bus."""
    return f"0000:{root:02x}:01.0", f"0000:{root + 1:02x}:00.0", f"0000:{root + 2:02x}:{port:02x}.0"


def h20_shared_nics(name: str = SHARED) -> Machine:
    """Describe a healthy node: a NIC behind every second GPU, which its neighbour reaches over NVLink."""
    gpus = [Gpu(0x13 + 0x18 * index, index // 4, above=switch(0x10 + 0x18 * index, 0)) for index in range(8)]
    nics = [
        Nic(
            f"mlx5_bond_{index // 2 + 1}", 0x16 + 0x18 * index, numa=index // 4, gpu=index,
            above=switch(0x10 + 0x18 * index, 1), interface=f"bond{index // 2 + 1}",
        )
        for index in range(0, 8, 2)
    ]  # fmt: skip
    own = Nic("mlx5_bond_0", 0x09, rate="50 Gb/sec (2X EDR)", above=("0000:08:01.0",), interface="bond0", lanes=8,
              netdev_mtu=1500, ip="192.0.2.77/26", pfc=(), ecn=False, model=CONNECTX_6_LX)  # fmt: skip
    platform = Platform(
        origin="public outputs of `nvidia-smi topo -m` on H20 servers with four NICs",
        kernel="5.10.134-18.al8.x86_64", gpu=H20,
        boot_options="BOOT_IMAGE=(hd0,gpt3)/vmlinuz-5.10.134 root=UUID=1f0e8d2c ro intel_iommu=on iommu=pt",
    )  # fmt: skip
    return Machine(
        name, tuple(gpus), (own, *nics), gpu_id="2329", gpu_name="NVIDIA H20", roce=True, driver="550.127.08",
        cpus=("0-47,96-143", "48-95,144-191"), allowed_cpus="0-191", platform=platform, shm_gib=900,
        default_route="bond0", env={"NCCL_IB_QPS_PER_CONNECTION": "4"}, nccl_conf="NCCL_IB_HCA=^=mlx5_bond_0\n",
    )  # fmt: skip


def h100_two_ports(name: str = TWO_PORTS) -> Machine:
    """Describe a healthy node: both 200 Gb/s ports of the card beside each GPU, traffic class 41 on priority 5."""
    numbers = (0, 3, 5, 7, 9, 12, 14, 16)
    gpus, nics = list[Gpu](), list[Nic]()
    for index, first in enumerate(numbers):
        root = 0x08 + 0x1C * index
        gpus.append(Gpu(root + 3, index // 4, above=switch(root, 0)))
        nics += [
            Nic(
                f"mlx5_{first + port}", root + 6, port, index // 4, gpu=index, rate="200 Gb/sec (2X NDR)", gbps=150.0,
                above=switch(root, 1), interface=f"rdma{2 * index + port}", netdev_mtu=4220, pfc=(5,),
                qos=Queues(traffic_class=None, dscp_priority=((10, 5),)), traffic_priority=5,
            )
            for port in (0, 1)
        ]  # fmt: skip
    for device, bus, ip in (("mlx5_2", 0x03, "192.0.2.99/26"), ("mlx5_11", 0xF1, "")):
        nics.append(Nic(device, bus, numa=int(bus > 0x80), rate="100 Gb/sec (2X HDR)", ip=ip, pfc=(), ecn=False,
                        above=(f"0000:{bus - 1:02x}:01.0",), interface=f"eth{device[5:]}",
                        model=CONNECTX_6_DX))  # fmt: skip
    nics.sort(key=lambda nic: int(nic.device.split("_")[1]))
    platform = Platform(
        origin="OCI's BM.GPU.H100.8 after its published shape and launch scripts", kernel="5.15.0-1074-oracle",
        boot_options="BOOT_IMAGE=/boot/vmlinuz-5.15.0-1074-oracle root=UUID=1f0e8d2c ro intel_iommu=off",
    )  # fmt: skip
    compute = ",".join(nic.device for nic in nics if nic.gpu is not None)
    return Machine(
        name, tuple(gpus), tuple(nics), roce=True, driver="550.90.12", platform=platform, iommu="",
        default_route="eth2", env={"NCCL_IB_HCA": f"={compute}", "NCCL_IB_TC": "41",
                                   "NCCL_IB_QPS_PER_CONNECTION": "4"},
    )  # fmt: skip


def gh200(name: str = GRACE) -> Machine:
    """Describe a healthy node: one GPU, one NIC, NODE between them by design."""
    ports = (("0009:00:00.0", "10DE:22B1"), ("0000:00:00.0", "10DE:22B2"))
    platform = Platform(
        origin="public outputs of `nvidia-smi topo -m` on GH200 servers", architecture="aarch64",
        kernel="6.8.0-1021-nvidia-64k", gpu=GH200, libraries="/usr/lib/aarch64-linux-gnu",
        boot_options="BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 iommu.passthrough=1 init_on_alloc=0",
        functions=tuple(InstalledFunction(address, "60400", ids, "pcieport") for address, ids in ports),
        gpu_xml={"addressing_mode": "ATS", "c2c_mode": "Enabled"},
    )  # fmt: skip
    gpu = Gpu(0x01, 0, domain=9, above=("0009:00:00.0",), memory_node=1, numa_affinity="0")
    nic = Nic("mlx5_0", 0x01, above=("0000:00:00.0",), interface="ibp1s0", gbps=300.0)
    return Machine(
        name, (gpu,), (nic,), gpu_id="2342", gpu_name="NVIDIA GH200 120GB", nvswitches=(), nvlinks=0, platform=platform,
        every_path="NODE", cpus=("0-71", *("",) * 8), allowed_cpus="0-71", memory_nodes="0-8", peer_modules=(),
        shm_gib=240,
    )  # fmt: skip


def _site(name: str, counts: str, ports: str, qos: str = "", *, share: int) -> str:
    table = f"\n[class.unusual.qos]\nlossless = true\necn = true\n{qos}" if qos else ""
    return f"""# A site of such nodes; made by hand.
[class.unusual]
nodes = "{name}"
{counts}
[class.unusual.ports]
{ports}{table}
[class.unusual.checkpoint]
path = "/shared/checkpoints"
interval_min = 30

[class.unusual.thresholds]
nic_gbps_per_gpu = {share}
"""


NODES = {
    SHARED: (h20_shared_nics, _site(SHARED, "gpus = 8\nhcas = 4\n", """compute = "mlx5_bond_[1-4]"
management = "mlx5_bond_0"
link_layer = "Ethernet"
load_balancing = "hash"
rate_gbps = 400
mtu = 4096
netdev_mtu = 9000
""", "pfc_priority = 3\n", share=200)),
    TWO_PORTS: (h100_two_ports, _site(TWO_PORTS, "gpus = 8\nhcas = 16\n", """compute = "mlx5_[0-1,3-10,12-17]"
management = "mlx5_[2,11]"
link_layer = "Ethernet"
load_balancing = "hash"
rate_gbps = 200
mtu = 4096
netdev_mtu = 4220
""", "pfc_priority = 5\ntraffic_class = 41\n", share=400)),
    GRACE: (gh200, _site(GRACE, "gpus = 1\nhcas = 1\n", """link_layer = "InfiniBand"
rate_gbps = 400
mtu = 4096
""", share=400)),
}  # fmt: skip
