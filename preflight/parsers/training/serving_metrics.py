"""Metrics of serving engines in the Prometheus text format.

The text is the output of one or several ``curl http://HOST:PORT/metrics``. ``metric_samples`` reads its samples, and
``engine_metrics`` has the names of the metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.metric_samples import MetricSample, is_comment, labels_of, sample_of, scrapes
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.training.engine_metrics import ENGINES, HISTOGRAMS, RAY, Distribution, Scrape, scrape_of
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import NumberedText

HINTS = ("vllm:", RAY, "sglang:", "trtllm", "dynamo_frontend_", "dynamo_component_", "nv_trt_llm_")

_BEGIN = re.compile(rf"(?:vllm:|{RAY}|sglang:|trtllm[:_]|dynamo_(?:frontend|component)_|nv_trt_llm_)\w{{1,100}}[{{\s]")
#: Maximum number of other lines between two samples, and maximum number of samples in one text.
_GAP, _MOST = 4, 200_000
#: Labels that identify an engine, with the word printed before the value; maximum engines judged individually.
_ENGINE_LABELS = {"instance": "", "pod": "", "model_name": "model ", "model": "model ", "engine": "engine ",
                  "dp_rank": "DP rank ", "worker_id": "worker "}  # fmt: skip
_MOST_ENGINES = 1000
#: Start time of the scraped process; it differs between replicas, and after a restart.
_STARTED = "process_start_time_seconds"


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
    text = lines[at].text
    if _BEGIN.match(text):
        return sample_of(text) is not None
    return is_comment(text) and any(hint in text for hint in HINTS)


def parse_lines(lines: Lines, at: int) -> Parsed[ServingMetrics]:
    """Read the metrics, with at most a few other lines between two samples."""
    samples: list[MetricSample] = []
    gaps: list[ParseGap] = []
    end = last = at
    while end < len(lines) and end - last <= _GAP and len(samples) < _MOST:
        text = lines[end].text
        if sample := sample_of(text):
            samples.append(sample)
            last = end
        elif is_comment(text):
            last = end
        elif _BEGIN.match(text):
            gaps.append(ParseGap(lines[end].number, "the metric has no number"))
            last = end
        end += 1
    return Parsed(of_samples(samples), tuple(gaps), last + 1)


def parse(text: NumberedText) -> ServingMetrics | None:
    """Read the metrics of a text; None if none is from a serving engine."""
    lines = text.text.split("\n")[: 2 * _MOST]
    samples = [sample for line in lines if (sample := sample_of(line.rstrip("\r")))]
    metrics = of_samples(samples)
    if not metrics.program:
        return None
    return metrics if text.complete and text.last <= 2 * _MOST else replace(metrics, cut=True)


def of_samples(samples: Sequence[MetricSample]) -> ServingMetrics:
    """Return the metrics of samples, which are in the order of the text."""
    names = {sample.name for sample in samples}
    program = next((engine for engine, prefix in ENGINES if any(name.startswith(prefix) for name in names)), "")
    models: dict[str, None] = {}
    for sample in samples:
        for name, value in labels_of(sample.labels):
            if name in ("model_name", "model") and len(models) < 100:
                models[value[:200]] = None
    parts = list(scrapes(samples))
    return ServingMetrics(program, _scrapes(parts), tuple(models), tuple(_engines(program, parts)))


def _scrapes(parts: Iterable[Sequence[MetricSample]]) -> tuple[Scrape, ...]:
    return tuple(scrape for part in parts if (scrape := scrape_of(part)) != Scrape())


def _engines(program: str, parts: Sequence[Sequence[MetricSample]]) -> Iterator[ServingMetrics]:
    """Yield the metrics of each engine and process, if there are several.

    The start time identifies a process, so the scrapes of several replicas are not merged into one engine.
    """
    prefixes = tuple(prefix for _, prefix in ENGINES)
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
    own = {name: value[:60] for name, value in labels_of(labels) if name in _ENGINE_LABELS}
    return tuple((name, own[name]) for name in _ENGINE_LABELS if name in own)


def facts(metrics: ServingMetrics) -> dict[str, Any]:
    """Return the metrics as `preflight read --json` prints them."""
    return {
        "program": metrics.program or None, "models": list(metrics.models),
        "engines": [engine.place for engine in metrics.engines],
        "scrapes": [
            {
                "running": scrape.running, "waiting": scrape.waiting,
                "until_first_token": scrape.until_first_token, "cache_used": scrape.cache_used,
                "preemptions": scrape.preemptions, "finished": scrape.finished,
                "failed_transfers": scrape.failed_transfers, "expired_transfers": scrape.expired_transfers,
                **{
                    name: None if (sample := getattr(scrape, name)) is None else
                    {"count": sample.observations, "mean": sample.mean, "p50_between": sample.bounds(0.5),
                     "p99_between": sample.bounds(0.99)}
                    for name in HISTOGRAMS
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
    elif last.until_first_token is not None:
        parts.append(f"{last.until_first_token} without a token yet")
    if last.cache_used is not None:
        parts.append(f"KV cache {100 * last.cache_used:.0f}% full")
    return ", ".join(parts)
