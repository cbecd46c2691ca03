"""The PCI bus from sysfs, which works even if a driver is dead.

Sources: ``/sys/bus/pci/devices`` (links into the device tree) and each function's ``uevent``,
``numa_node`` and ``local_cpulist`` (Documentation/ABI/testing/sysfs-bus-pci).
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.textprep.plain_text import id_list, integer

ROOT = "/sys/bus/pci/devices"

#: SR-IOV virtual functions of RDMA NICs, vendor 15b3 (pci.ids): ConnectX-2 to -8, Connect-IB, BlueField.
_VIRTUAL_FUNCTIONS = frozenset(
    {"1002", "1004", "1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3"},
)

#: ASICs of Ethernet switches, vendor 15b3 (drivers/net/ethernet/mellanox/mlxsw/pci.h); they are not NICs.
SWITCH_ASICS = {"cb84": "Spectrum", "cf6c": "Spectrum-2", "cf70": "Spectrum-3", "cf80": "Spectrum-4"}

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


def address(text: str) -> str:
    """Return a PCI address in the kernel's form, ``0000:1b:00.0``.

    nvidia-smi and NVML print an 8-digit domain in upper case for the same function. Raises ValueError.
    """
    if not (match := _ADDRESS.fullmatch(text.strip())):
        raise ValueError(f"{text.strip()[:60]!r} is not a PCI address")
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}".lower()


@dataclass(frozen=True)
class PciDevice:
    """One PCI function."""

    address: str  # domain:bus:device.function, lower case
    class_code: int  # uevent PCI_CLASS, 24 bits: 0x030200 is a 3D controller
    vendor: str  # uevent PCI_ID, first half, lower-case hex
    device: str  # uevent PCI_ID, second half
    driver: str  # uevent DRIVER; empty when no driver is bound
    numa_node: int | None  # numa_node; None if the kernel has -1 (unknown)
    local_cpus: frozenset[int] | None  # local_cpulist; None if not read
    parents: tuple[str, ...]  # bridges and switch ports above it, root port first

    @property
    def is_gpu(self) -> bool:
        """Whether this is an NVIDIA GPU (class 0302 or 0300)."""
        return self.vendor == "10de" and self.class_code >> 8 in (0x0302, 0x0300)

    @property
    def is_rdma_nic(self) -> bool:
        """Whether this is a NIC that should be an RDMA device: Mellanox/NVIDIA or EFA.

        InfiniBand controllers have class 0207, Ethernet ones 0200; DPU control functions and NVMe emulation have other
        classes and are not HCAs.
        """
        if self.vendor == "15b3":
            return self.class_code >> 8 in (0x0207, 0x0200) and not self.is_switch_asic
        return self.vendor == "1d0f" and self.device.startswith("efa")

    @property
    def is_switch_asic(self) -> bool:
        """Whether this is the ASIC of an Ethernet switch, as its control CPU sees it."""
        return self.vendor == "15b3" and self.device in SWITCH_ASICS

    @property
    def is_virtual_function(self) -> bool:
        """Whether this is a virtual function of a NIC (SR-IOV), assigned by the host.

        Link, read request size and ordering belong to the physical function; the SR-IOV specification reserves the
        values of virtual functions, which read as zero.
        """
        return self.vendor == "15b3" and self.device in _VIRTUAL_FUNCTIONS


def bus(evidence: Evidence) -> tuple[PciDevice, ...]:
    """Return all PCI functions, sorted by address.

    Raises EvidenceError if the bus was not read.
    """
    listing = evidence.listing(f"dir:{ROOT}")
    devices = []
    for name in sorted(listing):
        if not _ADDRESS.fullmatch(name):
            raise EvidenceError(f"dir:{ROOT}", f"the entry {name[:60]!r} is not a PCI address")
        target = listing[name].get("target", "")
        devices.append(_device(evidence, name, target if isinstance(target, str) else ""))
    return tuple(devices)


def _device(evidence: Evidence, name: str, target: str) -> PciDevice:
    key = f"file:{ROOT}/{name}/uevent"
    values = dict(line.split("=", 1) for line in evidence.text(key).splitlines() if "=" in line)
    try:
        vendor, device = values["PCI_ID"].lower().split(":")
        class_code = int(values["PCI_CLASS"], 16)
    except (KeyError, ValueError):
        raise EvidenceError(key, "has no PCI_ID and PCI_CLASS") from None
    parents = [part for part in target.split("/")[:-1] if _ADDRESS.fullmatch(part)]
    return PciDevice(
        address=name,
        class_code=class_code,
        vendor=vendor,
        device=device,
        driver=values.get("DRIVER", ""),
        numa_node=_numa_node(evidence, name),
        local_cpus=_local_cpus(evidence, name),
        parents=tuple(parents),
    )


def _numa_node(evidence: Evidence, name: str) -> int | None:
    try:
        node = integer(evidence.text(f"file:{ROOT}/{name}/numa_node"), "numa_node")
    except (EvidenceError, ValueError):
        return None
    return node if node >= 0 else None


def _local_cpus(evidence: Evidence, name: str) -> frozenset[int] | None:
    try:
        return id_list(evidence.text(f"file:{ROOT}/{name}/local_cpulist"), "local_cpulist")
    except (EvidenceError, ValueError):
        return None
