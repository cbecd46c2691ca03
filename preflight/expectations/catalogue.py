"""The built-in catalogue of GPU models and systems; each entry has a source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from preflight.facts.pci import PciDevice

#: PCI device IDs of NVSwitches (pci.ids). Blackwell's switches are not on the PCI bus.
NVSWITCH_IDS = frozenset({"1ac1", "1ac2", "1af1", "22a3"})

#: Number of GPUs of the boards with an NVLink mesh of unequal pairs (DGX-1, HGX-1). A virtual machine may have fewer.
MESH = 8


@dataclass(frozen=True)
class GpuModel:
    """A GPU model, recognised by its PCI device ID even without a working driver."""

    name: str
    device_ids: frozenset[str]  # PCI device IDs of vendor 10de
    nvlinks: int  # NVLinks per GPU; 0 if NVLink is an optional bridge or absent
    nvlink_gbytes_s: float  # GB/s per GPU and direction, over all links
    source: str
    sxm: bool = True  # whether it is on an NVLink baseboard instead of a PCIe card
    generation: str = ""
    sizes_gib: tuple[tuple[str, int], ...] = ()  # device ID -> memory of the product in GiB
    cuda_cores: int | None = None  # of the smallest product with these IDs

    @property
    def link_gbytes_s(self) -> float:
        """The nominal rate of one NVLink, GB/s per direction; 0 without NVLinks."""
        return self.nvlink_gbytes_s / self.nvlinks if self.nvlinks else 0

    @property
    def reports_fabric_state(self) -> bool:
        """Whether the driver reports the NVLink fabric's state.

        It does so for Hopper and newer GPUs on a baseboard.
        """
        return self.sxm and self.generation in ("Hopper", "Blackwell")

    def memory_gib(self, device_id: str) -> int | None:
        """Return the memory in GiB of products with a device ID; None if unknown."""
        return dict(self.sizes_gib).get(device_id)


def _model(
    name: str,
    generation: str,
    sizes: dict[str, int | None],
    source: str,
    links: int = 0,
    link_rate: float = 0,
    cores: int | None = None,
) -> GpuModel:
    """Return a GPU model.

    ``sizes`` maps its PCI device IDs (pci.ids) to the memory in GiB. A model with NVLinks is an SXM part.
    """
    known = tuple((device, size) for device, size in sizes.items() if size is not None)
    ids = frozenset(sizes)
    return GpuModel(name, ids, links, links * link_rate, source, links > 0, generation, known, cores)


GPUS = (
    _model("V100 SXM", "Volta", {"1db1": 16, "1db5": 32, "1db8": 32}, "NVIDIA V100 datasheet", 6, 25, 5120),
    _model("V100 PCIe", "Volta", {"1db4": 16, "1db6": 32, "1df6": 32}, "NVIDIA V100 datasheet", cores=5120),
    _model("T4", "Turing", {"1eb8": 16}, "NVIDIA T4 datasheet", cores=2560),
    _model("A100 SXM", "Ampere", {"20b0": 40, "20b2": 80, "20b3": 64}, "NVIDIA A100 whitepaper", 12, 25, 6912),
    _model("A100 PCIe", "Ampere", {"20b1": 40, "20b5": 80, "20f1": 40}, "NVIDIA A100 whitepaper", cores=6912),
    _model("A800 SXM", "Ampere", {"20f3": 80}, "public captures of `nvidia-smi topo -m` (NV8)", 8, 25, 6912),
    _model("A800 PCIe", "Ampere", {"20f5": 80, "20f6": 40}, "pci.ids", cores=6912),
    _model("A30", "Ampere", {"20b7": 24}, "NVIDIA A30 datasheet", cores=3584),
    _model("A40", "Ampere", {"2235": 48}, "NVIDIA A40 datasheet", cores=10752),
    _model("A10", "Ampere", {"2236": 24}, "NVIDIA A10 datasheet", cores=9216),
    _model("L4", "Ada Lovelace", {"27b8": 24}, "NVIDIA L4 datasheet"),
    _model("L40", "Ada Lovelace", {"26b5": 48}, "NVIDIA L40 datasheet", cores=18176),
    _model("L40S", "Ada Lovelace", {"26b9": 48}, "NVIDIA L40S datasheet", cores=18176),
    _model("H100 SXM", "Hopper", {"2330": 80}, "NVIDIA H100 whitepaper", 18, 25, 16896),
    _model("H100 PCIe", "Hopper", {"2331": 80}, "NVIDIA H100 whitepaper", cores=14592),
    _model("H100 NVL", "Hopper", {"2321": 94}, "NVIDIA H100 datasheet"),
    _model("H800 SXM", "Hopper", {"2324": 80}, "public captures of `nvidia-smi topo -m` (NV8)", 8, 25),
    _model("H800 PCIe", "Hopper", {"2322": 80}, "pci.ids"),
    _model("H20", "Hopper", {"2329": 96}, "pci.ids; NV18 in public captures", 18, 25),
    _model("H200 SXM", "Hopper", {"2335": 141}, "NVIDIA H200 datasheet", 18, 25, 16896),
    _model("H200 NVL", "Hopper", {"233b": 141}, "NVIDIA H200 datasheet"),
    _model("GH200", "Hopper", {"2342": 96, "2348": 144}, "NVIDIA GH200 datasheet"),
    _model("B200 SXM", "Blackwell", {"2901": 180, "2909": None}, "NVIDIA DGX B200 datasheet", 18, 50),
    _model("B300 SXM", "Blackwell", {"3182": None}, "NVIDIA DGX B300 datasheet", 18, 50),
    _model("GB200", "Blackwell", {"2941": 186}, "NVIDIA GB200 NVL72 datasheet", 18, 50),
    _model("GB300", "Blackwell", {"31c2": None, "31c3": None}, "NVIDIA GB300 NVL72 datasheet", 18, 50),
)


@dataclass(frozen=True)
class Part:
    """A system or baseboard: its GPU model, number of GPUs and wiring."""

    name: str
    gpu: GpuModel
    gpus: int | None  # number of GPUs on the board; None for GPUs that are sold individually
    nvswitch: bool  # whether NVSwitches connect every GPU with every other
    nic_on_cpu: bool  # Grace: NICs are attached to the CPU, so PHB, NODE and SYS paths are by design
    compute_rate_gbps: float | None  # usual rate of a compute-fabric port, Gb/s
    all_reduce_gbytes_s: float | None  # operators' minimum busbw on one node from 1 GiB on, GB/s
    source: str

    @property
    def nvlink_domain(self) -> int | None:
        """The number of GPUs that NVSwitches connect: the board's, or 72 in an NVL72 rack.

        It is None without NVSwitches.
        """
        if not self.nvswitch:
            return None
        return 72 if self.nic_on_cpu else self.gpus

    @property
    def switches_on_bus(self) -> int:
        """The number of NVSwitches on the PCI bus; 0 if they are not on it."""
        on_bus = {"Ampere": 6, "Hopper": 4}  # HGX A100; HGX H100, H200
        return on_bus.get(self.gpu.generation, 0) if self.nvswitch and not self.nic_on_cpu else 0

    @property
    def switches_behind_nics(self) -> bool:
        """Whether the NVSwitches are behind ConnectX bridges, as on HGX B200 and B300."""
        return self.nvswitch and not self.nic_on_cpu and self.gpu.generation == "Blackwell"


def _gpu(name: str) -> GpuModel:
    return next(gpu for gpu in GPUS if gpu.name == name)


PARTS = (
    Part("HGX A100", _gpu("A100 SXM"), 8, True, False, 200, 185,
         "DGX A100 user guide; busbw: OCI active_healthcheck.py"),
    Part("HGX H100", _gpu("H100 SXM"), 8, True, False, 400, 440,
         "DGX H100 user guide; busbw: OCI active_healthcheck.py"),
    Part("HGX H200", _gpu("H200 SXM"), 8, True, False, 400, 431,
         "DGX H200 user guide; busbw: Azure NHC nd96isr_h200_v5.conf"),
    Part("HGX B200", _gpu("B200 SXM"), 8, True, False, 400, 440,
         "DGX B200 user guide; busbw: OCI active_healthcheck.py"),
    Part("HGX B300", _gpu("B300 SXM"), 8, True, False, 800, None, "DGX B300 user guide"),
    Part("GB200 tray", _gpu("GB200"), 4, True, True, 400, None, "DGX GB200 user guide"),
    Part("GB300 tray", _gpu("GB300"), 4, True, True, 800, None, "DGX GB300 user guide"),
    Part("GH200", _gpu("GH200"), None, False, True, None, None, "NVIDIA GH200 datasheet"),
    Part("HGX A800", _gpu("A800 SXM"), 8, True, False, None, None, "public captures of `nvidia-smi topo -m` (NV8)"),
    Part("HGX H800", _gpu("H800 SXM"), 8, True, False, None, None, "public captures of `nvidia-smi topo -m` (NV8)"),
    Part("HGX H20", _gpu("H20"), 8, True, False, None, None, "public captures of `nvidia-smi topo -m` (NV18)"),
    Part("4x H100 SXM", _gpu("H100 SXM"), 4, False, False, None, None, "HGX H100 4-GPU datasheet"),
    Part("4x A100 SXM", _gpu("A100 SXM"), 4, False, False, None, None, "HGX A100 4-GPU datasheet"),
    Part("L40S PCIe", _gpu("L40S"), None, False, False, None, None, "NVIDIA L40S datasheet"),
    Part("H100 PCIe", _gpu("H100 PCIe"), None, False, False, None, None, "NVIDIA H100 whitepaper"),
    Part("A100 PCIe", _gpu("A100 PCIe"), None, False, False, None, None, "NVIDIA A100 whitepaper"),
    *(
        Part(name, _gpu(name), None, False, False, None, None, _gpu(name).source)
        for name in (
            "V100 PCIe", "T4", "A800 PCIe", "A30", "A40", "A10", "L4", "L40", "H100 NVL", "H800 PCIe", "H200 NVL",
        )
    ),
)  # fmt: skip

#: DMI product names of servers and instance types that are sold only with GPUs: NVIDIA DGX, Dell, Supermicro with an
#: HGX board, HPE, Lenovo, AWS. Models that may lack GPUs, such as PowerEdge R750xa or SYS-420GP-TNR, are not included.
_GPU_SERVER = re.compile(
    r"(?:NVIDIA )?DGX(?!\w*[a-z]).*"
    r"|PowerEdge XE(?:8545|8640|9640|9680L?)"
    r"|(?:SYS|AS) ?-\w{3,5}G[EOPSQ]-(?:TNHR|TNAR|NART|NBRT)\b.*"
    r"|(?:HPE )?Cray XD670"
    r"|ThinkSystem SR(?:680a|685a|780a)\b.*"
    r"|(?:p[2-6][a-z]*(?:-[a-z]+\d+)?|g4dn|g5g?|g6e?)\.(?:metal|\d*xlarge)"
)

#: PCI classes of other vendors' accelerators, such as AMD Instinct and Intel Gaudi: the upper byte of the class of
#: accelerators, and classes of display controllers without a screen.
_ACCELERATOR, _DISPLAYS = 0x12, (0x0302, 0x0380)


def is_gpu_server(product: str, bus: Sequence[PciDevice]) -> bool:
    """Return whether a server, by its DMI product name, is sold only with NVIDIA GPUs.

    Some models are also sold with accelerators of other vendors. The result is False if the PCI bus has one.
    """
    if not _GPU_SERVER.fullmatch(product.strip()):
        return False
    return not any(
        device.vendor != "10de" and (device.class_code >> 16 == _ACCELERATOR or device.class_code >> 8 in _DISPLAYS)
        for device in bus
    )


def gpu_model(device: PciDevice) -> GpuModel | None:
    """Return the GPU model of a PCI function; None if it is not in the catalogue."""
    return next((gpu for gpu in GPUS if device.vendor == "10de" and device.device in gpu.device_ids), None)


def part_by_name(name: str) -> Part | None:
    """Return the part with a name; None if it is not in the catalogue."""
    return next((part for part in PARTS if part.name == name), None)


def recognise(bus: Sequence[PciDevice]) -> Part | None:
    """Return the part that has a node's PCI functions; None if not in the catalogue."""
    models = {gpu_model(device) for device in bus if device.is_gpu}
    if len(models) != 1 or (model := models.pop()) is None:
        return None
    count = sum(device.is_gpu for device in bus)
    switches = any(device.vendor == "10de" and device.device in NVSWITCH_IDS for device in bus)
    for part in PARTS:
        if part.gpu is not model:
            continue
        if part.gpus is None or part.nic_on_cpu:
            return part
        if part.nvswitch and (switches or count > 4):
            return part
        if not part.nvswitch and count == part.gpus:
            return part
    return None
