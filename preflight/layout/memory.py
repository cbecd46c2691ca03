"""Memory of a GPU: weights, gradients, optimizer states, activations, logits.

Sources: Megatron-LM, ``theoretical_memory_usage.py`` (bytes per parameter, the most loaded stage) and
``transformer_config.py`` (parts that are recomputed); V. Korthikanti et al., Reducing Activation Recomputation in Large
Transformer Models, 2022 (activations); S. Rajbhandari et al., ZeRO; Transformer Engine, ``module/`` (tensors that
an FP8 layer stores); torchtitan, ``activation_checkpoint.py`` and ``loss.py``; DeepSpeed, ``pipe/engine.py``.
"""

from __future__ import annotations

from math import ceil

from preflight._startup.lightclass import dataclass
from preflight.layout.arithmetic import parameters
from preflight.layout.job import TrainingJob
from preflight.parsers.job_config.settings import DEFAULT

#: Bytes of a parameter's weight on a GPU.
WEIGHT = 2.0

#: Bytes of a logit: a 16-bit value, a float32 copy and the gradient. An unfused loss also stores the softmax, and both
#: gradients in float32.
LOGIT, LOGIT_UNFUSED = 8.0, 14.0

#: GiB that the driver, the CUDA context, NCCL's buffers and workspaces take, and the share that fragmentation takes
#: (estimated from logs with the bytes of the tensors and of the device).
OVERHEAD_GIB, FRAGMENTATION = 4.0, 0.15

#: Frameworks whose kernels store no more than is counted here.
FUSED = ("megatron", "nemo")

#: Frameworks that reduce gradients after each microbatch.
_REDUCES = frozenset({"deepspeed", "torchtitan"})

#: Smallest ratio of measured to computed memory among published runs with known settings.
ACCURACY = 0.95

GIB = 2**30

#: Parts of the memory, by their names in documents.
PARTS = ("weights", "gradients", "states", "buffers", "activations", "logits")


@dataclass(frozen=True)
class Memory:
    """The bytes on the most loaded GPU, by part."""

    parameters: float  # number of parameters of the GPU's stage, before data-parallel sharding
    weights: float
    gradients: float
    states: float
    buffers: float  # parameters and gradients that full sharding gathers
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """The sum of all parts, without NCCL buffers, workspaces and fragmentation."""
        return float(sum(getattr(self, name) for name in PARTS))


def memory(job: TrainingJob) -> Memory:
    """Return the memory of the most loaded GPU, in the first or last pipeline stage."""
    dense, sparse = _stage_parameters(job)
    schedule = job.schedule
    weights = gradients = states = 0.0
    for count, shards in ((dense, job.shards), (sparse, max(1, job.expert_data // job.parallel.replicas))):
        divided = {"none": (1, 1, 1), "optimizer": (1, 1, shards), "gradients": (1, shards, shards),
                   "full": (shards,) * 3}[job.parallel.sharding]  # fmt: skip
        weights += WEIGHT * count / divided[0]
        gradients += (schedule.gradient_bytes + schedule.accumulated_bytes) * count / divided[1]
        states += _state_bytes(job) * count / divided[2]
    one_stage = job.parallel.pipeline == 1
    first = _activations(job, job.depths[0], in_flight(job), _logits(job) if one_stage else 0.0)
    activations, logits = first if one_stage else max(
        first, _activations(job, job.depths[-1], in_flight_last(job), _logits(job)), key=sum
    )  # fmt: skip
    return Memory(dense + sparse, weights, gradients, states, _buffers(job, dense + sparse), activations, logits)


def _state_bytes(job: TrainingJob) -> float:
    """Return the bytes of optimizer states in GPU memory, per parameter."""
    schedule = job.schedule
    return (schedule.master_bytes + schedule.moment_bytes) * (1 - min(100, schedule.host_states) / 100)


def least(job: TrainingJob) -> float:
    """Return a lower bound on the bytes that a run of the job needs.

    Settings that the job does not state have the values of the least demanding framework: 16-bit gradients and moments,
    full recomputation, one gathered layer.
    """
    smallest = open_settings(job)
    if "recompute" in smallest:
        smallest["recompute_layers"] = None
    small = memory(job.changed(dropout=False, **smallest))
    return ACCURACY * (small.total - small.logits / 2 - small.buffers + WEIGHT * _gathered(job))


def open_settings(job: TrainingJob) -> dict[str, object]:
    """Return the settings that the job leaves open, with the least demanding values."""
    schedule = job.schedule
    if schedule.framework == "megatron":  # its arguments or defaults determine every setting
        return {}
    smallest: dict[str, object] = {}
    if not _stated(job, "recompute") or (schedule.recompute == "selective" and not schedule.framework):
        smallest["recompute"] = "full"
    if not _stated(job, "gradient_bytes") and schedule.gradient_bytes > 2:
        smallest["gradient_bytes"] = 2
    if not _stated(job, "moment_bytes") and schedule.moment_bytes > 4:
        smallest["moment_bytes"] = 4
    return smallest


def most(job: TrainingJob) -> float:
    """Return an upper estimate of the bytes that a run needs, including overhead."""
    own = memory(job)
    deepest = ceil(job.layers) / job.depths[0]
    static = own.weights + own.gradients + own.states  # Megatron-LM allocates them only once, as one block
    moving = own.total - static
    if job.schedule.framework in FUSED:
        if job.schedule.precision == "fp8" and job.parallel.sharding != "full":
            static += own.weights  # 8-bit copies by row and by column, in addition to 16-bit weights
        need = static + moving * (1 + FRAGMENTATION)
    else:
        moving += _unfused(job) + own.logits * (LOGIT_UNFUSED / _logit(job) - 1)
        static += _accumulated(job)
        need = (static + moving) * (1 + FRAGMENTATION)
    return need * deepest + OVERHEAD_GIB * GIB


def _accumulated(job: TrainingJob) -> float:
    """Return the bytes of unsharded gradients that a framework may accumulate.

    PyTorch FSDP may add up the gradients of all microbatches before it reduces them (``no_sync``); DeepSpeed and
    torchtitan reduce them after each microbatch.
    """
    if job.parallel.sharding != "full" or job.microbatches == 1 or job.schedule.framework in _REDUCES:
        return 0.0
    return job.schedule.gradient_bytes * sum(_stage_parameters(job))


def _stated(job: TrainingJob, name: str) -> bool:
    """Return whether a setting is stated, as opposed to a framework's default."""
    return name in job.origins and not job.origins[name].startswith(DEFAULT)


def _stage_parameters(job: TrainingJob) -> tuple[float, float]:
    """Return the number of first-stage parameters per GPU, outside and inside experts."""
    model, parallel = job.model, job.parallel
    count = parameters(model)
    stages, layers = parallel.pipeline, job.depths[0]
    sparse_layers = layers * model.expert_layers / model.layers
    dense = layers * count.attention + (layers - sparse_layers) * count.dense
    dense += sparse_layers * count.shared + count.embedding
    if stages == 1:
        dense += count.output
    experts = sparse_layers * model.experts * count.expert / (parallel.expert * parallel.expert_tensor)
    return dense / parallel.tensor + layers * count.norms, experts


def _buffers(job: TrainingJob, held: float) -> float:
    """Return the bytes of parameters and gradients that full sharding gathers.

    Without a pipeline, these are the weights of two consecutive layers and the gradients of one, or the same for the
    embedding. With a pipeline, all of them remain gathered from the first microbatch to the last.
    """
    if job.parallel.sharding != "full":
        return 0.0
    if job.parallel.pipeline > 1:
        return 2 * WEIGHT * held
    return 3 * WEIGHT * _gathered(job)


def _gathered(job: TrainingJob) -> float:
    """Return the number of parameters in the largest part that is gathered at once."""
    if job.parallel.sharding != "full":
        return 0.0
    count = parameters(job.model)
    layer = count.attention + count.dense
    if job.model.experts:
        layer = count.attention + count.shared + job.model.experts * count.expert // job.parallel.expert
    return max(layer, count.embedding) / job.parallel.tensor


def in_flight(job: TrainingJob) -> float:
    """Return the maximum number of microbatches in flight in the first stage.

    With 1F1B, it is the number of stages p; with v virtual stages (interleaved schedule), it is p + (p-1)/v.
    """
    parallel = job.parallel
    stages, virtual = parallel.pipeline, parallel.virtual_stages
    most = stages * (1 + (stages - 1) / (stages * virtual)) if virtual > 1 else stages
    return min(float(most), float(job.microbatches))


def in_flight_last(job: TrainingJob) -> float:
    """Return the maximum number of microbatches in flight in the last stage.

    It starts each backward pass immediately. The interleaved schedule first runs all but the last virtual stage, for as
    many microbatches as there are stages.
    """
    stages, virtual = job.parallel.pipeline, job.parallel.virtual_stages
    return min(((virtual - 1) * stages + 1) / virtual, float(job.microbatches))


def _activations(job: TrainingJob, layers: float, live: float, logits: float) -> tuple[float, float]:
    """Return the bytes of a stage's activations and of its logits.

    The stage has ``layers`` layers, and ``live`` microbatches are in flight. Layers are recomputed after the logits
    have been freed.
    """
    model, parallel, schedule = job.model, job.parallel, job.schedule
    tokens = schedule.sequence * schedule.micro_batch / parallel.context
    full = _layer(job)
    hidden = 2 * model.hidden / (parallel.tensor if parallel.sequence_parallel else 1)  # the input of a layer
    if schedule.recompute == "full" and schedule.recompute_method == "uniform":
        together = max(1, min(schedule.recompute_layers or 1, round(layers)))
        each, again = layers / together * hidden, together * full
    elif schedule.recompute == "full":
        deep = layers if schedule.recompute_layers is None else min(layers, schedule.recompute_layers)
        each = deep * hidden + (layers - deep) * full
        again = full if deep else 0.0
    else:
        each, again = max(0.0, layers - schedule.offload_layers) * full, 0.0
    embedding = 8 * model.hidden / parallel.tensor * parallel.pipeline
    return tokens * (live * each + embedding) + max(0.0, tokens * again - logits), logits


def _layer(job: TrainingJob) -> float:
    """Return the bytes of activations per layer and token."""
    model, parallel, schedule = job.model, job.parallel, job.schedule
    hidden, tensor = model.hidden, parallel.tensor
    divided = tensor if parallel.sequence_parallel else 1
    if schedule.recompute == "selective" and schedule.framework == "torchtitan":
        return _every_second_product(job)
    again = schedule.recompute_modules.split(",") if schedule.recompute == "selective" else []
    product = 1 if schedule.precision == "fp8" else 2  # bytes of a value stored only as the input of a product
    # inputs and outputs of both norms, and dropout masks: on every GPU of a tensor group, unless the sequence is
    # divided
    shared = (4 + (0 if "layernorm" in again else 2 * product) + (2 if schedule.dropout else 0)) * hidden / divided
    attention = _attention(job, "mla_up_proj" in again)
    if product == 1:
        attention += _output_width(job) / tensor
    if not schedule.fused_attention and (schedule.recompute != "selective" or "core_attn" not in again):
        attention += 5 * model.heads * schedule.sequence / tensor
    inner = 4 if model.gated else 2  # bytes of the first product's output, per column
    dense = 0.0 if "mlp" in again else (inner + product) * model.feed_forward / tensor
    if not model.experts:
        return shared + attention + dense
    # rows that a GPU's experts receive, per token, since a tensor group shares its tokens
    rows = model.active_experts * parallel.expert_tensor / tensor
    width = inner + (0 if "moe_act" in again else product)
    routed = 0.0 if "moe" in again else rows * (
        product * hidden + width * model.expert_feed_forward / parallel.expert_tensor
    )  # fmt: skip
    always = {"moe", "shared_experts"} & set(again)
    sparse = routed + (0.0 if always else (inner + product) * model.shared_feed_forward / tensor)
    part = model.expert_layers / model.layers
    return shared + attention + part * sparse + (1 - part) * dense


def _output_width(job: TrainingJob) -> float:
    """Return the width of attention's output."""
    return job.model.heads * (job.model.value_size if job.model.kv_rank else job.model.head_size)


def _attention(job: TrainingJob, projected_again: bool) -> float:
    """Return the bytes of attention's queries, keys, values and output, per token."""
    model, tensor = job.model, job.parallel.tensor
    output = 2 * _output_width(job) / tensor
    if not model.kv_rank:
        return output + (2 * model.heads + 4 * model.kv_heads) * model.head_size / tensor
    latent = 2 * (model.query_rank + model.kv_rank + model.position_size)
    if projected_again:
        return output + latent
    heads = 2 * (model.head_size + model.position_size) + model.value_size
    return output + latent + 2 * model.heads * heads / tensor


def _every_second_product(job: TrainingJob) -> float:
    """Return a layer's bytes per token if every second product is stored."""
    model, tensor = job.model, job.parallel.tensor
    divided = tensor if job.parallel.sequence_parallel else 1
    inner = model.feed_forward
    if model.experts:
        inner = model.active_experts * model.expert_feed_forward + model.shared_feed_forward
    columns = (2 * model.heads + model.kv_heads) * model.head_size + inner
    return 4 * model.hidden / divided + 2 * columns / tensor


def _unfused(job: TrainingJob) -> float:
    """Return the additional bytes that unfused kernels store.

    These are the inputs and results of norms in float32, the gathered inputs of matrix products, the results of
    experts, attention scores and their gradients in float32, and the outputs of a pipeline stage with their gradients.
    """
    model, parallel, schedule = job.model, job.parallel, job.schedule
    tokens = schedule.sequence * schedule.micro_batch / parallel.context
    divided = parallel.tensor if parallel.sequence_parallel else 1
    each = 16 * model.hidden / divided
    if parallel.sequence_parallel:
        each += 4 * model.hidden * (1 - 1 / parallel.tensor)
    if model.experts:
        each += 2 * model.active_experts * model.hidden * parallel.expert_tensor / parallel.tensor
    if not schedule.fused_attention:
        each += 16 * model.heads * schedule.sequence / parallel.tensor
    live = in_flight(job)
    layers = live * job.layers if schedule.recompute == "none" else 1.0
    outputs = 4 * model.hidden / divided * live if parallel.pipeline > 1 else 0.0
    return tokens * (layers * each + outputs)


def _logits(job: TrainingJob) -> float:
    """Return the bytes of a microbatch's logits on a GPU."""
    schedule = job.schedule
    tokens = schedule.sequence * schedule.micro_batch / job.parallel.context
    return _logit(job) * tokens * job.model.vocabulary / job.parallel.tensor


def _logit(job: TrainingJob) -> float:
    return LOGIT_UNFUSED if job.schedule.framework == "torchtitan" else LOGIT
