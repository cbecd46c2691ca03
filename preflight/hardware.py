"""Catalogue of parts: what the recognised hardware is built with, each number with its source.

The second source of expectations, after the cluster file. An unrecognised machine is *unknown*,
never "nothing to check": checks that need a number from here say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.facts.pci import PciDevice

#: Device ids of NVSwitch bridges on the PCI bus (pci.ids); Blackwell's switches do not appear there.
NVSWITCH_IDS = frozenset({"1ac1", "1ac2", "1af1", "22a3"})

_PCI_IDS = "https://pci-ids.ucw.cz"


@dataclass(frozen=True)
class Gpu:
    """A GPU model, recognised by its PCI device id even when the driver is dead."""

    name: str
    device_ids: frozenset[str]  # PCI device ids under vendor 10de
    nvlinks: int  # NVLink links per GPU; 0 where NVLink is an optional bridge or absent
    nvlink_gbytes_s: float  # GB/s per direction and GPU, all links together
    source: str
    sxm: bool = True  # on an NVLink baseboard, not a PCIe card


GPUS = (
    Gpu("A100 SXM", frozenset({"20b0", "20b2", "20b3"}), 12, 300, "NVIDIA A100 whitepaper"),
    Gpu("A100 PCIe", frozenset({"20b5", "20f1"}), 0, 0, "NVIDIA A100 whitepaper", sxm=False),
    Gpu("H100 SXM", frozenset({"2330"}), 18, 450, "NVIDIA H100 whitepaper"),
    Gpu("H100 PCIe", frozenset({"2331"}), 0, 0, "NVIDIA H100 whitepaper", sxm=False),
    Gpu("H200 SXM", frozenset({"2335"}), 18, 450, "NVIDIA H200 datasheet"),
    Gpu("B200 SXM", frozenset({"2901"}), 18, 900, "NVIDIA DGX B200 datasheet"),
    Gpu("GB200", frozenset({"2941"}), 18, 900, "NVIDIA GB200 NVL72 datasheet"),
    Gpu("L40S", frozenset({"26b9"}), 0, 0, "NVIDIA L40S datasheet", sxm=False),
)


@dataclass(frozen=True)
class Part:
    """A system or baseboard: a GPU model in a certain number, wired in a certain way."""

    name: str
    gpu: Gpu
    gpus: int | None  # how many the board carries; None where the card is sold singly
    nvswitch: bool  # every GPU reaches every other over NVLink
    nic_on_cpu: bool  # Grace: the NIC hangs on the CPU, so PHB/NODE/SYS to it is by design
    compute_rate_gbps: float | None  # customary rate of a compute-fabric port, Gb/s
    all_reduce_gbytes_s: float | None  # operators' floor of busbw, one node, >= 1 GiB, GB/s
    source: str


def _gpu(name: str) -> Gpu:
    return next(gpu for gpu in GPUS if gpu.name == name)


PARTS = (
    Part("DGX A100", _gpu("A100 SXM"), 8, True, False, 200, 185,
         "DGX A100 user guide; busbw: OCI active_healthcheck.py"),
    Part("HGX H100", _gpu("H100 SXM"), 8, True, False, 400, 440,
         "DGX H100 user guide; busbw: OCI active_healthcheck.py"),
    Part("HGX H200", _gpu("H200 SXM"), 8, True, False, 400, 431,
         "DGX H200 user guide; busbw: Azure NHC nd96isr_h200_v5.conf"),
    Part("HGX B200", _gpu("B200 SXM"), 8, True, False, 400, 440,
         "DGX B200 user guide; busbw: OCI active_healthcheck.py"),
    Part("GB200 tray", _gpu("GB200"), 4, True, True, 400, None, "DGX GB200 user guide"),
    Part("4x H100 SXM", _gpu("H100 SXM"), 4, False, False, None, None, "HGX H100 4-GPU datasheet"),
    Part("4x A100 SXM", _gpu("A100 SXM"), 4, False, False, None, None, "HGX A100 4-GPU datasheet"),
    Part("L40S PCIe", _gpu("L40S"), None, False, False, None, None, "NVIDIA L40S datasheet"),
    Part("H100 PCIe", _gpu("H100 PCIe"), None, False, False, None, None, "NVIDIA H100 whitepaper"),
    Part("A100 PCIe", _gpu("A100 PCIe"), None, False, False, None, None, "NVIDIA A100 whitepaper"),
)  # fmt: skip


def gpu_model(device: PciDevice) -> Gpu | None:
    """Return the catalogue's GPU for a PCI function, or None if it is not in the catalogue."""
    return next((gpu for gpu in GPUS if device.vendor == "10de" and device.device in gpu.device_ids), None)


def part_by_name(name: str) -> Part | None:
    """Return the part that the cluster file names."""
    return next((part for part in PARTS if part.name == name), None)


def recognise(bus: Sequence[PciDevice]) -> Part | None:
    """Recognise the part from a node's PCI functions; None if it is not in the catalogue.

    An eight-GPU baseboard is recognised by its NVSwitches or by more than four SXM GPUs, so that
    one which lost a GPU still counts as eight. A virtual machine may be given one to four GPUs of
    such a board: without NVSwitches in sight that is not recognised as a board that lost some.
    """
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
