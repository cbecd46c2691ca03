"""The expectations of a site.

Every expectation is an :class:`Expected`: a value and its source. The cluster file takes precedence over the part
catalogue. An expectation without a value names the key of the cluster file that would set it.
``preflight.expectations.cluster_file`` reads and validates a cluster file before any node is contacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass, field
from preflight.expectations.catalogue import part_by_name, recognise
from preflight.expectations.fabric_table import FabricSite
from preflight.expectations.node_class import NodeClass
from preflight.expectations.switches_table import EthernetSite
from preflight.expectations.waivers import Chosen, Waiver

if TYPE_CHECKING:
    from preflight.expectations.catalogue import Part
    from preflight.expectations.gate_table import Gate
    from preflight.expectations.site import Expected, Roles, Site
    from preflight.facts.node import NodeFacts
    from preflight.parsers.nccl_tests.model import Report


@dataclass(frozen=True)
class Cluster:
    """The content of a cluster file; without one, there are no expectations."""

    path: str = ""
    name: str = ""
    classes: Mapping[str, NodeClass] = field(default_factory=dict)
    fabric: FabricSite = field(default_factory=FabricSite)
    baselines: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)
    gate: Gate | None = None
    checks: Chosen = field(default_factory=Chosen)
    waivers: tuple[Waiver, ...] = ()
    racks: Mapping[str, str] = field(default_factory=dict)  # node -> rack
    leaves: Mapping[str, str] = field(default_factory=dict)  # node -> leaf switch
    switches: EthernetSite = field(default_factory=EthernetSite)
    job: Mapping[str, Any] = field(default_factory=dict)  # settings of a job, for ``preflight plan``
    content: str = field(default="", compare=False, repr=False)  # the file itself

    def rack_of(self, node: str) -> str | None:
        """Return the rack of a node; None if it is not declared."""
        return self.racks.get(node) or self.racks.get(node.split(".")[0])

    def leaf_of(self, node: str) -> str | None:
        """Return the leaf, or group of leaves, of a node; None if it is not declared."""
        return self.leaves.get(node) or self.leaves.get(node.split(".")[0])

    def class_of(self, node: str) -> str | None:
        """Return a node's class: the one that lists it, else the one without a list.

        Return None if there is neither.
        """
        short = node.split(".")[0]
        rest = None
        for name, members in self.classes.items():
            if members.nodes is None:
                rest = name
            elif node in members.nodes or short in members.nodes:
                return name
        return rest

    @property
    def to_add(self) -> str:
        """The class name in hints for a node without a class; NAME if classes exist."""
        return "NAME" if self.classes else "default"

    def unjudged(self, judged: Iterable[str]) -> list[str]:
        """Return the nodes that the classes list, but that were not judged."""
        names = set(judged)
        names |= {name.split(".")[0] for name in names}
        listed = (node for members in self.classes.values() for node in members.nodes or ())
        return [node for node in listed if node not in names]

    def site(self, node: NodeFacts) -> Site:
        """Return the expectations of a node."""
        from preflight.evidence.document import EvidenceError

        try:
            return self.site_of(node.node, lambda: recognise(node.pci))
        except EvidenceError:
            return self.site_of(node.node, lambda: None)

    def site_of(self, node: str, recognised: Callable[[], Part | None]) -> Site:
        """Return the expectations for the node with this name.

        ``recognised`` is called for the node's part if its class declares none.
        """
        from preflight.expectations.site import Site

        name = self.class_of(node)
        members = self.classes[name] if name is not None else NodeClass()
        part = part_by_name(members.part) if members.part else recognised()
        waivers = tuple(waiver for waiver in self.waivers if waiver.speaks_of(node))
        baseline = self.baselines.get(name or "", ())
        leaf = self.leaf_of(node) or ""
        return Site(self.path, name or self.to_add, members, part, baseline, waivers, name is not None, leaf)

    def run_site(self, sites: Iterable[Site]) -> Site:
        """Return the expectations of a run; none unless all its nodes are of one kind.

        Without nodes, they are those of the only class.
        """
        from preflight.expectations.site import Site

        kinds = list({(site.class_name, site.part): site for site in sites}.values())
        if not kinds and len(self.classes) == 1:
            (name, members), *_ = self.classes.items()
            part = part_by_name(members.part or "")
            return Site(self.path, name, members, part, self.baselines.get(name, ()))
        return kinds[0] if len(kinds) == 1 else Site(self.path, self.to_add, NodeClass(), None)


def __getattr__(name: str) -> object:
    """Import, on first use, the classes that only the judge needs."""
    if name not in ("Expected", "Roles", "Site"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from preflight.expectations import site

    globals().update(Expected=site.Expected, Roles=site.Roles, Site=site.Site)
    return globals()[name]


__all__ = ["Cluster", "Expected", "NodeClass", "Roles", "Site"]
