"""Metrics of serving engines in the Prometheus text format.

Supported are vLLM, SGLang, TensorRT-LLM, and Dynamo's frontend and workers. The text is the output of
one or several ``curl http://HOST:PORT/metrics``. Sources: docs.vllm.ai/en/stable/usage/metrics,
docs.sglang.io (production metrics), docs.nvidia.com/dynamo (metrics catalog, TensorRT-LLM); Prometheus exposition
format 0.0.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.metric_samples import COMMENT, LABEL, LONGEST, SAMPLE
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import NumberedText

HINTS = ("vllm:", "sglang:", "trtllm", "dynamo_frontend_", "dynamo_component_")

_ENGINES = (("vLLM", "vllm:"), ("SGLang", "sglang:"), ("TensorRT-LLM", "trtllm"), ("Dynamo", "dynamo_"))
_BEGIN = re.compile(r"(?:vllm:|sglang:|trtllm[:_]|dynamo_(?:frontend|component)_)\w{1,100}[{\s]")
#: Maximum number of other lines between two samples, and maximum number of samples in one text.
_GAP, _MOST = 4, 200_000
#: Maximum plausible share of a cache in use; above 1, since an engine may count a block twice.
_FULLEST = 1.05
#: Maximum plausible value.
_LARGEST = 1e15
#: Labels that identify an engine, with the word printed before the value; maximum engines judged individually.
_ENGINE_LABELS = {"instance": "", "pod": "", "model_name": "model ", "model": "model ", "engine": "engine ",
                  "dp_rank": "DP rank ", "worker_id": "worker "}  # fmt: skip
_MOST_ENGINES = 1000
#: Labels of an engine's ranks, which report the same requests (SGLang with metrics of all schedulers): rank 0 is used.
_RANK = re.compile(r"\b([tp]p_rank)=\"(\d{1,6})\"")
#: Start time of the scraped process; it differs between replicas, and after a restart.
_STARTED = "process_start_time_seconds"

#: Value -> names of its metric; the first one that a scrape has is used.
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running",
                "dynamo_frontend_inflight_requests", "dynamo_component_inflight_requests"),
    # not dynamo_frontend_queued_requests: it counts a request until its first token, prefill included
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting"),
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
#: Bytes and seconds of copying KV caches to other memory and back (vLLM's offloading); a label has the direction.
_OFFLOADED_BYTES = ("vllm:kv_offload_total_bytes_total", "vllm:kv_offload_total_bytes")
_OFFLOADED_TIME = ("vllm:kv_offload_total_time_total", "vllm:kv_offload_total_time")
_DIRECTION = re.compile(r"\btransfer_type=\"(\w{1,40})_to_(\w{1,40})\"")
#: Distribution -> names of its histogram, each with the factor that converts it to seconds or bytes.
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
    """One sample of a metric."""

    name: str
    labels: str  # as printed, with braces
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


@dataclass(frozen=True)
class ServingMetrics:
    """The scrapes of one text, in order.

    If the text has several engines, replicas or processes, ``engines`` has the scrapes of each, and the ``place`` of
    each identifies it.
    """

    program: str
    scrapes: tuple[Scrape, ...]
    models: tuple[str, ...] = ()
    engines: tuple[ServingMetrics, ...] = ()
    place: str = ""
    cut: bool = False  # only part of the text was read

    @property
    def name(self) -> str:
        """The program, followed by the engine if there are several."""
        return f"{self.program}, {self.place}" if self.place else self.program

    def grown(self, name: str) -> float | None:
        """Return a counter's growth from the first to the last scrape.

        A decrease counts as a reset to 0. With only one scrape, return its value; without any, None.
        """
        values = [value for scrape in self.scrapes if (value := getattr(scrape, name)) is not None]
        if len(values) < 2:
            return values[0] if values else None
        return float(sum(_growth(before, after) for before, after in pairwise(values)))

    def between(self, name: str) -> Distribution | None:
        """Return the observations made between the first and the last scrape.

        With only one scrape, return all its observations; without any, None.
        """
        samples: list[Distribution] = [value for scrape in self.scrapes if (value := getattr(scrape, name)) is not None]
        if len(samples) < 2:
            return samples[0] if samples else None
        observations = total = 0.0
        buckets: dict[float, float] = {}
        for before, after in pairwise(samples):
            anew = after.observations < before.observations or after.total < before.total
            observations += after.observations - (0.0 if anew else before.observations)
            total += after.total - (0.0 if anew else before.total)
            earlier = {} if anew else dict(before.buckets)
            for upper, below in after.buckets:
                buckets[upper] = buckets.get(upper, 0.0) + below - earlier.get(upper, 0.0)
        return Distribution(observations, total, tuple(sorted(buckets.items())))

    def mean(self, name: str) -> float | None:
        """Return the mean of the observations of ``between``; None without any."""
        sample = self.between(name)
        return None if sample is None else sample.mean


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after


def begins(lines: Lines, at: int) -> bool:
    """Return whether metrics of a serving engine begin at a line."""
    text = lines[at].text[:LONGEST]
    if _BEGIN.match(text):
        return SAMPLE.fullmatch(text) is not None
    return COMMENT.match(text) is not None and any(hint in text for hint in HINTS)


def parse_lines(lines: Lines, at: int) -> Parsed[ServingMetrics]:
    """Read the metrics, with at most a few other lines between two samples."""
    samples: list[MetricSample] = []
    gaps: list[ParseGap] = []
    end = last = at
    while end < len(lines) and end - last <= _GAP and len(samples) < _MOST:
        text = lines[end].text
        if len(text) <= LONGEST and (match := SAMPLE.fullmatch(text)):
            samples.append(MetricSample(match[1], match[2] or "", float(match[3])))
            last = end
        elif COMMENT.match(text):
            last = end
        elif _BEGIN.match(text[:LONGEST]):
            gaps.append(ParseGap(lines[end].number, "the metric has no number"))
            last = end
        end += 1
    return Parsed(of_samples(samples), tuple(gaps), last + 1)


def parse(text: NumberedText) -> ServingMetrics | None:
    """Read the metrics of a text; None if none is from a serving engine."""
    samples = [
        MetricSample(match[1], match[2] or "", float(match[3]))
        for line in text.text.split("\n")[: 2 * _MOST]
        if len(line) <= LONGEST and (match := SAMPLE.fullmatch(line.rstrip("\r")))
    ]
    metrics = of_samples(samples)
    if not metrics.program:
        return None
    return metrics if text.complete and text.last <= 2 * _MOST else replace(metrics, cut=True)


def of_samples(samples: Sequence[MetricSample]) -> ServingMetrics:
    """Return the metrics of samples, which are in the order of the text."""
    names = {sample.name for sample in samples}
    program = next((engine for engine, prefix in _ENGINES if any(name.startswith(prefix) for name in names)), "")
    models: dict[str, None] = {}
    for sample in samples:
        for name, value in LABEL.findall(sample.labels[:LONGEST]):
            if name in ("model_name", "model") and len(models) < 100:
                models[value[:200]] = None
    parts = list(_parts(samples))
    return ServingMetrics(program, _scrapes(parts), tuple(models), tuple(_engines(program, parts)))


def _scrapes(parts: Iterable[Sequence[MetricSample]]) -> tuple[Scrape, ...]:
    return tuple(scrape for part in parts if (scrape := _scrape(part)) != Scrape())


def _engines(program: str, parts: Sequence[Sequence[MetricSample]]) -> Iterator[ServingMetrics]:
    """Yield the metrics of each engine and process, if there are several.

    The start time identifies a process, so the scrapes of several replicas are not merged into one engine.
    """
    prefixes = tuple(prefix for _, prefix in _ENGINES)
    processes: dict[float, None] = {}
    of_engines: dict[tuple[float, tuple[tuple[str, str], ...]], list[list[MetricSample]]] = {}
    named: dict[str, tuple[tuple[str, str], ...]] = {}
    for part in parts:
        process = next((sample.value for sample in part if sample.name == _STARTED), 0.0)
        processes[process] = None
        own: dict[tuple[tuple[str, str], ...], list[MetricSample]] = {}
        for sample in part:
            if sample.name.startswith(prefixes):
                if (engine := named.get(sample.labels)) is None:
                    engine = named[sample.labels] = _engine_of(sample.labels)
                own.setdefault(engine, []).append(sample)
        for engine, samples in own.items():
            of_engines.setdefault((process, engine), []).append(samples)
    if not 1 < len(of_engines) <= _MOST_ENGINES:
        return
    values: dict[str, set[str]] = {}
    for _, engine in of_engines:
        for label, value in engine:
            values.setdefault(label, set()).add(value)
    order = list(processes)
    for (process, engine), own_parts in of_engines.items():
        words = [f"{_ENGINE_LABELS[label]}{value}" for label, value in engine if len(values[label]) > 1]
        words += [f"process {order.index(process) + 1}"] if len(order) > 1 else []
        yield ServingMetrics(program, _scrapes(own_parts), place=", ".join(words))


def _engine_of(labels: str) -> tuple[tuple[str, str], ...]:
    """Return the labels that identify an engine, in a fixed order."""
    own = {name: value[:60] for name, value in LABEL.findall(labels[:LONGEST]) if name in _ENGINE_LABELS}
    return tuple((name, own[name]) for name in _ENGINE_LABELS if name in own)


def _parts(samples: Sequence[MetricSample]) -> Iterator[list[MetricSample]]:
    """Yield the samples of each scrape; a repeated series starts the next scrape."""
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
    series = {(sample.name, sample.labels) for sample in samples}
    for sample in samples:
        name = sample.name.replace("trtllm:", "trtllm_", 1)
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
        saved_bytes=copied(_OFFLOADED_BYTES, back=False),
        loaded_bytes=copied(_OFFLOADED_BYTES, back=True),
        loaded_s=copied(_OFFLOADED_TIME, back=True),
        unusable=tuple(sorted({sample.name for sample in samples if _cannot_be(sample)})),
    )


def _cannot_be(sample: MetricSample) -> bool:
    """Return whether a metric of the KV cache has an impossible value."""
    name = sample.name.replace("trtllm:", "trtllm_", 1)
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
            bound = next((value for label, value in LABEL.findall(sample.labels) if label == "le"), "")
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
        "engines": [engine.place for engine in metrics.engines],
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
    """Return a one-line summary of the metrics."""
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
