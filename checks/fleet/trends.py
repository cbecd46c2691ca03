"""Checks of slow degradation over many runs; they need --history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import COURSE
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.time_series import ENOUGH, JOBS, TimeSeries, series_of, since_reset
from preflight.model import Finding, check, passed, skipped, unknown, warned


@dataclass(frozen=True)
class _Rule:
    metric: str
    what: str
    limit: float  # growth per day from which it warns
    per: str  # unit of the growth


#: A judgement, from operators' rules for single runs: NVSentinel calls 120 symbol errors an hour fatal, gpud and OCI
#: look at a port that flaps three times in hours; a link that recovers every day is on its way there.
_LINKS = (
    _Rule("port.link_downed", "times the link went down", 1, "a day"),
    _Rule("port.link_error_recovery", "times the link was trained anew", 1, "a day"),
    _Rule("port.symbol_error", "symbol errors", 120, "a day"),
)

#: Rows: NVIDIA's policy replaces a GPU at 512 remapped rows, and one every two days is there within the warranty.
#: Corrected errors: AzNHC warns at 20 million (DRAM) and 10,000 (SRAM) in a life; a hundredth of that each day.
_MEMORY = (
    _Rule("gpu.remapped_uncorrected", "rows remapped for errors that ECC did not correct", 0.5, "a day"),
    _Rule("gpu.remapped_corrected", "rows remapped for corrected errors", 0.5, "a day"),
    _Rule("gpu.ecc_aggregate_dram_corrected", "corrected errors of DRAM", 200_000, "a day"),
    _Rule("gpu.ecc_aggregate_sram_corrected", "corrected errors of SRAM", 100, "a day"),
)

#: NVLink: a link that errs a hundred times a day, day after day, is not the one that had a bad hour. PCIe: DCGM's 31 a
#: minute at generation 5 are 44,640 a day; a hundredth of that every day is a trend.
_GPU_LINKS = (
    _Rule("gpu.nvlink_errors", "NVLink errors", 100, "a day"),
    _Rule("gpu.pcie_replays", "PCIe replays", 450, "a day"),
)

#: Degrees that are left before a GPU slows down, below which its course is looked at, and days ahead.
_MARGIN_C, _AHEAD_DAYS = 20.0, 30.0

#: Times the median of earlier jobs of its name that a job may take.
_SLOW = 1.25


@check(
    "trend.links",
    title="Links do not err more from day to day",
    fault="Links err more from day to day",
    impact="drifts",
    owner="network",
    source="operators' limits for one run (NVSentinel, gpud, OCI), spread over a day; Theil-Sen slope",
    fix="Clean, reseat or replace the cable or transceiver at the next drain, before the link is slow or down.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def links(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each port's daily growth of error counters with a sound link's.

    ## Why it matters
    A cable seldom dies at once. It errs a little more each day, and one morning the job that needs it stands still;
    that morning can be chosen.

    ## Verdicts
    It warns from 1 a day (link down, trained anew) and 120 a day (symbol errors) on, over at least three runs and a
    day. A counter that went back was reset, and counts from there.

    ## False alarms
    A switch that was rebooted every day, or a cable that was moved.
    """
    yield from _grown(node, _LINKS, "port")


#: Times that a link comes back within a day from which it warns, as in the kernel's log (kernel.events).
_FLAPS_PER_DAY = 3


@check(
    "trend.flaps",
    title="No link went down several times since yesterday's runs",
    fault="A link went down several times since yesterday's runs",
    impact="drifts",
    owner="network",
    source="the port's own counter link_downed; AzNHC (5 in a day), gpud (3 in half a day); 3 is a judgement",
    fix="Reseat or replace the cable or module; links that flap together share a switch. See kernel.events for times.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def flaps(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each port's count of lost links with that of a day ago.

    ## Why it matters
    A gate has no minute to watch a port. A link that comes and goes ends the job that is being started now.

    ## Verdicts
    It warns from three on. One earlier run within 24 hours is enough; without one it is unknown. A counter that went
    back was reset, and counts from there.

    ## False alarms
    A switch that was restarted several times that day.
    """
    steady, silent = 0, 0
    for full_course in series_of(node.evidence, "port.link_downed"):
        course = since_reset(full_course)
        recent = [number for number, day in enumerate(course.days) if course.days[-1] - day <= 1.0]
        if len(recent) < 2:
            silent += 1
            continue
        first = recent[0]
        grown = int(course.last - course.values[first])
        hours = (course.days[-1] - course.days[first]) * 24
        if grown >= _FLAPS_PER_DAY:
            yield warned(
                f"the link of {course.subject} went down {grown} times within {hours:.0f} h",
                subject=course.subject, found=f"{grown} in {hours:.0f} h",
                expected=f"fewer than {_FLAPS_PER_DAY} in a day", evidence=[COURSE],
            )  # fmt: skip
        else:
            steady += 1
    if silent:
        yield unknown(
            f"{_count(silent, 'port')} without an earlier run in the 24 h before", evidence=[COURSE],
            fix="run it with --history at least once a day, or read the kernel's log (kernel.events)",
        )  # fmt: skip
    elif steady:
        yield passed(f"{_count(steady, 'port')} lost no link more than twice in a day", evidence=[COURSE])
    elif not series_of(node.evidence, "port.link_downed"):
        yield _too_few((), "port")


@check(
    "trend.gpu-memory",
    title="GPU memory does not err more from day to day",
    fault="GPU memory errs more from day to day",
    impact="drifts",
    source="NVIDIA GPU Memory Error Management (512 rows); AzNHC's limits of a life, spread over a hundred days",
    fix="Plan the exchange: run `nvidia-smi -q -d ROW_REMAPPER,ECC`, and watch the GPU until then.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def gpu_memory(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare remapped rows and corrected ECC errors per day with sound memory.

    ## Why it matters
    Spare rows run out. When they do, the next error ends a job, and the GPU is exchanged in a hurry.

    ## Verdicts
    It warns from one row in two days, 200,000 corrected errors of DRAM or 100 of SRAM a day on, over at least three
    runs and a day.

    ## False alarms
    None is known; a burst that ended moves the median slope only if it took half of the runs.
    """
    yield from _grown(node, _MEMORY, "GPU")


@check(
    "trend.gpu-links",
    title="NVLink and PCIe links of GPUs do not err more from day to day",
    fault="Links of a GPU err more from day to day",
    impact="drifts",
    source="nvidia-smi nvlink -e, nvmlDeviceGetPcieReplayCounter; a hundredth of DCGM's rate of PCIe replays",
    fix="`preflight check --window 60` under load names the link; reset all GPUs, then reseat or exchange at the next "
    "drain.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def gpu_links(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare NVLink errors and PCIe replays that each GPU gains a day with few.

    ## Why it matters
    Each is repaired by sending again, so nothing fails until the link does, in the middle of a job.

    ## Verdicts
    It warns from 100 NVLink errors or 450 PCIe replays a day on, over at least three runs and a day. A counter that
    went back was reset, and counts from there.

    ## False alarms
    A node that is rebooted every day gains some each time.
    """
    yield from _grown(node, _GPU_LINKS, "GPU")


@check(
    "trend.temperature",
    title="GPUs keep their thermal headroom",
    fault="A GPU loses its thermal headroom",
    impact="drifts",
    source="nvmlDeviceGetMarginTemperature: degrees to the slowdown; the 30 days ahead are a judgement",
    fix="Read `nvidia-smi -q -d TEMPERATURE`; look at fans, filters and coolant, and at the inlet air of the rack.",
    answers=("AN-9", "AN-11"),
    gating=False,
    history=True,
)
def temperature(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's temperature margin with its trend.

    ## Why it matters
    Dust or a worn pump costs a degree a week; on a hot afternoon the clocks drop, and the job slows down with them.

    ## Verdicts
    It warns where fewer than 20 °C are left and, as they dwindle, none in 30 days, over at least three runs and a day.

    ## False alarms
    Runs at idle at first and under load later. Compare runs of one kind.
    """
    found = series_of(node.evidence, "gpu.temperature_margin_c")
    judged = [course for course in found if course.enough]
    if not judged:
        yield _too_few(found, "GPU")
        return
    good = 0
    for course in judged:
        lost = -course.per_day
        if course.last < _MARGIN_C and lost * _AHEAD_DAYS > course.last:
            yield warned(
                f"{course.subject}: {course.last:.0f} °C to the slowdown, and {lost:.1f} °C less each day",
                subject=course.subject, found=f"{course.last:.0f} °C, less {lost:.1f} °C a day",
                expected=f"at least {_MARGIN_C:.0f} °C, or as much in {_AHEAD_DAYS:.0f} days", evidence=[COURSE],
            )  # fmt: skip
        else:
            good += 1
    if good:
        yield passed(f"{_count(good, 'GPU')} keep their headroom", evidence=[COURSE])


@check(
    "trend.job-time",
    title="Jobs take as long as they used to",
    fault="Jobs take longer than they used to",
    impact="slows-job",
    source="The history's own jobs: median of the earlier ones of that name; 25 % is a judgement",
    fix="Compare the nodes of the slow run with those of a good one: `preflight diff GOOD SLOW`.",
    answers=("AN-10",),
    gating=False,
    history=True,
)
def job_time(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the duration of the last job of each name with earlier runs.

    ## Why it matters
    Nothing crashes, and the bill grows: a job that takes a third longer than last week is the first that anybody
    hears of a half-rate port.

    ## Verdicts
    It warns where it took more than 1.25 times the median of at least three. Jobs are recorded with `preflight
    history job`, best from the scheduler's epilog.

    ## False alarms
    A job of the same name with more data or fewer nodes. Give it a name of its own.
    """
    found = series_of(node.evidence, JOBS)
    if not found:
        yield unknown("no job's completion time is recorded", evidence=[COURSE],
                      fix="preflight history job FILE $SLURM_JOB_ID --seconds S --name NAME")  # fmt: skip
    for course in found:
        earlier, last = course.values[:-1], course.last
        if len(earlier) >= ENOUGH and last > _SLOW * median(earlier):
            yield warned(
                f"{course.subject}: the last run took {last:.0f} s, {last / median(earlier):.2f} times the usual",
                subject=course.subject, found=f"{last:.0f} s", expected=f"{median(earlier):.0f} s, as the median of "
                f"{_count(len(earlier), 'earlier job')}", evidence=[COURSE],
            )  # fmt: skip
        else:
            yield passed(f"{course.subject}: the last of {_count(len(course.values), 'job')} took {last:.0f} s",
                         subject=course.subject, evidence=[COURSE])  # fmt: skip


def _grown(node: NodeFacts, rules: Sequence[_Rule], noun: str) -> Iterator[Finding]:
    seen: list[TimeSeries] = []
    bad: set[str] = set()
    for rule in rules:
        for full_course in series_of(node.evidence, rule.metric):
            course = since_reset(full_course)
            seen.append(course)
            if course.enough and course.per_day >= rule.limit:
                bad.add(course.subject)
                yield warned(
                    f"{course.subject}: {course.per_day:,.3g} {rule.what} {rule.per}, over {course.days[-1]:.0f} days",
                    subject=course.subject, found=f"{course.per_day:,.3g} {rule.per}",
                    expected=f"less than {rule.limit:,g} {rule.per}", evidence=[COURSE],
                )  # fmt: skip
    judged = {course.subject for course in seen if course.enough}
    if not judged:
        yield _too_few(seen, noun)
    elif good := judged - bad:
        yield passed(f"{_count(len(good), noun)} gain no more errors than sound ones do", evidence=[COURSE])


def _too_few(found: Sequence[TimeSeries], noun: str) -> Finding:
    if not found:
        return skipped(f"no {noun} of this node has reported this value", evidence=[COURSE])
    points = max(len(course.values) for course in found)
    return unknown(
        f"{_count(points, 'run')} in {max(course.days[-1] for course in found):.1f} days: too few for a course",
        evidence=[COURSE], fix=f"run it again: it takes {ENOUGH} runs over a day or more",
    )  # fmt: skip


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
