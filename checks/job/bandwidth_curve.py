"""Checks of nccl-tests over message sizes: curve and measured collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from preflight import parsers
from preflight.checks.job.benchmark_scale import DECLARE, levels, short
from preflight.checks.job.nccl_tests import PERFORMANCE, no_report, over, reports, size_of, so_far, text_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.curve import Point
    from preflight.parsers.nccl_tests.text import Report

#: A collective of the smallest size takes 10 to 100 us on any fabric, and several hundred over TCP; a judgement call.
SLOW_FLOOR_US = 1000

#: Fractions of a good run's busbw. 0.90: nccl-tests reports a run as FAILED below 0.9 of NCCL_TESTS_MIN_BW (common.cu).
#: 0.75: with one of four rails down, three quarters remain.
AS_BEFORE, FAR_BELOW = 0.90, 0.75
#: Multiple of a good run's latency that warns; a judgement call: more than twice means another path or protocol, not
#: noise.
LATER = 2.0

MIB = 2**20


@check(
    "nccl-tests.curve",
    title="Bandwidth rises with the message size, and latency is flat",
    fault="Bandwidth falls, or latency rises, along the message sizes",
    impact="slows-job",
    source=f"{PERFORMANCE}; 5% between neighbouring sizes: ROCm cvs",
    fix="Run the affected sizes alone with `-n 100`, then with NCCL_DEBUG=INFO to see where algorithm and "
    "protocol change.",
    action="fix-job",
    answers=("NT-NCCL-4", "FP-LAT-4"),
    scope="run",
    unless=(no_report,),
)
def shape(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare each size of an nccl-tests run with its neighbours.

    The run is also compared with a good run that the cluster file names.

    ## Why it matters
    A dip at one size comes from a wrong algorithm, a congested path or retransmissions; a job with buckets of that size
    runs at that bandwidth, regardless of the peak.

    ## Verdicts
    Bandwidth that falls by more than 5% from one size to the next, from 64 MiB on, warns; so do three or more small
    messages that take three times as long as similar ones, and a latency floor above 1 ms. With a good run, bandwidth
    below 0.90 of its curve at 1 MiB or more warns, and below 0.75 fails; more than twice its latency warns. A sweep
    that ends while the bandwidth still rises by more than 10% for a doubling shows no plateau, and is *unknown*.

    ## False alarms
    The size at which NCCL changes its algorithm; a good run then has the same dip.
    """
    for key, name, report in reports(run):
        points = parsers.nccl_tests.curve.curve(report.rows)
        if len(points) < 3 or report.copies > 1 or report.nranks == 1:
            if report.copies > 1:
                what, more = "several runs in one", "write the output of each run to its own file"
            elif report.nranks == 1:
                what, more = "one rank sends nothing to another", "run on several GPUs"
            else:
                what, more = f"a curve needs at least 3 sizes, found {len(points)}", "run a sweep: -b 8 -e 8G -f 2"
            yield unknown(f"{name}: {what}", subject=name, evidence=[key], fix=more)
            continue
        alone = list(_alone(run, key, name, points))
        yield from (finding.about("NT-NCCL-4") for finding in alone)
        if site.baseline:
            yield _against(key, name, report, points, site).about("FP-LAT-4")


def _alone(run: RunFacts, key: str, name: str, points: Sequence[Point]) -> Iterator[Finding]:
    """Judge a curve without comparing it with a good run."""
    found = parsers.nccl_tests.curve.dips(points)
    if found:
        deepest = max(found, key=lambda dip: dip.share)
        yield warned(
            f"{name}: busbw falls from {deepest.before.busbw:g} to {deepest.at.busbw:g} GB/s "
            f"between {size_of(deepest.before.bytes)} and {size_of(deepest.at.bytes)}"
            + (f", and at {len(found) - 1} more sizes" if len(found) > 1 else ""),
            subject=name,
            found=f"-{deepest.share:.0%}",
            expected="no fall of more than 5%",
            evidence=[key],
            quote=text_of(run, key, deepest.before.line, deepest.at.line),
        )
    odd, floor = parsers.nccl_tests.curve.spikes(points), parsers.nccl_tests.curve.floor_us(points)
    if len(odd) >= 3:
        yield warned(
            f"{name}: {len(odd)} small messages take more than three times as long as other small messages: "
            f"{', '.join(f'{size_of(p.bytes)} {p.time_us:g} us' for p in odd[:3])}",
            subject=name,
            evidence=[key],
            quote=text_of(run, key, *(point.line for point in odd[:5])),
        )
    if floor is not None and floor > SLOW_FLOOR_US:
        yield warned(
            f"{name}: the smallest messages take {floor:.0f} us, expected tens of microseconds",
            subject=name,
            found=f"{floor:.0f} us",
            expected=f"at most {SLOW_FLOOR_US} us",
            evidence=[key],
            fix="See nccl.transport: TCP, or packet loss, causes such times.",
        )
    if found or len(odd) >= 3 or (floor is not None and floor > SLOW_FLOOR_US):
        return
    floor_text = f"a floor of {floor:.1f} us and " if floor is not None else ""
    if (more := parsers.nccl_tests.curve.rises(points)) is None or more > 0.10:
        end = f"still rises by {more:.0%} for the last doubling" if more is not None else "has too few sizes"
        message = f"{name}: the curve has {floor_text}no dip, but ends at {size_of(points[-1].bytes)} and {end}"
        yield unknown(message, subject=name, evidence=[key], fix="run again with larger messages: -e 16G")
        return
    message = (
        f"{name}: the curve of {len(points)} sizes has {floor_text}no dip, and a plateau at {points[-1].busbw:g} GB/s"
    )
    yield passed(message, subject=name, found=f"{points[-1].busbw:g} GB/s", evidence=[key])


def _against(key: str, name: str, report: Report, points: Sequence[Point], site: Site) -> Finding:
    """Compare a curve with a good run of the same collective, ranks and nodes."""
    alike = [
        good for good in site.baseline
        if good.collective == report.collective and good.nranks == report.nranks and good.nnodes == report.nnodes
    ]  # fmt: skip
    if not alike or report.nranks is None:
        message = f"{name}: the good runs have different collectives or rank counts"
        return unknown(message, subject=name, evidence=[key], fix=f"add a run over {over(report)} to the baseline")
    before = {point.bytes: point for point in parsers.nccl_tests.curve.curve(alike[-1].rows)}
    pairs = [(before[point.bytes], point) for point in points if point.bytes in before]
    large = [(old, new) for old, new in pairs if new.bytes >= MIB and old.busbw > 0]
    if not large:
        message = f"{name}: the good run has none of these sizes"
        return unknown(message, subject=name, evidence=[key], fix="run with the same -b, -e and -f")
    old, new = min(large, key=lambda pair: pair[1].busbw / pair[0].busbw)
    share = new.busbw / old.busbw
    source = f"the good run of class {site.class_name}"
    if share < AS_BEFORE:
        grade = failed if share < FAR_BELOW else warned
        return grade(
            f"{name}: busbw at {size_of(new.bytes)} is {new.busbw:g} GB/s, {share:.0%} of the {old.busbw:g} GB/s of "
            f"{source}",
            subject=name,
            found=f"{new.busbw:g} GB/s",
            expected=f"at least {AS_BEFORE:.0%} of {old.busbw:g} GB/s",
            evidence=[key],
        )
    now, then = parsers.nccl_tests.curve.floor_us(points), parsers.nccl_tests.curve.floor_us(list(before.values()))
    if now is not None and then is not None and now > LATER * then:
        return warned(
            f"{name}: the smallest messages take {now:.1f} us, but {then:.1f} us in {source}",
            subject=name,
            found=f"{now:.1f} us",
            expected=f"at most {LATER:g} x {then:.1f} us",
            evidence=[key],
        )
    message = f"{name}: busbw is at least {share:.0%} of that of {source} at each of {len(large)} sizes"
    return passed(message, subject=name, found=f"{share:.0%}", evidence=[key])


@check(
    "nccl-tests.collectives",
    title="AllReduce, AllGather, ReduceScatter and All-to-All were measured",
    fault="A collective was not measured",
    impact="drifts",
    source=PERFORMANCE,
    fix="Run `all_gather_perf`, `reduce_scatter_perf` and `alltoall_perf` in addition to `all_reduce_perf`, up "
    "to the same size.",
    action="fix-job",
    answers=("PA-18", "PA-25", "FP-OBS-2", "GS-3"),
    scope="run",
    gating=False,
    unless=(no_report,),
)
def collectives(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for a complete nccl-tests run of each collective, at job scale.

    The finding states the measured time.

    ## Why it matters
    Data-parallel jobs use all-reduce, sharded jobs all-gather and reduce-scatter, mixtures of experts all-to-all. A
    fabric that was only measured with all_reduce, or inside one node, can still be slow for the job's collectives.

    ## Verdicts
    A collective passes with a run over at least the job's number of GPUs ([class.NAME.model] gpus of the cluster file,
    else all GPUs of the class), with messages of at least 256 MiB in a node and 1 GiB across nodes. A smaller run is
    unknown, and so is any run if the job's scale is not declared. Checklist item GS-3 needs runs of each collective on
    one node and on several. A collective without a complete run is unknown; a failed run warns. The check never gates a
    job.

    ## False alarms
    A job that needs only one of the collectives.
    """
    best: dict[str, tuple[str, str, Point, Report]] = {}
    broken: dict[str, str] = {}
    for key, name, report in reports(run):
        points = parsers.nccl_tests.curve.curve(report.rows)
        if report.collective and report.status == "failed":
            why = report.failures[0].text[:120] if report.failures else so_far(report)
            broken[report.collective] = f"{name}: the run stopped with an error: {why}"
        if report.collective and report.complete and points and report.copies == 1 and report.nranks != 1:
            known = best.get(report.collective)
            if known is None or _reach(report, points[-1]) >= _reach(known[3], known[2]):
                best[report.collective] = (key, name, points[-1], report)
    for items, wanted in (
        (("PA-18", "FP-OBS-2"), "all_reduce"), (("PA-18",), "all_gather"), (("PA-18",), "reduce_scatter"),
        (("PA-25",), "alltoall"),
    ):  # fmt: skip
        if wanted not in best and wanted in broken:
            yield warned(broken[wanted], evidence=list(run.nccl_tests)).about(*items)
            continue
        if wanted not in best:
            advice = f"run `{wanted}_perf` too, to the same size as the other collectives"
            yield unknown(f"{wanted} was not measured", evidence=list(run.nccl_tests), fix=advice).about(*items)
            continue
        key, name, point, report = best[wanted]
        time = f"{size_of(point.bytes)} take {point.time_us:g} us"
        at: dict[str, Any] = {"subject": name, "found": f"{point.time_us:g} us", "evidence": [key]}
        if why := short(report, site):
            yield unknown(f"{name}: {time}; {why}", fix=DECLARE, **at).about(*items)
        else:
            yield passed(f"{name}: {time} over {over(report)}", **at).about(*items)
    yield _levels([report for _, _, report in reports(run)], list(run.nccl_tests)).about("GS-3")


def _reach(report: Report, point: Point) -> tuple[int, int]:
    """Return a run's number of ranks and largest message size."""
    return report.nranks or 0, point.bytes


def _levels(found: Sequence[Report], keys: Sequence[str]) -> Finding:
    """Report which collectives were not measured within a node, or not across nodes."""
    inside, above = levels(found)
    lacks = [
        f"{where}: {', '.join(names)}" for where, names in (("within a node", inside), ("across nodes", above)) if names
    ]
    if lacks:
        return unknown(f"these collectives were not measured {'; '.join(lacks)}", evidence=keys,
                       fix="run each collective on one node and on several nodes")  # fmt: skip
    return passed("all four collectives were measured within a node and across nodes", evidence=keys)
