"""Check of the times of single iterations in nccl-tests runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from preflight.checks.job.nccl_tests import no_report, reports, size_of, text_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, skipped, unknown, warned
from preflight.parsers.nccl_tests.model import fewest_iterations

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.model import Measurement, Report

#: Multiples of the median above which the slowest 1 in 100, and 1 in 1,000, iterations are a tail. Judgement calls.
_P99, _P999 = 2.0, 5.0


class _Tail(NamedTuple):
    """The slowest iterations of one size."""

    bytes: int
    line: int
    middle_us: float
    middle: str  # "median", or "mean" if the median is not printed
    p99_us: float
    p999_us: float | None  # None with too few iterations

    @property
    def excess(self) -> float:
        """The larger of two ratios to the median, each relative to its limit."""
        return max(self.p99_us / self.middle_us / _P99, (self.p999_us or 0.0) / self.middle_us / _P999)

    def __str__(self) -> str:
        p999 = f", p99.9 {self.p999_us:.4g} µs" if self.p999_us is not None else ""
        return f"{size_of(self.bytes)}: {self.middle} {self.middle_us:.4g} µs, p99 {self.p99_us:.4g} µs{p999}"


def no_iterations(run: RunFacts, site: Site) -> Finding | None:
    """Skip logs without the times of single iterations."""
    if not any(half.iterations for _, _, report in reports(run) for row in report.rows for half in row.halves):
        return skipped("no nccl-tests run shows its single iterations (-I 1)", evidence=list(run.nccl_tests)).about()
    return None


@check(
    "bench.tail",
    title="The slowest iterations of a benchmark are close to the median",
    fault="Some iterations of a benchmark take much longer than the median",
    impact="slows-job",
    owner="network",
    source="NVIDIA/nccl-tests 2.19 (-I): i_p99; a percentile shows with 95% confidence from ln 0.05 / ln q iterations",
    fix="Run the benchmark again with `-I 1 -J FILE`: the file shows each iteration of each process. Compare the "
    "counters of the ports before and after.",
    action="fix-site",
    scope="run",
    gating=False,
    answers=("AN-8",),
    unless=(no_report, no_iterations),
)
def tail(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the 99th and 99.9th percentile of the iterations with their median.

    ## Why it matters
    A synchronous job waits for the slowest of all collectives at each step. Retransmissions, pauses and
    interrupts delay single iterations, but hardly change the mean that a benchmark prints.

    ## Verdicts
    A 99th percentile above twice the median, or a 99.9th above five times, warns. The table that nccl-tests prints has
    no median; without the JSON file, the mean is used. Fewer than 299 iterations of each size do not show a 99th
    percentile and are *unknown*; the 99.9th needs 2,995 and the file of `-J`.

    ## False alarms
    Messages of a few bytes on nodes with busy CPUs, and the first iterations of a run without warm-up.
    """
    for key, name, report in reports(run):
        halves = [(row, half) for row in report.rows for half in row.halves if half.iterations is not None]
        tails = [size for row, half in halves if (size := _tail(report, row.bytes, row.line, half)) is not None]
        if not halves:
            continue
        if not tails:
            counts = {_count(report, half) for _, half in halves}
            shown = f"{max(count or 0 for count in counts):,}" if any(counts) else "an unknown number of"
            yield unknown(f"{name}: {shown} iterations do not show a 99th percentile", subject=name, evidence=[key],
                          expected=f"at least {fewest_iterations(0.99)}", fix="run with `-n 3000 -I 1`")  # fmt: skip
            continue
        worst = max(tails, key=lambda size: size.excess)
        if worst.excess > 1:
            yield warned(f"{name}: {worst}", subject=name, found=f"p99 {worst.p99_us / worst.middle_us:.2g} times the "
                         f"{worst.middle}", expected=f"p99 up to {_P99:g} times, p99.9 up to {_P999:g} times",
                         evidence=[key], quote=text_of(run, key, worst.line))  # fmt: skip
        else:
            yield passed(f"{name}: no message size has a long tail; the longest is at {worst}", subject=name,
                         evidence=[key])  # fmt: skip


def _tail(report: Report, size: int, line: int, half: Measurement) -> _Tail | None:
    """Return the tail of one of a row's measurements; None with too few iterations."""
    times, count = half.iterations, _count(report, half)
    if times is None or count is None or count < fewest_iterations(0.99):
        return None
    p99 = times.quantile(0.99) or times.p99_us
    middle = times.quantile(0.5) or times.p50_us
    base = middle or half.time_us
    if p99 is None or not base > 0:
        return None
    return _Tail(size, line, base, "median" if middle else "mean", p99, times.quantile(0.999))


def _count(report: Report, half: Measurement) -> int | None:
    """Return the number of listed iterations, else that of the command line, or None."""
    listed = len(half.iterations.times_us) if half.iterations is not None else 0
    return listed or report.iterations
