"""Step times of a job: slow steps and how regularly they recur, drift, and spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, sqrt
from statistics import median, pstdev, quantiles

from preflight._startup.lightclass import dataclass
from preflight.parsers.training.iteration_log import TrainingLog, TrainingStep

#: Minimum number of slow steps for a regular distance, minimum share of them at that distance, and minimum share of the
#: steps at that distance that are slow.
_RECURRING, _AT_IT, _COMPLETE = 3, 0.6, 0.7
#: Minimum number of steps for a drift; minimum growth, as a fraction and in standard errors of the two medians; and
#: standard errors by which a quarter may be below the previous one.
_DRIFT_STEPS, _DRIFT, _ERRORS, _TOLERATED = 20, 0.05, 4.0, 3.0
#: Maximum number of leading steps that may be slow, while kernels are compiled and chosen.
_WARM_UP = 10
#: Programs that count steps per epoch: a number below the last one is usually not a restart.
_BY_EPOCH = ("Lightning", "progress bar", "a program")
#: Multiple of the median at which recurring steps are long: a judgement call.
LONGER = 1.2
#: Standard error of the median of normally distributed times, as a factor of the mean's.
_MEDIAN_ERROR = 1.25
_DEVIATION = 1.4826  # standard deviation / median absolute deviation of a normal distribution

#: A step's time in seconds, and the step. If only throughput is logged, the time is its inverse, and comparable only
#: with other such times.
TimedStep = tuple[float, TrainingStep]


@dataclass(frozen=True)
class SlowSteps:
    """Steps far above the median; ``cost`` is their excess as a share of total time."""

    count: int
    first: TrainingStep
    last: TrainingStep
    ratio: float  # ratio of the slowest step to the median
    worst: TrainingStep
    cost: float
    every: int | None  # distance in steps at which they recur; None: irregular
    spread: float  # standard deviation of the other steps, as a share of their mean


@dataclass(frozen=True)
class Drift:
    """Median step times of the first and the last quarter of a run, in seconds."""

    before: float
    after: float


def restarts(log: TrainingLog) -> list[TrainingStep]:
    """Return the first step after each restart.

    Its number is below that of the step before. In programs that count steps per epoch, it must also be above
    that of the log's first step.
    """
    numbered = [(step.step, step) for step in log.steps if step.step is not None]
    least = numbered[0][0] if numbered and log.framework in _BY_EPOCH else -1
    return [step for (before, _), (number, step) in pairwise(numbered) if least < number < before]


def warmed_up(log: TrainingLog) -> list[TrainingStep]:
    """Return the steps except the first one of the log, and of each restart."""
    again = {id(step) for step in restarts(log)}  # the states of a progress bar share a line
    return [step for step in log.steps[1:] if id(step) not in again]


def timed(steps: Sequence[TrainingStep]) -> list[TimedStep]:
    """Return the steps with their times; if several ranks log a step, the slowest.

    Without times, the inverse of the throughput is used.
    """
    times = [(step.step_time_s, step) for step in steps if step.step_time_s and isfinite(step.step_time_s)]
    if not times:
        times = [(1 / step.throughput, step) for step in steps if step.throughput and isfinite(step.throughput)]
    merged: list[TimedStep] = []
    for time, step in times:
        if time <= 0:
            continue
        if merged and step.step is not None and merged[-1][1].step == step.step:
            merged[-1] = max(merged[-1], (time, step), key=lambda pair: pair[0])
        else:
            merged.append((time, step))
    return merged


def without_warm_up(times: Sequence[TimedStep], factor: float) -> Sequence[TimedStep]:
    """Return the steps without leading ones above ``factor`` times the median."""
    usual = median(time for time, _ in times)
    most = min(_WARM_UP, len(times) // 4)
    warm = next((number for number, (time, _) in enumerate(times[:most]) if time <= factor * usual), most)
    return times[warm:]


def slow_steps(times: Sequence[TimedStep], factor: float) -> SlowSteps | None:
    """Return the steps above ``factor`` times the median; None without any."""
    usual = median(time for time, _ in times)
    slow = [(time, step) for time, step in times if time > factor * usual]
    if not slow:
        return None
    time, worst = max(slow, key=lambda pair: pair[0])
    cost = sum(time - usual for time, _ in slow) / sum(time for time, _ in times)
    others = [time for time, _ in times if time <= factor * usual]
    return SlowSteps(len(slow), slow[0][1], slow[-1][1], time / usual, worst, cost,
                     _distance(times, [step for _, step in slow]), pstdev(others) * len(others) / sum(others)
                     )  # fmt: skip


def recurrence(slow: SlowSteps) -> str:
    """Describe long steps that recur."""
    return f"every {slow.every} steps, one takes up to {slow.ratio:.2g} times the median: {slow.cost:.1%} of the time"


def recurring(log: TrainingLog, factor: float) -> SlowSteps | None:
    """Return the steps above ``factor`` times the median if they recur."""
    times = timed(warmed_up(log))
    slow = slow_steps(without_warm_up(times, factor), factor) if times else None
    return slow if slow is not None and slow.every is not None else None


def _distance(times: Sequence[TimedStep], slow: Sequence[TrainingStep]) -> int | None:
    """Return the number of steps between slow steps; None if the distances differ.

    A few slow steps may be missing, and a few more steps may be slow.
    """
    numbers = [step.step for step in slow if step.step is not None]
    if len(numbers) < max(_RECURRING, len(slow)):
        return None
    distances = Counter(after - before for before, after in pairwise(numbers))
    every = distances.most_common(1)[0][0]
    all_numbers = {step.step for _, step in times if step.step is not None}
    if every <= min(_gaps(all_numbers), default=0):
        return None
    rest, hits = Counter(number % every for number in numbers).most_common(1)[0]
    expected = sum(number % every == rest for number in all_numbers)
    enough = hits >= _RECURRING and hits >= _AT_IT * len(numbers) and hits >= _COMPLETE * expected
    return every if enough else None


def _gaps(numbers: set[int]) -> list[int]:
    ordered = sorted(numbers)
    return [after - before for before, after in pairwise(ordered)]


def drift(times: Sequence[TimedStep]) -> Drift | None:
    """Return the growth of step times from the first to the last quarter of a run.

    None if the growth is small, may be chance, or is interrupted.
    """
    if len(times) < _DRIFT_STEPS:
        return None
    size = len(times) // 4
    parts = [[time for time, _ in times[len(times) * part // 4 :][:size]] for part in range(4)]
    middles = [median(part) for part in parts]
    first, last = middles[0], middles[-1]
    spreads = [_DEVIATION * median(abs(time - middle) for time in part)
               for part, middle in zip(parts, middles, strict=True)]  # fmt: skip
    error = _MEDIAN_ERROR * max(spreads[0], spreads[-1]) * sqrt(2 / size)
    grows = all(after >= before - _TOLERATED * error for before, after in pairwise(middles))
    return Drift(first, last) if grows and last - first > max(_DRIFT * first, _ERRORS * error) else None


def spread(times: Sequence[TimedStep]) -> float:
    """Return the standard deviation as a share of the mean, without the slowest tenth."""
    bulk = sorted(time for time, _ in times)[: max(2, len(times) * 9 // 10)]
    return pstdev(bulk) * len(bulk) / sum(bulk)


def percentile(times: Sequence[TimedStep], percent: int) -> float:
    """Return a percentile of the times; the 99th needs at least 100 times."""
    return quantiles((time for time, _ in times), n=100, method="inclusive")[percent - 1]
