"""One rank's trace, as part of the combined traces of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.parsers.torch.collective_calls import CallKey, CallSeries
from preflight.parsers.torch.intervals import Coverage, Spans, Stretch
from preflight.parsers.torch.kernel_times import KernelTimes
from preflight.parsers.torch.step_shades import PARTS, StepShades

_IN_NAME = re.compile(r"(?<![a-z])(?:rank|worker)[-_ .]?(\d{1,6})(?!\d)", re.I)


@dataclass(frozen=True)
class RankTrace:
    """Calls, exposed communication and steps of a rank, in microseconds of its clock."""

    key: str  # record key
    rank: int
    host: str | None
    calls: Sequence[tuple[CallKey, CallSeries]]
    bare: Coverage  # communication without overlapping computation
    steps: Mapping[int, Stretch]  # by the profiler's number
    compute: Mapping[int, float]  # time of each step under kernels that compute
    kernels: Mapping[int, KernelTimes]  # of a pipeline's rank: times of each compute kernel
    tails: Sequence[Stretch]  # the part of each step after the last backward kernel
    bare_us: float  # total exposed communication
    shades: Mapping[int, StepShades]  # by the profiler's number
    gaps: Spans  # of a pipeline's rank: when its GPU is idle for some time

    def exposed(self, stretches: Iterable[Stretch]) -> float:
        """Return the time of exposed communication within joined intervals."""
        return sum(self.bare.within(begin, end) for begin, end in stretches)

    def idle(self, step: int, lead: bool = True) -> float:
        """Return how long its GPU is idle in a step, within a percent; 0 if unknown.

        ``lead`` includes the time before the first kernel of the step.
        """
        shade = self.shades.get(step)
        if shade is None:
            return 0.0
        part = (shade.end - shade.begin) / PARTS
        busy = [compute + copies for compute, copies in zip(shade.compute, shade.copies, strict=True)]
        first = 0 if lead else next((at for at, share in enumerate(busy) if share), PARTS)
        begin = shade.begin + first * part
        return max(0.0, shade.end - begin - sum(busy) * part / 100 - self.bare.within(begin, shade.end))


def rank_in(name: str) -> int | None:
    """Return the rank in the name of a file; None unless there is exactly one."""
    numbers = {int(number) for number in _IN_NAME.findall(name)}
    return numbers.pop() if len(numbers) == 1 else None


def distinct(traces: Iterable[RankTrace]) -> tuple[dict[int, RankTrace], list[str]]:
    """Return one trace per rank, and the record keys of repeated ones."""
    by_rank: dict[int, RankTrace] = {}
    repeated: list[str] = []
    for trace in traces:
        if trace.rank in by_rank:
            repeated.append(trace.key)
        else:
            by_rank[trace.rank] = trace
    return by_rank, repeated
