"""The nodes of a large fleet once more: their evidence is read again where a check asks for more than was kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from preflight.evidence.document import Evidence
from preflight.facts.node import Ballots, NodeFacts

#: Nodes whose evidence and facts are held at once. A fleet of no more is held as a whole.
HELD = 64


class Recall:
    """Reads evidence again, and lets go of what was not asked for lately."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[Recalled, Evidence]] = OrderedDict()

    def of(self, node: Recalled) -> Evidence:
        """Return the evidence of a node."""
        known = self._held.get(id(node))
        if known is None:
            known = self._held[id(node)] = (node, node.read())
            if len(self._held) > HELD:
                _, (oldest, _) = self._held.popitem(last=False)
                oldest.forget()
        else:
            self._held.move_to_end(id(node))
        return known[1]


class Recalled(NodeFacts):
    """Facts of a node that was judged before: the ballots are at hand, anything else is read again."""

    def __init__(self, node: str, ballots: Ballots, read: Callable[[], Evidence], recall: Recall) -> None:
        self.node = node
        self.ballots = ballots
        self.read = read
        self._recall = recall

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """The evidence, read again."""
        return self._recall.of(self)

    def forget(self) -> None:
        """Let go of all facts but the ballots."""
        kept = ("node", "ballots", "read", "_recall")
        for name in [name for name in vars(self) if name not in kept]:
            del vars(self)[name]
