"""Load of experts: elements received by each rank in the all-to-alls of a job.

Dispatch and combine are a pair: a rank returns in the second the elements received in the first. So the elements that
it sends and receives over both are twice its expert tokens plus twice its own tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.facts.trace.matching import MatchedSeries


@dataclass(frozen=True)
class ExpertLoad:
    """Tokens of the ranks of one expert-parallel group, as multiples of their mean."""

    ranks: tuple[int, ...]
    load: Mapping[int, float]
    calls: int

    @property
    def most(self) -> int:
        """The rank with the largest load."""
        return max(self.ranks, key=lambda rank: self.load[rank])


def loads(matched: Sequence[MatchedSeries]) -> tuple[ExpertLoad, ...]:
    """Return the load of each group; groups without sizes are left out."""
    groups = []
    for series in matched:
        if series.kind != "alltoall" or not series.complete or len(series) < 2:
            continue
        moved = {}
        for rank, calls, places in zip(series.members, series.series, series.places, strict=True):
            sizes = [(calls.sent[at], calls.received[at]) for at in places]
            if any(sent < 0 or received < 0 for sent, received in sizes):
                break
            moved[rank] = sum(sent + received for sent, received in sizes)
        mean = sum(moved.values()) / len(series.members)
        if len(moved) == len(series.members) and mean:
            load = {rank: max(0.0, 2 * moved[rank] / mean - 1) for rank in moved}
            groups.append(ExpertLoad(series.members, load, len(series)))
    return tuple(groups)
