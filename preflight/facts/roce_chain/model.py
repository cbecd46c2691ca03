"""The links of a RoCE port's chain: what one is, what a site wants of it, and where it is looked at."""

from __future__ import annotations

import enum
import re
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts import interfaces, port_qos, rdma_ports

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts
    from preflight.facts.rdma_ports import Port


class State(str, enum.Enum):
    """What is known of a link."""

    OK = "ok"
    BROKEN = "BROKEN"
    UNKNOWN = "unknown"
    APART = "-"  # does not apply here

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Want:
    """What a site expects: the value (None: it does not say), and where it says so."""

    value: Any = None
    source: str = ""


@dataclass(frozen=True)
class RocePolicy:
    """How a site wants its RoCE ports."""

    lossless: Want = Want()
    pfc_priority: Want = Want()
    mtu: Want = Want()  # RDMA MTU, bytes
    netdev_mtu: Want = Want()  # Ethernet MTU, bytes
    trust: Want = Want()
    traffic_class: Want = Want()
    dscp: Want = Want()
    ecn: Want = Want()
    cnp_dscp: Want = Want()
    dcbx: Want = Want()


@dataclass(frozen=True)
class ChainLink:
    """One link of a port's chain."""

    name: str
    state: State
    value: str = ""  # what was read, in a few words
    reason: str = ""  # what is the matter, or why it is not known; no word of which port
    expected: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""
    minor: bool = False  # broken, but no job is slower for it yet
    compared: str = ""  # what other nodes should have alike, where the value also names its source; empty: the value


@dataclass(frozen=True)
class Chain:
    """The chain of one port."""

    port: Port
    links: tuple[ChainLink, ...]
    inferred: bool = False  # nothing says that the fabric is lossless; the port's own PFC does

    def of(self, state: State) -> tuple[ChainLink, ...]:
        """Return the links in one state, in order."""
        return tuple(link for link in self.links if link.state is state)

    def link(self, name: str) -> ChainLink:
        """Return a link by its name."""
        return next(link for link in self.links if link.name == name)

    @property
    def line(self) -> str:
        """The chain in one line: ``MTU > GID > [PFC: priority none] > ECN?``; what does not apply is left out."""
        shown = {State.OK: "{0.name}", State.BROKEN: "[{0.name}: {0.value}]", State.UNKNOWN: "{0.name}?"}
        return " > ".join(shown[link.state].format(link) for link in self.links if link.state in shown)

    @property
    def text(self) -> str:
        """The chain as a table, one line for each link."""
        width = max(len(link.name) for link in self.links)
        lines = [f"{link.state:<8}{link.name:<{width}}  {link.value or link.reason}".rstrip() for link in self.links]
        return "\n".join(lines)


class Place:
    """A port whose links are looked at, and what several links need of it."""

    def __init__(self, node: NodeFacts, port: Port, policy: RocePolicy) -> None:
        """Take a port that is active and has an interface here."""
        self.node, self.port, self.policy = node, port, policy
        self.evidence, self.netdev = node.evidence, port.netdev or ""
        self.inferred = False
        self.priority: int | None = None
        if policy.lossless.value:
            self.priority = policy.pfc_priority.value
        elif policy.lossless.value is None:
            self.priority = self._with_pfc()
            self.inferred = self.priority is not None

    def _with_pfc(self) -> int | None:
        """Take the one priority that has PFC for the lossless one, where nobody says."""
        try:
            enabled = {port_qos.pfc(self.evidence, slave).value for slave in self.slaves or (self.netdev,)}
        except EvidenceError:
            return None
        found = next(iter(enabled)) if len(enabled) == 1 else ()
        return next(iter(found)) if len(found) == 1 else None

    @cached_property
    def slaves(self) -> tuple[str, ...]:
        """The interfaces that a bond is made of, each with a quality of service of its own; none if it is no bond."""
        key = f"file:{interfaces.ROOT}/{self.netdev}/bonding/slaves"
        if key not in self.evidence or not self.evidence.exists(key):
            return ()
        names = tuple(self.evidence.text(key).split())
        if not all(re.fullmatch(r"[^\s/]{1,15}", name) for name in names):
            raise EvidenceError(key, "holds what is no name of an interface")
        return names

    def of_slave(self, name: str) -> Place:
        """Return the same port, seen through one interface of its bond."""
        place = copy(self)
        place.__dict__.pop("trust", None)
        place.netdev = name
        return place

    @property
    def source(self) -> str:
        """Where the lossless priority is known from."""
        return "the one that has PFC on this port" if self.inferred else str(self.policy.pfc_priority.source)

    @property
    def function(self) -> str:
        """The port's PCI address; empty for a device that is on no bus, and for a bond's other function."""
        if self.slaves and self.netdev not in self.evidence.listing(
            f"dir:{rdma_ports.ROOT}/{self.port.device}/device/net"
        ):
            return ""
        return next(reversed(rdma_ports.device_path(self.evidence, self.port.device)), "")

    @cached_property
    def trust(self) -> port_qos.Reading[str]:
        """What the port takes a packet's priority from; raises EvidenceError."""
        mlx5 = rdma_ports.is_mlx5(self.evidence, self.port.device)
        return port_qos.trust(self.evidence, self.netdev, empty_is_pcp=mlx5)

    @property
    def trusts_pcp(self) -> bool:
        """Whether it is the VLAN tag's priority, so that DSCP means nothing; False where nobody knows."""
        try:
            return self.trust.value == "pcp"
        except EvidenceError:
            return False
