"""Times of equal kernels on the stages of a pipeline.

Stages may have different work by design: embeddings, the loss, fewer layers. A slow stage takes longer than others for
equal kernels. One name may stand for kernels of several sizes, such as matrix products of layers and of the loss, so
times are compared quantile by quantile. Times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from preflight.facts.trace.pipelines import pipelines
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.waiting import GroupOfRanks
from preflight.parsers.torch.kernel_times import KernelTimes

#: Share of a stage's time that a compared kernel takes, and that those of other stages take for a comparison.
_NOTABLE, _MOST = 0.001, 0.5
#: Number of compared quantiles, spread of their ratios up to which all kernels are compared, and maximum spread.
_QUANTILES, _AS_GOOD, _WIDEST = 19, 0.01, 0.15


class EqualKernels(NamedTuple):
    """A stage's kernels that other stages have as well."""

    excess: list[float]  # of each step: how much longer they take than on other stages
    slower: float  # mean excess as a fraction of the time of these kernels
    share: float  # of the time of all kernels of the stage
    ratio: float  # median ratio of their times to those of other stages, by time

    @property
    def consistent(self) -> bool:
        """Whether kernels that take half of the time are slower, not only some."""
        return self.ratio > 1 + self.slower / 2


class UnevenStage(NamedTuple):
    """The stage of a pipeline with the most work, without a slow stage."""

    rank: int
    stages: GroupOfRanks
    more_us: float  # of each step, than the median of the other stages
    by_design: bool  # whether it has more kernels; otherwise it is unknown


ComparedPipelines = Sequence[tuple[GroupOfRanks, Mapping[int, EqualKernels]]]


def compare(ranks: Mapping[int, RankTrace], steps: Sequence[int]) -> ComparedPipelines:
    """Compare the equal kernels of the stages of each pipeline."""
    return [(stages, _of_pipeline({rank: _notable(ranks[rank]) for rank in stages.ranks}, steps))
            for stages in pipelines(ranks)]  # fmt: skip


def uneven(ranks: Mapping[int, RankTrace], compared: ComparedPipelines, least_us: float) -> Iterator[UnevenStage]:
    """Yield the stages that compute at least this much longer than their peers."""
    for stages, kernels in compared:
        compute = {rank: fmean(ranks[rank].compute.values() or (0.0,)) for rank in stages.ranks}
        most = max(compute, key=compute.__getitem__)
        more = compute[most] - median(compute[peer] for peer in stages.ranks if peer != most)
        if more > least_us:
            yield UnevenStage(most, stages, more, kernels[most].share > _MOST)


def _notable(trace: RankTrace) -> Mapping[int, KernelTimes]:
    """Return the kernels of a rank that take some time."""
    least = _NOTABLE * sum(times.total for times in trace.kernels.values())
    return {digest: times for digest, times in trace.kernels.items() if times.total > least}


def _of_pipeline(kernels: Mapping[int, Mapping[int, KernelTimes]], steps: Sequence[int]) -> dict[int, EqualKernels]:
    return {
        rank: _compared(own, [of_peer for peer, of_peer in kernels.items() if peer != rank], steps)
        for rank, own in kernels.items()
    }


def _compared(
    own: Mapping[int, KernelTimes], peers: Sequence[Mapping[int, KernelTimes]], steps: Sequence[int]
) -> EqualKernels:
    excess = [0.0] * len(steps)
    ratios: list[tuple[float, float]] = []
    for digest, times in own.items():
        equal = [(ratio, peer[digest]) for peer in peers if digest in peer and (ratio := _ratio(times, peer[digest]))]
        if not equal:
            continue
        ratio, others = median(ratio for ratio, _ in equal), [other for _, other in equal]
        beyond = [_excess(times, others, step) for step in steps]
        # kernels of another size under the same name change the mean, but few quantiles
        time = sum(times.steps[step][0] for step in steps if step in times.steps)
        by_mean, by_quantiles = sum(beyond), time * (1 - 1 / ratio)
        total = by_mean if 0 < by_mean * by_quantiles < by_quantiles**2 else by_quantiles
        shift = (total - by_mean) / (len(steps) or 1)
        excess = [before + amount + shift for before, amount in zip(excess, beyond, strict=True)]
        ratios.append((ratio, time))
    compared = sum(time for _, time in ratios)
    everything = sum(times.steps[step][0] for times in own.values() for step in steps if step in times.steps)
    if not compared:
        return EqualKernels(excess, 0.0, 0.0, 1.0)
    return EqualKernels(excess, sum(excess) / compared, compared / everything, _middle(ratios))


def _excess(own: KernelTimes, others: Sequence[KernelTimes], step: int) -> float:
    """Return how much longer a step's kernels take than as many of other stages."""
    means = [other.steps[step][0] / other.steps[step][1] for other in others if step in other.steps]
    if not means or step not in own.steps:
        return 0.0
    time, count = own.steps[step]
    return time - count * median(means)


def _middle(ratios: Sequence[tuple[float, float]]) -> float:
    """Return the ratio up to which half of the time belongs; 1 without one."""
    left = sum(time for _, time in ratios) / 2
    for ratio, time in sorted(ratios):
        left -= time
        if left <= 0:
            return ratio
    return 1.0


def _ratio(own: KernelTimes, other: KernelTimes) -> float | None:
    """Return the ratio of the times of equal kernels; None if they have no common one.

    If one stage has more of them, those of the other may equal a sample of them, or the shortest, or the longest.
    """
    fewest = min(own.kernels, other.kernels)
    fits = []
    for compared in _PARTS if own.kernels != other.kernels else _PARTS[:1]:
        ratios = []
        for at in range(_QUANTILES):
            place = (at + 0.5) / _QUANTILES
            mine, theirs = (_quantile(times, compared(place, fewest / times.kernels)) for times in (own, other))
            if mine > 0 and theirs > 0:
                ratios.append(mine / theirs)
        if not ratios:
            return None
        middle = median(ratios)
        fits.append((fmean(abs(ratio / middle - 1) for ratio in ratios), middle))
    best = min(spread for spread, _ in fits)
    if best > _WIDEST:
        return None
    return next(middle for spread, middle in fits if spread <= 2 * best + _AS_GOOD)


#: Place of a kernel among all of a stage, if a part of them is compared: a sample, the shortest, the longest.
_PARTS: Sequence[Callable[[float, float], float]] = (
    lambda place, part: place,
    lambda place, part: place * part,
    lambda place, part: 1 - (1 - place) * part,
)


def _quantile(times: KernelTimes, place: float) -> float:
    return times.quantiles[min(len(times.quantiles) - 1, int(place * len(times.quantiles)))]
