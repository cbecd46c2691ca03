"""Times of steps that only a progress bar shows.

tqdm prints full seconds since the start of a bar, and a rate with two decimals: a moving average with a weight of 0.3
for the newest step, or, in Lightning, the mean since the start. The average of each step gives the step's own time.
Otherwise only the seconds do, over so many steps that a second is a small error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace

if TYPE_CHECKING:
    from preflight.parsers.training.iteration_log import TrainingStep

#: Programs whose bar shows the mean since its start.
MEANS = ("Lightning",)
#: Weight of the newest step in tqdm's average, and of the sum of the older ones.
_NEW, _OLD = 0.3, 0.7
#: Share of the states of a bar that must follow the state of the step before, for averages to be undone.
_SEEN = 0.9
#: Largest error of a time, as a share of it; ratio to the mean at which a single long step is certain.
_FINE, _LONG = 0.05, 1.2
#: Largest error of a printed rate, and of the sum of all times in seconds: two ends of full seconds.
_PRINTED, _ENDS = 0.005, 2.0


def seconds_of(text: str) -> float:
    """Return the seconds of a printed time, such as 1:02:03."""
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part or 0)
    return float(seconds)


def with_times(framework: str, steps: Sequence[TrainingStep]) -> tuple[tuple[TrainingStep, ...], bool]:
    """Replace the averages that bars show by the times of steps.

    Return the steps, and whether single steps are hidden: their times are means over several states of the bar.
    """
    times: dict[int, float | None] = {}
    hidden = False
    for numbers in _bars(steps):
        states = [steps[number] for number in numbers]
        own = None if framework in MEANS else _undone(states)
        if own is None:
            own, several = _by_seconds(states, mean=framework in MEANS)
            hidden = hidden or several
        times.update(zip(numbers, own, strict=True))
    return tuple(step if step.elapsed_s is None else replace(step, step_time_s=times.get(number))
                 for number, step in enumerate(steps)), hidden  # fmt: skip


def _bars(steps: Sequence[TrainingStep]) -> Iterator[list[int]]:
    """Yield the indices of the states of each bar, without repeated ones."""
    bar: list[int] = []
    for number, step in enumerate(steps):
        if step.elapsed_s is None or step.step is None or step.step_time_s is None:
            continue
        if bar:
            last = steps[bar[-1]]
            if step.step == last.step:
                continue
            if step.step < (last.step or 0) or step.elapsed_s < (last.elapsed_s or 0.0):
                yield bar
                bar = []
        bar.append(number)
    if bar:
        yield bar


def _undone(states: Sequence[TrainingStep]) -> list[float | None] | None:
    """Return the times whose moving averages are shown; None if they cannot be.

    That is so if states are missing, or if a time would be negative or the times do not add up.
    """
    pairs = list(pairwise(states))
    if sum(_number(after) == _number(before) + 1 for before, after in pairs) < _SEEN * max(1, len(pairs)):
        return None
    times: list[float | None] = [states[0].step_time_s if states[0].step == 1 else None]
    total = shown = 0.0
    for before, after in pairs:
        time = None
        if _number(after) == _number(before) + 1:
            sums = [(state.step_time_s or 0.0) * (1 - _OLD ** _number(state)) for state in (before, after)]
            if (time := (sums[1] - _OLD * sums[0]) / _NEW) <= 0:
                return None
            total += time
            shown += (after.elapsed_s or 0.0) - (before.elapsed_s or 0.0)
        times.append(None if after.paused else time)
    return times if abs(total - shown) <= _ENDS + _FINE * shown else None


def _by_seconds(states: Sequence[TrainingStep], *, mean: bool) -> tuple[list[float | None], bool]:
    """Return the mean time over enough states to know it, for each state.

    Also return whether that hides single steps. A step that certainly took longer has a time of its own.
    """
    times: list[float | None] = [None] * len(states)
    bounds = [_bounds(state, mean=mean) for state in states]
    steps, seconds = _number(states[-1]) - _number(states[0]), bounds[-1][0] - bounds[0][0]
    usual = seconds / steps if steps else 0.0
    low, high = bounds[0]
    if states[0].step == 1 and (high - low <= _FINE * (low + high) or low > _LONG * usual):
        times[0] = (low + high) / 2
    first, hidden = 0, False
    short: list[tuple[int, int]] = []  # of states before a long step, too few for a time of their own
    for at in range(1, len(states)):
        if states[at].paused:
            first = at
            continue
        gap = _number(states[at]) - _number(states[at - 1])
        if bounds[at][0] - bounds[at - 1][1] > _LONG * usual * gap:
            short += [(first, at - 1)] if first < at - 1 else []
            first = at - 1
        time = (sum(bounds[at]) - sum(bounds[first])) / 2
        error = (bounds[at][1] - bounds[at][0] + bounds[first][1] - bounds[first][0]) / 2
        certain = first == at - 1 and bounds[at][0] - bounds[first][1] > _LONG * usual * gap
        if error <= _FINE * time or certain:
            each = time / (_number(states[at]) - _number(states[first]))
            times[first + 1 : at + 1] = [each] * (at - first)
            hidden = hidden or at - first > 1
            first = at
    few = sum(_number(states[last]) - _number(states[first]) for first, last in short)
    for first, last in short:
        each = sum(sum(bounds[last]) - sum(bounds[first]) for first, last in short) / 2 / few
        times[first + 1 : last + 1] = [each] * (last - first)
    return times, hidden or bool(short) or not any(times)


def _bounds(state: TrainingStep, *, mean: bool) -> tuple[float, float]:
    """Return the bounds of the seconds since the start of a bar."""
    low, high = state.elapsed_s or 0.0, (state.elapsed_s or 0.0) + 1
    time, number = state.step_time_s or 0.0, _number(state)
    error = _PRINTED if time > 1 else _PRINTED * time * time  # printed as s/it, or as it/s
    closer = max(low, number * (time - error)), min(high, number * (time + error))
    return closer if mean and closer[0] < closer[1] else (low, high)


def _number(step: TrainingStep) -> int:
    return step.step or 0
