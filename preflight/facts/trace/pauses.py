"""Steps of a job in which the CPU of a rank runs nothing for unusually long.

All ranks often pause in the same step, some for a little longer than the limit and some for a little less. So in a step
in which one of them reaches it, half of it is enough for its peers. The time in which a GPU is idle meanwhile belongs
to the pause, and to no other cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.torch import TraceSummary

#: Judgement calls: minimum length of a pause without an operator in milliseconds, and as a multiple of the median
#: step's; share of the steps' time that pauses may take; minimum number of steps.
PAUSE_MS, UNUSUAL, PAUSED, ENOUGH_STEPS = 5.0, 3.0, 0.01, 5
#: The part of a step's budget in which the GPU is idle during pauses.
PART = "idle_pause"


@dataclass(frozen=True)
class RankPauses:
    """The pauses of one trace."""

    steps: int  # of the trace
    usual_ms: float  # median over the steps
    most_ms: float
    long: Sequence[Mapping[str, Any]]  # steps with a pause, as in the trace's document
    lost: float  # by which they are longer than usual, as a fraction of the steps' time
    named: bool  # whether it is too much

    @property
    def numbers(self) -> tuple[int, ...]:
        """The profiler's numbers of the steps with a pause."""
        return tuple(pause["number"] for pause in self.long)

    def budget(self, parts: Mapping[str, float]) -> dict[str, float]:
        """Return the budget of a step with the idle time of pauses as a part of its own."""
        moved = {**parts, PART: 0.0}
        for pause in self.long if self.named else ():
            for part, share in pause["idle"].items():
                moved[part] -= share
                moved[PART] += share
        return {part: max(0.0, share) for part, share in moved.items()}

    def lengths(self, quiet: Sequence[Mapping[str, Any]]) -> list[float]:
        """Return the lengths in milliseconds of the steps that no pause makes long.

        In the step after a pause, a rank may wait for one that pauses for longer.
        """
        usual = median(pause["step_ms"] for pause in quiet)
        everything = sum(pause["step_ms"] for pause in quiet)
        paused = {pause["number"]: everything * sum(pause["idle"].values()) for pause in self.long if self.named}
        long = [paused.get(pause["number"], 0.0) > max(0.0, pause["step_ms"] - usual) / 2 for pause in quiet]
        return [pause["step_ms"] for at, pause in enumerate(quiet) if not any(long[max(0, at - 1) : at + 1])]


def pauses(traces: Mapping[str, TraceSummary]) -> dict[str, RankPauses]:
    """Return the pauses of each trace with enough steps, by record key."""
    quiet = {key: trace.document["pauses"] for key, trace in traces.items() if trace.document["steps"]}
    quiet = {key: stretches for key, stretches in quiet.items() if stretches and len(stretches) >= ENOUGH_STEPS}
    usual = {key: median(pause["ms"] for pause in stretches) for key, stretches in quiet.items()}
    reached = {
        pause["number"] for key, stretches in quiet.items() for pause in stretches
        if pause["ms"] >= max(PAUSE_MS, UNUSUAL * usual[key])
    }  # fmt: skip
    of_ranks = {key: _of_rank(stretches, usual[key], reached) for key, stretches in quiet.items()}
    alike: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for own in of_ranks.values():
        alike[own.numbers].append(own.lost)
    return {
        key: RankPauses(own.steps, own.usual_ms, own.most_ms, own.long, own.lost, fmean(alike[own.numbers]) > PAUSED)
        for key, own in of_ranks.items()
    }


def _of_rank(quiet: Sequence[Mapping[str, Any]], usual: float, reached: set[int]) -> RankPauses:
    least = max(PAUSE_MS / 2, UNUSUAL * usual)
    long = [pause for pause in quiet if pause["number"] in reached and pause["ms"] >= least]
    everything = sum(pause["step_ms"] for pause in quiet)
    lost = sum(pause["ms"] - usual for pause in long) / everything if everything else 0.0
    return RankPauses(len(quiet), usual, max(pause["ms"] for pause in quiet), long, lost, False)
