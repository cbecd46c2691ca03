"""Values of serving engines, by the names of their metrics.

The supported engines are vLLM, SGLang, TensorRT-LLM (also in Triton), and Dynamo's frontend and workers. Sources:
docs.vllm.ai/en/stable/usage/metrics, docs.sglang.io (production metrics), docs.nvidia.com/dynamo (metrics catalog,
TensorRT-LLM), github.com/triton-inference-server/tensorrtllm_backend (Triton metrics).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from preflight._startup.lightclass import dataclass
from preflight.parsers.metric_samples import MetricSample

#: What Ray Serve prints instead of ``vllm:``, since its metrics have no colon.
RAY = "ray_vllm_"
ENGINES = (("vLLM", "vllm:"), ("vLLM", RAY), ("SGLang", "sglang:"), ("TensorRT-LLM", "trtllm"), ("Dynamo", "dynamo_"),
           ("Triton", "nv_trt_llm_"))  # fmt: skip
#: Metrics of Triton's TensorRT-LLM backend, whose label names the value; it becomes part of the name.
_VALUES = {"nv_trt_llm_request_metrics": "request_type", "nv_trt_llm_kv_cache_block_metrics": "kv_cache_block_type"}
#: Maximum plausible share of a cache in use; above 1, since an engine may count a block twice.
_FULLEST = 1.05
#: Maximum plausible value.
_LARGEST = 1e15
#: Labels of an engine's ranks, which report the same requests (SGLang with metrics of all schedulers): rank 0 is used.
_RANK = re.compile(r"\b([tp]p_rank)=\"(\d{1,6})\"")

#: Value -> names of its metric; the first one that a scrape has is used.
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running",
                "dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests",
                "dynamo_component_inflight_requests", "nv_trt_llm_request_metrics:scheduled"),
    "waiting": ("vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason", "sglang:num_queue_reqs",
                "trtllm_num_requests_waiting", "dynamo_frontend_router_queue_pending_requests",
                "nv_trt_llm_request_metrics:waiting"),
    "until_first_token": ("dynamo_frontend_stage_requests:waiting", "dynamo_frontend_queued_requests"),
}  # fmt: skip
#: The stages of Dynamo's frontend before the first token; its older metric counts them together.
_STAGES, _BEFORE = "dynamo_frontend_stage_requests", ("preprocess", "route", "dispatch")
_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization",
          "dynamo_component_kvstats_gpu_cache_usage_percent", "nv_trt_llm_kv_cache_block_metrics:fraction")  # fmt: skip
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_requests_total",
                    "sglang:num_retracted_reqs_total"),
    "finished": ("vllm:request_success_total", "sglang:num_requests_total", "trtllm_request_success_total",
                 "trtllm_num_requests_completed_total", "dynamo_frontend_requests_total"),
    "failed_transfers": ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_failed_transfers",
                         "sglang:num_transfer_failed_reqs_total"),
    "expired_transfers": ("vllm:nixl_num_kv_expired_reqs_total", "vllm:nixl_num_kv_expired_reqs"),
}  # fmt: skip
#: Bytes and seconds of copying KV caches to other memory and back (vLLM's offloading); a label has the direction.
_OFFLOADED_BYTES = ("vllm:kv_offload_total_bytes_total", "vllm:kv_offload_total_bytes")
_OFFLOADED_TIME = ("vllm:kv_offload_total_time_total", "vllm:kv_offload_total_time")
_DIRECTION = re.compile(r"\btransfer_type=\"(\w{1,40})_to_(\w{1,40})\"")
#: Distribution -> names of its histogram, each with the factor that converts it to seconds or bytes.
HISTOGRAMS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "first_token": (("vllm:time_to_first_token_seconds", 1), ("sglang:time_to_first_token_seconds", 1),
                    ("trtllm_time_to_first_token_seconds", 1), ("dynamo_frontend_time_to_first_token_seconds", 1)),
    # not nv_inference_queue_duration_us: Triton's backend takes requests immediately, and queues them itself
    "queue": (("vllm:request_queue_time_seconds", 1), ("sglang:queue_time_seconds", 1),
              ("trtllm_request_queue_time_seconds", 1)),
    "prefill": (("vllm:request_prefill_time_seconds", 1), ("trtllm_request_prefill_time_seconds", 1)),
    "next_token": (("vllm:inter_token_latency_seconds", 1), ("vllm:time_per_output_token_seconds", 1),
                   ("vllm:request_time_per_output_token_seconds", 1),
                   ("sglang:inter_token_latency_seconds", 1), ("sglang:time_per_output_token_seconds", 1),
                   ("trtllm_time_per_output_token_seconds", 1), ("dynamo_frontend_inter_token_latency_seconds", 1)),
    "transfer": (("vllm:nixl_xfer_time_seconds", 1), ("sglang:kv_transfer_latency_ms", 1e-3),
                 ("sglang:kv_transfer_latency_seconds", 1), ("trtllm_kv_transfer_latency_seconds", 1)),
    "transfer_bytes": (("vllm:nixl_bytes_transferred", 1), ("sglang:kv_transfer_total_mb", float(1 << 20)),
                       ("trtllm_kv_transfer_bytes", 1)),
}  # fmt: skip


class Distribution(NamedTuple):
    """A histogram: observations, their sum, and cumulative counts by upper bound."""

    observations: float
    total: float  # seconds or bytes
    buckets: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float | None:
        """The mean; None without observations."""
        return self.total / self.observations if self.observations else None

    def bounds(self, share: float) -> tuple[float, float | None] | None:
        """Return the bounds of the bucket with a percentile; None if unknown.

        ``share`` is 0.5 for the median. An upper bound of None is infinite.
        """
        lower = 0.0
        for upper, below in self.buckets:
            if self.observations and below >= share * self.observations:
                return lower, upper if upper != float("inf") else None
            lower = upper
        return None


@dataclass(frozen=True)
class Scrape:
    """The values of one scrape; a value is None if the scrape lacks its metric."""

    running: int | None = None  # requests
    waiting: int | None = None
    until_first_token: int | None = None  # requests without a token yet: in a queue or in prefill
    cache_used: float | None = None  # share of the KV cache, 0 to 1
    preemptions: float | None = None  # since the engine started
    finished: float | None = None  # requests
    failed_transfers: float | None = None  # of KV caches between engines
    expired_transfers: float | None = None
    first_token: Distribution | None = None  # seconds
    queue: Distribution | None = None
    prefill: Distribution | None = None
    next_token: Distribution | None = None
    transfer: Distribution | None = None
    transfer_bytes: Distribution | None = None
    saved_bytes: float | None = None  # KV caches copied from the GPU to other memory
    loaded_bytes: float | None = None  # KV caches copied back to the GPU
    loaded_s: float | None = None
    unusable: tuple[str, ...] = ()  # names of KV cache metrics with an impossible value


def scrape_of(samples: Sequence[MetricSample]) -> Scrape:
    """Return the values of one scrape."""
    by_name: dict[str, list[MetricSample]] = {}
    series = {(sample.name, sample.labels) for sample in samples}
    for sample in samples:
        name = _name(sample)
        first = _RANK.sub(r'\1="0"', sample.labels)
        if first != sample.labels and (sample.name, first) in series:
            continue
        if 0 <= sample.value <= _LARGEST:  # not NaN, infinite or negative
            by_name.setdefault(name, []).append(sample)

    def total(names: Sequence[str]) -> float | None:
        name = next((name for name in names if name in by_name), None)
        return None if name is None else sum(sample.value for sample in by_name[name])

    def copied(names: Sequence[str], *, back: bool) -> float | None:
        name = next((name for name in names if name in by_name), None)
        values = [
            sample.value
            for sample in by_name.get(name or "", ())
            if (hit := _DIRECTION.search(sample.labels)) is not None and (hit[2] == "GPU") is back
        ]
        return sum(values) if values else None

    used = [sample for sample in next((by_name[name] for name in _CACHE if name in by_name), [])
            if sample.value <= _FULLEST]  # fmt: skip
    requests = {name: None if (value := total(names)) is None else round(value) for name, names in _GAUGES.items()}
    return Scrape(
        **requests,
        cache_used=max((sample.value for sample in used), default=None),
        preemptions=total(_COUNTERS["preemptions"]),
        finished=total(_COUNTERS["finished"]),
        failed_transfers=total(_COUNTERS["failed_transfers"]),
        expired_transfers=total(_COUNTERS["expired_transfers"]),
        first_token=_distribution(by_name, HISTOGRAMS["first_token"]),
        queue=_distribution(by_name, HISTOGRAMS["queue"]),
        prefill=_distribution(by_name, HISTOGRAMS["prefill"]),
        next_token=_distribution(by_name, HISTOGRAMS["next_token"]),
        transfer=_distribution(by_name, HISTOGRAMS["transfer"]),
        transfer_bytes=_distribution(by_name, HISTOGRAMS["transfer_bytes"]),
        saved_bytes=copied(_OFFLOADED_BYTES, back=False),
        loaded_bytes=copied(_OFFLOADED_BYTES, back=True),
        loaded_s=copied(_OFFLOADED_TIME, back=True),
        unusable=tuple(sorted({sample.name for sample in samples if _cannot_be(sample)})),
    )


def _name(sample: MetricSample) -> str:
    """Return the name of a metric in one spelling, with the value that a label names."""
    if label := _VALUES.get(sample.name):
        return f"{sample.name}:{sample.label(label)}"
    if sample.name == _STAGES:
        return f"{_STAGES}:{'waiting' if sample.label('stage') in _BEFORE else 'other'}"
    return sample.name.replace("trtllm:", "trtllm_", 1).replace(RAY, "vllm:", 1)


def _cannot_be(sample: MetricSample) -> bool:
    """Return whether a metric of the KV cache has an impossible value."""
    name = _name(sample)
    if name in _CACHE:
        return not 0 <= sample.value <= _FULLEST
    return name in _COUNTERS["preemptions"] and not 0 <= sample.value <= _LARGEST


def _distribution(
    by_name: Mapping[str, Sequence[MetricSample]], names: Sequence[tuple[str, float]]
) -> Distribution | None:
    """Return the sum of a histogram's series; None if the scrape has none."""
    for name, factor in names:
        counts, sums = by_name.get(f"{name}_count"), by_name.get(f"{name}_sum")
        if not counts or not sums:
            continue
        below: dict[float, float] = {}
        for sample in by_name.get(f"{name}_bucket", ()):
            try:
                upper = float(sample.label("le"))
            except ValueError:
                continue
            below[upper * factor] = below.get(upper * factor, 0.0) + sample.value
        return Distribution(
            sum(sample.value for sample in counts), sum(sample.value for sample in sums) * factor,
            tuple(sorted(below.items())),
        )  # fmt: skip
    return None
