"""Pairs of GPU and NIC: distance, and the bridges between them.

Distance comes from ``nvidia-smi topo -m``, else from the PCI tree in sysfs. The bridges of a path, needed for ACS,
always come from the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from preflight import parsers
from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pci import PciDevice
from preflight.facts.rdma_ports import device_path, natural

if TYPE_CHECKING:
    from preflight.facts.nvidia.query import Driver
    from preflight.parsers.nvidia.topology import Topology

#: Distance codes at which NCCL uses GPUDirect RDMA by default (NCCL_NET_GDR_LEVEL=PXB).
NEAR = ("PIX", "PXB")


@dataclass(frozen=True)
class GpuNicPair:
    """A GPU and its nearest compute NIC."""

    gpu: str  # GPU0 as in the matrix, else its PCI address
    nic: str  # RDMA device
    code: str  # PIX … SYS
    bridges: tuple[str, ...]  # PCI addresses of the bridges on the path below the common one; empty if unknown
    same_node: bool | None  # whether both are on one NUMA node; None: unknown
    evidence: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Display name of the pair."""
        return f"{self.gpu}-{self.nic}"

    @property
    def near(self) -> bool:
        """Whether the path stays below a PCIe host bridge."""
        return self.code in NEAR


def nic_functions(evidence: Evidence, bus: Collection[PciDevice], devices: Collection[str]) -> dict[str, PciDevice]:
    """Return RDMA device -> PCI function; raises EvidenceError.

    Devices without a function are left out.
    """
    by_address = {function.address: function for function in bus}
    found = {}
    for device in devices:
        path = device_path(evidence, device)
        if path and path[-1] in by_address:
            found[device] = by_address[path[-1]]
    return found


def pairs(
    gpus: Mapping[str, PciDevice],
    nics: Mapping[str, PciDevice],
    topology: Topology | None,
    evidence: tuple[str, ...],
) -> tuple[GpuNicPair, ...]:
    """Pair each GPU with its nearest NIC.

    The best code takes precedence, then the NUMA node, then the nearest bus number. On Grace every code is the same,
    and domain numbers do not show which NIC is on which processor. Behind one PCIe switch NCCL uses every NIC: a NIC
    that is nearest to no GPU is paired with the first GPU it is equally near to.
    """
    found, equals = list[GpuNicPair](), dict[str, GpuNicPair]()
    for gpu, function in gpus.items():
        row = topology.links.get(gpu, {}) if topology else {}
        codes = {nic: row.get(nic) or _code(function, device) for nic, device in nics.items()}
        if codes:
            best = min(
                codes,
                key=lambda nic: (
                    parsers.nvidia.topology.RANK.get(codes[nic], 99),
                    *_far(function, nics[nic]),
                    natural(nic),
                ),
            )
            found.append(_pair(gpu, function, best, nics[best], codes[best], evidence))
            for nic, code in codes.items():
                if code == codes[best] and code in NEAR:
                    equals.setdefault(nic, _pair(gpu, function, nic, nics[nic], code, evidence))
    taken = {pair.nic for pair in found}
    return (*found, *(pair for nic, pair in equals.items() if nic not in taken))


def _pair(
    gpu: str, function: PciDevice, nic: str, device: PciDevice, code: str, evidence: tuple[str, ...]
) -> GpuNicPair:
    return GpuNicPair(gpu, nic, code, bridges(function, device), _same_node(function, device), evidence)


def gpu_names(driver: Driver | None, topology: Topology | None, gpus: Collection[PciDevice]) -> dict[str, PciDevice]:
    """Return GPU -> PCI function, named as in the matrix if known, else by address."""
    by_address = {gpu.address: gpu for gpu in gpus}
    if driver is None or topology is None:
        return by_address
    named = {f"GPU{gpu.index}": by_address[gpu.address] for gpu in driver.gpus if gpu.address in by_address}
    return {name: named[name] for name in topology.gpus if name in named} or by_address


def common(one: PciDevice, other: PciDevice) -> int:
    """Return the number of common bridges of two functions, from the root port."""
    number = 0
    for mine, theirs in zip(one.parents, other.parents, strict=False):
        if mine != theirs:
            break
        number += 1
    return number


def bridges(one: PciDevice, other: PciDevice) -> tuple[str, ...]:
    """Return the bridges between two functions, below their common bridge.

    Empty without a common bridge: the path then crosses root ports, where ACS has no effect.
    """
    shared = common(one, other)
    return (*one.parents[shared:], *other.parents[shared:]) if shared else ()


def _code(gpu: PciDevice, nic: PciDevice) -> str:
    """Return the distance code that follows from the PCI tree.

    It is coarser than the driver's, because the tree does not show host bridges.
    """
    if shared := common(gpu, nic):
        return "PIX" if max(len(gpu.parents), len(nic.parents)) - shared <= 1 else "PXB"
    return {True: "NODE", False: "SYS", None: "PHB"}[_same_node(gpu, nic)]


def _same_node(gpu: PciDevice, nic: PciDevice) -> bool | None:
    if gpu.numa_node is None or nic.numa_node is None:
        return None
    return gpu.numa_node == nic.numa_node


def _far(gpu: PciDevice, nic: PciDevice) -> tuple[bool, int]:
    """Return whether a NIC is on another NUMA node, and its bus distance."""

    def bus(device: PciDevice) -> int:
        domain, number, _ = device.address.split(":")
        return int(domain, 16) << 8 | int(number, 16)

    return _same_node(gpu, nic) is False, abs(bus(gpu) - bus(nic))


# --- the NIC's own link ----------------------------------------------------------------------------

#: sysfs words for a link's speed, GT/s -> usable Gb/s of one lane after its line code (PCIe base specification).
LANE_GBPS = {"2.5": 2.0, "5.0": 4.0, "8.0": 7.877, "16.0": 15.754, "32.0": 31.508, "64.0": 60.5}


@dataclass(frozen=True)
class PcieLink:
    """A PCIe link: its trained state and the device's maximum."""

    speed_gts: str  # current_link_speed, GT/s
    width: int  # current_link_width, lanes
    most_speed_gts: str  # max_link_speed
    most_width: int  # max_link_width
    evidence: tuple[str, ...]

    @property
    def gbps(self) -> float:
        """Bandwidth of the link per direction, Gb/s, including protocol headers."""
        return LANE_GBPS[self.speed_gts] * self.width

    def __str__(self) -> str:
        """Return the link as text."""
        return f"x{self.width} at {self.speed_gts} GT/s"


def nic_link(evidence: Evidence, device: str) -> PcieLink | None:
    """Return the PCIe link of an RDMA device; raises EvidenceError.

    None for a virtual function, which reports no width and no speed: the link is that of its physical function.
    """
    base = f"file:/sys/class/infiniband/{device}/device"
    keys = tuple(f"{base}/{which}_link_{what}" for what in ("speed", "width") for which in ("current", "max"))
    width, most_width = (_width(evidence, key) for key in keys[2:])
    if width == 0:
        return None
    speed, most_speed = (_speed(evidence, key) for key in keys[:2])
    return PcieLink(speed, width, most_speed, most_width, keys)


def _speed(evidence: Evidence, key: str) -> str:
    text = evidence.text(key).strip()
    word = text.split(" ")[0]
    word = word if "." in word else f"{word}.0"  # old kernels print "8 GT/s"
    if word not in LANE_GBPS:
        raise EvidenceError(key, f"contains {text[:60]!r}, not a speed in GT/s")
    return word


def _width(evidence: Evidence, key: str) -> int:
    text = evidence.text(key).strip()
    if text not in ("0", "1", "2", "4", "8", "12", "16", "32"):
        raise EvidenceError(key, f"contains {text[:60]!r}, not a number of lanes")
    return int(text)


def processor_vendor(bus: Collection[PciDevice]) -> str:
    """Return the processor's PCI vendor: 1022 AMD, 8086 Intel, 10de Grace.

    Empty if unknown. Host bridges show it; Grace has none, so its root ports, which have no bridge above them, show it.
    """
    vendors = [device.vendor for device in bus if device.class_code >> 8 == 0x0600]
    vendors = vendors or [device.vendor for device in bus if device.class_code >> 8 == 0x0604 and not device.parents]
    return max(sorted(set(vendors)), key=vendors.count) if vendors else ""
