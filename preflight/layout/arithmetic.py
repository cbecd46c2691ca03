"""Parameters and floating-point operations of a transformer.

Sources: D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021,
equation 3; Megatron-LM, ``theoretical_memory_usage.py`` and ``num_floating_point_operations``; DeepSeek-V3 technical
report (multi-head latent attention).
"""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.layout.job import Transformer


@dataclass(frozen=True)
class ParameterCount:
    """The number of parameters in each part of a model."""

    attention: int  # of one layer
    norms: int  # of one layer
    dense: int  # feed-forward part of a dense layer
    expert: int  # one expert
    shared: int  # shared experts and router of one layer
    embedding: int
    output: int  # output layer; 0 if it shares weights with the embedding
    total: int
    active: int  # parameters that each token uses


def parameters(model: Transformer) -> ParameterCount:
    """Count the parameters of a model."""
    hidden, products = model.hidden, 3 if model.gated else 2
    attention = _attention(model)
    dense = products * hidden * model.feed_forward
    expert = products * hidden * model.expert_feed_forward
    shared = products * hidden * model.shared_feed_forward + hidden * model.experts if model.experts else 0
    norms = 4 * hidden if not model.gated else 2 * hidden
    embedding = model.vocabulary * hidden
    output = 0 if model.tied else embedding
    sparse = model.expert_layers
    common = model.layers * (attention + norms) + (model.layers - sparse) * dense + sparse * shared
    common += embedding + output + norms // 2
    return ParameterCount(
        attention, norms, dense, expert, shared, embedding, output,
        total=common + sparse * model.experts * expert, active=common + sparse * model.active_experts * expert,
    )  # fmt: skip


def _attention(model: Transformer) -> int:
    """Count the parameters of one attention layer."""
    if not model.kv_rank:
        return model.hidden * model.head_size * (2 * model.heads + 2 * model.kv_heads)
    content = model.head_size
    query_width = model.heads * (content + model.position_size)
    query = model.query_rank * (model.hidden + query_width) if model.query_rank else model.hidden * query_width
    keys = model.hidden * (model.kv_rank + model.position_size)
    values = model.kv_rank * model.heads * (content + model.value_size)
    return query + keys + values + model.heads * model.value_size * model.hidden


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of a forward pass for one token."""

    attention: float  # projections of one layer
    scores: float  # causal attention scores of one layer
    dense: float  # feed-forward part of a dense layer
    sparse: float  # shared and active experts of a layer with experts
    output: float  # logits

    def layers(self, model: Transformer) -> float:
        """Return the operations of all layers, without attention scores."""
        return (
            model.layers * self.attention
            + (model.layers - model.expert_layers) * self.dense
            + model.expert_layers * self.sparse
        )


def operations(model: Transformer, sequence: int) -> Operations:
    """Count the operations of a forward pass, per token of a causal sequence."""
    count = parameters(model)
    width = model.heads * model.head_size
    values = width
    if model.kv_rank:
        width, values = model.heads * (model.head_size + model.position_size), model.heads * model.value_size
    return Operations(
        attention=2.0 * count.attention,
        scores=2.0 * (width + values) * sequence / 2,
        dense=2.0 * count.dense,
        sparse=2.0 * (count.shared + model.active_experts * count.expert),
        output=2.0 * model.hidden * model.vocabulary,
    )


def model_flops(model: Transformer, sequence: int, causal: bool = True) -> float:
    """Return the operations of a forward and backward pass for one token.

    Recomputation is not counted. Without ``causal``, the attention scores above the diagonal are included, as in
    Narayanan's equation.
    """
    own = operations(model, sequence)
    scores = model.layers * own.scores * (1 if causal else 2)
    return 3 * (own.layers(model) + scores + own.output)
