"""The model that the nodes of a class serve."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.expectations import schema


@dataclass(frozen=True)
class Serving:
    """One replica of the served model, and the role of its workers."""

    role: str | None = schema.key(schema.one_of("prefill", "decode", "both"), "what the workers of the class compute")
    gpus: int | None = schema.key(schema.integer(1, 1024), "GPUs of one replica")
    weights_gib: float | None = schema.key(
        schema.number(0.01, 1e5), "weights that a decode step reads, of a complete replica, GiB"
    )
    kv_cache_gib: float | None = schema.key(schema.number(0.01, 1e5), "KV cache of a complete replica, GiB")
    gpu_memory_gbytes_s: float | None = schema.key(
        schema.number(1, 1e5), "memory bandwidth of one GPU, GB/s; default: that of the part"
    )
