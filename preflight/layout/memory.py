"""Memory of a GPU: states of the optimizer, activations, logits.

Sources: Megatron-LM, ``theoretical_memory_usage.py`` (bytes per parameter, the most loaded stage); V. Korthikanti et
al., Reducing Activation Recomputation in Large Transformer Models, 2022 (activations); S. Rajbhandari et al., ZeRO.
"""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.layout.arithmetic import parameters
from preflight.layout.job import TrainingJob

#: Bytes of a parameter on a GPU: weights; gradient (and accumulation in float32); master copy and two moments of Adam.
WEIGHT, STATES = 2.0, 12.0

GIB = 2**30


@dataclass(frozen=True)
class Memory:
    """Bytes on the most loaded GPU."""

    parameters: float  # parameters that the GPU holds a shard of, before data parallelism divides them
    weights: float
    gradients: float
    states: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """All of them, without buffers of NCCL, workspace and fragmentation."""
        return self.weights + self.gradients + self.states + self.activations + self.logits


def memory(job: TrainingJob) -> Memory:
    """Return the memory of the most loaded GPU: one of the first pipeline stage."""
    dense, sparse = _stage_parameters(job)
    weights = gradients = states = 0.0
    for count, replicas in ((dense, job.data * job.parallel.context), (sparse, job.expert_data)):
        divided = {"none": (1, 1, 1), "optimizer": (1, 1, replicas), "gradients": (1, replicas, replicas),
                   "full": (replicas,) * 3}[job.parallel.sharding]  # fmt: skip
        weights += WEIGHT * count / divided[0]
        gradients += job.schedule.gradient_bytes * count / divided[1]
        states += STATES * count / divided[2]
    return Memory(dense + sparse, weights, gradients, states, _activations(job), _logits(job))


def _stage_parameters(job: TrainingJob) -> tuple[float, float]:
    """Return the parameters of a first-stage GPU outside experts, and in experts."""
    model, parallel = job.model, job.parallel
    count = parameters(model)
    stages = parallel.pipeline
    sparse_layers, layers = model.expert_layers / stages, model.layers / stages
    dense = layers * count.attention + (layers - sparse_layers) * count.dense
    dense += sparse_layers * count.shared + count.embedding
    if stages == 1:
        dense += count.output
    experts = sparse_layers * model.experts * count.expert / (parallel.expert * parallel.expert_tensor)
    return dense / parallel.tensor + layers * count.norms, experts


def in_flight(job: TrainingJob) -> float:
    """Return how many microbatches of its layers the first stage keeps at most.

    1F1B keeps as many as there are stages; the interleaved schedule keeps more, by (p-1)/(p v).
    """
    parallel = job.parallel
    stages, virtual = parallel.pipeline, parallel.virtual_stages
    most = stages * (1 + (stages - 1) / (stages * virtual)) if virtual > 1 else stages
    return min(float(most), float(job.microbatches))


def _activations(job: TrainingJob) -> float:
    """Return the bytes of the activations that the first stage keeps."""
    model, parallel, schedule = job.model, job.parallel, job.schedule
    tokens = schedule.sequence * schedule.micro_batch / parallel.context
    layers = model.layers / parallel.pipeline
    live = in_flight(job)
    full = _layer(job)
    hidden = 2 * model.hidden / (parallel.tensor if parallel.sequence_parallel else 1)  # the input of a layer
    if schedule.recompute == "full":
        again = layers if schedule.recompute_layers is None else min(layers, schedule.recompute_layers)
        each = again * hidden + (layers - again) * full
        peak = full if again else 0.0
    else:
        each, peak = layers * full, 0.0
    embedding = 8 * model.hidden / parallel.tensor * parallel.pipeline
    return tokens * (live * each + peak + embedding)


def _layer(job: TrainingJob) -> float:
    """Return the bytes of activations of one layer and token."""
    model, parallel, schedule = job.model, job.parallel, job.schedule
    hidden, tensor = model.hidden, parallel.tensor
    width, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    # inputs of norms, of the first product of each block, and the mask of dropout: on every GPU of a tensor group
    # unless the sequence is divided
    shared = 10 * hidden / (tensor if parallel.sequence_parallel else 1)
    attention = (2 * width + 4 * keys + 2 * width) / tensor  # queries, keys and values, output
    if schedule.recompute == "none" and not schedule.fused_attention:
        attention += 5 * model.heads * schedule.sequence / tensor
    forward = 6 * model.feed_forward if model.gated else 4 * model.feed_forward
    dense = forward / tensor
    if not model.experts:
        return shared + attention + dense
    products = 6 if model.gated else 4
    routed = model.active_experts * (products * model.expert_feed_forward / parallel.expert_tensor + 4 * hidden)
    sparse = routed + products * model.shared_feed_forward / tensor
    part = model.expert_layers / model.layers
    return shared + attention + part * sparse + (1 - part) * dense


def _logits(job: TrainingJob) -> float:
    """Return the bytes of logits in float32, if the first stage is the last."""
    if job.parallel.pipeline > 1:
        return 0.0
    schedule = job.schedule
    tokens = schedule.sequence * schedule.micro_batch / job.parallel.context
    return 4 * tokens * job.model.vocabulary / job.parallel.tensor
