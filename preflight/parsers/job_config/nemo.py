"""Job configurations of NeMo and Megatron-Bridge (YAML).

Sources: NeMo, ``examples/nlp/language_modeling/conf/megatron_gpt_config.yaml``; Megatron-Bridge, ``ConfigContainer``.
Both use Megatron-Core's names for model settings. References (``${trainer.devices}``) are followed; other
expressions of OmegaConf are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from preflight.parsers.job_config.settings import JobConfigError, JobSetting, JobSettings

#: Sections that are read, and the setting of each of their keys.
_SECTIONS = (
    ("model",),
    ("model", "optim"),
    ("trainer",),
    ("train",),
    ("dataset",),
    ("data",),
    ("ddp",),
    ("optimizer",),
    ("checkpoint",),
    ("exp_manager", "checkpoint_callback_params"),
)
_NUMBERS = {
    "tensor_model_parallel_size": "tensor", "pipeline_model_parallel_size": "pipeline",
    "virtual_pipeline_model_parallel_size": "virtual_stages", "context_parallel_size": "context",
    "expert_model_parallel_size": "expert", "expert_tensor_parallel_size": "expert_tensor",
    "micro_batch_size": "micro_batch", "global_batch_size": "global_batch", "encoder_seq_length": "sequence",
    "seq_length": "sequence", "sequence_length": "sequence", "num_layers": "layers", "hidden_size": "hidden",
    "ffn_hidden_size": "feed_forward", "num_attention_heads": "heads", "num_query_groups": "query_groups",
    "kv_channels": "head_size", "vocab_size": "vocabulary", "make_vocab_size_divisible_by": "vocabulary_multiple",
    "num_moe_experts": "experts", "moe_router_topk": "active_experts", "moe_ffn_hidden_size": "expert_feed_forward",
    "moe_shared_expert_intermediate_size": "shared_feed_forward", "moe_router_group_topk": "group_topk",
    "activations_checkpoint_num_layers": "recompute_layers", "recompute_num_layers": "recompute_layers",
    "q_lora_rank": "query_rank", "kv_lora_rank": "kv_rank", "qk_head_dim": "content_size",
    "qk_pos_emb_head_dim": "position_size", "v_head_dim": "value_size", "num_nodes": "nodes",
    "devices": "gpus_per_node",
    "num_layers_in_first_pipeline_stage": "first_layers", "num_layers_in_last_pipeline_stage": "last_layers",
    "num_distributed_optimizer_instances": "replicas", "save_interval": "checkpoint_steps",
    "every_n_train_steps": "checkpoint_steps",
}  # fmt: skip
_SWITCHES = {
    "account_for_embedding_in_pipeline_split": "embedding_layer", "account_for_loss_in_pipeline_split": "loss_layer",
    "sequence_parallel": "sequence_parallel", "share_embeddings_and_output_weights": "tied",
    "ub_tp_comm_overlap": "overlap_tensor", "tp_comm_overlap": "overlap_tensor",
    "overlap_grad_sync": "overlap_gradients", "overlap_grad_reduce": "overlap_gradients",
    "overlap_param_sync": "overlap_parameters", "overlap_param_gather": "overlap_parameters",
    "gated_linear_unit": "gated",
}  # fmt: skip


def _sharded(word: str) -> str | None:
    return "optimizer" if word in ("distributed_fused_adam", "mcore_distributed_optim") else None


_WORDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "activations_checkpoint_granularity": ("recompute", str),
    "recompute_granularity": ("recompute", str),
    "cp_comm_type": ("context_exchange", str),
    "pipeline_model_parallel_layout": ("stage_layout", str),
    "activation": ("gated", lambda word: word in ("swiglu", "fast-swiglu", "geglu", "reglu", "fast-geglu")),
    "name": ("sharding", _sharded),
}
#: Switches that turn on a kind of data-parallel sharding.
_SHARDING = {"use_distributed_optimizer": "optimizer", "use_megatron_fsdp": "full", "fsdp": "full"}

_REFERENCE = re.compile(r"\$\{\s*(\.?[A-Za-z_][\w.]{0,200})\s*\}")
_MERGE = re.compile(r"(?:^|[\s{,\"'])<<[\"']?\s*:", re.MULTILINE)
_MARKS = ("tensor_model_parallel_size", "num_layers", "micro_batch_size")

#: Maximum number of characters in a file.
MOST_TEXT = 200_000


def decoded(text: str, source: str) -> Any:
    """Decode YAML. Raises JobConfigError, with the line if it is known."""
    # import-at-use: few jobs are described in YAML, and importing yaml takes as long as making the plan
    import yaml

    if len(text) > MOST_TEXT:
        raise JobConfigError(f"{source} has more than {MOST_TEXT:,} characters; pass only the job's configuration")
    if _MERGE.search(text):  # merge keys in a few lines can expand to millions of entries
        raise JobConfigError(f"{source}: merge keys (<<) are not supported; write out the values, or use --set")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise JobConfigError(
            f"{source}:{line}: invalid YAML: {getattr(error, 'problem', '') or 'unreadable'}"
        ) from None
    except (RecursionError, ValueError, TypeError):
        raise JobConfigError(f"{source} is not valid YAML: nested too deeply, or an invalid value") from None


def looks_like(text: str) -> bool:
    """Return whether a text may be a NeMo or Megatron-Bridge job, without decoding it."""
    return re.search(r"^model:\s*(?:#.*)?$", text, re.MULTILINE) is not None and any(mark in text for mark in _MARKS)


def begins(data: object) -> bool:
    """Return whether decoded YAML is a NeMo or Megatron-Bridge job."""
    return isinstance(data, Mapping) and isinstance(model := data.get("model"), Mapping) and any(
        mark in model for mark in _MARKS
    )  # fmt: skip


def parse(data: Mapping[str, Any], source: str) -> JobSettings:
    """Return the settings of a job.

    ``source`` names the file in origins and gaps. Raises ValueError if it is not a NeMo or Megatron-Bridge job.
    """
    if not begins(data):
        raise ValueError(f"{source} is not a NeMo job")
    values: dict[str, JobSetting] = {}
    gaps: list[str] = []
    unread: set[str] = set()
    for place, key, raw in _entries(data):
        where, value = f"{source}: {place}.{key}", _followed(data, place, raw)
        if (setting := _stated(key, value)) is not None:
            values.setdefault(setting[0], JobSetting(setting[1], where))
        elif key in _NUMBERS and value is not None and type(value) is not bool:
            name = _NUMBERS[key]
            shown = repr(value)[:60] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
            why = "is not evaluated" if "${" in shown else "is not a number"
            gaps.append(f"{where}: {shown} {why}; state it with --set {name}=...")
            unread.add(name)
    if _section(data, ("model",)).get("fp8") and values.get("precision") is None:
        values["precision"] = JobSetting("fp8", f"{source}: model.fp8")
    values.setdefault("precision", JobSetting("bf16", f"{source}: trainer.precision"))
    return JobSettings(values, tuple(gaps), frozenset(unread - values.keys()))


def _stated(key: str, value: Any) -> tuple[str, Any] | None:
    """Convert an entry to a setting's name and value; None if it is not a setting."""
    if key in _NUMBERS:
        return (_NUMBERS[key], value) if type(value) is int and 0 <= value < 10**12 else None
    if key in _SWITCHES:
        return (_SWITCHES[key], value) if type(value) is bool else None
    if key in _SHARDING:
        return ("sharding", _SHARDING[key]) if value is True else None
    if key in _WORDS and isinstance(value, str):
        name, convert = _WORDS[key]
        stated = convert(value)
        return (name, stated) if stated is not None else None
    return None


def _entries(data: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the location, key and value of each entry in the known sections."""
    for section in _SECTIONS:
        yield from ((".".join(section), str(key), value) for key, value in _section(data, section).items())


def _section(data: Mapping[str, Any], names: Sequence[str]) -> Mapping[Any, Any]:
    table: Any = data
    for name in names:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


def _followed(data: Mapping[str, Any], place: str, value: Any) -> Any:
    """Follow a reference (``${a.b}``); return any other value unchanged."""
    for _ in range(8):
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None:
            return value
        name = reference[1]
        steps = [*place.split("."), *name[1:].split(".")] if name.startswith(".") else name.split(".")
        target: Any = data
        for step in steps:
            target = target.get(step) if isinstance(target, Mapping) else None
        if target is None:
            return value
        value = target
    return value
