"""Factors of a run: the parts that it uses, and the relations between its ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from preflight.bench.observation import Observation

NODE, GPU, RAIL, TO_OTHER_RAIL = "node", "gpu", "rail", "rail facing another rail"
LEAF, LEAF_PAIR, UPLINKS, UPLINK = "leaf", "leaf pair", "uplinks", "uplink"
RAILS_DIFFER, LEAVES_DIFFER, BLOCKS_DIFFER = "different rails", "different leaves", "different blocks"

#: Relations between the ends of a run. They are not faults, because a fabric may be designed that way.
RELATIONS = (RAILS_DIFFER, LEAVES_DIFFER, BLOCKS_DIFFER)


class Factor(NamedTuple):
    """A part or relation that several runs may share."""

    kind: str
    of: str = ""  # name of the part; empty for a relation
    node: str = ""  # node of a GPU; otherwise empty

    def __str__(self) -> str:
        if self.kind == GPU:
            return f"GPU {self.of} of {self.node}, or its port"
        if self.kind == TO_OTHER_RAIL:
            return f"rail {self.of} facing another rail"
        if self.kind == UPLINKS:
            return f"the uplinks of leaf {self.of}"
        return f"{self.kind} {self.of}".strip()


class RailAddresses:
    """The rails: PCI addresses at which several nodes have a GPU."""

    def __init__(self, runs: Sequence[Observation]) -> None:
        """Collect the addresses from runs."""
        places = {(gpu, end.node) for run in runs for end in run.ends for gpu in end.gpus}
        nodes = Counter(gpu for gpu, _ in places)
        self.addresses = frozenset(gpu for gpu, count in nodes.items() if count > 1)

    def differ(self, run: Observation) -> bool:
        """Return whether the ends of a run use different rails."""
        return len({end.gpus for end in run.ends}) > 1 and all(set(end.gpus) <= self.addresses for end in run.ends)


def of(run: Observation, rails: RailAddresses, blocks: Mapping[str, int]) -> Iterator[Factor]:
    """Yield the factors of a run, each once; ``blocks`` maps a node to its block."""
    for end in run.ends:
        yield Factor(NODE, end.node)
        for gpu in end.gpus:
            yield Factor(GPU, gpu, end.node)
    used = dict.fromkeys(gpu for end in run.ends for gpu in end.gpus if gpu in rails.addresses)
    for gpu in used:
        yield Factor(RAIL, gpu)
    if len(run.ends) > 1 and rails.differ(run):
        yield Factor(RAILS_DIFFER)
        if all(len(end.gpus) == 1 for end in run.ends):
            for gpu in used:
                if any(end.gpus != (gpu,) for end in run.ends):
                    yield Factor(TO_OTHER_RAIL, gpu)
    yield from _above(run)
    numbers = {blocks.get(end.node) for end in run.ends}
    if len(numbers) > 1 and None not in numbers:
        yield Factor(BLOCKS_DIFFER)


def _above(run: Observation) -> Iterator[Factor]:
    leaves = sorted({end.leaf for end in run.ends if end.leaf is not None})
    for leaf in leaves:
        yield Factor(LEAF, leaf)
    if len(leaves) > 1:
        yield Factor(LEAVES_DIFFER)
        for leaf in leaves:
            yield Factor(UPLINKS, leaf)
        if len(leaves) == 2:
            yield Factor(LEAF_PAIR, " - ".join(leaves))
    for uplink in dict.fromkeys(run.uplinks):
        yield Factor(UPLINK, uplink)
