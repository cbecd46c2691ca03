"""Nodes of a large fleet, reloaded when a check needs uncached evidence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from preflight.evidence.document import Evidence, memory
from preflight.facts.node import FleetAnswers, NodeFacts

#: Maximum number of nodes with evidence and facts in memory; smaller fleets stay in memory.
HELD = 64

#: Maximum bytes of their evidence, unless it belongs to a single node.
HELD_BYTES = 384 << 20


class EvidenceCache:
    """Cache of re-read evidence; the least recently used is dropped."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[ReloadedNode, Evidence, int]] = OrderedDict()
        self._bytes = 0

    def of(self, node: ReloadedNode) -> Evidence:
        """Return the evidence of a node; read it again if it is not cached."""
        known = self._held.get(id(node))
        if known is None:
            evidence = node.read()
            known = self._held[id(node)] = (node, evidence, memory(evidence))
            self._bytes += known[2]
            while len(self._held) > HELD or (self._bytes > HELD_BYTES and len(self._held) > 1):
                _, (oldest, _, size) = self._held.popitem(last=False)
                self._bytes -= size
                oldest.forget()
        else:
            self._held.move_to_end(id(node))
        return known[1]


class ReloadedNode(NodeFacts):
    """Facts of a judged node: fleet answers are cached, all others are reloaded."""

    def __init__(
        self, node: str, fleet_answers: FleetAnswers, read: Callable[[], Evidence], recall: EvidenceCache
    ) -> None:
        self.node = node
        self.fleet_answers = fleet_answers
        self.read = read
        self._recall = recall

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """The evidence of the node, read again unless it is cached."""
        return self._recall.of(self)

    def forget(self) -> None:
        """Drop all facts except the fleet answers."""
        retained = ("node", "fleet_answers", "encoded", "read", "_recall")
        for name in [name for name in vars(self) if name not in retained]:
            del vars(self)[name]
