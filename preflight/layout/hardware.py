"""The cluster that a layout runs on: GPUs, NVLink domains, NICs, leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass, field, replace
from preflight.expectations.catalogue import PARTS, GpuModel, Part, part_by_name
from preflight.expectations.roofline.batch import BF16_FLOPS
from preflight.expectations.roofline.machine import RooflineMachine, machine_of
from preflight.layout.job import LayoutError

#: FLOP/s of a GPU with dense FP8, by its name in the catalogue (NVIDIA's datasheets; half of the figure with sparsity).
FP8_FLOPS = {
    "H100 SXM": 1979e12, "H800 SXM": 1979e12, "H200 SXM": 1979e12, "H20": 296e12,
    "B200 SXM": 4500e12, "B300 SXM": 4500e12, "GB200": 5000e12, "GB300": 5000e12,
}  # fmt: skip

#: Bytes/s of a GPU's memory (NVIDIA's datasheets); of A100 by its memory in GiB.
MEMORY_BANDWIDTH = {
    "A100 SXM": 2.039e12, "A800 SXM": 2.039e12, "H100 SXM": 3.35e12, "H800 SXM": 3.35e12, "H200 SXM": 4.8e12,
    "H20": 4.0e12, "B200 SXM": 7.7e12, "B300 SXM": 7.7e12, "GB200": 8.0e12, "GB300": 8.0e12,
}  # fmt: skip

#: Memory in GiB of models whose PCI ids the catalogue does not map to a size (NVIDIA's datasheets).
_MEMORY = {"B300 SXM": 270.0, "GB300": 279.0}

#: Names that people use for parts of the catalogue, and the nodes in one of them.
_ALIASES = {"GB200 NVL72": ("GB200 tray", 18), "GB300 NVL72": ("GB300 tray", 18)}


@dataclass(frozen=True)
class Fabric:
    """The network above the nodes; None where nothing is known."""

    unit_nodes: int | None = None  # nodes under one group of leaves (a scalable unit)
    rail_optimised: bool | None = None  # a leaf joins the NICs of one rail
    oversubscription: float | None = None  # of the leaves' uplinks; 1 is non-blocking
    leaves: Mapping[tuple[str, int], str] = field(default_factory=dict)  # leaf of a node's rail, by name


@dataclass(frozen=True)
class Hardware:
    """Nodes of one kind, and their fabric."""

    machine: RooflineMachine
    part: str
    nodes: int | None
    names: tuple[str, ...] = ()  # of the nodes, in the order of the job; empty: numbered
    memory_gib: float | None = None
    fabric: Fabric = Fabric()
    cyclic: bool = False  # ranks are dealt to nodes one by one, not node by node
    source: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)  # busbw by collective and level, GB/s

    @property
    def gpu(self) -> GpuModel:
        """The model of the GPUs."""
        return self.machine.gpu

    @property
    def gpus(self) -> int | None:
        """Number of GPUs."""
        return self.nodes * self.machine.gpus if self.nodes is not None else None

    def flops(self, precision: str) -> float | None:
        """Return the FLOP/s of a GPU in a precision; None: not in the catalogue."""
        return (FP8_FLOPS if precision == "fp8" else BF16_FLOPS).get(self.gpu.name)  # fp16 as bf16

    @property
    def memory_bandwidth(self) -> float | None:
        """Bytes/s of a GPU's memory; None: not in the catalogue."""
        if self.gpu.name == "A100 SXM" and self.memory_gib is not None and self.memory_gib < 60:
            return 1.555e12
        return MEMORY_BANDWIDTH.get(self.gpu.name)


def memory_of(gpu: GpuModel) -> float | None:
    """Return a model's memory in GiB; None if it is sold with several sizes."""
    sizes = {size for _, size in gpu.sizes_gib}
    return float(sizes.pop()) if len(sizes) == 1 else _MEMORY.get(gpu.name)


def hardware_of(part: Part, nodes: int | None, **stated: float | None) -> Hardware:
    """Return nodes of a part as it is customarily built: one NIC for each GPU.

    ``stated`` may give gpus, nics, nic_gbps and memory_gib. Raises LayoutError for a part without NVLink.
    """
    gpus = int(stated.get("gpus") or part.gpus or 0)
    rate = stated.get("nic_gbps") or part.compute_rate_gbps
    machine = machine_of(part, gpus or None, int(stated.get("nics") or gpus) or None, rate)
    if machine is None:
        raise LayoutError(f"{part.name}: NVLink does not connect its GPUs, so no layout can be planned for it")
    return Hardware(machine, part.name, nodes, memory_gib=stated.get("memory_gib") or memory_of(part.gpu),
                    source=f"{part.name}: {part.source}")  # fmt: skip


_PHRASE = re.compile(r"\s*(\d{1,6})\s*[x×*]\s*(.{1,40}?)\s*", re.IGNORECASE)
_RATIO = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*:\s*1")
_NICS = re.compile(r"(\d{1,3})\s*[x×]\s*(\d{2,4})\s*G(?:b/s|bps|bit/s)?", re.IGNORECASE)
_MEMORY_SIZE = re.compile(r"(\d{2,3})\s*G(?:i?B)", re.IGNORECASE)
_UNIT = re.compile(r"units? of (\d{1,5})(?: nodes)?", re.IGNORECASE)

_EXAMPLE = '"512 x HGX H100, rail-optimised, 2:1"'


def described(phrase: str) -> Hardware:
    """Return the cluster that a phrase names; raises LayoutError.

    After the part may follow, in any order: ``rail-optimised``, ``2:1`` (oversubscription), ``units of 32 nodes``,
    ``8 x 400G`` (NICs of a node), ``80 GB`` (memory of a GPU), ``cyclic``. Raises LayoutError.
    """
    first, *rest = phrase.split(",")
    nodes = _PHRASE.fullmatch(first)
    if nodes is None:
        raise LayoutError(f"{phrase!r} does not name a cluster; write one such as {_EXAMPLE}")
    name, each = _ALIASES.get(nodes[2], (re.sub(r"^DGX\b", "HGX", nodes[2]), 1))
    part = part_by_name(name)
    if part is None:
        usable = ", ".join(sorted([p.name for p in PARTS if p.nvswitch] + list(_ALIASES)))
        raise LayoutError(f"{nodes[2]!r} is not in the part catalogue; it has {usable}")
    stated: dict[str, float | None] = {}
    fabric, cyclic = Fabric(), False
    for item in map(str.strip, rest):
        if re.fullmatch(r"rail[- ]optimi[sz]ed", item, re.IGNORECASE):
            fabric = replace(fabric, rail_optimised=True)
        elif matched := _RATIO.fullmatch(item):
            fabric = replace(fabric, oversubscription=float(matched[1]))
        elif matched := _UNIT.fullmatch(item):
            fabric = replace(fabric, unit_nodes=int(matched[1]))
        elif matched := _NICS.fullmatch(item):
            stated |= {"nics": float(matched[1]), "nic_gbps": float(matched[2])}
        elif matched := _MEMORY_SIZE.fullmatch(item):
            stated["memory_gib"] = float(matched[1])
        elif item.lower() in ("cyclic", "block"):
            cyclic = item.lower() == "cyclic"
        else:
            raise LayoutError(
                f"{item!r} is not understood; after the part may follow: rail-optimised, 2:1, units of 32 nodes, "
                "8 x 400G, 80 GB, cyclic"
            )
    made = hardware_of(part, int(nodes[1]) * each, **stated)
    return replace(made, fabric=fabric, cyclic=cyclic, source=f"--on {phrase}; {made.source}")
