"""A cloud's virtual machine with a complete A100 board: eight GPUs, six NVSwitches, eight virtual HDR NICs.

The shape is that of Azure's ND A100 v4: the hypervisor passes each device through in a separate PCI domain, so no
bridge or switch is visible and the matrix shows NODE or SYS between every GPU and NIC. Domains, NUMA nodes (GPU pairs
on 1, 0, 3, 2) and which NIC is near which GPU (which only the topology file gives) follow ndv4-topo.xml of
Azure/azhpc-images; names and firmware of the virtual functions follow public outputs of lspci and ibv_devinfo.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.machines.a100 import A100
from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.platform import NicModel, Platform

NAME = "cloud-vm"

TOPOLOGY = "/opt/microsoft/ndv4-topo.xml"

A100_40GB = replace(
    A100, name="NVIDIA A100-SXM4-40GB", memory_total_mib=40960, memory_reserved_mib=622, bar1_total_mib=65536,
    vbios="92.00.19.00.10", inforom="G506.0200.00.04",
)  # fmt: skip

#: Virtual functions: ConnectX-6, and the ConnectX-4 Lx behind the accelerated network interface.
HDR_VF = NicModel("15B3:101C", "MT4124", 4124, "20.31.1014", "MT_0000000223", "16.0 GT/s PCIe")
ETHERNET_VF = NicModel("15B3:1016", "MT4118", 4118, "14.30.1284", "MSF0010110035", "8.0 GT/s PCIe", lanes=8)

PLATFORM = Platform(
    origin="shape of Azure's ND A100 v4 after its published topology file and public outputs of lspci",
    kernel="5.15.0-1071-azure",
    boot_options="BOOT_IMAGE=/boot/vmlinuz-5.15.0-1071-azure root=PARTUUID=1f0e8d2c ro console=tty1 console=ttyS0"
    " earlyprintk=ttyS0 panic=-1",
    functions=(),
    cuda="12.4",
    gpu=A100_40GB,
    gpu_architecture="Ampere",
    modules=("hv_vmbus", "hv_netvsc", "pci_hyperv"),
    nvswitch_id="1AF1",
    vmbus="LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0000-3130-444532304235",
)

#: PCI domain and NUMA node of each GPU; those of its NIC in the topology file.
GPUS = ((1, 1), (2, 1), (3, 0), (4, 0), (0xB, 3), (0xC, 3), (0xD, 2), (0xE, 2))
NICS = ((0x101, 1), (0x102, 1), (0x103, 0), (0x104, 0), (0x105, 3), (0x106, 3), (0x107, 2), (0x108, 2))

CLUSTER = f"""# A site of cloud virtual machines with eight A100 each; made by hand.
[cluster]
name = "cloud-example"

[class.ndv4]
nodes = "{NAME}"
gpus = 8
hcas = 8

[class.ndv4.ports]
compute = "mlx5_ib[0-7]"
management = "mlx5_an0"
link_layer = "InfiniBand"
rate_gbps = 200
mtu = 4096

[class.ndv4.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
"""


def cloud_vm(name: str = NAME) -> Machine:
    """Describe a healthy virtual machine with the provider's settings for NCCL in place."""
    nics = [
        Nic(
            f"mlx5_ib{number}", 0, numa=numa, domain=domain, rate="200 Gb/sec (4X HDR)", model=HDR_VF, lanes=0,
            max_read_request=128, relaxed_ordering=False, interface=f"ib{number}",
            guid=f"0015:5dff:fe33:ff{number:02x}", gbps=150.0,
        )
        for number, (domain, numa) in enumerate(NICS)
    ]  # fmt: skip
    accelerated = Nic(
        "mlx5_an0", 0, numa=0, domain=0xCC4C, slot=2, rate="40 Gb/sec (4X QDR)", model=ETHERNET_VF, lanes=0,
        max_read_request=128, relaxed_ordering=False, layer="Ethernet", interface="enP52300s1", netdev_mtu=1500,
        ip="", pfc=(), ecn=False, guid="000d:3aff:fe72:a6b3",
    )  # fmt: skip
    return Machine(
        name, tuple(Gpu(0, numa, domain=domain) for domain, numa in GPUS), (accelerated, *nics), gpu_id="20B0",
        gpu_name="NVIDIA A100-SXM4-40GB", nvlinks=12, nvswitches=tuple(domain << 8 for domain in range(5, 11)),
        cpus=("0-23", "24-47", "48-71", "72-95"), allowed_cpus="0-95", memory_nodes="0-3", driver="550.54.15",
        open_driver=False, where="vm", iommu="", governor="", without_modules=("ipmi_si",), shm_gib=442,
        management="eth0", default_route="eth0", platform=PLATFORM,
        env={"NCCL_TOPO_FILE": TOPOLOGY, "NCCL_IB_PCI_RELAXED_ORDERING": "1"},
        nccl_conf="NCCL_IB_HCA=^=mlx5_an0\n",
    )  # fmt: skip


NODES = {NAME: (cloud_vm, CLUSTER)}
