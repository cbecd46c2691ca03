"""Job configurations of torchtitan (TOML).

Source: torchtitan, ``torchtitan/config/job_config.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.parsers.job_config.settings import DEFAULT, JobSetting, JobSettings

_NUMBERS = {
    "tensor": (("parallelism", "tensor_parallel_degree"), ("training", "tensor_parallel_degree")),
    "pipeline": (("parallelism", "pipeline_parallel_degree"), ("experimental", "pipeline_parallel_degree")),
    "context": (("parallelism", "context_parallel_degree"), ("experimental", "context_parallel_degree")),
    "expert": (("parallelism", "expert_parallel_degree"),),
    "shards": (("parallelism", "data_parallel_shard_degree"), ("training", "data_parallel_shard_degree")),
    "replicas": (("parallelism", "data_parallel_replicate_degree"), ("training", "data_parallel_replicate_degree")),
    "micro_batch": (("training", "local_batch_size"), ("training", "batch_size")),
    "global_batch": (("training", "global_batch_size"),),
    "sequence": (("training", "seq_len"),),
}

_SWITCHES = {
    "fused_kernels": (("compile", "enable"), ("training", "compile")),
    "overlap_tensor": (
        ("parallelism", "enable_async_tensor_parallel"), ("experimental", "enable_async_tensor_parallel"),
    ),
}  # fmt: skip

_RECOMPUTE = {"none": "none", "selective": "selective", "full": "full"}


def begins(data: object) -> bool:
    """Return whether decoded TOML is a torchtitan job."""
    return isinstance(data, Mapping) and "training" in data and ("model" in data or "parallelism" in data)


def parse(data: Mapping[str, Any], source: str) -> JobSettings:
    """Return the settings of a job.

    ``source`` names the file in origins and gaps. Raises ValueError if it is not a torchtitan job.
    """
    if not begins(data):
        raise ValueError(f"{source} is not a torchtitan job")
    values: dict[str, JobSetting] = {}
    for name, places in _NUMBERS.items():
        for table, key in places:
            value = _table(data, table).get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                values.setdefault(name, JobSetting(value, f"{source}: {table}.{key}"))
    for name in ("tensor", "pipeline", "context", "expert"):
        values.setdefault(name, JobSetting(1, f"{DEFAULT}torchtitan"))
    shards = values.get("shards")
    replicated = shards is not None and shards.value == 1
    if shards is not None:
        copies = values["replicas"].value if "replicas" in values else 1
        values["data"] = JobSetting(shards.value * copies, f"{shards.origin} x {copies} replicas")
    if replicated:
        values.pop("replicas", None)
    values["sharding"] = JobSetting(
        "none" if replicated else "full", f"{source}: parallelism.data_parallel_shard_degree"
    )
    values["framework"] = JobSetting("torchtitan", source)
    values["sequence_parallel"] = JobSetting(values["tensor"].value > 1, f"{DEFAULT}torchtitan")
    values["precision"] = JobSetting("fp8" if _fp8(data) else "bf16", f"{source}: model.converters")
    mode = _table(data, "activation_checkpoint").get("mode")
    if isinstance(mode, str) and mode in _RECOMPUTE:
        values["recompute"] = JobSetting(_RECOMPUTE[mode], f"{source}: activation_checkpoint.mode")
    for name, places in _SWITCHES.items():
        for table, key in places:
            if isinstance(switch := _table(data, table).get(key), bool):
                values.setdefault(name, JobSetting(switch, f"{source}: {table}.{key}"))
    values["overlap_gradients"] = values["overlap_parameters"] = JobSetting(True, f"{DEFAULT}torchtitan (FSDP2)")
    saved = _table(data, "checkpoint")
    if saved.get("enable", saved.get("enable_checkpoint")) is True and isinstance(saved.get("interval"), int):
        values["checkpoint_steps"] = JobSetting(saved["interval"], f"{source}: checkpoint.interval")
    if (flavor := _table(data, "model").get("flavor")) is not None:
        values["flavor"] = JobSetting(str(flavor)[:40], f"{source}: model.flavor")
    return JobSettings(values)


def _fp8(data: Mapping[str, Any]) -> bool:
    converters = _table(data, "model").get("converters")
    names = [converters] if isinstance(converters, str) else converters if isinstance(converters, list) else []
    return any("float8" in str(name) or "mx" in str(name) for name in names)


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = data.get(name)
    return table if isinstance(table, Mapping) else {}
