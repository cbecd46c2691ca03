"""DeepSpeed's configuration file (``ds_config.json``).

Source: https://www.deepspeed.ai/docs/config-json/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.parsers.job_config.settings import DEFAULT, JobSetting, JobSettings

STAGES = {0: "none", 1: "optimizer", 2: "gradients", 3: "full"}

_NUMBERS = {
    "global_batch": "train_batch_size",
    "micro_batch": "train_micro_batch_size_per_gpu",
    "accumulation": "gradient_accumulation_steps",
}


def begins(data: object) -> bool:
    """Return whether decoded JSON is a DeepSpeed configuration."""
    return isinstance(data, Mapping) and ("zero_optimization" in data or "train_micro_batch_size_per_gpu" in data)


def parse(data: Mapping[str, Any], source: str) -> JobSettings:
    """Return the settings of a configuration.

    ``source`` names the file in origins and gaps. Raises ValueError if it is not a DeepSpeed configuration.
    """
    if not begins(data):
        raise ValueError(f"{source} is not a DeepSpeed configuration")
    values: dict[str, JobSetting] = {}
    gaps: list[str] = []
    for name, key in _NUMBERS.items():
        value = data.get(key)
        if value == "auto":
            gaps.append(f'{source}: {key} is "auto"; state it with --set {name}=...')
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            values[name] = JobSetting(value, f"{source}: {key}")
    if {"micro_batch", "accumulation"} <= values.keys():  # the global batch follows from both
        gaps = [gap for gap in gaps if "global_batch" not in gap]
    zero = data.get("zero_optimization")
    zero = zero if isinstance(zero, Mapping) else {}
    stage = zero.get("stage")
    if isinstance(stage, int) and stage in STAGES:
        values["sharding"] = JobSetting(STAGES[stage], f"{source}: zero_optimization.stage")
    else:
        values["sharding"] = JobSetting("none", f"{DEFAULT}DeepSpeed (zero_optimization.stage)")
    if isinstance(size := zero.get("mics_shard_size"), int) and size > 0:
        values["shard_ranks"] = JobSetting(size, f"{source}: zero_optimization.mics_shard_size")
    if isinstance(size := zero.get("zero_hpz_partition_size"), int) and size > 1:
        gaps.append(f"{source}: zero_optimization.zero_hpz_partition_size is ignored: in the job, each node stores "
                    "a copy of the parameters, which backward passes gather within the node")  # fmt: skip
    overlap = zero.get("overlap_comm")
    overlap = overlap if isinstance(overlap, bool) else stage == 3
    values["overlap_gradients"] = JobSetting(overlap, f"{source}: zero_optimization.overlap_comm")
    values["framework"] = JobSetting("deepspeed", source)
    for key, precision in (("bf16", "bf16"), ("fp16", "fp16")):
        table = data.get(key)
        if isinstance(table, Mapping) and table.get("enabled") is True:
            values["precision"] = JobSetting(precision, f"{source}: {key}.enabled")
            values["gradient_bytes"] = JobSetting(2, f"{source}: {key}.enabled")
            if key == "bf16" and stage in (0, 1):  # BF16_Optimizer
                values["accumulated_bytes"] = JobSetting(4, f"{DEFAULT}DeepSpeed (data_types.grad_accum_dtype)")
    return JobSettings(values, tuple(gaps))
