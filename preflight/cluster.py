"""What this site expects: the cluster file, validated before any node is touched.

Every expectation is an :class:`Expected`: a value and where it came from, the cluster file before
the part catalogue. One without a value names the key of the cluster file that would supply it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight import cluster_fabric, cluster_roofline
from preflight import cluster_schema as schema
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.rdma import Port, is_bluefield
from preflight.hardware import PARTS, Part, part_by_name, recognise
from preflight.lean import dataclass

if TYPE_CHECKING:
    from preflight.facts.nccl_report import Report


class ClusterFileError(Exception):
    """The cluster file has mistakes; the text names file, line, key and cure of each."""


@dataclass(frozen=True)
class Expected:
    """An expectation: its value (None: nothing says), where it came from, and the key that sets it."""

    value: Any
    source: str
    key: str
    binding: bool = True  # False: customary for the part, so that missing it only warns


@dataclass(frozen=True)
class Ports:
    """Roles and properties of the RDMA ports of a class."""

    compute: tuple[str, ...] | None = schema.key(schema.names, 'RDMA devices of the compute fabric: "mlx5_[0,3-6]"')
    storage: tuple[str, ...] | None = schema.key(schema.names, "RDMA devices of the storage network")
    management: tuple[str, ...] | None = schema.key(schema.names, "RDMA devices of the management network")
    link_layer: str | None = schema.key(schema.one_of("InfiniBand", "Ethernet"), "of the compute ports")
    rate_gbps: float | None = schema.key(schema.number(1, 3200), "of each compute port, Gb/s")
    mtu: int | None = schema.key(schema.choice(256, 512, 1024, 2048, 4096), "RDMA MTU of the compute ports, bytes")
    netdev_mtu: int | None = schema.key(schema.whole(576, 65535), "Ethernet MTU of the compute ports, bytes")
    point_to_point: bool | None = schema.key(schema.boolean, "whether rails are routed to the host: /30, /31 or IPv6")
    networks: tuple[str, ...] | None = schema.key(
        schema.texts, 'Multus networks of the compute ports in a pod: ["rdma/rail-0", "rdma/rail-1"]'
    )


@dataclass(frozen=True)
class Qos:
    """RoCE quality of service that the site configured."""

    lossless: bool | None = schema.key(schema.boolean, "whether the fabric is lossless (PFC) by design")
    pfc_priority: int | None = schema.key(schema.whole(0, 7), "the one priority with PFC on")
    ecn: bool | None = schema.key(schema.boolean, "whether ECN is on for that priority")
    trust: str | None = schema.key(schema.one_of("dscp", "pcp"), "what a port takes a packet's priority from")
    traffic_class: int | None = schema.key(
        schema.whole(0, 255), "traffic class that jobs send with, as NCCL_IB_TC: 4 x DSCP, and 2 for ECN"
    )
    dscp: int | None = schema.key(schema.whole(0, 63), "DSCP of RDMA traffic")
    cnp_dscp: int | None = schema.key(schema.whole(0, 63), "DSCP of congestion notifications")
    dcbx: str | None = schema.key(schema.one_of("os", "firmware"), "who sets PFC and DSCP on a port")


@dataclass(frozen=True)
class Thresholds:
    """Floors that replace the built-in ones."""

    memlock_gib: float | None = schema.key(schema.number(0.001, 1e6), "locked memory a process may have, GiB")
    shm_gib: float | None = schema.key(schema.number(0.001, 1e6), "size of /dev/shm, GiB")
    local_ports: int | None = schema.key(schema.whole(1, 65535), "ephemeral ports")
    gpu_memory_gib: float | None = schema.key(
        schema.number(0.001, 1e6), "memory that the job needs on each GPU: weights, optimizer, activations, GiB"
    )
    all_reduce_busbw_gbytes_s: float | None = schema.key(
        schema.number(0.001, 10000), "best busbw of all_reduce_perf, GB/s"
    )


@dataclass(frozen=True)
class Checkpoint:
    """Where a job of this class saves its state, and how often."""

    path: str | None = schema.key(schema.absolute_path, "directory that holds the checkpoints")
    interval_min: float | None = schema.key(schema.number(0.1, 100_000), "minutes between two checkpoints")


@dataclass(frozen=True)
class NodeClass:
    """Nodes that are built and set up alike."""

    nodes: tuple[str, ...] | None = schema.key(schema.names, 'node names, folded: "gpu[001-064]"; left out: all others')
    part: str | None = schema.key(
        schema.one_of(*(part.name for part in PARTS)), "what the nodes are, if not recognised"
    )
    gpus: int | None = schema.key(schema.whole(0, 1024), "GPUs of each node")
    hcas: int | None = schema.key(schema.whole(0, 1024), "RDMA devices of the compute fabric of each node")
    sudo: bool | None = schema.key(schema.boolean, "whether --sudo may be used on these nodes")
    ports: Ports = schema.table(Ports)
    qos: Qos = schema.table(Qos)
    thresholds: Thresholds = schema.table(Thresholds)
    checkpoint: Checkpoint = schema.table(Checkpoint)
    baseline: str | None = schema.key(schema.text, "file beside this one: nccl-tests output of a good run")
    tree: cluster_roofline.Tree = schema.table(cluster_roofline.Tree)
    model: cluster_roofline.Model = schema.table(cluster_roofline.Model)


@dataclass(frozen=True)
class Cluster:
    """A whole cluster file; without one: no class, no expectation."""

    path: str = ""
    name: str = ""
    classes: Mapping[str, NodeClass] = field(default_factory=dict)
    fabric: cluster_fabric.FabricSite = field(default_factory=cluster_fabric.FabricSite)
    baselines: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)

    def class_of(self, node: str) -> str | None:
        """Return the name of a node's class: the one that lists it, else the one that lists none."""
        short = node.split(".")[0]
        rest = None
        for name, members in self.classes.items():
            if members.nodes is None:
                rest = name
            elif node in members.nodes or short in members.nodes:
                return name
        return rest

    def site(self, node: NodeFacts) -> Site:
        """Return what is expected of this node."""
        name = self.class_of(node.node)
        members = self.classes[name] if name is not None else NodeClass()
        try:
            part = part_by_name(members.part) if members.part else recognise(node.pci)
        except EvidenceError:
            part = None
        return Site(self.path, name or "default", members, part, self.baselines.get(name or "", ()))

    def run_site(self, sites: Iterable[Site]) -> Site:
        """Return what is expected of a run: that of its nodes, where they are all of one kind.

        A log may be judged without any node: then of the only class that the file describes.
        """
        kinds = list({(site.class_name, site.part): site for site in sites}.values())
        if not kinds and len(self.classes) == 1:
            (name, members), *_ = self.classes.items()
            part = part_by_name(members.part or "")
            return Site(self.path, name, members, part, self.baselines.get(name, ()))
        return kinds[0] if len(kinds) == 1 else Site(self.path, "default", NodeClass(), None)


@dataclass(frozen=True)
class Roles:
    """Which RDMA ports a job on this node uses, and how that is known (empty: it is not)."""

    compute: tuple[Port, ...]
    others: tuple[Port, ...]
    known_from: str


@dataclass(frozen=True)
class Site:
    """What is expected of one node."""

    path: str
    class_name: str
    members: NodeClass
    part: Part | None
    baseline: tuple[Report, ...] = ()  # nccl-tests reports of a good run

    def _expected(self, table: str, name: str, customary: Any = None, *, binding: bool = False) -> Expected:
        holder: Any = getattr(self.members, table) if table else self.members
        key = ".".join(part for part in ("class", self.class_name, table, name) if part)
        if (value := getattr(holder, name)) is not None:
            return Expected(value, f"{Path(self.path).name} {key}", key)
        if customary is not None and self.part is not None:
            return Expected(customary, f"{self.part.name}: {self.part.source}", key, binding)
        return Expected(None, "", key)

    @property
    def gpus(self) -> Expected:
        """GPUs of the node; what a baseboard carries is a fact of the board, so it binds."""
        return self._expected("", "gpus", self.part.gpus if self.part else None, binding=True)

    @property
    def hcas(self) -> Expected:
        """RDMA devices of the compute fabric."""
        return self._expected("", "hcas")

    @property
    def rate_gbps(self) -> Expected:
        """Rate of each compute port, Gb/s."""
        return self._expected("ports", "rate_gbps", self.part.compute_rate_gbps if self.part else None)

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
    def networks(self) -> Expected:
        """Multus networks that a pod of this class is attached to."""
        return self._expected("ports", "networks")

    @property
    def checkpoint_path(self) -> Expected:
        """Directory that holds the checkpoints."""
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
        """Return what the site says of RoCE's quality of service: a key of ``[class.X.qos]``."""
        return self._expected("qos", name)

    def threshold(self, name: str, default: float | None = None, source: str = "") -> Expected:
        """Return a floor of the site, or the built-in one, which binds, with its source."""
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
        """Tell the compute ports from the others: cluster file > NCCL_IB_HCA > nearest to a GPU > no BlueField.

        Storage, management and spare ports may be down by design, so only ports that a job uses
        are judged. On Grace no NIC is nearer to a GPU than another; there the BlueFields carry the
        node's own traffic. Where nothing tells, the ports of the usual link layer are meant.
        Raises EvidenceError if the ports could not be read.
        """
        ports = node.rdma_ports
        if self.members.ports.compute is not None:
            named = set(self.members.ports.compute)
            return _split(ports, [p for p in ports if p.device in named], f"{Path(self.path).name}")
        aside = {*(self.members.ports.storage or ()), *(self.members.ports.management or ())}
        ports = tuple(port for port in ports if port.device not in aside)
        if (selected := _nccl_selection(node, ports)) is not None:
            return _split(node.rdma_ports, selected, "NCCL_IB_HCA")
        near = _near_gpus(node)
        if near and (chosen := [port for port in ports if port.device in near]):
            return _split(node.rdma_ports, chosen, "nearest to a GPU (nvidia-smi topo -m)")
        if self.part is not None and self.part.nic_on_cpu:
            plain = [port for port in ports if not is_bluefield(node.evidence, port.device)]
            if plain and len(plain) < len(ports):
                return _split(node.rdma_ports, plain, f"{self.part.name}: ConnectX, not BlueField")
        return _split(node.rdma_ports, ports if aside else _of_most(ports), "cluster file" if aside else "")

    def missing_devices(self, node: NodeFacts) -> tuple[str, ...]:
        """Return the compute devices that the cluster file names and the kernel does not have."""
        return tuple(d for d in self.members.ports.compute or () if d not in node.rdma_devices)


def _split(ports: Sequence[Port], compute: Sequence[Port], known_from: str) -> Roles:
    return Roles(tuple(compute), tuple(port for port in ports if port not in compute), known_from)


def _of_most(ports: Sequence[Port]) -> Sequence[Port]:
    """Return the ports of the link layer that most have: NCCL uses one, and the others serve something else.

    So it is in a cloud's virtual machine: eight InfiniBand functions, and one of Ethernet behind its eth0.
    """
    layers = Counter(port.link_layer for port in ports)
    usual = [layer for layer, number in layers.items() if number == max(layers.values())]
    return [port for port in ports if port.link_layer in usual]


def _nccl_selection(node: NodeFacts, ports: Sequence[Port]) -> list[Port] | None:
    """Apply NCCL_IB_HCA; None where it is not set or selects nothing (its own check says so)."""
    try:
        selection = node.nccl_env.hca_selection
    except EvidenceError:
        return None
    if selection is None:
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


def load(path: Path) -> Cluster:
    """Read and validate a cluster file; raises ClusterFileError with every mistake in it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ClusterFileError(f"{path}: cannot be read: {error.strerror}") from None
    return decode(raw, str(path))


def decode(raw: bytes, path: str) -> Cluster:
    """Validate the bytes of a cluster file; ``path`` is what to call it. Raises ClusterFileError."""
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ClusterFileError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    try:
        data = _decoded(text)
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, or a number of thousands of digits
        raise ClusterFileError(f"{path}: is not TOML: {error}") from None
    return from_data(data, path, text)


def _decoded(text: str) -> dict[str, Any]:
    """Decode TOML; raises ValueError or RecursionError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    decoded: dict[str, Any] = tomllib.loads(text)
    return decoded


def from_data(data: Mapping[str, Any], path: str, text: str = "") -> Cluster:
    """Validate a decoded cluster file; ``text`` is what its line numbers are found in."""
    reader = schema.Reader(lambda key_path: line_of(text, key_path))
    reader.known(data, (), {"cluster", "class", "fabric"})
    about = reader.subtable(data, (), "cluster")
    reader.known(about, ("cluster",), {"name"})
    name = reader.value(about, ("cluster", "name"), schema.text) or ""
    classes: dict[str, NodeClass] = {}
    for class_name in reader.subtable(data, (), "class"):
        body = reader.subtable(data["class"], ("class",), class_name)
        classes[class_name] = reader.dataclass(NodeClass, body, ("class", class_name))
    fabric = cluster_fabric.read(reader, reader.subtable(data, (), "fabric"), path)
    if not classes and "fabric" not in data and not reader.mistakes:
        reader.mistake((), "the file describes no class of nodes", "add a table [class.NAME] with gpus = 8")
    _consistent(reader, classes)
    baselines = {name: cluster_roofline.baseline(reader, name, c.baseline, path) for name, c in classes.items()}
    if reader.mistakes:
        raise ClusterFileError("\n".join(reader.report(path)))
    return Cluster(path, name, classes, fabric, baselines)


def _consistent(reader: schema.Reader, classes: Mapping[str, NodeClass]) -> None:
    rest = [name for name, members in classes.items() if members.nodes is None]
    if len(rest) > 1:
        reader.mistake(
            ("class", rest[1]), f"two classes ({', '.join(rest)}) list no nodes",
            'say which nodes each holds: nodes = "gpu[001-064]"',
        )  # fmt: skip
    seen: dict[str, str] = {}
    for name, members in classes.items():
        for node in members.nodes or ():
            if node in seen and seen[node] != name:
                reader.mistake(
                    ("class", name, "nodes"),
                    f"{node} is in class {seen[node]} too",
                    "list each node in one class",
                )
                break
            seen[node] = name
        if members.checkpoint.interval_min is not None and members.checkpoint.path is None:
            reader.mistake(
                ("class", name, "checkpoint", "interval_min"), "says how often and not where",
                'add path = "/shared/checkpoints"',
            )  # fmt: skip
        if members.qos.lossless and members.qos.pfc_priority is None:
            reader.mistake(
                ("class", name, "qos", "lossless"), "a lossless fabric needs its priority",
                "add pfc_priority = 3 (the priority your switches pause)",
            )  # fmt: skip
        _consistent_marking(reader, name, members.qos)
        cluster_roofline.consistent(reader, name, members, part_by_name(members.part or ""))
        roles = [(f.name, getattr(members.ports, f.name) or ()) for f in fields(Ports)[:3]]
        for position, (role, devices) in enumerate(roles):
            for other, others in roles[:position]:
                if shared := sorted(set(devices) & set(others)):
                    reader.mistake(
                        ("class", name, "ports", role), f"{shared[0]} has the role {other} too",
                        "give each device one role",
                    )  # fmt: skip
        named = members.ports.compute
        if named is not None and members.hcas is not None and len(named) != members.hcas:
            reader.mistake(
                ("class", name, "hcas"), f"hcas is {members.hcas} but ports.compute names {len(named)} devices",
                "make the two agree, or leave hcas out",
            )  # fmt: skip


def _consistent_marking(reader: schema.Reader, name: str, qos: Qos) -> None:
    """Note where traffic class, DSCP and the DSCP of notifications contradict each other."""
    path, number = ("class", name, "qos"), qos.traffic_class
    if number is not None and number & 3 == 3:
        reader.mistake(
            (*path, "traffic_class"), f"{number} has ECN bits 3, which mark every packet as congested",
            f"write {number - 1}",
        )  # fmt: skip
    if number is not None and qos.dscp is not None and number >> 2 != qos.dscp:
        reader.mistake(
            (*path, "dscp"), f"traffic_class {number} is DSCP {number >> 2}, not {qos.dscp}",
            f"make the two agree (traffic_class = {4 * qos.dscp + 2}), or leave one out",
        )  # fmt: skip
    if number is not None and qos.trust == "pcp":
        reader.mistake(
            (*path, "traffic_class"), "ports that trust pcp do not look at it",
            'leave it out, or write trust = "dscp"',
        )  # fmt: skip
    marked = qos.dscp if qos.dscp is not None else number >> 2 if number is not None else None
    if marked is not None and qos.cnp_dscp == marked:
        reader.mistake(
            (*path, "cnp_dscp"), f"{marked} is the DSCP of the traffic that notifications are to slow",
            "give them a DSCP of their own: cnp_dscp = 48",
        )  # fmt: skip


def line_of(text: str, key_path: tuple[str, ...]) -> int | None:
    """Find the line on which a key is set, by asking the TOML parser for longer and longer prefixes.

    The statement that sets a key begins right after the last prefix that parses without it.
    """
    if not key_path:
        return None
    lines = text.splitlines(keepends=True)
    boundary = 0
    for count in range(1, len(lines) + 1):
        try:
            data: Any = _decoded("".join(lines[:count]))
        except (ValueError, RecursionError):
            continue
        for part in key_path:
            data = data.get(part) if isinstance(data, dict) else None
        if data is not None:
            return boundary + 1
        boundary = count
    return line_of(text, key_path[:-1])
