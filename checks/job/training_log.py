"""Checks of training steps in a job's log: loss, step times, drift, scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isinf, isnan
from statistics import median

from preflight._startup.lightclass import replace
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.step_times import (
    LONGER,
    SlowSteps,
    TimedStep,
    drift,
    percentile,
    recurrence,
    restarts,
    slow_steps,
    spread,
    timed,
    warmed_up,
    without_warm_up,
)
from preflight.model import Finding, Status, check, counted, failed, passed, unknown, warned
from preflight.parsers.training.iteration_log import TrainingLog, TrainingStep
from preflight.parsers.training.step_classes import StepsBetween

#: Multiple of the median at which a step is a stall; minimum number of steps to look for stalls, and to pass because
#: none differs that much. Judgement calls.
_STALL, _ENOUGH, _ALIKE = 2.0, 8, 3
#: Ratio of a lasting jump, and minimum number of steps on either side of it: judgement calls.
_SLOWER, _EITHER_SIDE = 1.5, 3
#: Share of the time at which slow steps are worth a look; spread above which the times are too different to judge, and
#: below which a few long steps are conspicuous. Judgement calls.
_COST, _SPREAD, _EVEN = 0.01, 0.15, 0.05
#: Minimum number of steps for a 99th percentile.
_PERCENTILE = 100
#: MFU below which even a small model leaves its GPUs idle, in percent: a judgement call.
_LOW_MFU_PCT = 15
#: Growth of a diverging loss, and its minimum value: judgement calls. The loss of a policy is smaller.
_GROWTH, _LEAST_LOSS = 2.0, 1.0
#: Steps within which fp16 finds its loss scale: 2**32 (Megatron-LM's start) with two overflows for each of 16 halvings
#: takes 32. Share of later steps that may overflow: a larger scale is tried every 1,000 steps, or 100. Judgement calls.
_BACK_OFF, _SELDOM = 40, 0.02
#: Efficiency of the larger job below which the check warns: a judgement call.
_SCALES = 0.8
#: Maximum number of writers of one log that are reported separately.
_WRITERS = 8


@check(
    "job.scaling",
    title="A larger job gets about the same throughput from each GPU",
    fault="The throughput per GPU is lower in the larger job",
    impact="slows-job",
    source="Judgement: 80% of the throughput per GPU of the smaller job",
    fix="Compare the share of the collectives in a trace of each size (`preflight trace`), then the fabric between the "
    "added nodes (`preflight bench`).",
    action="fix-job",
    answers=("NT-SCL-1",),
    scope="run",
    gating=False,
    needs=("sizes",),
)
def scaling(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the throughput per GPU of a job's logs at several sizes.

    ## Why it matters
    Collectives take longer over more nodes, and a slow node delays more peers. The throughput of a GPU at each size
    shows the benefit of more nodes.

    ## Verdicts
    Each log is compared with that of the smallest job: the median of its tokens/s, samples/s or TFLOP/s per GPU,
    without the first step. A throughput below 80% warns. The check is planned if the logs show jobs of two sizes or
    more. A log must show the number of ranks (`world size`, or NCCL's own lines), and either a throughput that the
    program is known to print per GPU or for all GPUs together, or a global batch size. Logs of different programs or
    units are unknown.

    ## False alarms
    Logs of different models, or one global batch size for all of them: each GPU then has less to do between two
    collectives.
    """
    sizes = sorted(run.job_sizes.items(), key=lambda size: (size[1].ranks, size[0]))
    (small_key, small), *larger = sizes
    for key, large in larger:
        if large.ranks == small.ranks:
            continue
        names = f"{key.removeprefix('log:')} compared with {small_key.removeprefix('log:')}"
        if (large.framework, large.unit) != (small.framework, small.unit):
            yield unknown(f"{names}: {large.unit} of {large.framework} and {small.unit} of {small.framework} cannot be "
                          "compared", subject=key.removeprefix("log:"), evidence=[key, small_key],
                          fix="Pass logs of the same program at both sizes.")  # fmt: skip
            continue
        efficiency = large.value / small.value
        message = (f"{names}: {large.value:.4g} {large.unit} on {large.ranks} ranks are {efficiency:.0%} of the "
                   f"{small.value:.4g} on {small.ranks} ranks")  # fmt: skip
        subject, share = key.removeprefix("log:"), f"{efficiency:.0%}"
        if efficiency >= _SCALES:
            yield passed(message, subject=subject, found=share, evidence=[key, small_key])
        else:
            yield warned(message, subject=subject, found=share, expected=f"at least {_SCALES:.0%}",
                         evidence=[key, small_key])  # fmt: skip


def judge_training(run: RunFacts) -> Iterator[Finding]:
    """Judge the steps in each log; ranks without a problem share one finding."""
    for key, training in run.training.items():
        shown = 0
        sound: list[Finding] = []
        for writer, log in training.logs:
            name = f"{key.removeprefix('log:')} {writer}".strip()
            findings = [_named(finding, name) for finding in judge_steps(log, [key])]
            if all(finding.status is Status.PASS for finding in findings):
                sound += findings
            elif shown < _WRITERS:
                shown += 1
                yield from findings
        if not shown:
            yield from sound[:1]
        yield from _visible(key, training.logs)


def _named(finding: Finding, name: str) -> Finding:
    return replace(finding, subject=name, message=f"{name}: {finding.message}")


def _visible(key: str, logs: Sequence[tuple[str, TrainingLog]]) -> Iterator[Finding]:
    """Report that step times are logged."""
    times = max((timed([step for step in log.steps if step.step_time_s]) for _, log in logs), key=len)
    if times:
        name = key.removeprefix("log:")
        yield passed(f"{name}: the times of {counted(len(times), 'step')} are logged", subject=name,
                     found=f"{median(time for time, _ in times):.3g} s", evidence=[key]).about("FP-OBS-8")  # fmt: skip


def judge_steps(log: TrainingLog, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge losses, gradients, MFU and times of the steps of one program."""
    problems = [*_values(log, evidence)]
    for finding in (*problems, *_mfu(log, evidence)):
        yield finding.about()
    gap = ""
    if log.between is not None:
        gap = f"; {log.between.count:,} steps in the middle of the log were compared by their time only"
        for finding in _between(log, log.between, evidence):
            yield finding.about("PA-21")
    if again := restarts(log):
        gap += f"; the first step after {counted(len(again), 'restart')} is not compared"
    answered = ("PA-21",) if timed(log.steps) else ()
    for finding in _times(log, evidence, sound=not problems):
        shown = replace(finding, message=f"{finding.message}{gap}").about(*answered)
        yield _without_single_steps(shown) if log.hidden and finding.status is Status.PASS else shown


def _without_single_steps(even: Finding) -> Finding:
    """Return the result for even steps of a bar that hides a long one."""
    return unknown(f"{even.message}; single long steps are not visible in this progress bar, which shows full seconds",
                   found=even.found, expected="the time of each step", evidence=even.evidence,
                   fix="Log the time of each step, or profile some steps (`preflight trace`).")  # fmt: skip


def _values(log: TrainingLog, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge losses and gradients."""
    if broken := [step for step in log.steps if step.loss is not None and (isnan(step.loss) or isinf(step.loss))]:
        yield failed(
            f"the loss is {broken[0].loss}{_of_step(broken[0], 'from')} on (line {broken[0].line})",
            found=str(broken[0].loss),
            expected="a number",
            evidence=evidence,
            why="From then on, the job trains nothing until it restarts from an earlier checkpoint.",
            fix="Check the learning rate and the data of that step; if only one rank has it, test its GPU.",
        )
    elif norms := [step for step in log.steps if step.grad_norm is not None and isnan(step.grad_norm)]:
        shown = {None: "the line shows no loss", 0.0: "the loss is 0.0, as if nothing was computed"}
        yield warned(
            f"the gradient's norm is nan{_of_step(norms[0])} (line {norms[0].line}); "
            f"{shown.get(norms[0].loss, 'the loss is a number')}",
            found="nan",
            expected="a number",
            evidence=evidence,
            fix="Mixed precision skips such a step; if they recur, check the learning rate, the data, "
            "and the GPU if only one rank has them.",
        )
    elif (finding := _infinite(log.steps, evidence)) is not None:
        yield finding
    elif (rise := _rise(log.steps)) is not None:
        first, last = rise
        yield warned(f"the loss rises from {first.loss:g}{_of_step(first)} to {last.loss:g}{_of_step(last)} "
                     f"(line {last.line})", found=f"{last.loss:g}", expected="a falling loss", evidence=evidence,
                     fix="Check the learning rate and the data; after a restart, whether the checkpoint was read."
                     )  # fmt: skip


def _infinite(steps: Sequence[TrainingStep], evidence: Sequence[str]) -> Finding | None:
    """Judge gradients with an infinite norm.

    fp16 begins with a loss scale that overflows and halves it at each such step, then tries a larger one from time to
    time: overflows in the first steps, and rare ones later, are normal.
    """
    normed = [step for step in steps if step.grad_norm is not None]
    infinite = [step for step in normed if step.grad_norm is not None and isinf(step.grad_norm)]
    if not infinite:
        return None
    early = all(step.step is not None and step.step <= _BACK_OFF for step in infinite)
    recovered = len(normed) > 1 and normed[-1] is not infinite[-1]
    if recovered and (early or len(infinite) <= _SELDOM * len(normed)):
        return None
    report = unknown if early else warned
    what = "so far; fp16 lowers its loss scale at the start" if early else "the loss scale is not found"
    count = f"in {len(infinite)} of {len(normed)} steps" if len(normed) > 1 else "in the only step"
    return report(f"the gradient's norm is inf {count}, first{_of_step(infinite[0])} (line {infinite[0].line}): {what}",
                  found="inf", expected="a number", evidence=evidence,
                  fix="Read the following steps: overflows must end. If they do not, use bf16, a lower "
                  "learning rate or gradient clipping; if only one rank has it, test its GPU.")  # fmt: skip


def _mfu(log: TrainingLog, evidence: Sequence[str]) -> Iterator[Finding]:
    shares = [step.mfu_pct for step in log.steps[1:] if step.mfu_pct is not None]
    if len(shares) >= _ALIKE - 1 and (share := median(shares)) < _LOW_MFU_PCT:
        yield unknown(f"the model FLOPs utilisation (MFU) is {share:g}%; large models usually reach 30 to 60%, "
                      "and the log does not show how large this one is",
                      found=f"{share:g}%", expected=f"above {_LOW_MFU_PCT}%", evidence=evidence,
                      fix="Profile a few steps, and look for slow input, communication or small matrices "
                      "(`preflight read TRACE`)."
                      )  # fmt: skip


def _times(log: TrainingLog, evidence: Sequence[str], *, sound: bool) -> Iterator[Finding]:
    times = timed(warmed_up(log))
    long = len(times) >= _ENOUGH
    jump = None
    if sound:
        jump = _jump(times, _SLOWER, _EITHER_SIDE) if long else _jump(timed(log.steps))
    if jump is not None:
        before, after, step = jump
        if any(step.step_time_s for step in log.steps):
            was = f"{before:.4g} s, then {after:.4g} s (line {step.line})"
        else:  # the times are inverses of the throughput
            was = f"{1 / before:,.4g}, then {1 / after:,.4g} {step.throughput_unit} (line {step.line})"
        yield warned(f"from step {step.step} on, steps take {after / before:.1f} times as long as before: {was}",
                     found=f"{after / before:.1f} times", expected="equal steps", evidence=evidence,
                     fix="Look for what changed at that step: GPU clocks (`nvidia-smi -q -d PERFORMANCE`), a slow "
                     "node, storage, links.")  # fmt: skip
    elif long:
        yield from _many(times, evidence, log, sound=sound)
    elif sound and _alike(log.steps):
        losses = sum(step.loss is not None for step in log.steps)
        numbers = f"; the loss is a number in {_each(losses, log)}" if losses else ""
        alike = ", none of which took twice as long as another" if timed(log.steps) else ", without their times"
        yield passed(f"{len(log.steps)} steps of {log.framework}{alike}{numbers}", evidence=evidence)
    elif sound:
        losses = sum(step.loss is not None for step in log.steps)
        numbers = f"the loss is finite in {_each(losses, log)}; " if losses else ""
        noun = "step" if len(log.steps) == 1 else "steps"
        yield unknown(f"{len(log.steps)} {noun} of {log.framework}: {numbers}too few to compare", found=len(log.steps),
                      expected=f"at least {_ENOUGH}", evidence=evidence,
                      fix="Paste more of the log, from its start.")  # fmt: skip


def _each(losses: int, log: TrainingLog) -> str:
    return "each of them" if losses == len(log.steps) else f"each of the {losses} that print{'s' * (losses == 1)} it"


def _between(log: TrainingLog, between: StepsBetween, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the steps in the middle of a log, of which only the times are known."""
    if between.unread:
        yield unknown(f"{between.unread:,} lines of steps in the middle of the log were not read", found=between.unread,
                      expected="0", evidence=evidence, fix="Pass the parts of the log one by one.")  # fmt: skip
    times = timed(log.steps[1:])
    if len(times) < _ENOUGH or not between.timed:
        return
    usual = min(median(time for time, _ in times), between.median_s)
    for factor, words in ((_STALL, "more than twice the median"), (LONGER, "longer than the median")):
        count, cost = between.above(factor, usual)
        if cost > _COST and (factor == _STALL or spread(times) < _EVEN):
            ratio = between.longest_s / usual
            yield warned(f"{count:,} of {between.timed:,} steps in the middle of the log took {words}, and cost "
                         f"{cost:.0%} of their time; the longest took {ratio:.1f} times the median (line "
                         f"{between.longest_line})", found=f"{ratio:.1f} times the median",
                         expected="equal step times", evidence=evidence)  # fmt: skip
            return


def _many(times: Sequence[TimedStep], evidence: Sequence[str], log: TrainingLog, *, sound: bool) -> Iterator[Finding]:
    """Judge stalls, recurring long steps, drift and spread."""
    times = without_warm_up(times, LONGER)
    stalls, longer, slower = slow_steps(times, _STALL), slow_steps(times, LONGER), drift(times)
    if stalls is not None and stalls.cost > _COST and not (longer is not None and _includes(longer, stalls)):
        yield warned(f"{stalls.count} of {len(times)} steps took more than twice the median{_recurs(stalls)}, and cost "
                     f"{stalls.cost:.0%} of the time; the longest, step {stalls.worst.step}, took {stalls.ratio:.1f} "
                     f"times the median (line {stalls.worst.line})", found=f"{stalls.ratio:.1f} times the median",
                     expected="equal step times", evidence=evidence)  # fmt: skip
    elif longer is not None and longer.cost > _COST and (longer.every is not None or longer.spread < _EVEN):
        yield warned(f"{longer.count} of {len(times)} steps took longer{_recurs(longer)}, and cost {longer.cost:.0%} "
                     f"of the time; the longest, step {longer.worst.step}, took {longer.ratio:.2f} times the median "
                     f"(line {longer.worst.line})", found=f"{longer.ratio:.2f} times the median",
                     expected="equal step times", evidence=evidence,
                     fix="Look for what runs at that interval: checkpoints, evaluation, logging, garbage collection, "
                     "the data loader's next file.")  # fmt: skip
    elif slower is not None:
        growth = slower.after / slower.before - 1
        yield warned(f"steps get slower: the last quarter of {len(times)} takes {growth:.0%} longer than the first",
                     found=f"{growth:.0%}", expected="equal step times", evidence=evidence,
                     fix="Look for what grows or heats up: sequence length, memory fragmentation, GPU clocks "
                     "(`nvidia-smi -q -d PERFORMANCE`), link errors (`preflight check`).")  # fmt: skip
    elif spread(times) > _SPREAD:
        yield unknown(f"the times of {len(times)} steps have a standard deviation of {spread(times):.0%}",
                      found=f"{spread(times):.0%}", expected=f"at most {_SPREAD:.0%}", evidence=evidence,
                      fix="This is expected if sequences differ in length; otherwise, profile some steps "
                      "(`preflight trace`)."
                      )  # fmt: skip
    elif sound:
        rare = "" if stalls is None else f", except {stalls.count} with more than twice the median"
        again = f"; {recurrence(longer)}" if longer is not None and longer.every is not None else ""
        yield passed(f"{len(times)} steps take about the same time{rare}{_figures(times, log)}{again}",
                     evidence=evidence)  # fmt: skip


def _includes(longer: SlowSteps, stalls: SlowSteps) -> bool:
    """Return whether only some of the steps that recur are counted as stalls."""
    alike = stalls.every in (None, longer.every) or stalls.ratio < _STALL * LONGER
    return longer.every is not None and longer.count > stalls.count and alike


def _recurs(slow: SlowSteps) -> str:
    if slow.every is not None:
        return f", every {slow.every} steps"
    return (
        f", from step {slow.first.step} to {slow.last.step}" if slow.count > 1 and slow.first.step is not None else ""
    )


def _figures(times: Sequence[TimedStep], log: TrainingLog) -> str:
    """Return the median, the 99th percentile, the throughput and the MFU as text."""
    shown = []
    if times[0][1].step_time_s:
        tail = f", p99 {percentile(times, 99):.3g} s" if len(times) >= _PERCENTILE else ""
        shown.append(f"median {median(time for time, _ in times):.3g} s{tail}")
    rates = [step.throughput for step in log.steps[1:] if step.throughput]
    if rates:
        shown.append(f"{median(rates):,.4g} {next(step.throughput_unit for step in log.steps if step.throughput)}")
    if shares := [step.mfu_pct for step in log.steps[1:] if step.mfu_pct is not None]:
        shown.append(f"MFU {median(shares):g}%")
    return f": {', '.join(shown)}" if shown else ""


def _jump(
    times: Sequence[TimedStep], factor: float = _STALL, least: int = 2
) -> tuple[float, float, TrainingStep] | None:
    """Return the median times before and after a jump, and the first step after it.

    Every step after a jump takes more than ``factor`` times as long as any step before it. At least two steps are
    needed on either side: the first step may compile, and a single slow one may save a checkpoint.
    """
    values = [time for time, _ in times]
    highest = list(accumulate(values, max))
    lowest = list(accumulate(reversed(values), min))[::-1]
    for at in range(least, len(values) - least + 1):
        if lowest[at] > factor * highest[at - 1]:
            return median(values[:at]), median(values[at:]), times[at][1]
    return None


def _alike(steps: Sequence[TrainingStep]) -> bool:
    """Return whether a few steps look healthy: losses other than zero, similar times.

    The first one may be slower. Steps without times are judged by losses only, and vice versa.
    """
    times = [time for time, _ in timed(steps[1:] if len(steps) > _ALIKE else steps)]
    losses = [step.loss for step in steps if step.loss is not None]
    if max(len(times), len(losses)) < _ALIKE:
        return False
    return all(losses) and (not times or max(times) <= _STALL * min(times))


def _rise(steps: Sequence[TrainingStep]) -> tuple[TrainingStep, TrainingStep] | None:
    """Return the first and last step if the loss has at least doubled, else None."""
    with_loss = [(step.loss, step) for step in steps if step.loss is not None]
    losses = [loss for loss, _ in with_loss]
    if len(with_loss) < _ALIKE or min(losses) <= 0 or losses[-1] < _LEAST_LOSS:
        return None
    rises = losses[-1] >= _GROWTH * losses[0] and losses[-2] >= (1 + _GROWTH) / 2 * losses[0]
    return (with_loss[0][1], with_loss[-1][1]) if rises else None


def _of_step(step: TrainingStep, word: str = "in") -> str:
    return f" {word} step {step.step}" if step.step is not None else " from here" if word == "from" else ""
