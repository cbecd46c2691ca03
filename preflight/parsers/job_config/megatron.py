"""Arguments of Megatron-LM, with those of its launcher (torchrun, srun, mpirun).

Sources: Megatron-LM, ``megatron/training/arguments.py``; PyTorch, ``torchrun --help``; Slurm, ``man srun``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from preflight.parsers.job_config.deepspeed import STAGES
from preflight.parsers.job_config.launchers import Launchers
from preflight.parsers.job_config.settings import DEFAULT, JobSetting, JobSettings
from preflight.parsers.job_config.shell_words import Word, conditional, words

#: Options whose value is a number, and the setting of each.
_NUMBERS = {
    "--tensor-model-parallel-size": "tensor", "--pipeline-model-parallel-size": "pipeline",
    "--context-parallel-size": "context", "--expert-model-parallel-size": "expert",
    "--expert-tensor-parallel-size": "expert_tensor", "--num-layers": "layers", "--hidden-size": "hidden",
    "--ffn-hidden-size": "feed_forward", "--num-attention-heads": "heads", "--num-query-groups": "query_groups",
    "--kv-channels": "head_size", "--seq-length": "sequence", "--micro-batch-size": "micro_batch",
    "--global-batch-size": "global_batch", "--vocab-size": "vocabulary", "--padded-vocab-size": "padded_vocabulary",
    "--make-vocab-size-divisible-by": "vocabulary_multiple", "--num-experts": "experts",
    "--moe-router-topk": "active_experts", "--moe-ffn-hidden-size": "expert_feed_forward",
    "--moe-shared-expert-intermediate-size": "shared_feed_forward",
    "--num-layers-per-virtual-pipeline-stage": "layers_per_virtual_stage",
    "--num-virtual-stages-per-pipeline-rank": "virtual_stages", "--recompute-num-layers": "recompute_layers",
    "--q-lora-rank": "query_rank", "--kv-lora-rank": "kv_rank", "--qk-head-dim": "content_size",
    "--qk-pos-emb-head-dim": "position_size", "--v-head-dim": "value_size",
    "--world-size": "gpus", "--pad-vocab-size-to": "padded_vocabulary",
    "--zero-stage": "zero_stage", "--moe-router-group-topk": "group_topk",
    "--cpu-offloading-num-layers": "offload_layers", "--decoder-first-pipeline-num-layers": "first_layers",
    "--decoder-last-pipeline-num-layers": "last_layers", "--num-distributed-optimizer-instances": "replicas",
    "--save-interval": "checkpoint_steps",
}  # fmt: skip

#: Options without a value, and the setting of each with its value.
_FLAGS: dict[str, tuple[str, Any]] = {
    "--sequence-parallel": ("sequence_parallel", True),
    "--use-distributed-optimizer": ("sharding", "optimizer"),
    "--use-torch-fsdp2": ("sharding", "full"),
    "--use-megatron-fsdp": ("sharding", "full"),
    "--use-custom-fsdp": ("sharding", "full"),
    "--recompute-activations": ("recompute", "selective"),
    "--checkpoint-activations": ("recompute", "full"),
    "--swiglu": ("gated", True),
    "--untie-embeddings-and-output-weights": ("tied", False),
    "--deepspeed": ("deepspeed", True),
    "--account-for-embedding-in-pipeline-split": ("embedding_layer", True),
    "--account-for-loss-in-pipeline-split": ("loss_layer", True),
    "--overlap-grad-reduce": ("overlap_gradients", True),
    "--overlap-param-gather": ("overlap_parameters", True),
    "--tp-comm-overlap": ("overlap_tensor", True),
    "--use-tp-pp-dp-mapping": ("order", "tp-cp-ep-pp-dp"),
    "--bf16": ("precision", "bf16"),
    "--fp16": ("precision", "fp16"),
    "--use-flash-attn": ("fused_attention", True),
    "--grad-reduce-in-bf16": ("gradient_bytes", 2),
    "--accumulate-allreduce-grads-in-fp32": ("gradient_bytes", 4),
    "--optimizer-cpu-offload": ("host_states", 100),
    "--multi-latent-attention": ("latent_attention", True),
    "--group-query-attention": ("grouped", True),
}

#: Bytes per value, by Megatron's name of the type.
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}

#: Options with several values, and their maximum number.
_LISTS, _MOST = frozenset({"--recompute-modules"}), 16


def _number(word: str) -> float:
    """Parse a fraction between 0 and 1; return 1 for other text."""
    try:
        share = float(word)
    except ValueError:
        return 1.0
    return share if 0 <= share <= 1 else 1.0


#: srun's environment variables for the distribution of ranks over nodes.
_EXPORTED = re.compile(r"\s*(?:export\s+)?(S(?:LURM|BATCH)_DISTRIBUTION)=[\"']?([^\s\"';]+)")

#: Options whose value is a word, with the setting and a function that converts the word.
_WORDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--recompute-granularity": ("recompute", str),
    "--recompute-method": ("recompute_method", str),
    "--cp-comm-type": ("context_exchange", str),
    "--pipeline-model-parallel-layout": ("stage_layout", str),
    "--pp-partition-method": ("partition_method", str),
    "--moe-layer-freq": ("expert_layer_pattern", str),
    "--fp8-format": ("precision", lambda _: "fp8"),
    "--attention-backend": ("fused_attention", lambda name: name in ("flash", "fused", "auto")),
    "--data-parallel-sharding-strategy": (
        "sharding",
        {"no_shard": "none", "optim": "optimizer", "optim_grads": "gradients", "optim_grads_params": "full"}.get,
    ),
    "--recompute-modules": ("recompute_modules", lambda names: ",".join(names.split())),
    "--main-grads-dtype": ("gradient_bytes", _BYTES.get),
    "--main-params-dtype": ("master_bytes", _BYTES.get),
    "--exp-avg-dtype": ("first_moment_bytes", _BYTES.get),
    "--exp-avg-sq-dtype": ("second_moment_bytes", _BYTES.get),
    "--optimizer-offload-fraction": ("host_states", lambda share: round(100 * _number(share))),
    "--hidden-dropout": ("dropout", lambda share: _number(share) > 0),
}  # fmt: skip

#: Megatron's defaults of settings that a job does not state.
DEFAULTS = {
    "tensor": 1, "pipeline": 1, "context": 1, "expert": 1, "sequence_parallel": False, "sharding": "none",
    "recompute": "none", "gated": False, "tied": True, "overlap_gradients": False, "overlap_parameters": False,
    "overlap_tensor": False, "order": "tp-cp-ep-dp-pp", "vocabulary_multiple": 128, "context_exchange": "p2p",
}  # fmt: skip

#: Options that identify a text as Megatron's arguments; one of them is enough.
MARKS = frozenset({"--num-layers", "--hidden-size", "--tensor-model-parallel-size", "--pipeline-model-parallel-size"})


def begins(text: str) -> bool:
    """Return whether a text contains Megatron's arguments."""
    return any(mark in text for mark in MARKS)


def parse(text: str, source: str) -> JobSettings:
    """Read a command line or script; ``source`` names it in origins and gaps."""
    values: dict[str, JobSetting] = {}
    gaps: list[str] = []
    unread: set[str] = set()
    undecided = conditional(text)
    launchers = Launchers(source)
    for number, row in enumerate(text.splitlines(), start=1):
        if "_DISTRIBUTION" in row and (exported := _EXPORTED.match(row)):
            values["distribution"] = JobSetting(exported[2], f"{source}:{number}: {exported[1]}")
    for option, value, line in _options(words(text, _slurm_environment(text))):
        where = f"{source}:{line}: {option}"
        if not option:
            launchers.command(value)
        elif launchers.option(option, value, line):
            continue
        if option in _NUMBERS or option in _WORDS:
            launchers.model_option()
        if option in _FLAGS:
            name, stated = _FLAGS[option]
            if name == "precision" and name in values and values[name].value == "fp8":
                continue
            values[name] = JobSetting(stated, where)
        elif option in _NUMBERS:
            name = _NUMBERS[option]
            if not value.isascii() or not value.isdigit() or len(value) > 12:
                several = undecided.get(value.strip("${}"))
                lines = f" (its value depends on a condition: lines {', '.join(map(str, several))})" if several else ""
                shown = repr(value) if value else "an empty value"
                gaps.append(f"{where}: {shown} is not a number{lines}; state it with --set {name}=...")
                unread.add(name)
                continue
            if name in values and values[name].value != int(value):
                gaps.append(f"{where}: {value} replaces {values[name].value} ({values[name].origin})")
            values[name] = JobSetting(int(value), where)
            unread.discard(name)
        elif option in _WORDS:
            name, convert = _WORDS[option]
            if value and (stated := convert(value)) is not None:
                values[name] = JobSetting(stated, where)
    moments = [values.pop(name, None) for name in ("first_moment_bytes", "second_moment_bytes")]
    if stated_moments := [own for own in moments if own is not None]:
        both = sum(own.value if own is not None else 4 for own in moments)
        values["moment_bytes"] = JobSetting(both, ", ".join(own.origin for own in stated_moments))
    framework = "megatron"
    if values.pop("deepspeed", None) is not None:
        framework = "deepspeed"
        values |= _of_deepspeed(values)
    values.pop("zero_stage", None)
    launch = launchers.launch()
    if launch.consecutive:
        values.pop("distribution", None)
    values = {**launch.settings, **values}
    if begins(text):
        values["framework"] = JobSetting(framework, f"{source}: arguments of Megatron-LM")
    return JobSettings(
        {name: own for name, own in values.items() if name not in unread},
        (*launch.gaps, *gaps),
        frozenset(unread) | launch.unread,
    )


def _slurm_environment(text: str) -> dict[str, str]:
    """Return the variables that Slurm sets because of a script's directives."""
    rows = (row for row in text.splitlines() if row.lstrip().startswith("#SBATCH"))
    launchers = Launchers("")
    for option, value, line in _options(words("\n".join(rows))):
        if option:
            launchers.option(option, value, line)
        else:
            launchers.command(value)
    return launchers.slurm_environment()


def _of_deepspeed(values: Mapping[str, JobSetting]) -> dict[str, JobSetting]:
    """Return the settings that Megatron-DeepSpeed's options imply."""
    made: dict[str, JobSetting] = {}
    stage = values.get("zero_stage")
    if stage is not None and stage.value in STAGES:
        made["sharding"] = JobSetting(STAGES[stage.value], stage.origin)
    precision = values.get("precision")
    if precision is not None and precision.value == "bf16" and (stage is None or stage.value in (0, 1)):
        # BF16_Optimizer shards the float32 states over the data-parallel ranks
        made["sharding"] = JobSetting("optimizer", f"{precision.origin}: DeepSpeed's BF16_Optimizer")
    if (method := values.get("partition_method")) is not None:
        parts = str(method.value)
        if "transformer" in parts and "embedding" in parts:
            made |= dict.fromkeys(("embedding_layer", "loss_layer"), JobSetting(True, method.origin))
        else:
            made["balanced_stages"] = JobSetting(True, method.origin)
    return made


def _options(script: list[Word]) -> Iterator[tuple[str, str, int]]:
    """Yield each option, its value (or "") and its line; ("", word, line) for others."""
    for place, word in enumerate(script):
        following = script[place + 1] if place + 1 < len(script) else Word("", 0)
        if not word.text.startswith("-"):
            yield "", word.text, word.line
            continue
        option, sign, value = word.text.partition("=")
        if not sign and option in _LISTS:
            value = " ".join(own.text for own in takewhile(_no_option, script[place + 1 : place + 1 + _MOST]))
        elif not sign and not following.text.startswith("--"):
            value = following.text
        yield option, value, word.line


def _no_option(word: Word) -> bool:
    return not word.text.startswith("-")


def default(name: str) -> JobSetting | None:
    """Return Megatron's default of a setting; None if it has none."""
    return JobSetting(DEFAULTS[name], f"{DEFAULT}Megatron-LM") if name in DEFAULTS else None
