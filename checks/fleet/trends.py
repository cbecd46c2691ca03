"""Checks of slow degradation over many runs; they need --history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import COURSE
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.time_series import ENOUGH, JOBS, TimeSeries, series_of, since_reset
from preflight.model import Finding, check, clause, counted, passed, skipped, unknown, verb, warned


@dataclass(frozen=True)
class _Rule:
    metric: str
    what: str
    limit: float  # growth per day at which the check warns
    per: str  # unit of the growth


#: A judgement call based on operators' limits for single runs: NVSentinel calls 120 symbol errors an hour fatal; gpud
#: and OCI report a port that flaps three times within hours. A link that recovers every day will reach those limits.
_LINKS = (
    _Rule("port.link_downed", "link downs", 1, "a day"),
    _Rule("port.link_error_recovery", "link recoveries", 1, "a day"),
    _Rule("port.symbol_error", "symbol errors", 120, "a day"),
)

#: Rows: NVIDIA replaces a GPU at 512 remapped rows; one every two days reaches that within the warranty. Corrected
#: errors: AzNHC warns at 20 million (DRAM) and 10,000 (SRAM) over the GPU's lifetime; the limit is a hundredth of that
#: per day.
_MEMORY = (
    _Rule("gpu.remapped_uncorrected", "rows remapped for uncorrectable errors", 0.5, "a day"),
    _Rule("gpu.remapped_corrected", "rows remapped for corrected errors", 0.5, "a day"),
    _Rule("gpu.ecc_aggregate_dram_corrected", "corrected DRAM errors", 200_000, "a day"),
    _Rule("gpu.ecc_aggregate_sram_corrected", "corrected SRAM errors", 100, "a day"),
)

#: NVLink: a hundred errors a day over several days are more than one bad hour. PCIe: DCGM's limit of 31 a minute at
#: generation 5 is 44,640 a day; a hundredth of that every day is a trend.
_GPU_LINKS = (
    _Rule("gpu.nvlink_errors", "NVLink errors", 100, "a day"),
    _Rule("gpu.pcie_replays", "PCIe replays", 450, "a day"),
)

#: Thermal margin in degrees below which the trend is judged, and the number of days to extrapolate.
_MARGIN_C, _AHEAD_DAYS = 20.0, 30.0

#: Maximum duration of a job as a multiple of the median of earlier jobs of its name.
_SLOW = 1.25


@check(
    "trend.links",
    title="Error rates of links do not rise over days",
    fault="Error rates of links rise over days",
    impact="drifts",
    owner="network",
    source="operators' limits for one run (NVSentinel, gpud, OCI), spread over a day; Theil-Sen slope",
    fix="Clean, reseat or replace the cable or transceiver at the next drain, before the link slows down or fails.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def links(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each port's daily growth of error counters with that of a healthy link.

    ## Why it matters
    The error rate of a bad cable may grow for days until a job stops. Detected early, the cable can be replaced at a
    planned time.

    ## Verdicts
    A port warns at one lost link, one link recovery or 120 symbol errors a day, over at least three runs and one day. A
    counter that decreased was reset, and is counted from there.

    ## False alarms
    A switch that was rebooted every day, or a cable that was moved.
    """
    yield from _grown(node, _LINKS, "port")


#: Minimum number of lost links within a day for which a port warns, as in the kernel log (kernel.events).
_FLAPS_PER_DAY = 3


@check(
    "trend.flaps",
    title="No link went down repeatedly within the last day",
    fault="A link went down repeatedly within the last day",
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
    A gate has no time to watch a port, and a flapping link may end the job that is about to start.

    ## Verdicts
    A port that lost its link three or more times warns. One earlier run within 24 hours is enough; without one, the
    result is unknown, except in the first run, which is skipped. A counter that decreased was reset, and is counted
    from there.

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
    if silent and all(len(course.values) == 1 for course in series_of(node.evidence, "port.link_downed")):
        yield skipped(_FIRST, evidence=[COURSE])
    elif silent:
        yield unknown(
            f"{clause(silent, 'port', 'has')} no earlier run in the last 24 h", evidence=[COURSE],
            fix="run preflight with --history at least once a day, or read the kernel's log (kernel.events)",
        )  # fmt: skip
    elif steady:
        yield passed(f"{counted(steady, 'port')} went down at most twice in a day", evidence=[COURSE])
    elif not series_of(node.evidence, "port.link_downed"):
        yield _too_few((), "port")


@check(
    "trend.gpu-memory",
    title="Error rates of GPU memory do not rise over days",
    fault="Error rates of GPU memory rise over days",
    impact="drifts",
    source="NVIDIA GPU Memory Error Management (512 rows); AzNHC's lifetime limits, spread over a hundred days",
    fix="Plan a replacement; until then monitor the GPU with `nvidia-smi -q -d ROW_REMAPPER,ECC`.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def gpu_memory(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's daily remapped rows and corrected ECC errors with limits.

    ## Why it matters
    Once the spare rows are used up, the next error ends a job, and the GPU has to be replaced at short notice.

    ## Verdicts
    A GPU warns at one remapped row in two days, or at 200,000 corrected DRAM errors or 100 corrected SRAM errors a day,
    over at least three runs and one day.

    ## False alarms
    None known; a burst that ended changes the median slope only if it covers half of the runs.
    """
    yield from _grown(node, _MEMORY, "GPU")


@check(
    "trend.gpu-links",
    title="Error rates of NVLink and PCIe links do not rise over days",
    fault="Error rates of a GPU's links rise over days",
    impact="drifts",
    source="nvidia-smi nvlink -e, nvmlDeviceGetPcieReplayCounter; a hundredth of DCGM's rate of PCIe replays",
    fix="`preflight check --window 60` under load names the link; reset all GPUs. If errors return, reseat or "
    "replace the GPU at the next drain.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def gpu_links(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's daily NVLink errors and PCIe replays with a limit.

    ## Why it matters
    Each error is corrected by a retransmission, so nothing fails until the link does, in the middle of a job.

    ## Verdicts
    A GPU warns at 100 NVLink errors or 450 PCIe replays a day, over at least three runs and one day. A counter that
    decreased was reset, and is counted from there.

    ## False alarms
    A node that is rebooted every day, which adds a few errors each time.
    """
    yield from _grown(node, _GPU_LINKS, "GPU")


@check(
    "trend.temperature",
    title="GPUs keep their thermal headroom",
    fault="A GPU loses its thermal headroom",
    impact="drifts",
    source="nvmlDeviceGetMarginTemperature: degrees to the slowdown; 30 days are a judgement",
    fix="Run `nvidia-smi -q -d TEMPERATURE`; check fans, filters and coolant, and the inlet air of the rack.",
    answers=("AN-9", "AN-11"),
    gating=False,
    history=True,
)
def temperature(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's temperature margin, extrapolated over 30 days, with zero.

    ## Why it matters
    Dust or a worn pump reduces the margin week by week; on a hot day the GPU throttles, and the job slows down.

    ## Verdicts
    A GPU warns if its margin is below 20 °C and would reach zero within 30 days, according to at least three runs over
    one day or more.

    ## False alarms
    Early runs at idle and later ones under load. Compare runs under the same load.
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
                f"{course.subject} is {course.last:.0f} °C below its slowdown temperature, and loses {lost:.1f} "
                "°C of that a day",
                subject=course.subject, found=f"{course.last:.0f} °C, less {lost:.1f} °C a day",
                expected=f"at least {_MARGIN_C:.0f} °C, also in {_AHEAD_DAYS:.0f} days", evidence=[COURSE],
            )  # fmt: skip
        else:
            good += 1
    if good:
        yield passed(f"{clause(good, 'GPU', 'has')} enough thermal headroom", evidence=[COURSE])


@check(
    "trend.job-time",
    title="Jobs take as long as before",
    fault="Jobs take longer than before",
    impact="slows-job",
    source="The history's own jobs: median of the earlier ones of that name; 25% is a judgement",
    fix="Compare the nodes of the slow run with those of a fast one: `preflight diff GOOD SLOW`.",
    answers=("AN-10",),
    gating=False,
    history=True,
)
def job_time(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the duration of the last job of each name with earlier runs.

    ## Why it matters
    A port at half its rate does not crash anything. A job that takes a third longer than last week may be its first
    symptom.

    ## Verdicts
    A run warns if it took more than 1.25 times the median of at least three earlier runs. Without recorded jobs, the
    check is skipped; record them with `preflight history job`, ideally in the scheduler's epilog.

    ## False alarms
    A job of the same name with more data or fewer nodes. Give it another name.
    """
    found = series_of(node.evidence, JOBS)
    if not found:
        yield skipped("no job's completion time is recorded: `preflight history job FILE $SLURM_JOB_ID --seconds S "
                      "--name NAME` records one", evidence=[COURSE])  # fmt: skip
    for course in found:
        earlier, last = course.values[:-1], course.last
        if len(earlier) >= ENOUGH and last > _SLOW * median(earlier):
            yield warned(
                f"{course.subject}: the last run took {last:.0f} s, {last / median(earlier):.2f} times the usual time",
                subject=course.subject,
                found=f"{last:.0f} s",
                expected=f"{median(earlier):.0f} s, the median of {counted(len(earlier), 'earlier job')}",
                evidence=[COURSE],
            )
        else:
            yield passed(f"{course.subject}: the last of {counted(len(course.values), 'job')} took {last:.0f} s",
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
                rate = f"{course.per_day:,.0f}" if course.per_day >= 10 else f"{course.per_day:.2g}"
                yield warned(
                    f"{course.subject}: {rule.what} increase by {rate} {rule.per}, over {course.days[-1]:.0f} days",
                    subject=course.subject, found=f"{rate} {rule.per}",
                    expected=f"less than {rule.limit:,g} {rule.per}", evidence=[COURSE],
                )  # fmt: skip
    judged = {course.subject for course in seen if course.enough}
    if not judged:
        yield _too_few(seen, noun)
    elif good := judged - bad:
        yield passed(f"{clause(len(good), noun, 'has')} no more errors than usual", evidence=[COURSE])


#: Message if no earlier run has the value.
_FIRST = "this is the first record, so there is nothing to compare it with"


def _too_few(found: Sequence[TimeSeries], noun: str) -> Finding:
    if not found:
        return skipped(f"no {noun} of this node has a recorded history", evidence=[COURSE])
    points = max(len(course.values) for course in found)
    if points == 1:
        return skipped(_FIRST, evidence=[COURSE])
    return unknown(
        f"{counted(points, 'run')} in {max(course.days[-1] for course in found):.1f} days {verb(points, 'is')} "
        "too few for a trend",
        evidence=[COURSE], fix=f"run preflight again: a trend needs {ENOUGH} runs over at least one day",
    )  # fmt: skip
