"""Check of a running job against its plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.checks.job.layout import plan_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.layout.job import LayoutError
from preflight.layout.step import Step
from preflight.model import Finding, check, passed, skipped, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.layout.comparison import MeasuredPart, MeasuredStep

#: Share of a measured step by which a part may exceed its plan (judgement call).
BEYOND = 0.05


def no_traces(run: RunFacts, site: Site) -> Finding | None:
    """Skip a plan without profiler traces or a log of the job."""
    if run.traces or run.training:
        return None
    return skipped("neither profiler traces nor a log of the job were passed (--log)", evidence=list(run.logs))


@check(
    "layout.measured",
    title="The job's steps take as long as planned",
    fault="The job's steps take longer than planned",
    impact="slows-job",
    owner="job",
    source="The plan's range: published runs of Megatron-LM, NeMo and llm-foundry (docs/plan.md)",
    fix="Run `preflight trace` on the same profiles; for exchanges that are too slow, run `preflight bench`.",
    action="fix-job",
    scope="run",
    needs=("layout",),
    gating=False,
    unless=(no_traces,),
)
def measured(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare profiler traces or the log of a job with its plan.

    ## Why it matters
    A plan shows how much of a step each exchange should cost. An axis that takes more of the step than planned
    shows where to look: a slow link, a late rank, or overlap that does not happen.

    ## Verdicts
    Collectives are assigned to axes by the ranks of their process groups; only time in which the GPU computes nothing
    counts. The check warns if the median step is above the plan's range, or if a part exceeds its plan by more than 5%
    of the step, and names ranks that delay their peers. Without traces, the median of the times in a job's log is
    compared. A step below the range is *unknown*: the profiles are probably of a job with different settings. The check
    never gates a job.

    ## False alarms
    A profile of the first steps, or with stacks and shapes recorded, which slows the CPU.
    """
    # import-at-use: only with a profile or a log
    from preflight.layout.comparison import compare, logged

    plan = plan_of(run, site)
    try:
        measured_step = compare(plan, run.job_trace) if run.traces else logged(plan, run.training)
    except LayoutError as error:
        yield unknown(f"the {'traces' if run.traces else 'log'} cannot be compared with the plan: {error}")
        return
    step = plan.step
    assert isinstance(step, Step)  # `compare` refuses a plan without a step
    summary = (
        f"a step takes {measured_step.seconds:.4g} s; the plan has {step.seconds:.4g} s ({step.low:.3g} to "
        f"{step.high:.3g})"
        f"{_parts(measured_step)}"
    )
    figures = {"found": f"{measured_step.seconds:.4g} s", "expected": f"{step.low:.3g} to {step.high:.3g} s"}
    beyond = [part for part in measured_step.parts if part.measured - part.planned > BEYOND * measured_step.seconds]
    if measured_step.seconds > step.high or beyond:
        yield warned(f"{summary}{_late(measured_step)}", **figures)
    elif measured_step.seconds < step.low:
        yield unknown(f"{summary}; the profiles may be of a job with different settings", **figures)
    else:
        yield passed(summary, found=figures["found"])


def _parts(measured_step: MeasuredStep) -> str:
    """Describe the parts of a step, the largest difference first."""
    by_difference = sorted(measured_step.parts, key=lambda part: part.planned - part.measured)
    return "".join(f"; {_share(part, measured_step.seconds)}" for part in by_difference)


def _share(part: MeasuredPart, seconds: float) -> str:
    waiting = f", including {part.waiting / seconds:.0%} waiting" if part.waiting >= 0.005 * seconds else ""
    return f"{part.name} takes {part.measured:.3g} s{waiting} (plan: {part.planned:.3g} s)"


def _late(measured_step: MeasuredStep) -> str:
    late = ", ".join(map(str, measured_step.late[:3]))
    number = len(measured_step.late[:3])
    return f"; {'rank' if number == 1 else 'ranks'} {late} {verb(number, 'delays')} the other ranks" if late else ""
