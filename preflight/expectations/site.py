"""Expectations for one node with their sources, and the roles of its ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os.path import basename
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import EvidenceError
from preflight.expectations.catalogue import Part
from preflight.expectations.node_class import NodeClass
from preflight.expectations.schema import Alternatives
from preflight.expectations.waivers import Waiver
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port, all_efa, is_bluefield

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.model import Report


#: The source of roles that neither the cluster file nor NCCL_IB_HCA defines.
NEAREST = "nearest to a GPU (nvidia-smi topo -m)"


@dataclass(frozen=True)
class Expected:
    """An expectation: its value, its source, and the key that sets it."""

    value: Any  # None if not declared
    source: str  # empty if not declared
    key: str
    binding: bool = True  # False if only usual for the part, so that a deviation warns


@dataclass(frozen=True)
class Roles:
    """The RDMA ports that jobs use on a node, and how they are known."""

    compute: tuple[Port, ...]
    others: tuple[Port, ...]
    known_from: str  # empty if the roles are assumed

    @property
    def of_near_gpus(self) -> bool:
        """Whether the compute ports are known only from their distance to GPUs."""
        return self.known_from == NEAREST


@dataclass(frozen=True)
class Site:
    """The expectations for one node."""

    path: str
    class_name: str
    members: NodeClass
    part: Part | None
    baseline: tuple[Report, ...] = ()  # nccl-tests reports of a good run
    waivers: tuple[Waiver, ...] = ()  # waivers that cover the node
    declared_class: bool = False  # whether the cluster file declares the node's class
    leaf: str = ""  # declared leaf, or group of leaves, of the node; empty if not declared

    def _expected(self, table: str, name: str, customary: Any = None, *, binding: bool = False) -> Expected:
        holder: Any = getattr(self.members, table) if table else self.members
        key = ".".join(part for part in ("class", self.class_name, table, name) if part)
        if (value := getattr(holder, name)) is not None:
            return Expected(value, f"{basename(self.path)} {key}", key)
        if customary is not None and self.part is not None:
            return Expected(customary, f"{self.part.name}: {self.part.source}", key, binding)
        return Expected(None, "", key)

    @property
    def gpus(self) -> Expected:
        """The number of GPUs; it is binding, because a baseboard has a fixed number."""
        return self._expected("", "gpus", self.part.gpus if self.part else None, binding=True)

    @property
    def hcas(self) -> Expected:
        """The number of RDMA devices of the compute fabric."""
        return self._expected("", "hcas")

    @property
    def rate_gbps(self) -> Expected:
        """The rate of each compute port, Gb/s."""
        return self._expected("ports", "rate_gbps", self.part.compute_rate_gbps if self.part else None)

    def rate_of_each(self, ports: int, gpus: int) -> Expected:
        """Return the expected rate of each port, in Gb/s, for this many ports and GPUs.

        The catalogue's rate is for one GPU. If each GPU has several ports, they share it.
        """
        expected = self.rate_gbps
        of_part = self.members.ports.rate_gbps is None and expected.value is not None
        if not of_part or not gpus or ports < 2 * gpus or ports % gpus:
            return expected
        share = ports // gpus
        return replace(expected, value=expected.value / share, source=f"{expected.source}; {share} ports for each GPU")

    @property
    def nic_gbps_per_gpu(self) -> Expected:
        """The bandwidth of compute ports that each GPU needs, Gb/s.

        By default, it is the catalogue's rate, which is for one GPU.
        """
        return self._expected("thresholds", "nic_gbps_per_gpu", self.part.compute_rate_gbps if self.part else None)

    @property
    def link_layer(self) -> Expected:
        """The link layer of the compute ports."""
        return self._expected("ports", "link_layer")

    @property
    def mtu(self) -> Expected:
        """The RDMA MTU of the compute ports, bytes."""
        return self._expected("ports", "mtu")

    @property
    def netdev_mtu(self) -> Expected:
        """The Ethernet MTU of the compute ports, bytes."""
        return self._expected("ports", "netdev_mtu")

    @property
    def point_to_point(self) -> Expected:
        """Whether the rails have point-to-point addresses."""
        return self._expected("ports", "point_to_point")

    @property
    def load_balancing(self) -> Expected:
        """How switches spread flows: ``hash``, ``adaptive``, ``spray``, ``one-path``."""
        return self._expected("ports", "load_balancing")

    @property
    def adaptive_sl(self) -> Expected:
        """The InfiniBand service level on which the subnet manager routes adaptively."""
        return self._expected("ports", "adaptive_sl")

    @property
    def networks(self) -> Expected:
        """The Multus networks that a pod on this node is attached to."""
        return self._expected("ports", "networks")

    @property
    def resources(self) -> Expected:
        """The RDMA resources that a device plug-in allocates to a pod on this node."""
        return self._expected("ports", "resources")

    @property
    def checkpoint_path(self) -> Expected:
        """The directory of the checkpoints."""
        return self._expected("checkpoint", "path")

    @property
    def checkpoint_interval_min(self) -> Expected:
        """The minutes between two checkpoints."""
        return self._expected("checkpoint", "interval_min")

    @property
    def lossless(self) -> Expected:
        """Whether the RoCE fabric is lossless by design."""
        return self._expected("qos", "lossless")

    @property
    def pfc_priority(self) -> Expected:
        """The priority that has PFC."""
        return self._expected("qos", "pfc_priority")

    def qos(self, name: str) -> Expected:
        """Return the declared value of a key of ``[class.X.qos]``."""
        return self._expected("qos", name)

    def declared(self, path: str) -> dict[str, Expected]:
        """Return what the class declares for a path, by device.

        For ``rails.*.leaf``, the keys are devices. For any other path, such as ``versions.driver``, the key is "".
        """
        table, *names = path.split(".", 2)
        holder: Any = getattr(self.members, table)
        if names[0] == "*":
            rails = {device: getattr(rail, names[1]) for device, rail in holder.items()}
            found = {device: (value, f"{table}.{device}.{names[1]}") for device, value in rails.items()}
        else:
            value = holder.get(names[0]) if isinstance(holder, dict) else holder and getattr(holder, names[0])
            value = (value or {}).get(names[1]) if names[1:] else value
            found = {"": (value, path)}
        return {
            device: Expected(value, f"{basename(self.path)} class.{self.class_name}.{key}", key)
            for device, (value, key) in found.items() if value is not None
        }  # fmt: skip

    def alternatives(self, path: str) -> tuple[str, ...]:
        """Return the accepted values at a path; empty unless it lists several."""
        values = [declared.value for declared in self.declared(path).values()]
        return tuple(values[0]) if len(values) == 1 and isinstance(values[0], Alternatives) else ()

    def host(self, name: str) -> Expected:
        """Return the declared value of a key of ``[class.X.host]``."""
        return self._expected("host", name)

    def threshold(self, name: str, default: float | None = None, source: str = "") -> Expected:
        """Return a threshold of the site, else the built-in one with its source."""
        expected = self._expected("thresholds", name)
        if expected.value is None and default is not None:
            return Expected(default, source, expected.key)
        return expected

    @property
    def all_reduce_busbw_gbytes_s(self) -> Expected:
        """The minimum for the best busbw of all_reduce_perf on one node, GB/s."""
        customary = self.part.all_reduce_gbytes_s if self.part else None
        return self._expected("thresholds", "all_reduce_busbw_gbytes_s", customary)

    def roles(self, node: NodeFacts) -> Roles:
        """Return the ports that jobs use on a node; raises EvidenceError."""
        known: dict[int, tuple[Site, Roles]] = node.__dict__.setdefault("_roles", {})
        if id(self) not in known:
            known[id(self)] = self, self._roles(node)
        return known[id(self)][1]

    def _roles(self, node: NodeFacts) -> Roles:
        """Return the roles of the ports.

        In order of precedence, the compute ports are those of the cluster file, those that NCCL_IB_HCA selects, those
        nearest to a GPU, those that are not BlueField on Grace, and those of the most common link layer. Ports that the
        cluster file declares for storage or management are left out first; all others then count instead of those of
        the most common link layer.
        """
        ports = node.rdma_ports
        if self.members.ports.compute is not None:
            named = set(self.members.ports.compute)
            return _split(ports, [p for p in ports if p.device in named], basename(self.path))
        aside = {*(self.members.ports.storage or ()), *(self.members.ports.management or ())}
        ports = tuple(port for port in ports if port.device not in aside)
        if (selected := _nccl_selection(node, ports)) is not None:
            return _split(node.rdma_ports, selected, "NCCL_IB_HCA")
        near = _near_gpus(node)
        if near and (chosen := [port for port in ports if port.device in near]):
            return _split(node.rdma_ports, chosen, NEAREST)
        if self.part is not None and self.part.nic_on_cpu:
            plain = [port for port in ports if not is_bluefield(node.evidence, port.device)]
            if plain and len(plain) < len(ports):
                return _split(node.rdma_ports, plain, f"{self.part.name}: ConnectX, not BlueField")
        return _split(node.rdma_ports, ports if aside else _of_most(ports), "cluster file" if aside else "")

    def missing_devices(self, node: NodeFacts) -> tuple[str, ...]:
        """Return the declared compute devices that the node lacks."""
        return tuple(d for d in self.members.ports.compute or () if d not in node.rdma_devices)


def _split(ports: Sequence[Port], compute: Sequence[Port], known_from: str) -> Roles:
    return Roles(tuple(compute), tuple(port for port in ports if port not in compute), known_from)


def _of_most(ports: Sequence[Port]) -> Sequence[Port]:
    """Return the ports of the most common link layer, or of several if tied."""
    layers = Counter(port.link_layer for port in ports)
    usual = [layer for layer, number in layers.items() if number == max(layers.values())]
    return [port for port in ports if port.link_layer in usual]


def _nccl_selection(node: NodeFacts, ports: Sequence[Port]) -> list[Port] | None:
    """Return the ports that NCCL_IB_HCA selects; None if it is unset or selects none."""
    try:
        selection = node.nccl_env.hca_selection
    except EvidenceError:
        return None
    if selection is None or all_efa(ports):  # NCCL_IB_HCA does not select EFA ports
        return None
    return [port for port in ports if selection.matches(port.device, port.number)] or None


def _near_gpus(node: NodeFacts) -> set[str]:
    try:
        topology = node.topology
    except EvidenceError:
        return set()
    near: set[str] = set()
    for gpu in topology.gpus:
        if gpu in topology.links:
            code, nics = topology.nearest_nics(gpu)
            if code in ("PIX", "PXB"):
                near.update(nics)
    return near
