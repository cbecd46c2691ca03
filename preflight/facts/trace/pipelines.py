"""Pipelines of a job: their stages, and how long stages wait for each other."""

from __future__ import annotations

from collections import defaultdict
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
    messages: float  # number of messages that the first stage sends to the second in a step
    chunks: int = 1  # of the model on each stage, if stages are interleaved

    @property
    def microbatches(self) -> float:
        """The number of parts of a batch; each passes all chunks."""
        return self.messages / self.chunks

    @property
    def ideal(self) -> float:
        """The minimum share for a schedule with this many parts of a batch.

        It is (p-1)/(v m+p-1) for p stages of v chunks and m parts, with one forward and one backward pass in turn (D.
        Narayanan et al., arXiv 2104.04473, section 2.2, where it is a fraction of the time without waiting).
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
        sent = _sent(ranks[stages.ranks[0]], steps)
        if messages := max(sent.values(), default=0):
            chunks = chunks_of(messages, sent.get(stages.ranks[-1], 0)) if len(stages.ranks) > 2 else 1
            bubbles_of_all.append(Bubble(stages.ranks, fmean(shares), messages / len(steps), chunks))
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


def _sent(trace: RankTrace, steps: Sequence[int]) -> dict[int | None, int]:
    """Return the number of messages by receiver; None for an unknown one."""
    inside, sent = set(steps), defaultdict[int | None, int](int)
    for key, series in trace.calls:
        if key.kind == "send":
            others = [rank for rank in key.group.ranks if rank != trace.rank]
            peer = others[0] if key.peer is None and len(others) == 1 else key.peer
            count = sum(step in inside for step in series.steps)
            sent[peer] = max(sent[peer], count) if peer is None else sent[peer] + count
    return sent


def chunks_of(forward: int, backward: int) -> int:
    """Return the number of chunks of each stage, by the messages of the first one.

    It sends v m activations to the second stage, and gradients of all chunks but its first, (v-1) m, to the last stage.
    """
    parts = forward - backward
    return forward // parts if 0 < backward < forward and forward % parts == 0 else 1


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
