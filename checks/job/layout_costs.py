"""Check of the time and money that failures cost a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.checks.job.layout import plan_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.job_description import RECORD
from preflight.layout import costs
from preflight.layout.plan import Plan
from preflight.layout.step import Step
from preflight.model import Finding, check, passed, skipped, unknown, warned

#: Share of time that an interval may lose beyond that of the best one (judgement call).
BEYOND = 0.01

_ENERGY = ("watts", "hours", "price")
_INTERVAL = ("checkpoint_seconds", "mtbf_hours")


def no_costs(run: RunFacts, site: Site) -> Finding | None:
    """Skip a plan without any input for the cost of failures."""
    values = plan_of(run, site).described.values
    if any(values.get(name) is not None for name in (*_ENERGY, *_INTERVAL)):
        return None
    return skipped("no input for the cost of failures is stated (--set watts=..., mtbf_hours=...)", evidence=[RECORD])


@check(
    "layout.lost-work",
    title="Checkpoints are frequent enough for the failures, and not too frequent",
    fault="The checkpoint interval loses more time than necessary",
    impact="slows-job",
    owner="job",
    source="J. Young, 1974, and J. Daly, 2006: the interval sqrt(2 x write x MTBF)",
    fix="Save at the interval that the message states (`--save-interval`), or write checkpoints faster.",
    action="fix-job",
    answers=("PA-26", "PA-N2"),
    scope="run",
    needs=("layout",),
    gating=False,
    unless=(no_costs,),
)
def lost_work(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the checkpoint interval with the one that loses the least time.

    ## Why it matters
    Rare checkpoints repeat hours of work after a failure; frequent ones stop the job to write.

    ## Verdicts
    The lost share is the time of a write over the interval, plus half the interval over the time between failures. The
    check warns if the job's interval loses over one percentage point more of the time than the best one. The interval
    is that of the job (`--save-interval` times the time of a step) or `interval_min` of the cluster file. The cost of a
    lost run is shown as well: watts x GPUs x hours / 1000 x price of a kWh. Missing inputs are named, and results that
    depend on them are *unknown*. The check never gates a job.

    ## False alarms
    Checkpoints that are written while the job computes: state the time for which they stop it.
    """
    plan = plan_of(run, site)
    values = plan.described.values
    if any(values.get(name) is not None for name in _INTERVAL):
        yield _interval(plan, values, site)
    if any(values.get(name) is not None for name in _ENERGY):
        gpus = values.get("gpus")
        if missing := [name for name in _ENERGY if values.get(name) is None]:
            yield unknown(f"the cost of a lost run is unknown without {_wanted(missing)}", fix=_state(missing))
        elif not gpus:
            yield unknown("the cost of a lost run is unknown without the number of GPUs", fix="state it: --gpus N")
        else:
            lost = costs.lost_run(values["watts"], gpus, values["hours"], values["price"])
            yield passed(
                f"a lost run costs {lost:,.0f} for power: {values['watts']:g} W x {gpus:,} GPUs x "
                f"{values['hours']:g} h x {values['price']:g} per kWh",
                found=f"{lost:,.0f}",
            )


def _interval(plan: Plan, values: Mapping[str, Any], site: Site) -> Finding:
    if missing := [name for name in _INTERVAL if values.get(name) is None]:
        return unknown(f"the best checkpoint interval is unknown without {_wanted(missing)}", fix=_state(missing))
    write, between = values["checkpoint_seconds"], 3600 * values["mtbf_hours"]
    best = costs.checkpoint_interval(write, between)
    least = costs.lost_share(write, between, best)
    summary = f"an interval of {_minutes(best)} loses the least time, {least:.1%}"
    interval, origin = _stated(plan, values, site)
    if interval is None:
        return unknown(f"{summary}; {origin}", found="no interval", expected=_minutes(best),
                       fix="name the cluster (--on): the plan then states the time of a step"
                       if values.get("checkpoint_steps") else "state it: --set checkpoint_steps=N")  # fmt: skip
    lost = costs.lost_share(write, between, interval)
    words = f"{summary}; {origin} ({_minutes(interval)}) loses {lost:.1%}"
    if lost - least > BEYOND:
        return warned(words, found=_minutes(interval), expected=f"about {_minutes(best)}")
    return passed(words, found=_minutes(interval))


def _stated(plan: Plan, values: Mapping[str, Any], site: Site) -> tuple[float | None, str]:
    """Return the job's interval in seconds and its origin, or None and the reason."""
    steps, declared = values.get("checkpoint_steps"), site.checkpoint_interval_min
    if steps:
        if isinstance(plan.step, Step):
            return steps * plan.step.seconds, f"the job's interval of {steps} steps"
        return None, f"the job saves every {steps} steps, whose time is unknown"
    if declared.value is not None:
        return 60 * declared.value, f"that of {declared.source}"
    return None, "the job's interval is not stated"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds >= 60 else f"{seconds:.3g} s"


def _wanted(names: list[str]) -> str:
    return ", ".join(f"{name} ({costs.INPUTS[name]})" for name in names)


def _state(names: list[str]) -> str:
    return "state it: " + " ".join(f"--set {name}=..." for name in names)
