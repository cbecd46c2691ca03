"""Bytes that each axis of parallelism moves in a step, and the links they cross.

Sources: M. Shoeybi et al., Megatron-LM, 2019, and V. Korthikanti et al., 2022 (tensor); D. Narayanan et al., 2021
(pipeline); S. Rajbhandari et al., ZeRO, 2020 (data); H. Liu et al., Ring Attention, 2023 (context); DeepSeek-V3
technical report (experts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.layout.arithmetic import parameters
from preflight.layout.job import TrainingJob
from preflight.layout.memory import memory
from preflight.layout.placement import RankPlacement, Spread
from preflight.layout.rank_map import RankMap, dense_map, expert_map


@dataclass(frozen=True)
class Exchange:
    """One kind of collective of an axis, with its size and its count per step."""

    axis: str  # tensor, context, expert, pipeline, data
    collective: str  # all_reduce, all_gather, reduce_scatter, alltoall, sendrecv
    spread: Spread
    size: float  # bytes of one operation's array (the size of nccl-tests)
    count: float  # number of operations per step and GPU
    note: str = ""

    @property
    def moved(self) -> float:
        """The bytes that a GPU sends in a step."""
        return self.count * self.size * factor(self.collective, self.spread.ranks)


def factor(collective: str, ranks: int) -> float:
    """Return the ratio of bus bytes to size (busbw / algbw of nccl-tests)."""
    if collective == "sendrecv":
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if collective == "all_reduce" else share


def neighbours(group: Sequence[int], interleaved: bool) -> Iterator[Sequence[int]]:
    """Yield each pair of neighbouring stages of a pipeline.

    In an interleaved schedule, the last and the first stage are also neighbours.
    """
    for place in range(len(group) - 1):
        yield group[place : place + 2]
    if interleaved and len(group) > 2:
        yield group[:: len(group) - 1]


def worst(placement: RankPlacement, groups: Iterable[Sequence[int]]) -> Spread:
    """Return the spread of the most widely spread group."""
    widest = None
    for group in placement.distinct(groups):
        spread = placement.spread(group)
        if widest is None or spread.extent > widest.extent:
            widest = spread
    return widest or Spread(1, 1, 1, None)


def exchanges(job: TrainingJob, placement: RankPlacement) -> list[Exchange]:
    """Return all exchanges between the ranks of a job in a step."""
    dense, experts = dense_map(job), expert_map(job)
    return [
        *_tensor(job, placement, dense),
        *_context(job, placement, dense),
        *_experts(job, placement, experts),
        *_pipeline(job, placement, dense),
        *_data(job, placement, dense, experts),
    ]


def _tokens(job: TrainingJob) -> float:
    """Return the number of tokens of a microbatch on one context-parallel rank."""
    return job.schedule.micro_batch * job.schedule.sequence / job.parallel.context


def _tensor(job: TrainingJob, placement: RankPlacement, ranks: RankMap) -> Iterator[Exchange]:
    parallel = job.parallel
    if parallel.tensor == 1:
        return
    spread = worst(placement, ranks.groups("tp"))
    size = 2 * _tokens(job) * job.model.hidden
    layers, sparse = job.layers, job.expert_layers
    passes = 4.0 + 2.0 * job.recomputed
    # in its feed-forward half, a layer with experts exchanges tokens instead
    count = job.microbatches * passes * (layers - sparse / 2)
    if not parallel.sequence_parallel:
        yield Exchange("tensor", "all_reduce", spread, size, count)
        return
    # the backward pass has one more all-gather per product, since a rank stores only its part of the input
    again = job.microbatches * 2 * (layers - sparse / 2)
    yield Exchange("tensor", "all_gather", spread, size, count + again)
    yield Exchange("tensor", "reduce_scatter", spread, size, count)


def _context(job: TrainingJob, placement: RankPlacement, ranks: RankMap) -> Iterator[Exchange]:
    parallel, model = job.parallel, job.model
    if parallel.context == 1:
        return
    spread = worst(placement, ranks.groups("cp"))
    layers = job.layers * job.microbatches
    keys = 2 * model.kv_heads * model.head_size / min(parallel.tensor, model.kv_heads)
    if model.kv_rank:
        keys = model.heads * (model.head_size + model.position_size + model.value_size) / parallel.tensor
    array = 2 * _tokens(job) * parallel.context * keys
    if parallel.context_exchange == "a2a":
        width = (2 * model.heads + 2 * model.kv_heads) * model.head_size / parallel.tensor
        yield Exchange("context", "alltoall", spread, 2 * _tokens(job) * width, 2 * layers, "Ulysses")
        return
    if parallel.context_exchange == "all_gather":
        yield Exchange("context", "all_gather", spread, array, 2 * layers)
        yield Exchange("context", "reduce_scatter", spread, array, layers)
        return
    shard = array / parallel.context
    # the forward pass sends keys and values, the backward pass these and their gradients
    yield Exchange("context", "sendrecv", spread, shard, 3 * layers * (parallel.context - 1), "ring")


def _experts(job: TrainingJob, placement: RankPlacement, ranks: RankMap) -> Iterator[Exchange]:
    parallel, model = job.parallel, job.model
    if not model.experts or parallel.expert == 1:
        return
    spread = worst(placement, ranks.groups("ep", "tp") if parallel.expert_tensor > 1 else ranks.groups("ep"))
    layers = job.expert_layers * job.microbatches
    tokens = _tokens(job) / parallel.tensor
    yield Exchange("expert", "alltoall", spread, 2 * tokens * model.active_experts * model.hidden, 4 * layers)


def _pipeline(job: TrainingJob, placement: RankPlacement, ranks: RankMap) -> Iterator[Exchange]:
    parallel = job.parallel
    if parallel.pipeline == 1:
        return
    interleaved = parallel.virtual_stages > 1
    spread = worst(placement, (pair for group in ranks.groups("pp") for pair in neighbours(group, interleaved)))
    size = 2 * _tokens(job) * job.model.hidden / (parallel.tensor if parallel.sequence_parallel else 1)
    yield Exchange("pipeline", "sendrecv", spread, size, 2 * job.microbatches * parallel.virtual_stages)


def _data(job: TrainingJob, placement: RankPlacement, dense: RankMap, experts: RankMap) -> Iterator[Exchange]:
    model, parallel, schedule = job.model, job.parallel, job.schedule
    count = parameters(model)
    of_experts = job.depths[0] * model.expert_layers / model.layers * model.experts * count.expert
    of_experts /= parallel.expert * parallel.expert_tensor
    held = memory(job).parameters
    for name, own, ranks, axes in (
        ("data", held - of_experts, dense, ("dp", "cp")),
        ("data (experts)", of_experts, experts, ("dp",)),
    ):
        spread = worst(placement, ranks.groups(*[axis for axis in axes if ranks.sizes.get(axis, 1) > 1] or axes[:1]))
        if spread.ranks == 1 or not own:
            continue
        gradients, weights = schedule.gradient_bytes * own, 2 * own
        if parallel.sharding == "full":
            yield Exchange(name, "all_gather", spread, weights, 2 * job.microbatches)
            yield Exchange(name, "reduce_scatter", spread, gradients, job.microbatches)
            if parallel.replicas > 1 and "rep" in ranks.sizes:
                across = worst(placement, ranks.groups("rep"))
                yield Exchange(name, "all_reduce", across, gradients / spread.ranks, 1)
        elif parallel.sharding == "none":
            yield Exchange(name, "all_reduce", spread, gradients, 1)
        else:
            yield Exchange(name, "reduce_scatter", spread, gradients, 1)
            yield Exchange(name, "all_gather", spread, weights, 1)
