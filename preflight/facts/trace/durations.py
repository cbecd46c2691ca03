"""Durations of a job's collectives, pooled over similar process groups.

A tensor-parallel group within a node and a data-parallel group between nodes take different times for the same kind and
size, and so do messages within and between nodes. Durations are pooled only for one kind, size and purpose, and only
for groups with similar medians; a percentile then describes one group's variation, not a mixture. Times are
milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from preflight.facts.trace.purposes import purpose
from preflight.facts.trace.waiting import GroupOfRanks
from preflight.parsers.torch.samples import sample_of

if TYPE_CHECKING:
    from preflight.facts.trace.job import JobTrace
    from preflight.parsers.torch import TraceSummary

#: Maximum ratio of the medians of groups in one pool.
_SIMILAR = 1.5


class Pool(NamedTuple):
    """The durations of one kind and size in similar groups."""

    purpose: str | None  # of the groups, as in ``purposes.NAMES``
    groups: int
    transfers: bool  # whether the durations are of transfers alone; otherwise they include waiting
    name: str  # kind of collective
    bytes: int | None
    sample: Mapping[str, float]  # as of ``sample_of``

    @property
    def tail(self) -> float:
        """The ratio of the 99th percentile to the median; 0 if unknown."""
        return self._above_median("p99_ms")

    @property
    def rare(self) -> float:
        """The ratio of the 99.9th percentile to the median; 0 if unknown."""
        return self._above_median("p999_ms")

    def _above_median(self, percentile: str) -> float:
        value, middle = self.sample[percentile], self.sample["p50_ms"]
        return value / middle if value and middle else 0.0


#: Purpose and size of the groups, whether they are complete, kind and bytes of the calls.
_Key = tuple[str | None, int, bool, str, int]


def of_job(job: JobTrace) -> list[Pool]:
    """Return the durations of the transfers of all ranks, from the last arrival on."""
    pools: dict[_Key, list[list[float]]] = defaultdict(list)
    for (number, kind, size), times in job.waits.transfers.items():
        group = job.waits.groups[number]
        key = purpose(group), len(group.ranks), group.complete, kind, size
        pools[key].append([time / 1000 for time in times])
    return _pooled(pools)


def of_rank(trace: TraceSummary) -> list[Pool]:
    """Return the durations of a rank's own kernels, which include waiting for others."""
    pools: dict[_Key, list[list[float]]] = defaultdict(list)
    for key, series in trace.calls:
        group = GroupOfRanks(key.group.name, key.group.description, key.group.ranks, False, frozenset())
        times: dict[int, list[float]] = defaultdict(list)
        for begin, end, size in zip(series.begins, series.ends, series.bytes, strict=True):
            times[size].append((end - begin) / 1000)
        for size, of_size in times.items():
            pools[purpose(group), key.group.size or 0, False, key.kind, size].append(of_size)
    listed = {(kind, size if size >= 0 else None) for _, _, _, kind, size in pools}
    return [*_pooled(pools), *_of_document(trace.document["collectives"], listed)]


def _of_document(collectives: Iterable[Mapping[str, Any]], listed: set[tuple[str, int | None]]) -> Iterator[Pool]:
    """Yield collectives without a process group, such as those of gloo."""
    for sample in collectives:
        if "count" in sample and (sample["name"], sample["bytes"]) not in listed:
            yield Pool(None, 0, False, sample["name"], sample["bytes"], sample)


def _pooled(pools: Mapping[_Key, list[list[float]]]) -> list[Pool]:
    """Return the pools of groups with similar medians."""
    pooled = []
    for (what, _, complete, kind, size), groups in pools.items():
        groups.sort(key=median)
        similar: list[list[float]] = []
        for times in [*groups, []]:
            if similar and (not times or median(times) > _SIMILAR * median(similar[0])):
                sample = sample_of([time for group in similar for time in group])
                assert sample
                pooled.append(Pool(what, len(similar), complete, kind, size if size >= 0 else None, sample))
                similar = []
            similar.append(times)
    return pooled
