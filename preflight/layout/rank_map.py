"""Rank numbering: the group of each rank along each axis of parallelism.

Megatron-Core numbers ranks by an order of axes, fastest first, once for dense layers and once for experts, which divide
the same ranks into expert-tensor, expert and separate data-parallel groups (``megatron/core/parallel_state.py``,
``RankGenerator``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from preflight._startup.lightclass import dataclass
from preflight.layout.job import LayoutError, TrainingJob

#: Abbreviations of the axes in an order, and the names of their groups.
AXES = {
    "tp": "tensor-parallel", "cp": "context-parallel", "dp": "data-parallel", "pp": "pipeline-parallel",
    "ep": "expert-parallel",
}  # fmt: skip


@dataclass(frozen=True)
class RankMap:
    """The sizes of a layout's axes, in rank order, fastest first."""

    sizes: Mapping[str, int]

    @property
    def world(self) -> int:
        """The total number of ranks."""
        total = 1
        for size in self.sizes.values():
            total *= size
        return total

    def _strides(self) -> dict[str, int]:
        strides, stride = {}, 1
        for axis, size in self.sizes.items():
            strides[axis], stride = stride, stride * size
        return strides

    def groups(self, *axes: str) -> Iterator[Sequence[int]]:
        """Yield the groups along one or several axes; the ranks of each are in order."""
        strides = self._strides()
        inside = [axis for axis in self.sizes if axis in axes and self.sizes[axis] > 1]
        outside = [axis for axis in self.sizes if axis not in inside]
        step, size = strides[inside[0]] if inside else 1, 1
        chained = True  # each axis continues where the previous one ends, so the group is a range
        for axis in inside:
            chained = chained and strides[axis] == step * size
            size *= self.sizes[axis]
        offsets = range(0, size * step, step) if chained else self._offsets(inside, strides)
        for first in self._offsets(outside, strides):
            yield range(first, first + size * step, step) if chained else [first + offset for offset in offsets]

    def group_of(self, rank: int, *axes: str) -> frozenset[int]:
        """Return the ranks in a rank's group along one or several axes."""
        strides = self._strides()
        inside = [axis for axis in self.sizes if axis in axes]
        first = rank - sum(rank // strides[axis] % self.sizes[axis] * strides[axis] for axis in inside)
        return frozenset(first + offset for offset in self._offsets(inside, strides))

    def _offsets(self, axes: Sequence[str], strides: Mapping[str, int]) -> Sequence[int]:
        """Return the offsets of ranks along some axes, in the order of ranks."""
        slowest_first = axes[::-1]
        return [
            sum(step * strides[axis] for axis, step in zip(slowest_first, steps, strict=True))
            for steps in product(*(range(self.sizes[axis]) for axis in slowest_first))
        ]


def dense_map(job: TrainingJob) -> RankMap:
    """Return the rank numbering for attention and dense layers."""
    parallel = job.parallel
    sizes = {"tp": parallel.tensor, "cp": parallel.context, "dp": job.data, "pp": parallel.pipeline}
    order = [axis for axis in _order(parallel.order) if axis in sizes]
    if parallel.replicas > 1 and job.data % parallel.replicas == 0:
        sizes |= {"dp": job.data // parallel.replicas, "rep": parallel.replicas}
        order.insert(order.index("dp") + 1, "rep")
    return RankMap({axis: sizes[axis] for axis in order})


def expert_map(job: TrainingJob) -> RankMap:
    """Return the rank numbering for experts."""
    parallel = job.parallel
    sizes = {"tp": parallel.expert_tensor, "ep": parallel.expert, "dp": job.expert_data, "pp": parallel.pipeline}
    return RankMap({axis: sizes[axis] for axis in _order(parallel.order) if axis in sizes})


def _order(order: str) -> list[str]:
    axes = order.split("-")
    if sorted(axes) != sorted(AXES):
        raise LayoutError(f"order {order!r} is not an order of {', '.join(AXES)}; use one such as tp-cp-ep-dp-pp")
    return axes
