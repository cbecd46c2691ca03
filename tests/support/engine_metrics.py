"""Metrics of serving engines under their documented names, with made-up values.

vLLM: docs.vllm.ai (production metrics); SGLang: docs.sglang.io (production metrics); TensorRT-LLM behind Dynamo, and
Dynamo's frontend: docs.nvidia.com/dynamo (metrics catalog).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Histogram of each value by engine, and seconds or bytes of its unit.
HISTOGRAMS: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "vllm": {
        "first_token": ("vllm:time_to_first_token_seconds", 1), "queue": ("vllm:request_queue_time_seconds", 1),
        "prefill": ("vllm:request_prefill_time_seconds", 1), "next_token": ("vllm:inter_token_latency_seconds", 1),
        "transfer": ("vllm:nixl_xfer_time_seconds", 1),
        "transfer_bytes": ("vllm:nixl_bytes_transferred", 1),
    },
    "sglang": {
        "first_token": ("sglang:time_to_first_token_seconds", 1), "queue": ("sglang:queue_time_seconds", 1),
        "transfer": ("sglang:kv_transfer_latency_ms", 1e-3), "transfer_bytes": ("sglang:kv_transfer_total_mb", 1 << 20),
    },
    "trtllm": {
        "first_token": ("trtllm_time_to_first_token_seconds", 1), "queue": ("trtllm_request_queue_time_seconds", 1),
    },
    "dynamo": {"first_token": ("dynamo_frontend_time_to_first_token_seconds", 1)},
}  # fmt: skip
NUMBERS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting",
        "cache_used": "vllm:kv_cache_usage_perc", "preemptions": "vllm:num_preemptions_total",
        "finished": "vllm:request_success_total", "failed_transfers": "vllm:nixl_num_failed_transfers_total",
    },
    "sglang": {
        "running": "sglang:num_running_reqs", "waiting": "sglang:num_queue_reqs", "cache_used": "sglang:token_usage",
        "preemptions": "sglang:num_retracted_requests_total", "finished": "sglang:num_requests_total",
        "failed_transfers": "sglang:num_transfer_failed_reqs_total",
    },
    "trtllm": {
        "running": "trtllm_num_requests_running", "waiting": "trtllm_num_requests_waiting",
        "cache_used": "trtllm_kv_cache_utilization", "finished": "trtllm_request_success_total",
    },
    "dynamo": {
        "running": "dynamo_frontend_inflight_requests", "until_first_token": "dynamo_frontend_queued_requests",
        "finished": "dynamo_frontend_requests_total",
    },
}  # fmt: skip
_LABELS = {
    "vllm": 'engine="0",model_name="acme/lark-70b"', "sglang": 'engine_type="unified",model_name="acme/lark-70b"',
    "trtllm": 'model_name="acme/lark-70b",engine_type="trtllm"', "dynamo": 'model="acme/lark-70b"',
}  # fmt: skip


@dataclass
class EngineLoad:
    """State of an engine; observations of each distribution have these means, and ``late`` ones this value."""

    running: int = 12
    waiting: int = 0
    until_first_token: int = 0  # requests without a token yet, prefill included (Dynamo's frontend)
    cache_used: float = 0.4
    preemptions: int = 0
    finished: int = 400
    failed_transfers: int = 0
    saved_bytes: float | None = None  # of KV caches, to the host's memory (vLLM's offloading connector)
    loaded_bytes: float | None = None
    loaded_s: float | None = None
    started: float | None = None  # time of the process's start, seconds
    means: Mapping[str, float] = field(default_factory=lambda: {"first_token": 0.35, "queue": 0.01, "prefill": 0.3})
    late: Mapping[str, float] = field(default_factory=dict)  # value of one observation in twenty


def text(engine: str, load: EngineLoad, labels: str = "") -> str:
    """Return one scrape; values that the engine does not report are left out."""
    labels, lines = labels or _LABELS[engine], list[str]()
    if load.started is not None:
        lines.append(f"process_start_time_seconds {load.started}")
    for name, metric in NUMBERS[engine].items():
        if name == "failed_transfers" and "transfer" not in load.means:
            continue
        kind = "counter" if metric.endswith("_total") else "gauge"
        lines += [f"# HELP {metric} {name}.", f"# TYPE {metric} {kind}"]
        lines.append(f"{metric}{{{labels}}} {float(getattr(load, name))}")
    if load.saved_bytes is not None:
        for metric, saved, loaded in (
            ("vllm:kv_offload_total_bytes_total", load.saved_bytes, load.loaded_bytes),
            ("vllm:kv_offload_total_time_total", load.saved_bytes / 2e10, load.loaded_s),
        ):
            lines += [f"# HELP {metric} KV offload.", f"# TYPE {metric} counter"]
            for direction, value in (("GPU_to_CPU", saved), ("CPU_to_GPU", loaded)):
                lines += [f'{metric}{{{labels},transfer_type="{direction}"}} {value}'] if value is not None else []
    for name, (metric, unit) in HISTOGRAMS[engine].items():
        if name not in load.means:
            continue
        late = load.finished // 20 if name in load.late else 0
        values = {load.means[name]: load.finished - late}
        if late:
            values[load.late[name]] = late
        bounds = _BOUNDS if name != "transfer_bytes" else (1e6, 1e7, 1e8, 1e9, 1e10)
        lines += [f"# HELP {metric} Histogram of {name}.", f"# TYPE {metric} histogram"]
        for bound in bounds:
            below = sum(count for value, count in values.items() if value <= bound)
            lines.append(f'{metric}_bucket{{{labels},le="{bound / unit}"}} {float(below)}')
        lines.append(f'{metric}_bucket{{{labels},le="+Inf"}} {float(load.finished)}')
        total = sum(value * count for value, count in values.items()) / unit
        lines += [f"{metric}_count{{{labels}}} {float(load.finished)}", f"{metric}_sum{{{labels}}} {total}"]
    return "\n".join(lines) + "\n"
