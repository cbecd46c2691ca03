"""The cluster on which a layout runs: GPUs, NVLink domains, NICs, leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, field, replace
from preflight.expectations.catalogue import PARTS, GpuModel, Part, part_by_name
from preflight.expectations.job_table import MOST_GPUS
from preflight.expectations.roofline.datasheets import (
    BF16_FLOPS,
    FP8_FLOPS,
    POWER_W,
    memory_bandwidth,
    memory_gib,
)
from preflight.expectations.roofline.machine import RooflineMachine, machine_of
from preflight.facts.job_nodes import JobNode
from preflight.layout.job import LayoutError
from preflight.nodeset import fold

#: Common names of systems, with the catalogue's name of a node and the number of nodes.
_ALIASES = {"GB200 NVL72": ("GB200 tray", 18), "GB300 NVL72": ("GB300 tray", 18)}


@dataclass(frozen=True)
class Fabric:
    """The network above the nodes; unknown values are None or empty."""

    unit_nodes: int | None = None  # nodes below one group of leaves (a scalable unit)
    rail_optimised: bool | None = None  # whether each leaf connects the NICs of one rail
    oversubscription: float | None = None  # of the leaves' uplinks; 1 is non-blocking
    leaves: Mapping[tuple[str, int], str] = field(default_factory=dict)  # (node name, number of its GPU) -> leaf
    units: Mapping[str, str] = field(default_factory=dict)  # node name -> group of leaves
    domains: Mapping[str, str] = field(default_factory=dict)  # node name -> NVLink domain


@dataclass(frozen=True)
class Hardware:
    """Identical nodes, and their fabric."""

    machine: RooflineMachine
    part: str
    nodes: int | None
    names: tuple[str, ...] = ()  # names of the nodes, in the order of the job; empty if unknown
    memory_gib: float | None = None
    fabric: Fabric = Fabric()
    distribution: str = "block"  # distribution of ranks over nodes, as for srun: block, cyclic, plane=SIZE
    order: tuple[int, ...] = ()  # node number of each rank, if a hostfile states it
    source: str = ""
    ranks_per_node: int | None = None  # None if a job uses all GPUs of a node
    power_w: float | None = None  # lowest power limit of a GPU in watts; None for the datasheet's
    memory_rate: float | None = None  # bytes/s of a GPU's memory, if stated
    #: Ratio of measured to typical busbw, by collective and level of links ("all_reduce/NVLink").
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def gpu(self) -> GpuModel:
        """The model of the GPUs."""
        return self.machine.gpu

    @property
    def each(self) -> int:
        """The number of ranks on a node."""
        return self.ranks_per_node or self.machine.gpus

    @property
    def domain(self) -> int:
        """The number of ranks in an NVLink domain."""
        return max(1, self.machine.domain // self.machine.gpus) * self.each

    @property
    def gpus(self) -> int | None:
        """The number of GPUs that a job can use; None if unknown."""
        return self.nodes * self.each if self.nodes is not None else None

    def flops(self, precision: str) -> float | None:
        """Return the dense FLOP/s of a GPU in a precision; None if not in the catalogue."""
        return (FP8_FLOPS if precision == "fp8" else BF16_FLOPS).get(self.gpu.name)  # the rate of fp16 is that of bf16

    @property
    def memory_bandwidth(self) -> float | None:
        """The bytes/s of a GPU's memory; None if unknown."""
        return self.memory_rate or memory_bandwidth(self.gpu, self.memory_gib)

    @property
    def power_share(self) -> float:
        """The power limit of a GPU as a share of its datasheet's, at most 1."""
        sheet = POWER_W.get(self.gpu.name)
        return min(1.0, self.power_w / sheet) if sheet and self.power_w else 1.0


def hardware_of(part: Part, nodes: int | None, **stated: float | None) -> Hardware:
    """Return nodes of a part in their usual configuration: one NIC for each GPU.

    ``stated`` may give gpus, nics, nic_gbps and memory_gib. Raises LayoutError for a part without NVLink.
    """
    gpus = int(stated.get("gpus") or part.gpus or 0)
    rate = stated.get("nic_gbps") or part.compute_rate_gbps
    machine = machine_of(part, gpus or None, int(stated.get("nics") or gpus) or None, rate)
    if machine is None:
        raise LayoutError(f"{part.name}: its GPUs are not connected by NVLink, so no layout can be planned for it")
    return Hardware(machine, part.name, nodes, memory_gib=stated.get("memory_gib") or memory_gib(part.gpu),
                    source=f"{part.name}: {part.source}")  # fmt: skip


def of_nodes(nodes: Sequence[JobNode], oversubscription: float | None = None) -> Hardware:
    """Return the hardware of collected nodes.

    Raises LayoutError if the nodes differ, are not in the catalogue, or lack their NVLink domain.
    """
    first = nodes[0]
    for name in ("part", "gpus", "nics", "nic_gbps", "memory_gib"):
        kinds: dict[Any, list[str]] = {}
        for node in nodes:
            kinds.setdefault(getattr(node, name), []).append(node.name)
        if len(kinds) > 1:
            shown = "; ".join(
                f"{_KINDS[name]} {value if value not in (None, '') else 'unknown'}: {fold(own)}"
                for value, own in sorted(kinds.items(), key=lambda item: len(item[1]))
            )
            raise LayoutError(f"the nodes differ ({shown}); choose some with --nodes")
    part = part_by_name(first.part)
    if part is None:
        raise LayoutError("the GPUs of the nodes are not in the part catalogue; name the cluster with --on")
    made = hardware_of(part, len(nodes), gpus=first.gpus, nics=first.nics, nic_gbps=first.nic_gbps,
                       memory_gib=first.memory_gib)  # fmt: skip
    domains = {node.name: node.domain for node in nodes if node.domain}
    if made.machine.domain > made.machine.gpus and len(domains) < len(nodes):
        silent = fold(node.name for node in nodes if not node.domain)
        raise LayoutError(f"the NVLink domain of {silent} is not in the evidence (nvidia-smi -q), so the layout cannot "
                          "be placed; collect again, or name the cluster with --on")  # fmt: skip
    leaves = {(node.name, gpu): leaf for node in nodes for gpu, leaf in enumerate(node.switches) if leaf}
    units = {node.name: node.group for node in nodes if node.group}
    fabric = Fabric(
        rail_optimised=_rails(nodes), oversubscription=oversubscription,
        leaves=leaves if len(leaves) == len(nodes) * first.gpus else {},
        units=units if len(units) == len(nodes) else {}, domains=domains if len(domains) == len(nodes) else {},
    )  # fmt: skip
    power = min((node.power_w for node in nodes if node.power_w), default=None)  # a job waits for its slowest GPU
    return replace(made, names=tuple(node.name for node in nodes), fabric=fabric, power_w=power)


def at_places(made: Hardware, racks: Mapping[str, str], leaves: Mapping[str, str]) -> Hardware:
    """Return hardware with the declared racks and leaves of its nodes.

    Racks are NVLink domains if a domain spans several nodes. The evidence of the nodes takes precedence, and a table
    without one of the nodes is not used.
    """
    fabric = made.fabric
    if not fabric.units and (units := _declared(made.names, leaves)):
        fabric = replace(fabric, units=units)
    if not fabric.domains and made.machine.domain > made.machine.gpus and (domains := _declared(made.names, racks)):
        fabric = replace(fabric, domains=domains)
    return replace(made, fabric=fabric)


def _declared(names: Sequence[str], places: Mapping[str, str]) -> dict[str, str]:
    """Return the rack or leaf of each node; empty if one is missing."""
    own = {name: place for name in names if (place := places.get(name) or places.get(name.partition(".")[0]))}
    return own if len(own) == len(names) else {}


#: Names of a node's fields in messages.
_KINDS = {"part": "part", "gpus": "GPUs", "nics": "compute NICs", "nic_gbps": "Gb/s of a NIC", "memory_gib": "GiB"}


def _rails(nodes: Sequence[JobNode]) -> bool | None:
    """Return whether each leaf connects only the NICs of one rail; None if unknown."""
    rails: dict[str, set[int]] = {}
    for node in nodes:
        for gpu, leaf in enumerate(node.switches):
            if leaf:
                rails.setdefault(leaf, set()).add(gpu)
    if not rails or any(node.gpus < 2 for node in nodes):
        return None
    return all(len(own) == 1 for own in rails.values())


_PHRASE = re.compile(r"\s*([1-9][0-9]{0,5})\s*[x×*]\s*(.{1,40}?)\s*", re.IGNORECASE)
_RATIO = re.compile(r"([1-9][0-9]{0,2}(?:\.[0-9]{1,3})?)\s*:\s*1")
_NICS = re.compile(r"([1-9]|[1-3][0-9])\s*[x×]\s*([1-9][0-9]{1,3})\s*G(?:b/s|bps|bit/s)?", re.IGNORECASE)
_MEMORY_SIZE = re.compile(r"([1-9][0-9]{1,2})\s*G(?:i?B)", re.IGNORECASE)
_MEMORY_RATE = re.compile(r"([1-9](?:\.[0-9]{1,3})?)\s*TB/s", re.IGNORECASE)
_POWER = re.compile(r"([1-9][0-9]{2,3})\s*W", re.IGNORECASE)
_UNIT = re.compile(r"units? of ([1-9][0-9]{0,4})(?: nodes)?", re.IGNORECASE)

#: Maximum accepted speed of a NIC in Gb/s.
_MOST_GBPS = 1600

_EXAMPLE = '"512 x HGX H100, rail-optimised, 2:1"'


def described(phrase: str) -> Hardware:
    """Parse the description of a cluster, such as ``64 x HGX H100, 2:1``.

    The part may be followed, in any order, by ``rail-optimised``, ``2:1`` (oversubscription), ``units of 32 nodes``,
    ``8 x 400G`` (NICs of a node), ``80 GB`` and ``2.4 TB/s`` (memory of a GPU), ``500 W`` (its power limit) and
    ``cyclic``. Raises LayoutError for any other text.
    """
    first, *rest = phrase.split(",")
    nodes = _PHRASE.fullmatch(first)
    if nodes is None:
        raise LayoutError(f"{phrase!r} does not describe a cluster; for example: {_EXAMPLE}")
    names = {name.lower(): name for name in (*(p.name for p in PARTS), *_ALIASES)}
    own = names.get(re.sub(r"^dgx\b", "hgx", nodes[2].lower()), "")
    name, each = _ALIASES.get(own, (own, 1))
    part = part_by_name(name) if name else None
    if part is None:
        usable = ", ".join(sorted([p.name for p in PARTS if p.nvswitch] + list(_ALIASES)))
        raise LayoutError(f"{nodes[2]!r} is not in the part catalogue; it has {usable}")
    stated: dict[str, float | None] = {}
    memory_rate = power_w = None
    fabric, distribution = Fabric(), "block"
    kinds: list[str] = []
    for item in map(str.strip, rest):
        if re.fullmatch(r"rail[- ]optimi[sz]ed", item, re.IGNORECASE):
            kinds.append("rail-optimised")
            fabric = replace(fabric, rail_optimised=True)
        elif matched := _RATIO.fullmatch(item):
            kinds.append("oversubscription")
            fabric = replace(fabric, oversubscription=float(matched[1]))
        elif matched := _UNIT.fullmatch(item):
            kinds.append("units")
            fabric = replace(fabric, unit_nodes=int(matched[1]))
        elif (matched := _NICS.fullmatch(item)) and int(matched[2]) <= _MOST_GBPS:
            kinds.append("NICs")
            stated |= {"nics": float(matched[1]), "nic_gbps": float(matched[2])}
        elif matched := _MEMORY_SIZE.fullmatch(item):
            kinds.append("memory")
            stated["memory_gib"] = float(matched[1])
        elif matched := _MEMORY_RATE.fullmatch(item):
            kinds.append("memory bandwidth")
            memory_rate = float(matched[1]) * 1e12
        elif matched := _POWER.fullmatch(item):
            kinds.append("power limit")
            power_w = float(matched[1])
        elif item.lower() in ("cyclic", "block"):
            kinds.append("distribution")
            distribution = item.lower()
        else:
            raise LayoutError(
                f"{item!r} is not recognised; the part may be followed by rail-optimised, 2:1, units of 32 nodes, "
                "8 x 400G, 80 GB, 2.4 TB/s, 500 W, cyclic"
            )
    if twice := [kind for kind in kinds if kinds.count(kind) > 1]:
        raise LayoutError(f"{phrase!r} states the {twice[0]} twice; state it once")
    made = hardware_of(part, int(nodes[1]) * each, **stated)
    if (made.gpus or 0) > MOST_GPUS:
        raise LayoutError(f"{phrase!r} has {made.gpus:,} GPUs; at most {MOST_GPUS:,} are planned")
    return replace(
        made, fabric=fabric, distribution=distribution, source=f"--on {phrase}; {made.source}",
        memory_rate=memory_rate, power_w=power_w,
    )  # fmt: skip
