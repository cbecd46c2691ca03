"""A training job: model, parallel layout and batch, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field, fields, replace
from preflight.errors import PreflightError
from preflight.layout.stages import depths


class LayoutError(PreflightError):
    """The description of a job is unusable; the message names the value and the fix."""


@dataclass(frozen=True)
class Transformer:
    """The shape of a transformer."""

    layers: int
    hidden: int
    feed_forward: int  # of a dense layer
    heads: int
    kv_heads: int
    vocabulary: int
    head_size: int
    gated: bool = False  # gated feed-forward layer: SwiGLU, GeGLU
    tied: bool = True  # embedding and output layer share weights
    experts: int = 0  # of a mixture-of-experts layer
    active_experts: int = 0  # experts that each token uses
    expert_feed_forward: int = 0
    shared_feed_forward: int = 0  # total width of the shared experts, which every token uses
    dense_layers: int = 0  # layers of a mixture-of-experts model that have no experts
    query_rank: int = 0  # multi-head latent attention: ranks of the compressed query and of keys and values
    kv_rank: int = 0
    position_size: int = 0  # part of a head that encodes the position
    value_size: int = 0

    @property
    def expert_layers(self) -> int:
        """Number of layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0


#: Exchanges of context parallelism that run beside attention: a ring, alone or between nodes.
RINGS = frozenset({"p2p", "a2a+p2p"})


@dataclass(frozen=True)
class Parallelism:
    """Division of a model and its batch among ranks."""

    tensor: int = 1
    pipeline: int = 1
    virtual_stages: int = 1  # of each pipeline rank (interleaved schedule)
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    order: str = "tp-cp-ep-dp-pp"  # of the axes in a rank's number, fastest first
    sequence_parallel: bool = False
    sharding: str = "none"  # of data parallelism: none, optimizer (ZeRO-1), gradients (ZeRO-2), full (ZeRO-3, FSDP)
    replicas: int = 1  # of a sharded model: hybrid sharding, the shards of each are consecutive ranks
    context_exchange: str = "p2p"  # p2p (ring), all_gather, a2a (Ulysses), a2a+p2p
    first_layers: int = 0  # layers of the first and last stage, if stated; else 0
    last_layers: int = 0
    embedding_layer: bool = False  # the embedding counts as a layer of the first stage, the loss as one of the last
    loss_layer: bool = False
    stage_layout: str = ""  # layers of each stage, in Megatron's letters

    @property
    def model_ranks(self) -> int:
        """Number of ranks that hold one replica and its sequence."""
        return self.tensor * self.pipeline * self.context


@dataclass(frozen=True)
class Schedule:
    """Batch, precision and overlap of a job."""

    sequence: int
    micro_batch: int
    global_batch: int
    precision: str = "bf16"  # of matrix products: bf16, fp8
    recompute: str = "none"  # none, selective, full
    recompute_layers: int | None = None  # number of fully recomputed layers of a stage; None for all
    recompute_method: str = "block"  # block: this number of layers; uniform: all layers, in groups of this number
    recompute_modules: str = "core_attn"  # selective recomputation of these parts of a layer, Megatron's names
    offload_layers: int = 0  # of a stage, whose activations are offloaded to host memory
    gradient_bytes: int = 4  # of a gradient in a reduction
    accumulated_bytes: int = 0  # of a second copy of each gradient, for accumulation over microbatches
    master_bytes: int = 4  # of the optimizer's copy of a parameter
    moment_bytes: int = 8  # of both moments of Adam
    host_states: int = 0  # per cent of the optimizer's states in host memory
    dropout: bool = True  # of the residual stream: its masks are stored
    framework: str = ""  # framework that provides the kernels: megatron, torchtitan; empty if unknown
    overlap_gradients: bool = False
    overlap_parameters: bool = False
    overlap_tensor: bool = False  # tensor-parallel communication overlaps with matrix products
    fused_attention: bool = True  # the matrix of attention scores is never stored


@dataclass(frozen=True)
class TrainingJob:
    """A job with all values known."""

    model: Transformer
    parallel: Parallelism
    schedule: Schedule
    gpus: int
    origins: Mapping[str, str] = field(default_factory=dict)  # of each value, by name

    @property
    def data(self) -> int:
        """Number of data-parallel replicas."""
        return self.gpus // self.parallel.model_ranks

    @property
    def shards(self) -> int:
        """Number of ranks that share a sharded model or optimizer."""
        return max(1, self.data * self.parallel.context // self.parallel.replicas)

    @property
    def depths(self) -> tuple[float, ...]:
        """Number of layers of each pipeline stage."""
        own = self.parallel
        return depths(self.model.layers, own.pipeline, own.stage_layout, (own.first_layers, own.last_layers),
                      (own.embedding_layer, own.loss_layer))  # fmt: skip

    @property
    def layers(self) -> float:
        """Number of layers of the deepest stage, which sets the pace."""
        return max(self.depths)

    @property
    def recomputed(self) -> float:
        """Share of the layers that full recomputation computes again."""
        own = self.schedule
        if own.recompute != "full":
            return 0.0
        if own.recompute_layers is None or own.recompute_method == "uniform":
            return 1.0
        return min(1.0, own.recompute_layers / self.layers)

    @property
    def expert_layers(self) -> float:
        """Number of its layers with experts, on average."""
        return self.layers * self.model.expert_layers / self.model.layers

    @property
    def expert_data(self) -> int:
        """Number of replicas of an expert."""
        parallel = self.parallel
        return self.gpus // (parallel.expert_tensor * parallel.expert * parallel.pipeline)

    @property
    def microbatches(self) -> int:
        """Number of microbatches of a step and replica."""
        return self.schedule.global_batch // (self.schedule.micro_batch * self.data)

    @property
    def tokens(self) -> int:
        """Number of tokens of a step."""
        return self.schedule.global_batch * self.schedule.sequence

    def changed(self, **values: Any) -> TrainingJob:
        """Return the job with other values of its layout or schedule."""
        parallel = {key: values.pop(key) for key in list(values) if key in _names(Parallelism)}
        schedule = {key: values.pop(key) for key in list(values) if key in _names(Schedule)}
        return replace(
            self, parallel=replace(self.parallel, **parallel), schedule=replace(self.schedule, **schedule), **values
        )


def _names(kind: type) -> set[str]:
    return {own.name for own in fields(kind)}
