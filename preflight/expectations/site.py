"""Expectations of one node with their sources, and the roles of its ports."""

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


#: The source of roles if neither the cluster file nor NCCL_IB_HCA defines them.
NEAREST = "nearest to a GPU (nvidia-smi topo -m)"


@dataclass(frozen=True)
class Expected:
    """An expectation: value (None: not declared), source, and the key that sets it."""

    value: Any
    source: str
    key: str
    binding: bool = True  # False: usual for the part, so a deviation only warns


@dataclass(frozen=True)
class Roles:
    """RDMA ports that a job on this node uses, and the source (empty: unknown)."""

    compute: tuple[Port, ...]
    others: tuple[Port, ...]
    known_from: str

    @property
    def of_near_gpus(self) -> bool:
        """Whether the compute ports are identified only by close GPUs."""
        return self.known_from == NEAREST


@dataclass(frozen=True)
class Site:
    """The expectations of one node."""

    path: str
    class_name: str
    members: NodeClass
    part: Part | None
    baseline: tuple[Report, ...] = ()  # nccl-tests reports of a good run
    waivers: tuple[Waiver, ...] = ()  # those that cover the node
    declared_class: bool = False  # whether the cluster file has the node's class

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
        """GPUs of the node; the number on a baseboard is fixed, so it is binding."""
        return self._expected("", "gpus", self.part.gpus if self.part else None, binding=True)

    @property
    def hcas(self) -> Expected:
        """RDMA devices of the compute fabric."""
        return self._expected("", "hcas")

    @property
    def rate_gbps(self) -> Expected:
        """Rate of each compute port, Gb/s."""
        return self._expected("ports", "rate_gbps", self.part.compute_rate_gbps if self.part else None)

    def rate_of_each(self, ports: int, gpus: int) -> Expected:
        """Rate of each of this many compute ports, Gb/s.

        The catalogue's rate is one GPU's share of the fabric.
        """
        expected = self.rate_gbps
        of_part = self.members.ports.rate_gbps is None and expected.value is not None
        if not of_part or not gpus or ports < 2 * gpus or ports % gpus:
            return expected
        share = ports // gpus
        return replace(expected, value=expected.value / share, source=f"{expected.source}; {share} ports for each GPU")

    @property
    def nic_gbps_per_gpu(self) -> Expected:
        """Share of the compute ports' bandwidth that each GPU needs, Gb/s.

        The catalogue's port is that of one GPU.
        """
        return self._expected("thresholds", "nic_gbps_per_gpu", self.part.compute_rate_gbps if self.part else None)

    @property
    def link_layer(self) -> Expected:
        """Link layer of the compute ports."""
        return self._expected("ports", "link_layer")

    @property
    def mtu(self) -> Expected:
        """RDMA MTU of the compute ports, bytes."""
        return self._expected("ports", "mtu")

    @property
    def netdev_mtu(self) -> Expected:
        """Ethernet MTU of the compute ports, bytes."""
        return self._expected("ports", "netdev_mtu")

    @property
    def point_to_point(self) -> Expected:
        """Whether the rails are addressed point to point."""
        return self._expected("ports", "point_to_point")

    @property
    def load_balancing(self) -> Expected:
        """How switches spread flows: ``hash``, ``adaptive``, ``spray``, ``one-path``."""
        return self._expected("ports", "load_balancing")

    @property
    def adaptive_sl(self) -> Expected:
        """InfiniBand service level on which the subnet manager routes adaptively."""
        return self._expected("ports", "adaptive_sl")

    @property
    def networks(self) -> Expected:
        """Multus networks that a pod of this class is attached to."""
        return self._expected("ports", "networks")

    @property
    def resources(self) -> Expected:
        """RDMA resources that a pod of this class is allocated by a device plug-in."""
        return self._expected("ports", "resources")

    @property
    def checkpoint_path(self) -> Expected:
        """Directory of the checkpoints."""
        return self._expected("checkpoint", "path")

    @property
    def checkpoint_interval_min(self) -> Expected:
        """Minutes between two checkpoints."""
        return self._expected("checkpoint", "interval_min")

    @property
    def lossless(self) -> Expected:
        """Whether the RoCE fabric is lossless by design."""
        return self._expected("qos", "lossless")

    @property
    def pfc_priority(self) -> Expected:
        """The priority with PFC on."""
        return self._expected("qos", "pfc_priority")

    def qos(self, name: str) -> Expected:
        """Return the declared value of a key of ``[class.X.qos]``."""
        return self._expected("qos", name)

    def declared(self, path: str) -> dict[str, Expected]:
        """Return the class's declarations of a value, by device or "".

        ``versions.driver`` is by "", ``rails.*.leaf`` by device.
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
        """Return the accepted values of a list."""
        values = [declared.value for declared in self.declared(path).values()]
        return tuple(values[0]) if len(values) == 1 and isinstance(values[0], Alternatives) else ()

    def host(self, name: str) -> Expected:
        """Return the site's declaration for servers: a key of ``[class.X.host]``."""
        return self._expected("host", name)

    def threshold(self, name: str, default: float | None = None, source: str = "") -> Expected:
        """Return a floor of the site, or the built-in one, with its source."""
        expected = self._expected("thresholds", name)
        if expected.value is None and default is not None:
            return Expected(default, source, expected.key)
        return expected

    @property
    def all_reduce_busbw_gbytes_s(self) -> Expected:
        """Best busbw of all_reduce_perf on one node, GB/s."""
        customary = self.part.all_reduce_gbytes_s if self.part else None
        return self._expected("thresholds", "all_reduce_busbw_gbytes_s", customary)

    def roles(self, node: NodeFacts) -> Roles:
        """Return the ports of a node that a job uses; raises EvidenceError."""
        known: dict[int, tuple[Site, Roles]] = node.__dict__.setdefault("_roles", {})
        if id(self) not in known:
            known[id(self)] = self, self._roles(node)
        return known[id(self)][1]

    def _roles(self, node: NodeFacts) -> Roles:
        """Return the compute ports.

        Cluster file > NCCL_IB_HCA > nearest to a GPU > not BlueField.
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
        """Return the declared compute devices that the kernel lacks."""
        return tuple(d for d in self.members.ports.compute or () if d not in node.rdma_devices)


def _split(ports: Sequence[Port], compute: Sequence[Port], known_from: str) -> Roles:
    return Roles(tuple(compute), tuple(port for port in ports if port not in compute), known_from)


def _of_most(ports: Sequence[Port]) -> Sequence[Port]:
    """Return the ports of the most common link layer, the only ones that NCCL uses."""
    layers = Counter(port.link_layer for port in ports)
    usual = [layer for layer, number in layers.items() if number == max(layers.values())]
    return [port for port in ports if port.link_layer in usual]


def _nccl_selection(node: NodeFacts, ports: Sequence[Port]) -> list[Port] | None:
    """Apply NCCL_IB_HCA; None if it is unset or selects no port."""
    try:
        selection = node.nccl_env.hca_selection
    except EvidenceError:
        return None
    if selection is None or all_efa(ports):  # it selects no EFA port
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
