"""Common properties of a family of nodes: processor, kernel, other PCI functions, an idle GPU.

A node type is data: a :class:`Platform`, and the GPUs and NICs of a :class:`~tests.support.machines.machine.Machine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.facts.nvidia.model import GpuFabric, GpuHealth

#: Cluster UUID of a fabric limited to its node.
ONE_NODE = "00000000-0000-0000-0000-000000000000"

#: An idle H100 SXM, as driver 570 shows it.
H100 = GpuHealth(
    index=0, address="", uuid="", name="NVIDIA H100 80GB HBM3", memory_total_mib=81559, memory_reserved_mib=551,
    memory_used_mib=4, bar1_total_mib=131072, persistence=True, mig=False, mig_pending=False, ecc=True,
    ecc_pending=True, ecc_volatile_sram_corrected=0, ecc_volatile_sram_uncorrected=0,
    ecc_volatile_dram_corrected=0, ecc_volatile_dram_uncorrected=0, ecc_aggregate_sram_corrected=0,
    ecc_aggregate_sram_uncorrected=0, ecc_aggregate_dram_corrected=0, ecc_aggregate_dram_uncorrected=0,
    sram_threshold_exceeded=False, remapped_corrected=0, remapped_uncorrected=0, remap_pending=False,
    remap_failure=False, remap_banks=(2560, 0, 0, 0, 0), event_reasons=0x01, power_limit_w=700.0,
    power_enforced_w=700.0, power_default_w=700.0, temperature_c=31, temperature_margin_c=56, pcie_generation=5,
    pcie_generation_max=5, pcie_width=16, pcie_width_max=16, performance_state=0, compute_mode="Default",
    recovery_action="None",
    fabric=GpuFabric("Completed", "Success", (), 0, ONE_NODE), vbios="96.00.74.00.01",
    inforom="G520.0200.00.05", gsp="570.124.06", utilisation_pct=0, memory_utilisation_pct=0, sm_clock_mhz=1980,
    sm_clock_max_mhz=1980, processes=(), cuda_cores=16896, links=(True,) * 18, link_gbytes_s=26.562,
)  # fmt: skip


@dataclass(frozen=True)
class InstalledFunction:
    """A PCI function that is neither GPU nor NIC: a host bridge, a root port."""

    address: str
    kind: str  # uevent PCI_CLASS, as the kernel prints it
    ids: str  # uevent PCI_ID
    driver: str = ""
    numa: int = 0


@dataclass(frozen=True)
class NicModel:
    """An RDMA adapter: its names in tools, and the slot for which it is built."""

    pci_id: str  # uevent PCI_ID
    hca_type: str
    part_id: int  # vendor_part_id of ibv_devinfo: the PCI device id, decimal
    firmware: str
    board_id: str  # PSID
    link_speed: str = "32.0 GT/s PCIe"
    lanes: int = 16
    driver: str = "mlx5_core"


CONNECTX_7 = NicModel("15B3:1021", "MT4129", 4129, "28.43.2026", "MT_0000000838")
BLUEFIELD_3 = NicModel("15B3:A2DC", "MT41692", 41692, "32.43.2026", "MT_0000000884")


@dataclass(frozen=True)
class Platform:
    """Processor, kernel and driver texts of a family of nodes; the default is a DGX H100's."""

    origin: str = "wiring after the DGX H100 user guide"
    architecture: str = "x86_64"
    kernel: str = "5.15.0-1063-nvidia"
    boot_options: str = "BOOT_IMAGE=/boot/vmlinuz-5.15.0-1063 root=/dev/md0 iommu=pt"
    functions: tuple[InstalledFunction, ...] = (InstalledFunction("0000:00:00.0", "60000", "8086:09A2"),)
    cuda: str = "12.8"
    gpu: GpuHealth = H100
    gpu_architecture: str = "Hopper"
    gpu_xml: Mapping[str, str] = field(default_factory=dict)  # further elements of nvidia-smi -q -x
    libraries: str = "/usr/lib/x86_64-linux-gnu"
    modules: tuple[str, ...] = ()  # in addition to those of every node
    nvswitch_id: str = "22A3"  # PCI device id
    nvswitch_numa: int = 0
    vmbus: str = ""  # directory below /sys/devices of the root buses for passed-through devices, one for each
