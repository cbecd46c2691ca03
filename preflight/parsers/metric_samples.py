"""Samples of metrics in the Prometheus text format (exposition format 0.0.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: Maximum length of a line.
LONGEST = 20_000

_NAME = r"[A-Za-z_:][\w:]{0,199}"
#: A sample: its name, its labels with braces, and its value.
SAMPLE = re.compile(
    rf"({_NAME})(\{{(?:[^{{}}\"\\]|\"(?:[^\"\\]|\\.){{0,2000}}\"){{0,400}}\}})?\s{{1,8}}"
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?|Inf|NaN))(?:\s{1,8}-?\d{1,17})?"
    r"(?:\s# \{.{0,400})?\s*"  # an OpenMetrics exemplar
)
COMMENT = re.compile(r"# (?:HELP|TYPE|UNIT|EOF)\b")
LABEL = re.compile(r"([A-Za-z_]\w{0,99})\s?=\s?\"((?:[^\"\\]|\\.){0,2000})\"")


class MetricSample(NamedTuple):
    """One sample of a metric."""

    name: str
    labels: str  # as printed, with braces
    value: float

    def label(self, name: str) -> str:
        """Return the value of a label; empty without it."""
        return next((value for label, value in labels_of(self.labels) if label == name), "")


def sample_of(line: str) -> MetricSample | None:
    """Return the sample in a line, or None."""
    match = SAMPLE.fullmatch(line) if len(line) <= LONGEST else None
    return MetricSample(match[1], match[2] or "", float(match[3])) if match else None


def is_comment(line: str) -> bool:
    """Return whether a line describes a metric, or ends the text."""
    return COMMENT.match(line) is not None


def labels_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of printed labels."""
    for match in LABEL.finditer(text[:LONGEST]):
        yield match[1], match[2]


def scrapes(samples: Iterable[MetricSample]) -> Iterator[list[MetricSample]]:
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
