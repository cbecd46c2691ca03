"""A training job: its model, parallel layout and schedule."""

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
    feed_forward: int  # width of a dense layer
    heads: int
    kv_heads: int
    vocabulary: int
    head_size: int
    gated: bool = False  # whether feed-forward layers are gated (SwiGLU, GeGLU)
    tied: bool = True  # whether the embedding and the output layer share weights
    experts: int = 0  # number in a mixture-of-experts layer
    active_experts: int = 0  # number that each token uses
    expert_feed_forward: int = 0
    shared_feed_forward: int = 0  # total width of the shared experts, which every token uses
    dense_layers: int = 0  # number of layers without experts in a mixture-of-experts model
    query_rank: int = 0  # multi-head latent attention: rank of the compressed queries
    kv_rank: int = 0  # the same for keys and values
    position_size: int = 0  # width of the part of a head that encodes the position
    value_size: int = 0

    @property
    def expert_layers(self) -> int:
        """The number of layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0


#: Exchanges of context parallelism that overlap with attention: those with a ring.
RINGS = frozenset({"p2p", "a2a+p2p"})


@dataclass(frozen=True)
class Parallelism:
    """The division of a model and its batch among ranks."""

    tensor: int = 1
    pipeline: int = 1
    virtual_stages: int = 1  # number on each pipeline rank (interleaved schedule)
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    order: str = "tp-cp-ep-dp-pp"  # order of the axes in a rank's number, fastest first
    sequence_parallel: bool = False
    sharding: str = "none"  # data parallelism: none, optimizer (ZeRO-1), gradients (ZeRO-2), full (ZeRO-3, FSDP)
    replicas: int = 1  # number of sharded copies (hybrid sharding), each on consecutive ranks
    context_exchange: str = "p2p"  # p2p (ring), all_gather, a2a (Ulysses), a2a+p2p
    first_layers: int = 0  # layers of the first stage, if stated; else 0
    last_layers: int = 0  # the same for the last stage
    embedding_layer: bool = False  # whether the embedding counts as a layer of the first stage
    loss_layer: bool = False  # whether the loss counts as a layer of the last stage
    stage_layout: str = ""  # layers of each virtual stage, in Megatron's notation

    @property
    def model_ranks(self) -> int:
        """The number of ranks for one replica: tensor x pipeline x context."""
        return self.tensor * self.pipeline * self.context


@dataclass(frozen=True)
class Schedule:
    """The batch, precision, memory settings and overlap of a job."""

    sequence: int
    micro_batch: int
    global_batch: int
    precision: str = "bf16"  # precision of matrix products: bf16, fp16, fp8
    recompute: str = "none"  # none, selective, full
    recompute_layers: int | None = None  # number of fully recomputed layers in a stage; None for all
    recompute_method: str = "block"  # block: only that many layers; uniform: all layers, in groups of that many
    recompute_modules: str = "core_attn"  # parts of a layer that selective recomputation covers, by Megatron's names
    offload_layers: int = 0  # number of layers in a stage with activations in host memory
    gradient_bytes: int = 4  # bytes of a gradient in a reduction
    accumulated_bytes: int = 0  # bytes of a second copy of each gradient, for accumulation over microbatches
    master_bytes: int = 4  # bytes of the optimizer's copy of a parameter
    moment_bytes: int = 8  # bytes of both moments of Adam, per parameter
    host_states: int = 0  # percentage of the optimizer's states in host memory
    dropout: bool = True  # whether the residual stream has dropout, with stored masks
    framework: str = ""  # framework that provides the kernels: megatron, torchtitan; empty if unknown
    overlap_gradients: bool = False
    overlap_parameters: bool = False
    overlap_tensor: bool = False  # whether tensor-parallel communication overlaps with matrix products
    fused_attention: bool = True  # whether the matrix of attention scores is never stored
    attention_kernel: str = ""  # kernel of fused attention: cudnn, flash-2, triton; empty for that of the framework
    fused_kernels: bool = False  # whether element-wise kernels are fused (torch.compile, Transformer Engine)


@dataclass(frozen=True)
class TrainingJob:
    """A job with known values for all settings."""

    model: Transformer
    parallel: Parallelism
    schedule: Schedule
    gpus: int
    origins: Mapping[str, str] = field(default_factory=dict)  # name of a setting -> its origin

    @property
    def data(self) -> int:
        """The number of data-parallel replicas."""
        return self.gpus // self.parallel.model_ranks

    @property
    def shards(self) -> int:
        """The number of ranks over which a model or optimizer is sharded."""
        return max(1, self.data * self.parallel.context // self.parallel.replicas)

    @property
    def depths(self) -> tuple[float, ...]:
        """The number of layers in each pipeline stage; a mean if uneven."""
        own = self.parallel
        return depths(self.model.layers, own.pipeline, own.stage_layout, (own.first_layers, own.last_layers),
                      (own.embedding_layer, own.loss_layer))  # fmt: skip

    @property
    def layers(self) -> float:
        """The number of layers in the stage with the most, which sets the pace."""
        return max(self.depths)

    @property
    def recomputed(self) -> float:
        """The share of layers that are fully recomputed."""
        own = self.schedule
        if own.recompute != "full":
            return 0.0
        if own.recompute_layers is None or own.recompute_method == "uniform":
            return 1.0
        return min(1.0, own.recompute_layers / self.layers)

    @property
    def expert_layers(self) -> float:
        """The average number of layers with experts in the stage with the most layers."""
        return self.layers * self.model.expert_layers / self.model.layers

    @property
    def expert_data(self) -> int:
        """The number of replicas of an expert."""
        parallel = self.parallel
        return self.gpus // (parallel.expert_tensor * parallel.expert * parallel.pipeline)

    @property
    def microbatches(self) -> int:
        """The number of microbatches per step and replica."""
        return self.schedule.global_batch // (self.schedule.micro_batch * self.data)

    @property
    def tokens(self) -> int:
        """The number of tokens per step."""
        return self.schedule.global_batch * self.schedule.sequence

    def changed(self, **values: Any) -> TrainingJob:
        """Return a copy of the job with changed values of its layout or schedule."""
        parallel = {key: values.pop(key) for key in list(values) if key in _names(Parallelism)}
        schedule = {key: values.pop(key) for key in list(values) if key in _names(Schedule)}
        return replace(
            self, parallel=replace(self.parallel, **parallel), schedule=replace(self.schedule, **schedule), **values
        )


def _names(kind: type) -> set[str]:
    return {own.name for own in fields(kind)}
