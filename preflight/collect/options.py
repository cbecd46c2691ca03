"""Options of a collection, and the probe plan of each node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from preflight.expectations import Cluster
    from preflight.probes.probe import Probe
    from preflight.transport.kubernetes.kubectl import Kubectl

#: Overall deadline in seconds, for one node and for a fleet. Each node of a fleet gets the one-node deadline.
DEADLINE_S, FLEET_DEADLINE_S = 60.0, 600.0

#: Additional seconds for a fabric sweep, which queries every port; this is the time limit of its probes.
SWEEP_S = 120.0
#: Minimum seconds of a deadline in addition to the window, for both readings of a busy node.
MARGIN_S = 10.0


@dataclass(frozen=True)
class CollectOptions:
    """Options of a collection.

    ``deadline_s`` is the overall deadline in seconds; None means the default.
    """

    deadline_s: float | None = None
    sudo: bool = False
    via: str = "auto"
    ssh_config: Path | None = None
    fanout: int = 64
    connect_timeout_s: float = 15.0
    fabric: bool = False
    switches: bool = False
    window_s: float | None = None
    namespace: str | None = None
    container: str | None = None
    job: str | None = None
    judge_on_nodes: bool = False

    @property
    def extra_s(self) -> float:
        """Additional seconds that a node may take."""
        return (self.window_s or 0) + (SWEEP_S if self.fabric else 0)

    @property
    def kubectl(self) -> Kubectl:
        """The options of kubectl."""
        from preflight.transport.kubernetes.kubectl import Kubectl

        return Kubectl(self.namespace or "", self.container or "")

    def limits(self, usual_s: float) -> float:
        """Return the deadline in seconds; ``usual_s`` is the default.

        The time of a window and of a sweep is added to the default. Raises UsageError if a window does not fit.
        """
        if self.deadline_s is None:
            return usual_s + self.extra_s
        if self.window_s is not None and self.deadline_s < self.window_s + MARGIN_S:
            raise UsageError(
                f"--window {self.window_s:g} does not fit into --deadline {self.deadline_s:g}: set at "
                f"least {self.window_s + MARGIN_S:g} seconds, or omit it"
            )
        return self.deadline_s


def plans(
    probes: Sequence[Probe], cluster: Cluster | None, options: CollectOptions, sweeper: str | None = None
) -> Callable[[str, float], Mapping[str, Any]]:
    """Return a function that makes the plan of a node.

    The node's class can forbid sudo, and can declare checkpoint paths and other things to probe. ``sweeper`` is the one
    node that sweeps the fabric.
    """
    from preflight.collect.class_probes import class_probes
    from preflight.probes.probe import OUTPUT_CAP, plan
    from preflight.probes.sweep import SWEEP_CAP, sweep

    def make(node: str, deadline_s: float) -> Mapping[str, Any]:
        name = cluster.class_of(node) if cluster else None
        members = cluster.classes[name] if cluster and name is not None else None
        allowed = members is None or members.sudo is not False
        node_probes = [*probes, *class_probes(members, options.window_s is not None)]
        if node == sweeper:
            device = cluster.fabric.settings.device if cluster else None
            node_probes = [*node_probes, *sweep(device, window=options.window_s is not None)]
        cap = SWEEP_CAP if node == sweeper else OUTPUT_CAP
        return plan(node_probes, node=node, deadline_s=deadline_s, sudo=options.sudo and allowed, output_cap=cap,
                    window_s=options.window_s, tools=(members.tools or ()) if members else ())  # fmt: skip

    return make


def sweeper(nodes: Sequence[str], cluster: Cluster | None, options: CollectOptions) -> str | None:
    """Return the node that sweeps the fabric, if ``--fabric`` is given.

    Only one node sweeps, because a sweep queries every switch and HCA. If there are several nodes, the cluster file
    names it.
    """
    if not options.fabric:
        return None
    named = cluster.fabric.settings.sweep_from if cluster else None
    if named is None and len(nodes) == 1:
        return nodes[0]
    if named is None:
        raise UsageError('--fabric: declare which node sweeps, in the cluster file: [fabric] sweep_from = "NODE"')
    found = [node for node in nodes if named in (node, node.split(".")[0])]
    if not found:
        raise UsageError(f"--fabric: {named}, which [fabric] sweep_from names, is not among the nodes to collect from")
    return found[0]
