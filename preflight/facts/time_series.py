"""Time series of a node's numbers over earlier runs, and how fast they grow.

The slope is the median of the slopes between all pairs of points (Theil and Sen): one odd reading does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from itertools import combinations
from statistics import median
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import COURSE, Evidence, EvidenceError

#: The metric of job durations in seconds, by job name.
JOBS = "job.seconds"

#: Points, and days between the first and the last, that a trend needs.
ENOUGH, LEAST_DAYS = 3, 1.0

#: Maximum number of points of a series, the newest ones.
MAX_POINTS = 120


@dataclass(frozen=True)
class TimeSeries:
    """One number over time, the oldest first."""

    subject: str
    days: tuple[float, ...]  # days since the first point
    values: tuple[float, ...]
    start: float = 0.0  # the first point, days since 1970

    @property
    def enough(self) -> bool:
        """Whether there are enough points for a trend."""
        return len(self.values) >= ENOUGH and self.days[-1] >= LEAST_DAYS

    @property
    def per_day(self) -> float:
        """The median growth per day, in the unit of the value."""
        slopes = [
            (later - earlier) / (end - start)
            for (start, earlier), (end, later) in combinations(zip(self.days, self.values, strict=True), 2)
            if end > start
        ]
        return median(slopes) if slopes else 0.0

    @property
    def times(self) -> tuple[float, ...]:
        """The times of the points in days since 1970, to a tenth of a second."""
        return tuple(round(self.start + day, 6) for day in self.days)

    @property
    def last(self) -> float:
        """The newest value."""
        return self.values[-1]


def since_reset(series: TimeSeries) -> TimeSeries:
    """Return the part of a counter's series since it last decreased.

    A reboot sets most counters to zero.
    """
    start = max((place for place in range(1, len(series.values)) if series.values[place] < series.values[place - 1]),
                default=0)  # fmt: skip
    first = series.days[start]
    days = tuple(day - first for day in series.days[start:])
    return TimeSeries(series.subject, days, series.values[start:], series.start + first)


def ratio(counter: TimeSeries, of: TimeSeries, least: float) -> TimeSeries:
    """Return the ratio of one counter's growth to another's, run by run.

    Runs that lack one of the counters are ignored. Intervals in which the other counter grew by less than ``least``
    are merged. A counter that decreased was reset: that interval is left out.
    """
    base = dict(zip(of.times, of.values, strict=True))
    both = [(at, value, base[at]) for at, value in zip(counter.times, counter.values, strict=True) if at in base]
    ratios: list[tuple[float, float]] = []
    since = 0
    for place in range(1, len(both)):
        (_, before, base_before), (at, after, base_after) = both[place - 1], both[place]
        if after < before or base_after < base_before:
            since = place
        elif (grown := base_after - both[since][2]) >= least:
            ratios.append((at, (after - both[since][1]) / grown))
            since = place
    first = ratios[0][0] if ratios else 0.0
    return TimeSeries(
        counter.subject, tuple(at - first for at, _ in ratios), tuple(value for _, value in ratios), first
    )


def series_of(evidence: Evidence, metric: str) -> tuple[TimeSeries, ...]:
    """Return the time series of one metric, by subject; raises EvidenceError."""
    value = evidence.value(COURSE)
    if not isinstance(value, Mapping):
        raise EvidenceError(COURSE, "holds no metrics")
    subjects = value.get(metric, {})
    if not isinstance(subjects, Mapping):
        raise EvidenceError(COURSE, f"{metric} holds no subjects")
    return tuple(_series(str(subject), points) for subject, points in sorted(subjects.items()))


def _series(subject: str, points: Any) -> TimeSeries:
    found: list[tuple[float, float]] = []
    if not isinstance(points, list):
        raise EvidenceError(COURSE, f"{subject[:60]} holds no points")
    for point in points[-MAX_POINTS:]:
        try:
            at, value = point
            moment = datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
            found.append((moment.timestamp() / 86400, float(value)))
        except (TypeError, ValueError):
            raise EvidenceError(
                COURSE, f"{subject[:60]} has a point that is not a time and a number: {str(point)[:60]}"
            ) from None
    if not found:
        raise EvidenceError(COURSE, f"{subject[:60]} holds no points")
    found.sort()
    first = found[0][0]
    return TimeSeries(subject, tuple(day - first for day, _ in found), tuple(value for _, value in found), first)
