"""The leaf of a port that is down: LLDP does not name it, the cables of peers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight._startup.lightclass import dataclass
from preflight.incidents.parts import Parts

#: Ports of a node at one leaf from which its remaining ports are taken to be there as well. A judgement.
_ALL_AT_ONE = 3

#: Different plans of cabling; of more, nodes do not have the same cabling.
_MOST_PLANS = 256

#: RDMA device -> the leaf at the other end of its cable.
Plan = Mapping[str, str]


@dataclass(frozen=True)
class Cabling:
    """How the nodes of a report are cabled, each plan once."""

    plans: tuple[Plan, ...]

    @classmethod
    def of(cls, nodes: Iterable[Parts]) -> Cabling:
        """Return the plans of nodes; none where nearly each has its own."""
        plans: dict[frozenset[tuple[str, str]], Plan] = {}
        for node in nodes:
            if node.leaves:
                plans.setdefault(frozenset(node.leaves.items()), node.leaves)
            if len(plans) > _MOST_PLANS:
                return cls(())
        return cls(tuple(plans.values()))

    def leaf(self, node: Parts, subject: str) -> str:
        """Return the leaf on which peers have a port that has no neighbour here.

        Peers have all other ports on the same leaves. Without peers, a node with all its ports at one leaf has this
        port there as well. Empty: not known.
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
