"""A model's ``config.json``, as written by Hugging Face Transformers.

Source: the configuration classes of Transformers (LlamaConfig, MixtralConfig, Qwen3MoeConfig, DeepseekV3Config,
GPT2Config).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.parsers.job_config.settings import JobSetting, JobSettings

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_size": ("head_dim",),
    "vocabulary": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "active_experts": ("num_experts_per_tok", "num_experts_per_token"),
    "expert_feed_forward": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "query_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "position_size": ("qk_rope_head_dim",),
    "content_size": ("qk_nope_head_dim",),
    "value_size": ("v_head_dim",),
    "group_topk": ("topk_group",),
}

#: Names of gated activation functions in configurations.
_GATED = frozenset({"silu", "swish", "swiglu", "gelu_pytorch_tanh_gated", "geglu"})

#: Model types with gated feed-forward layers, and those without (from the model classes of Transformers).
_GATED_MODELS = frozenset({
    "arcee", "baichuan", "chatglm", "cohere", "cohere2", "deepseek", "deepseek_v2", "deepseek_v3", "ernie4_5",
    "ernie4_5_moe", "exaone", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "glm4_moe", "gpt_oss",
    "granite", "granitemoe", "internlm2", "internlm3", "llama", "llama4", "llama4_text", "ministral", "mistral",
    "mixtral", "olmo", "olmo2", "olmoe", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next",
    "seed_oss", "smollm3", "stablelm", "yi",
})  # fmt: skip
_PLAIN_MODELS = frozenset({
    "bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "nemotron", "opt", "phi",
    "starcoder2", "xglm",
})  # fmt: skip


def _kind_of(architectures: object) -> str | None:
    """Return a class's model type, such as qwen3_moe for Qwen3MoeForCausalLM."""
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    stem = name.partition("For")[0].lower()
    return next((kind for kind in _GATED_MODELS | _PLAIN_MODELS if kind.replace("_", "") == stem), None)


def begins(data: object) -> bool:
    """Return whether decoded JSON is a model's configuration."""
    return isinstance(data, Mapping) and any(name in data for name in ("hidden_size", "n_embd", "d_model"))


def parse(data: Mapping[str, Any], source: str) -> JobSettings:
    """Return the settings of a model.

    ``source`` names the file in origins and gaps. Raises ValueError if it is not a model's configuration.
    """
    if not begins(data):
        raise ValueError(f"{source} is not a model's configuration")
    values: dict[str, JobSetting] = {}
    gaps: list[str] = []
    unread: frozenset[str] = frozenset()
    for name, keys in _NAMES.items():
        for key in keys:
            value = data.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
                gaps.append(f"{source}: {key}: {str(value)[:40]!r} is not a number; state it with --set {name}=...")
                continue
            values.setdefault(name, JobSetting(value, f"{source}: {key}"))
    if isinstance(tied := data.get("tie_word_embeddings"), bool):
        values["tied"] = JobSetting(tied, f"{source}: tie_word_embeddings")
    activation = data.get("hidden_act", data.get("activation_function"))
    kind = data.get("model_type") or _kind_of(data.get("architectures"))
    if isinstance(kind, str) and kind in _GATED_MODELS | _PLAIN_MODELS:
        values["gated"] = JobSetting(kind in _GATED_MODELS, f"{source}: model_type {kind}")
    elif isinstance(activation, str):
        values["gated"] = JobSetting(activation in _GATED, f"{source}: hidden_act")
    else:
        gaps.append(f"{source}: neither hidden_act nor a known model_type states whether layers are gated; state it "
                    "with --set gated=yes or --set gated=no")  # fmt: skip
        unread = frozenset({"gated"})
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        values["kv_heads"] = JobSetting(1, f"{source}: multi_query")
    each, shared = data.get("moe_intermediate_size"), data.get("n_shared_experts")
    if isinstance(each, int) and isinstance(shared, int):
        values["shared_feed_forward"] = JobSetting(each * shared, f"{source}: n_shared_experts")
    elif isinstance(width := data.get("shared_expert_intermediate_size"), int):
        values["shared_feed_forward"] = JobSetting(width, f"{source}: shared_expert_intermediate_size")
    if "experts" in values and "expert_feed_forward" not in values and "feed_forward" in values:
        values["expert_feed_forward"] = values["feed_forward"]
    return JobSettings(values, tuple(gaps), unread)
