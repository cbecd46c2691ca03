"""Description of a job's nodes from their evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from preflight._startup.lightclass import replace
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.fabric import leaves
from preflight.facts.fabric.sweep import FabricFacts, active_guids, sweeps
from preflight.facts.job_nodes import JobNode
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port


class Survey:
    """Collector of a job's nodes, which does not store their evidence."""

    def __init__(self, site_of: Callable[[NodeFacts], Site]) -> None:
        self._site_of = site_of
        self._seen: dict[str, tuple[JobNode, tuple[str, ...]]] = {}
        self._heard: dict[str, tuple[leaves.HeardSwitch, ...]] = {}
        self._guids: dict[tuple[str, str], str] = {}
        self._sweeps: list[FabricFacts] = []

    def add(self, node: NodeFacts) -> None:
        """Add a node. Raises EvidenceError, naming the node."""
        site = self._site_of(node)
        self._seen[node.node] = _read(node, site)
        self._heard[node.node] = leaves.heard(node, self._compute)
        self._sweeps += sweeps([node], self._compute)
        self._guids |= {
            (node.node, device): guid for device, guid in active_guids(node, self._compute).items()
        }  # fmt: skip

    def add_fabric(self, node: NodeFacts) -> None:
        """Add the fabric sweep of a node that is not part of the job."""
        self._sweeps += sweeps([node], self._compute)

    def _compute(self, node: NodeFacts) -> Sequence[Port]:
        return self._site_of(node).roles(node).compute

    @property
    def oversubscription(self) -> float | None:
        """The largest ratio of host links to uplinks of the leaves above the nodes.

        None without a complete sweep.
        """
        used = set(self._guids.values())
        if not self._sweeps or not used <= {guid for swept in self._sweeps for guid in swept.net.devices}:
            return None
        worst = 1.0
        for swept in self._sweeps:
            above = {swept.graph.leaf_of(guid) for guid in used if guid in swept.net.devices}
            leaves_above = [leaf for leaf in swept.graph.leaves if leaf.switch.guid in above]
            if len(swept.net.switches) == 1:
                continue
            if swept.partial or len(leaves_above) < len(above) or any(leaf.unknown for leaf in leaves_above):
                return None
            worst = max([worst, *(leaf.ratio for leaf in leaves_above)])
        return worst if isfinite(worst) else None

    def nodes(self) -> tuple[JobNode, ...]:
        """Return the nodes, with the switches above their GPUs."""
        switch_of = {
            place: swept.net.devices[leaf].label
            for swept in self._sweeps for place, guid in self._guids.items()
            if guid in swept.net.devices and (leaf := swept.graph.leaf_of(guid)) is not None
        }  # fmt: skip
        switch_of |= leaves.announced(self._heard)
        group_of = leaves.groups_of(switch_of)
        return tuple(
            replace(
                node, switches=tuple(switch_of.get((name, nic), "") for nic in nearest), group=group_of.get(name, "")
            )
            for name, (node, nearest) in self._seen.items()
        )


def _read(node: NodeFacts, site: Site) -> tuple[JobNode, tuple[str, ...]]:
    """Return a node without its switches, and the nearest NIC of each GPU."""
    try:
        gpus = node.gpus_on_bus
        compute = site.roles(node).compute
        pairs = node.gpu_nic_pairs({port.device for port in compute})
    except EvidenceError as error:
        raise EvidenceError(error.key, f"{node.node}: {error.why}") from None
    nearest: dict[str, str] = {}
    for pair in pairs:
        nearest.setdefault(pair.gpu, pair.nic)
    rates = {port.rate_gbps for port in compute if port.rate_gbps is not None}
    made = JobNode(
        node.node, site.part.name if site.part is not None else "", len(gpus), _memory(node, site),
        len({port.device for port in compute}), rates.pop() if len(rates) == 1 else None, _domain(node),
        power_w=_power(node),
    )  # fmt: skip
    return made, tuple(nearest.values())


def _memory(node: NodeFacts, site: Site) -> float | None:
    """Return the nominal memory of a GPU in GiB; None if unknown or if GPUs differ."""
    if site.part is None:
        return None
    sizes = {site.part.gpu.memory_gib(gpu.device) for gpu in node.gpus_on_bus}
    return sizes.pop() if len(sizes) == 1 else None


def _power(node: NodeFacts) -> float | None:
    """Return the lowest enforced power limit of the GPUs in watts; None if unknown."""
    try:
        limits = [gpu.power_enforced_w for gpu in node.gpu_health.gpus]
    except EvidenceError:
        return None
    return min((limit for limit in limits if limit), default=None)


def _domain(node: NodeFacts) -> str:
    """Return the multi-node NVLink domain that all GPUs report, or an empty string."""
    try:
        fabrics = {gpu.fabric for gpu in node.gpu_health.gpus}
    except EvidenceError:
        return ""
    fabric = fabrics.pop() if len(fabrics) == 1 else None
    return fabric.domain if fabric is not None else ""
