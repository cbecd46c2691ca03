"""Comparison of the leaves of a node's rails with those of its peers.

A plan is the rails of a node, each as ``port NUL leaf``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.facts.majority import QUORUM

#: Minimum share of leaves in common with peers for a differing rail to count as miscabled, rather than wired according
#: to a different plan.
_SAME_PLAN = 0.5


@dataclass(frozen=True)
class Dispute:
    """Rails that a node and some of its peers have on different leaves."""

    rails: tuple[tuple[str, str], ...]  # here and there
    ours: int  # nodes with all of these rails on the same leaves
    theirs: int

    @property
    def is_lost(self) -> bool:
        """Whether a majority has these rails on other leaves."""
        return self.theirs > self.ours and self.theirs >= QUORUM

    @property
    def is_won(self) -> bool:
        """Whether a majority has these rails on the same leaves."""
        return self.ours > self.theirs and self.ours >= QUORUM


def dispute_of(plan: tuple[str, ...], alike: Mapping[tuple[str, ...], int]) -> Dispute | None:
    """Return the main dispute of a plan with its peers; None if all are won.

    ``alike`` is the number of nodes with each plan. A peer with another port down has another plan, but still shows the
    leaves of its other rails.
    """
    peers = [(frozenset(other), number) for other, number in alike.items() if _are_peers(plan, other)]

    def count(rails: Collection[str]) -> int:
        return sum(number for peer, number in peers if peer.issuperset(rails))

    apart = {tuple(wrong) for other, _ in peers if (wrong := _elsewhere(plan, other))}
    disputes = [
        Dispute(rails, count([here for here, _ in rails]), count([there for _, there in rails]))
        for rails in sorted(apart)
    ]
    left = [dispute for dispute in disputes if not dispute.is_won]
    return max(left, key=lambda dispute: (dispute.is_lost, len(dispute.rails), dispute.theirs), default=None)


def _are_peers(plan: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two nodes of one wiring plan share at least half of their leaves."""
    mine, theirs = ({rail.split("\0")[1] for rail in rails} for rails in (plan, other))
    return len(mine & theirs) >= _SAME_PLAN * max(len(mine), len(theirs))


def _elsewhere(plan: Sequence[str], other: Iterable[str]) -> list[tuple[str, str]]:
    """Return the rails that two peers have on different leaves.

    A port that is down has no neighbour; only rails present on both nodes are compared.
    """
    usual = {rail.split("\0")[0]: rail for rail in other}
    return [(rail, usual[port]) for rail in plan if usual.get(port := rail.split("\0")[0], rail) != rail]
