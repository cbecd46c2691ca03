"""Pipelines of a job: their stages, and how long stages wait for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from preflight._startup.lightclass import dataclass
from preflight.facts.trace.purposes import purpose
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.waiting import GroupOfRanks, Waits
from preflight.parsers.torch.collective_calls import CallKey
from preflight.parsers.torch.intervals import Spans, Stretches, clipped, total


@dataclass(frozen=True)
class Bubble:
    """The share of step time for which the stages of a pipeline wait for each other."""

    ranks: tuple[int, ...]
    share: float  # mean over the stages
    messages: float  # number of messages that the first stage sends in a step

    @property
    def ideal(self) -> float:
        """The minimum share for a schedule with this many parts of a batch.

        It is (p-1)/(m+p-1) for p stages and m parts, with one forward and one backward pass in turn (D. Narayanan et
        al., arXiv 2104.04473, section 2.2); interleaved chunks count as parts.
        """
        stages = len(self.ranks)
        return (stages - 1) / (self.messages + stages - 1)


def bubbles(ranks: Mapping[int, RankTrace], waits: Waits) -> tuple[Bubble, ...]:
    """Return the bubble of each pipeline with marked steps and all of its stages.

    Before PyTorch 2.6, message kernels do not record their peer and cannot be matched; the exposed time of
    receives is used instead, which includes their transfer.
    """
    matched = {rank for group in waits.groups if "sendrecv" in group.kinds for rank in group.ranks}
    bubbles_of_all = []
    for stages in pipelines(ranks):
        steps = sorted(set.intersection(*(set(ranks[rank].steps) for rank in stages.ranks)))
        is_matched = set(stages.ranks) <= matched
        if not steps or not (is_matched or _complete(ranks, stages.ranks)):
            continue
        between = [
            number for number, group in enumerate(waits.groups) if len(set(stages.ranks).intersection(group.ranks)) > 1
        ]
        shares = []
        for rank in stages.ranks:
            trace = ranks[rank]
            marked = [trace.steps[step] for step in steps]
            waited = clipped(waits.waited(rank, between), marked) if is_matched else _received(trace, steps)
            shares.append(trace.exposed(waited) / total(marked))
        if messages := _sent(ranks[stages.ranks[0]], steps):
            bubbles_of_all.append(Bubble(stages.ranks, fmean(shares), messages / len(steps)))
    return tuple(bubbles_of_all)


def _complete(ranks: Mapping[int, RankTrace], stages: Sequence[int]) -> bool:
    """Return whether these ranks only send to each other, without recorded peers."""
    calls = [key for rank in stages for key, _ in ranks[rank].calls if key.kind in ("send", "recv")]
    return all(key.peer is None and key.group.ranks and set(key.group.ranks) <= set(stages) for key in calls)


def _received(trace: RankTrace, steps: Sequence[int]) -> Spans:
    """Return when a rank was in receives in these steps."""
    inside, received = set(steps), Stretches()
    for key, series in trace.calls:
        if key.kind == "recv":
            for begin, end, step in zip(series.begins, series.ends, series.steps, strict=True):
                if step in inside:
                    received.add(begin, end - begin)
    return received.joined()


def _sent(trace: RankTrace, steps: Sequence[int]) -> int:
    """Return the largest number of messages that a rank sent to one other rank."""
    inside = set(steps)
    counts = (sum(step in inside for step in series.steps) for key, series in trace.calls if key.kind == "send")
    return max(counts, default=0)


def between_stages(key: CallKey) -> bool:
    """Return whether messages are between stages, unlike those of a context ring."""
    return purpose(GroupOfRanks("", key.group.description, (), True, frozenset(("sendrecv",)))) == "pp"


def pipelines(ranks: Mapping[int, RankTrace]) -> list[GroupOfRanks]:
    """Return the groups of ranks that sends and receives connect."""
    root = {rank: rank for rank in ranks}

    def root_of(rank: int) -> int:
        while root[rank] != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    names: dict[int, str] = {}
    for rank, trace in ranks.items():
        for key, _ in trace.calls:
            if key.kind not in ("send", "recv") or not between_stages(key):
                continue
            for other in key.group.ranks if key.peer is None else (key.peer,):
                if other in root:
                    names.setdefault(rank, key.group.description)
                    root[root_of(rank)] = root_of(other)
    chains: dict[int, list[int]] = {}
    for rank in ranks:
        chains.setdefault(root_of(rank), []).append(rank)
    return [
        GroupOfRanks("", names.get(members[0], ""), tuple(sorted(members)), True, frozenset(("sendrecv",)))
        for members in chains.values()
        if len(members) > 1
    ]
