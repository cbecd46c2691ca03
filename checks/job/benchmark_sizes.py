"""Check of benchmarks against the sizes of the job's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.checks.job.nccl_tests import no_report, reports
from preflight.checks.job.torch_trace import each
from preflight.expectations import Site
from preflight.facts.host import size_text
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, some_of, unknown, warned

#: Collectives of nccl-tests. A send and its receive, which traces record separately, are measured by sendrecv.
_MEASURABLE = frozenset({"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast", "reduce"})
_PAIRED = {"send": "sendrecv", "recv": "sendrecv"}

#: Share of the communication time at which a size is compared, and up to which it may lack a size (judgement calls).
_COMPARED, _UNSIZED = 0.05, 0.2

#: Maximum ratio of a message size to the nearest measured one: benchmarks double the size from row to row.
_NEAR = 2.0

#: Maximum number of sizes in a message.
_MOST_LISTED = 6


@check(
    "nccl-tests.job-sizes",
    title="The benchmark covers the message sizes of the job",
    fault="The benchmark misses message sizes of the job",
    impact="drifts",
    source="PyTorch profiler: bytes of each collective; nccl-tests -b, -e and -f",
    fix="Run nccl-tests from the smallest to the largest size of the job: `-b 64K -e 8G -f 2`.",
    action="fix-job",
    answers=("PA-N1",),
    scope="run",
    gating=False,
    needs=("trace",),
    unless=(no_report,),
)
def job_sizes(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the message sizes in traces with those of complete benchmark runs.

    ## Why it matters
    A benchmark of 8 GiB shows the bandwidth of the links. A job that reduces buckets of 1 MiB is limited by latency,
    which such a benchmark does not show.

    ## Verdicts
    Sizes between two powers of two are combined, and compared if they take at least 5% of the communication time of
    the trace. They warn unless a complete run of the same collective has a size within a factor of two. A trace in
    which more than 20% of that time has no size, or is of collectives that nccl-tests does not measure, is unknown.

    ## False alarms
    A trace of another job, or of its warm-up steps.
    """
    measured: dict[str, set[int]] = {}
    for _, _, report in reports(run):
        if report.collective and report.complete and report.groups == report.copies == 1:
            measured.setdefault(report.collective, set()).update(row.bytes for row in report.rows)
    for key, name, facts in each(run):
        yield _judged(name, facts["collectives"], measured, [key, *run.nccl_tests])


def _judged(
    name: str, collectives: Sequence[Mapping[str, Any]], measured: Mapping[str, set[int]], keys: Sequence[str]
) -> Finding:
    times: dict[tuple[str, int], list[tuple[float, int]]] = {}  # by collective and power of two
    total = unsized = 0.0
    for sample in collectives:
        spent, size = sample["total_ms"] or 0.0, sample["bytes"]
        kind = _PAIRED.get(sample["name"], sample["name"])
        total += spent
        if kind in _MEASURABLE and size:
            times.setdefault((kind, size.bit_length()), []).append((spent, size))
        else:
            unsized += spent
    if not total or unsized > _UNSIZED * total:
        why = f"no sizes for {unsized / total:.0%} of the communication time" if total else "no collectives"
        return unknown(f"{name} has {why}", subject=name, evidence=keys,
                       fix="profile training steps with PyTorch 2.2 or later, which records the sizes")  # fmt: skip
    shares = [(sum(spent for spent, _ in own) / total, kind, max(own)[1]) for (kind, _), own in times.items()]
    sizes = sorted((share for share in shares if share[0] >= _COMPARED), reverse=True)
    missing = [(share, kind, size) for share, kind, size in sizes if not _near(size, measured.get(kind, set()))]
    if missing:
        return warned(f"{name}: no benchmark measured {_listed(missing)}", subject=name,
                      found=f"{some_of(len(missing), len(sizes), 'size')} not measured", evidence=keys,
                      expected="a measured size within a factor of two of each")  # fmt: skip
    if not sizes:
        return unknown(
            f"{name}: no message size takes {_COMPARED:.0%} of the communication time", subject=name, evidence=keys
        )
    return passed(f"{name}: a benchmark measured {_listed(sizes)}", subject=name, evidence=keys)


def _near(size: int, measured: set[int]) -> bool:
    return any(size <= _NEAR * other and other <= _NEAR * size for other in measured)


def _listed(sizes: Sequence[tuple[float, str, int]]) -> str:
    more = f" and {len(sizes) - _MOST_LISTED} more" if len(sizes) > _MOST_LISTED else ""
    shown = [f"{kind} of {size_text(size)} ({share:.0%}" for share, kind, size in sizes[:_MOST_LISTED]]
    return "), ".join([f"{shown[0]} of the communication time", *shown[1:]]) + f"){more}"
