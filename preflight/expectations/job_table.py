"""Settings of a job for ``preflight plan``: the cluster file's table ``[job]``."""

from __future__ import annotations

from typing import Any

from preflight.expectations import schema

#: Settings whose value is a number. The package ``layout`` uses them.
NUMBERS = (
    "gpus", "nodes", "gpus_per_node", "tensor", "pipeline", "virtual_stages", "context", "expert", "expert_tensor",
    "data", "accumulation", "micro_batch", "global_batch", "sequence", "layers", "hidden", "feed_forward", "heads",
    "kv_heads", "head_size", "vocabulary", "experts", "active_experts", "expert_feed_forward", "shared_feed_forward",
    "dense_layers", "query_rank", "kv_rank", "position_size", "value_size", "recompute_layers", "gradient_bytes",
    "accumulated_bytes", "master_bytes", "moment_bytes", "host_states", "offload_layers", "checkpoint_steps",
    "first_layers", "last_layers", "replicas",
)  # fmt: skip

#: Maximum number of GPUs of a job, and maximum number of its nodes.
MOST_GPUS = 1 << 18

#: Settings whose value is one of the listed words.
CHOICES = {
    "order": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
    "sharding": ("none", "optimizer", "gradients", "full"),
    "recompute": ("none", "selective", "full"),
    "precision": ("bf16", "fp16", "fp8"),
    "context_exchange": ("p2p", "all_gather", "a2a", "a2a+p2p"),
    "recompute_method": ("block", "uniform"),
    "attention_kernel": ("cudnn", "flash-2", "triton"),
    "framework": ("megatron", "nemo", "torchtitan", "deepspeed"),
}

#: Settings that are true or false.
SWITCHES = (
    "gated", "tied", "sequence_parallel", "overlap_gradients", "overlap_parameters", "overlap_tensor",
    "fused_attention", "dropout", "embedding_layer", "loss_layer", "fused_kernels",
)  # fmt: skip

#: Settings whose value is any word.
TEXTS = ("distribution", "recompute_modules", "stage_layout")

#: Settings from which the cost of a lost run and of checkpoints is computed.
COSTS = ("watts", "hours", "price", "checkpoint_seconds", "mtbf_hours")

#: Numbers that may be 0, because a job may lack the part.
MAY_BE_ZERO = frozenset({
    "experts", "active_experts", "expert_feed_forward", "shared_feed_forward", "dense_layers", "query_rank", "kv_rank",
    "position_size", "value_size", "recompute_layers", "accumulated_bytes", "host_states", "offload_layers",
    "first_layers", "last_layers", "checkpoint_steps", "master_bytes", "moment_bytes",
})  # fmt: skip

_KINDS: dict[str, schema.Kind] = {
    **{name: schema.integer(0 if name in MAY_BE_ZERO else 1, 10**12) for name in NUMBERS},
    **{name: schema.one_of(*words) for name, words in CHOICES.items()},
    **dict.fromkeys(SWITCHES, schema.boolean),
    **dict.fromkeys(TEXTS, schema.text),
    **dict.fromkeys(COSTS, schema.number(1e-9, 1e12)),
}


def read_job(reader: schema.TableReader, body: Any) -> dict[str, Any]:
    """Read the table; adds errors."""
    reader.known(body, ("job",), set(_KINDS))
    return {
        name: value for name in body if name in _KINDS
        and (value := reader.value(body, ("job", name), _KINDS[name])) is not None
    }  # fmt: skip
