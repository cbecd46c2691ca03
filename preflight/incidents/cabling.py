"""Inference of the leaf of a port that is down, and of pods, from cables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight._startup.lightclass import dataclass
from preflight.incidents.parts import Parts

#: Minimum number of a node's ports that are all on one leaf, for another port to be assumed there. A judgement call.
_ALL_AT_ONE = 3

#: Maximum number of distinct cabling plans; beyond it, nodes are not taken as peers.
_MOST_PLANS = 256

#: RDMA device -> the leaf at the other end of its cable.
Plan = Mapping[str, str]


@dataclass(frozen=True)
class Cabling:
    """The distinct cabling plans of a report's nodes."""

    plans: tuple[Plan, ...]

    @classmethod
    def of(cls, nodes: Iterable[Parts]) -> Cabling:
        """Return the distinct plans of nodes; none if there are too many."""
        plans: dict[frozenset[tuple[str, str]], Plan] = {}
        for node in nodes:
            if node.leaves:
                plans.setdefault(frozenset(node.leaves.items()), node.leaves)
            if len(plans) > _MOST_PLANS:
                return cls(())
        return cls(tuple(plans.values()))

    def leaf(self, node: Parts, subject: str) -> str:
        """Infer the leaf of a port that has no LLDP neighbour; empty if unknown.

        It is the leaf of the same port on peers, which are nodes with the same cabling: none of their other ports is on
        a different leaf, and at least half of them are known. If no peer shows the leaf, and at least three other ports
        of the node are all on one leaf, this port is assumed to be there as well.
        """
        mine, names = node.leaves, node.of_subject(subject)
        if not mine:
            return ""
        theirs = {plan[name] for plan in self.plans for name in names & plan.keys() if _agree(mine, plan)}
        if not theirs and len(mine) >= _ALL_AT_ONE:
            theirs = set(mine.values())
        return theirs.pop() if len(theirs) == 1 else ""


def pods_of(nodes: Iterable[Parts]) -> dict[str, str]:
    """Return the pod of each leaf, named after one of its leaves.

    Two leaves are in one pod if a node is connected to both, or to leaves of that pod.
    """
    pods: dict[str, str] = {}

    def pod(leaf: str) -> str:
        while pods[leaf] != leaf:
            pods[leaf] = leaf = pods[pods[leaf]]
        return leaf

    for node in nodes:
        leaves = sorted(node.compute_leaves)
        for leaf in leaves:
            pods.setdefault(leaf, leaf)
            pods[pod(leaf)] = pod(leaves[0])
    return {leaf: pod(leaf).replace(" ", "_") for leaf in pods}


def _agree(mine: Plan, plan: Plan) -> bool:
    """Return whether a plan has at least half of a node's ports, on the same leaves."""
    shared = mine.keys() & plan.keys()
    return 2 * len(shared) >= len(mine) and all(mine[device] == plan[device] for device in shared)
