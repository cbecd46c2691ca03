"""Metrics of serving engines in Prometheus' text format.

vLLM, SGLang, TensorRT-LLM and Dynamo's frontend and workers, as ``curl http://HOST:PORT/metrics`` prints them; one
text may hold several scrapes. Sources: docs.vllm.ai/en/stable/usage/metrics, docs.sglang.io (production metrics),
docs.nvidia.com/dynamo (metrics catalog, TensorRT-LLM); Prometheus' exposition format 0.0.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import NumberedText

HINTS = ("vllm:", "sglang:", "trtllm", "dynamo_frontend_", "dynamo_component_")

_ENGINES = (("vLLM", "vllm:"), ("SGLang", "sglang:"), ("TensorRT-LLM", "trtllm"), ("Dynamo", "dynamo_"))
_NAME = r"[A-Za-z_:][\w:]{0,199}"
_SAMPLE = re.compile(
    rf"({_NAME})(\{{(?:[^{{}}\"\\]|\"(?:[^\"\\]|\\.){{0,2000}}\"){{0,400}}\}})?\s{{1,8}}"
    r"([+-]?(?:\d[\d.]{0,30}(?:[eE][+-]?\d{1,3})?|Inf|NaN))(?:\s{1,8}-?\d{1,17})?\s*"
)
_BEGIN = re.compile(r"(?:vllm:|sglang:|trtllm[:_]|dynamo_(?:frontend|component)_)\w{1,100}[{\s]")
_COMMENT = re.compile(r"# (?:HELP|TYPE|UNIT|EOF)\b")
_LABEL = re.compile(r"([A-Za-z_]\w{0,99})\s?=\s?\"((?:[^\"\\]|\\.){0,2000})\"")
#: Other lines between two samples, and samples of one text.
_GAP, _MOST = 4, 200_000
#: Longest examined line.
_LONGEST = 20_000

#: Value -> names of its metric, without the engine's prefix; the first that a scrape has counts.
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running",
                "dynamo_frontend_inflight_requests", "dynamo_component_inflight_requests"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting",
                "dynamo_frontend_queued_requests"),
}  # fmt: skip
_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization",
          "dynamo_component_kvstats_gpu_cache_usage_percent")  # fmt: skip
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_requests_total",
                    "sglang:num_retracted_reqs_total"),
    "finished": ("vllm:request_success_total", "sglang:num_requests_total", "trtllm_request_success_total",
                 "dynamo_frontend_requests_total"),
    "failed_transfers": ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_failed_transfers",
                         "sglang:num_transfer_failed_reqs_total"),
    "expired_transfers": ("vllm:nixl_num_kv_expired_reqs_total", "vllm:nixl_num_kv_expired_reqs"),
}  # fmt: skip
#: Distribution -> names of its histogram, and the factor to seconds or bytes.
_HISTOGRAMS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "first_token": (("vllm:time_to_first_token_seconds", 1), ("sglang:time_to_first_token_seconds", 1),
                    ("trtllm_time_to_first_token_seconds", 1), ("dynamo_frontend_time_to_first_token_seconds", 1)),
    "queue": (("vllm:request_queue_time_seconds", 1), ("sglang:queue_time_seconds", 1),
              ("trtllm_request_queue_time_seconds", 1)),
    "prefill": (("vllm:request_prefill_time_seconds", 1), ("trtllm_request_prefill_time_seconds", 1)),
    "next_token": (("vllm:inter_token_latency_seconds", 1), ("vllm:time_per_output_token_seconds", 1),
                   ("sglang:inter_token_latency_seconds", 1), ("sglang:time_per_output_token_seconds", 1),
                   ("trtllm_time_per_output_token_seconds", 1), ("dynamo_frontend_inter_token_latency_seconds", 1)),
    "transfer": (("vllm:nixl_xfer_time_seconds", 1), ("sglang:kv_transfer_latency_ms", 1e-3),
                 ("sglang:kv_transfer_latency_seconds", 1), ("trtllm_kv_transfer_latency_seconds", 1)),
    "transfer_bytes": (("vllm:nixl_bytes_transferred", 1), ("sglang:kv_transfer_total_mb", float(1 << 20)),
                       ("trtllm_kv_transfer_bytes", 1)),
}  # fmt: skip


class MetricSample(NamedTuple):
    """One line of a metric."""

    name: str
    labels: str  # as printed
    value: float


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
        """Return the bounds of the bucket of a percentile; None if unknown.

        The last bucket has no upper one.
        """
        lower = 0.0
        for upper, below in self.buckets:
            if self.observations and below >= share * self.observations:
                return lower, upper if upper != float("inf") else None
            lower = upper
        return None


@dataclass(frozen=True)
class Scrape:
    """One scrape of an engine; None if it has no such metric."""

    running: int | None = None  # requests
    waiting: int | None = None
    cache_used: float | None = None  # share of the KV cache, 0 to 1
    preemptions: float | None = None  # since the start of the engine
    finished: float | None = None  # requests
    failed_transfers: float | None = None  # of the KV cache between engines
    expired_transfers: float | None = None
    first_token: Distribution | None = None  # seconds
    queue: Distribution | None = None
    prefill: Distribution | None = None
    next_token: Distribution | None = None
    transfer: Distribution | None = None
    transfer_bytes: Distribution | None = None


@dataclass(frozen=True)
class ServingMetrics:
    """The scrapes of one text, in order, and their engine."""

    program: str
    scrapes: tuple[Scrape, ...]
    models: tuple[str, ...] = ()


def begins(lines: Lines, at: int) -> bool:
    """Return whether metrics of a serving engine begin at a line."""
    text = lines[at].text[:_LONGEST]
    if _BEGIN.match(text):
        return _SAMPLE.fullmatch(text) is not None
    return _COMMENT.match(text) is not None and any(hint in text for hint in HINTS)


def parse_lines(lines: Lines, at: int) -> Parsed[ServingMetrics]:
    """Read the metrics from the first on; some other lines may be in between."""
    samples: list[MetricSample] = []
    gaps: list[ParseGap] = []
    end = last = at
    while end < len(lines) and end - last <= _GAP and len(samples) < _MOST:
        text = lines[end].text
        if len(text) <= _LONGEST and (match := _SAMPLE.fullmatch(text)):
            samples.append(MetricSample(match[1], match[2] or "", float(match[3])))
            last = end
        elif _COMMENT.match(text):
            last = end
        elif _BEGIN.match(text[:_LONGEST]):
            gaps.append(ParseGap(lines[end].number, "a metric without a number"))
            last = end
        end += 1
    return Parsed(of_samples(samples), tuple(gaps), last + 1)


def parse(text: NumberedText) -> ServingMetrics | None:
    """Read the metrics of a log; None without those of a serving engine."""
    samples = [
        MetricSample(match[1], match[2] or "", float(match[3]))
        for line in text.text.split("\n")[: 2 * _MOST]
        if len(line) <= _LONGEST and (match := _SAMPLE.fullmatch(line.rstrip("\r")))
    ]
    metrics = of_samples(samples)
    return metrics if metrics.program else None


def of_samples(samples: Sequence[MetricSample]) -> ServingMetrics:
    """Return the values of samples in the order of the text."""
    names = {sample.name for sample in samples}
    program = next((engine for engine, prefix in _ENGINES if any(name.startswith(prefix) for name in names)), "")
    models: dict[str, None] = {}
    for sample in samples:
        for name, value in _LABEL.findall(sample.labels[:_LONGEST]):
            if name in ("model_name", "model") and len(models) < 100:
                models[value[:200]] = None
    scrapes = [_scrape(part) for part in _parts(samples)]
    return ServingMetrics(program, tuple(scrape for scrape in scrapes if scrape != Scrape()), tuple(models))


def _parts(samples: Sequence[MetricSample]) -> Iterator[list[MetricSample]]:
    """Yield the samples of each scrape: a series that comes again starts the next one."""
    part: list[MetricSample] = []
    series: set[tuple[str, str]] = set()
    for sample in samples:
        if (sample.name, sample.labels) in series:
            yield part
            part, series = [], set()
        series.add((sample.name, sample.labels))
        part.append(sample)
    if part:
        yield part


def _scrape(samples: Sequence[MetricSample]) -> Scrape:
    by_name: dict[str, list[MetricSample]] = {}
    for sample in samples:
        name = sample.name.replace("trtllm:", "trtllm_", 1)
        if sample.value == sample.value and abs(sample.value) != float("inf"):
            by_name.setdefault(name, []).append(sample)

    def total(names: Sequence[str]) -> float | None:
        name = next((name for name in names if name in by_name), None)
        return None if name is None else sum(sample.value for sample in by_name[name])

    used = next((by_name[name] for name in _CACHE if name in by_name), [])
    running, waiting = total(_GAUGES["running"]), total(_GAUGES["waiting"])
    return Scrape(
        running=None if running is None else round(running),
        waiting=None if waiting is None else round(waiting),
        cache_used=max((sample.value for sample in used), default=None),
        preemptions=total(_COUNTERS["preemptions"]),
        finished=total(_COUNTERS["finished"]),
        failed_transfers=total(_COUNTERS["failed_transfers"]),
        expired_transfers=total(_COUNTERS["expired_transfers"]),
        first_token=_distribution(by_name, _HISTOGRAMS["first_token"]),
        queue=_distribution(by_name, _HISTOGRAMS["queue"]),
        prefill=_distribution(by_name, _HISTOGRAMS["prefill"]),
        next_token=_distribution(by_name, _HISTOGRAMS["next_token"]),
        transfer=_distribution(by_name, _HISTOGRAMS["transfer"]),
        transfer_bytes=_distribution(by_name, _HISTOGRAMS["transfer_bytes"]),
    )


def _distribution(
    by_name: Mapping[str, Sequence[MetricSample]], names: Sequence[tuple[str, float]]
) -> Distribution | None:
    """Return a histogram over all of its series; None if it is not there."""
    for name, factor in names:
        counts, sums = by_name.get(f"{name}_count"), by_name.get(f"{name}_sum")
        if not counts or not sums:
            continue
        below: dict[float, float] = {}
        for sample in by_name.get(f"{name}_bucket", ()):
            bound = next((value for label, value in _LABEL.findall(sample.labels) if label == "le"), "")
            try:
                upper = float(bound)
            except ValueError:
                continue
            below[upper * factor] = below.get(upper * factor, 0.0) + sample.value
        return Distribution(
            sum(sample.value for sample in counts), sum(sample.value for sample in sums) * factor,
            tuple(sorted(below.items())),
        )  # fmt: skip
    return None


def facts(metrics: ServingMetrics) -> dict[str, Any]:
    """Return the metrics as `preflight read --json` prints them."""
    return {
        "program": metrics.program or None, "models": list(metrics.models),
        "scrapes": [
            {
                "running": scrape.running, "waiting": scrape.waiting, "cache_used": scrape.cache_used,
                "preemptions": scrape.preemptions, "finished": scrape.finished,
                "failed_transfers": scrape.failed_transfers, "expired_transfers": scrape.expired_transfers,
                **{
                    name: None if (sample := getattr(scrape, name)) is None else
                    {"count": sample.observations, "mean": sample.mean, "p50_between": sample.bounds(0.5),
                     "p99_between": sample.bounds(0.99)}
                    for name in _HISTOGRAMS
                },
            }
            for scrape in metrics.scrapes
        ],
    }  # fmt: skip


def summary(metrics: ServingMetrics) -> str:
    """Return one line on the metrics."""
    count = len(metrics.scrapes)
    last = metrics.scrapes[-1] if count else Scrape()
    parts = [f"{count} {'scrape' if count == 1 else 'scrapes'} of {metrics.program or 'an engine'}"]
    if last.running is not None:
        parts.append(f"{last.running} requests run")
    if last.waiting is not None:
        parts.append(f"{last.waiting} wait")
    if last.cache_used is not None:
        parts.append(f"KV cache {100 * last.cache_used:.0f} % full")
    return ", ".join(parts)
