"""Metrics of dcgm-exporter: DCGM's fields of each GPU.

Sources: ``etc/default-counters.csv`` of dcgm-exporter, and the field identifiers of DCGM's API reference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.metric_samples import COMMENT, LABEL, LONGEST, SAMPLE
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("DCGM_FI_", "DCGM_EXP_")

_BEGIN = re.compile(r"DCGM_(?:FI|EXP)_[A-Z0-9_]{2,100}[{\s]")
_HELP = re.compile(r"# (?:HELP|TYPE) DCGM_(?:FI|EXP)_.*")
_ADDRESS = re.compile(r"(?:0000)?([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
#: Maximum number of other lines between two samples, and maximum number of samples.
_GAP, _MOST = 4, 100_000
#: DCGM's values for "not supported", "not permitted" and the like lie above this one.
_BLANK = 1e14
_XIDS = "DCGM_EXP_XID_ERRORS_COUNT"


@dataclass(frozen=True)
class MeasuredGpu:
    """One GPU, and its metrics by DCGM's name of the field.

    The value of a metric is None if it is printed without a number, as NaN or as DCGM's blank value.
    """

    host: str
    index: int  # -1: not named
    uuid: str
    name: str
    address: str  # PCI address in the kernel's form; empty if not shown
    line: int
    values: Mapping[str, float | None]
    xids: Mapping[int, int]  # code -> line


@dataclass(frozen=True)
class DcgmMetrics:
    """The GPUs of one scrape."""

    gpus: tuple[MeasuredGpu, ...]
    driver: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the labels."""
        return tuple(dict.fromkeys(gpu.host for gpu in self.gpus))


def begins(lines: Lines, at: int) -> bool:
    """Return whether metrics of dcgm-exporter begin at a line."""
    text = lines[at].text[:LONGEST]
    return _HELP.fullmatch(text) is not None or (_BEGIN.match(text) is not None and SAMPLE.fullmatch(text) is not None)


def parse_lines(lines: Lines, at: int) -> Parsed[DcgmMetrics]:
    """Read the metrics, with at most a few other lines between two samples."""
    values: dict[tuple[str, str], dict[str, float | None]] = {}
    labels_of: dict[tuple[str, str], dict[str, str]] = {}
    xids: dict[tuple[str, str], dict[int, int]] = {}
    first: dict[tuple[str, str], int] = {}
    gaps: list[ParseGap] = []
    driver = None
    end = last = at
    while end < len(lines) and end - last <= _GAP and end - at < _MOST:
        text, number = lines[end].text, lines[end].number
        if len(text) <= LONGEST and (match := SAMPLE.fullmatch(text)):
            last = end
            if _BEGIN.match(text):
                labels: dict[str, str] = dict(LABEL.findall(match[2] or ""))
                key = labels.get("Hostname", labels.get("instance", "")), labels.get("gpu", labels.get("UUID", ""))
                driver = driver or labels.get("DCGM_FI_DRIVER_VERSION")
                labels_of.setdefault(key, {}).update(labels)
                first.setdefault(key, number)
                value = float(match[3])
                if match[1] == _XIDS and labels.get("xid", "").isdecimal():
                    if value > 0:
                        xids.setdefault(key, {})[int(labels["xid"][:6])] = number
                else:
                    shown = None if math.isnan(value) or abs(value) >= _BLANK else value
                    own = values.setdefault(key, {})
                    own[match[1]] = shown if own.get(match[1]) is None else max(own[match[1]] or 0, shown or 0)
                    if match[1] == "DCGM_FI_DEV_XID_ERRORS" and shown:
                        xids.setdefault(key, {})[int(shown)] = number
        elif COMMENT.match(text):
            last = end
        elif _BEGIN.match(text[:LONGEST]):
            gaps.append(ParseGap(number, "the metric has no number"))
            last = end
        end += 1
    gpus = tuple(
        _gpu(key, labels_of[key], first[key], values.get(key, {}), xids.get(key, {})) for key in labels_of if key[1]
    )
    if not gpus:
        gaps.append(ParseGap(lines[at].number, "no metric of a GPU follows"))
    return Parsed(DcgmMetrics(gpus, driver), tuple(gaps), last + 1)


def _gpu(
    key: tuple[str, str],
    labels: Mapping[str, str],
    line: int,
    values: Mapping[str, float | None],
    xids: Mapping[int, int],
) -> MeasuredGpu:
    address = _ADDRESS.fullmatch(labels.get("pci_bus_id", ""))
    index = labels.get("gpu", "")
    return MeasuredGpu(
        key[0], int(index) if index.isdecimal() and len(index) < 4 else -1, labels.get("UUID", ""),
        labels.get("modelName", ""), f"{address[1]}:{address[2]}".lower() if address else "", line, values, xids,
    )  # fmt: skip


def facts(metrics: DcgmMetrics) -> dict[str, Any]:
    """Return the metrics as `preflight read --json` prints them."""
    gpus = [
        {
            "host": gpu.host or None, "gpu": gpu.index if gpu.index >= 0 else None, "uuid": gpu.uuid or None,
            "product": gpu.name or None, "bus_id": gpu.address or None, "xids": sorted(gpu.xids),
            "metrics": dict(gpu.values), "line": gpu.line,
        }
        for gpu in metrics.gpus
    ]  # fmt: skip
    return {"driver": metrics.driver, "hosts": [host for host in metrics.hosts if host], "gpus": gpus}


def summary(metrics: DcgmMetrics) -> str:
    """Return a one-line summary: the GPUs and the number of metrics."""
    names = {name for gpu in metrics.gpus for name in gpu.values}
    hosts = [host for host in metrics.hosts if host]
    on = f" of {', '.join(hosts[:4])}{', …' if hosts[4:] else ''}" if hosts else ""
    return f"{counted(len(names), 'metric')} of {counted(len(metrics.gpus), 'GPU')}{on}"
