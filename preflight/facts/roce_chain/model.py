"""Model of the RoCE chain: links, the site's expectations, the port."""

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
    """State of a link."""

    OK = "ok"
    BROKEN = "BROKEN"
    UNKNOWN = "unknown"
    APART = "-"  # does not apply

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Want:
    """A site's expectation: the value (None: not declared), and its source."""

    value: Any = None
    source: str = ""


@dataclass(frozen=True)
class RocePolicy:
    """A site's policy for its RoCE ports."""

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
    value: str = ""  # the measured value, in short
    reason: str = ""  # the fault, or why the value is unknown; without the port
    expected: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""
    minor: bool = False  # broken, but without effect on jobs yet
    compared: str = ""  # value to compare with other nodes, if it also names its source; empty: the value itself


@dataclass(frozen=True)
class Chain:
    """The chain of one port."""

    port: Port
    links: tuple[ChainLink, ...]
    inferred: bool = False  # lossless is not declared, but implied by the port's own PFC

    def of(self, state: State) -> tuple[ChainLink, ...]:
        """Return the links in one state, in order."""
        return tuple(link for link in self.links if link.state is state)

    def link(self, name: str) -> ChainLink:
        """Return a link by its name."""
        return next(link for link in self.links if link.name == name)

    @property
    def line(self) -> str:
        """The chain in one line: ``MTU > GID > [PFC: priority none] > ECN?``.

        Links that do not apply are left out.
        """
        shown = {State.OK: "{0.name}", State.BROKEN: "[{0.name}: {0.value}]", State.UNKNOWN: "{0.name}?"}
        return " > ".join(shown[link.state].format(link) for link in self.links if link.state in shown)

    @property
    def text(self) -> str:
        """The chain as a table, one line for each link."""
        width = max(len(link.name) for link in self.links)
        lines = [f"{link.state:<8}{link.name:<{width}}  {link.value or link.reason}".rstrip() for link in self.links]
        return "\n".join(lines)


class Place:
    """A port of the chain, with values that several links need."""

    def __init__(self, node: NodeFacts, port: Port, policy: RocePolicy) -> None:
        """Describe an active port with an interface in this namespace."""
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
        """Return the only priority with PFC, which counts as lossless, or None.

        Used if no lossless priority is declared.
        """
        try:
            enabled = {port_qos.pfc(self.evidence, slave).value for slave in self.slaves or (self.netdev,)}
        except EvidenceError:
            return None
        found = next(iter(enabled)) if len(enabled) == 1 else ()
        return next(iter(found)) if len(found) == 1 else None

    @cached_property
    def slaves(self) -> tuple[str, ...]:
        """The interfaces of a bond, each with its own QoS settings; empty if not a bond."""
        key = f"file:{interfaces.ROOT}/{self.netdev}/bonding/slaves"
        if key not in self.evidence or not self.evidence.exists(key):
            return ()
        names = tuple(self.evidence.text(key).split())
        if not all(re.fullmatch(r"[^\s/]{1,15}", name) for name in names):
            raise EvidenceError(key, "contains something other than the name of an interface")
        return names

    def of_slave(self, name: str) -> Place:
        """Return the same port with one interface of its bond."""
        place = copy(self)
        place.__dict__.pop("trust", None)
        place.netdev = name
        return place

    @property
    def source(self) -> str:
        """Source of the lossless priority."""
        return "the one that has PFC on this port" if self.inferred else str(self.policy.pfc_priority.source)

    @property
    def function(self) -> str:
        """The port's PCI address.

        Empty for a device on no bus, and for the other function of a bond.
        """
        if self.slaves and self.netdev not in self.evidence.listing(
            f"dir:{rdma_ports.ROOT}/{self.port.device}/device/net"
        ):
            return ""
        return next(reversed(rdma_ports.device_path(self.evidence, self.port.device)), "")

    @cached_property
    def trust(self) -> port_qos.Reading[str]:
        """The source of a packet's priority; raises EvidenceError."""
        mlx5 = rdma_ports.is_mlx5(self.evidence, self.port.device)
        return port_qos.trust(self.evidence, self.netdev, empty_is_pcp=mlx5)

    @property
    def trusts_pcp(self) -> bool:
        """Whether the VLAN tag's priority is used, so that DSCP has no effect.

        False if unknown.
        """
        try:
            return self.trust.value == "pcp"
        except EvidenceError:
            return False
