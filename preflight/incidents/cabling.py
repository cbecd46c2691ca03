"""Leaf of a port that is down, from the cables of its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight._startup.lightclass import dataclass
from preflight.incidents.parts import Parts

#: Minimum ports of a node on one leaf for its remaining ports to be assumed there as well. A judgement call.
_ALL_AT_ONE = 3

#: Maximum number of cabling plans; with more, nodes are cabled differently.
_MOST_PLANS = 256

#: RDMA device -> the leaf at the other end of its cable.
Plan = Mapping[str, str]


@dataclass(frozen=True)
class Cabling:
    """Distinct cabling plans of the nodes of a report."""

    plans: tuple[Plan, ...]

    @classmethod
    def of(cls, nodes: Iterable[Parts]) -> Cabling:
        """Return the plans of nodes; none if nearly every node has a different one."""
        plans: dict[frozenset[tuple[str, str]], Plan] = {}
        for node in nodes:
            if node.leaves:
                plans.setdefault(frozenset(node.leaves.items()), node.leaves)
            if len(plans) > _MOST_PLANS:
                return cls(())
        return cls(tuple(plans.values()))

    def leaf(self, node: Parts, subject: str) -> str:
        """Return the leaf that peers show for a port without a neighbour here.

        Peers have all other ports on the same leaves. Without peers, a node with all other ports on one leaf has this
        port there as well. Empty if unknown.
        """
        mine, names = node.leaves, node.of_subject(subject)
        if not mine:
            return ""
        theirs = {
            plan[name]
            for plan in self.plans
            for name in names & plan.keys()
            if all(plan.get(device) == leaf for device, leaf in mine.items())
        }
        if not theirs and len(mine) >= _ALL_AT_ONE:
            theirs = set(mine.values())
        return theirs.pop() if len(theirs) == 1 else ""
