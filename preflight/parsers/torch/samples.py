"""Statistics of durations for the facts: percentiles, mean and variation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any


def sample_of(values: Sequence[float]) -> dict[str, Any] | None:
    """Return the statistics of durations in milliseconds; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    mean = fmean(ordered)
    return {
        "count": len(ordered), "total_ms": rounded(sum(ordered)), "mean_ms": rounded(mean),
        "min_ms": rounded(ordered[0]),
        "p50_ms": rounded(percentile(ordered, 0.5)), "p99_ms": rounded(percentile(ordered, 0.99)),
        "p999_ms": rounded(percentile(ordered, 0.999)), "max_ms": rounded(ordered[-1]),
        "variation": round(pstdev(ordered) / mean, 4) if len(ordered) > 1 and mean else None,
    }  # fmt: skip


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of an ordered sample.

    ``share`` is 0.99 for the 99th percentile. None if the sample is too small for it.
    """
    beyond = round((1 - share) * 1000)  # in thousandths
    if not ordered or len(ordered) * beyond < 1000 * (share > 0.5):
        return None
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def rounded(value: float | None) -> float | None:
    """Round a value to three decimals; return None for None."""
    return None if value is None else round(value, 3)
