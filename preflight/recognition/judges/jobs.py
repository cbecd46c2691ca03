"""Judges of a job's limits and of training logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isinf, isnan
from statistics import median

from preflight.checks.job.serving import (
    judge_cache,
    judge_first_token,
    judge_queue,
    judge_transfer,
    transfers_caches,
)
from preflight.facts.host import size_text
from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.host.ulimit import ProcessLimits
from preflight.parsers.training.iteration_log import TrainingLog, TrainingStep
from preflight.parsers.training.serving_log import ServingLog, ServingReport
from preflight.parsers.training.serving_metrics import ServingMetrics
from preflight.recognition.judges import Judged, Judges, PastedValue

#: Minimum open files for a job of eight ranks with data loaders: a judgement, as in host.open-files.
_FEW_FILES = 4096


def _memlock(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "max locked memory" not in limits.soft:
        return
    locked = limits.soft["max locked memory"]
    if locked is None:
        yield passed("locked memory is unlimited", evidence=part.evidence)
    else:
        yield warned(f"locked memory is limited to {size_text(locked)}: RDMA cannot pin its buffers",
                     found=size_text(locked), expected="unlimited", evidence=part.evidence)  # fmt: skip


def _files(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "open files" not in limits.soft:
        return
    files = limits.soft["open files"]
    if files is not None and files < _FEW_FILES:
        yield warned(f"the limit of open files is {files}", found=files, expected=f"at least {_FEW_FILES}",
                     evidence=part.evidence)  # fmt: skip
    else:
        yield passed(f"the limit of open files is {'unlimited' if files is None else files}", evidence=part.evidence)


# --- training -----------------------------------------------------------------------------------------

#: A step this many times as long as the median is a stall; minimum steps to find one, and to pass because
#: they differ by less. Judgements.
_STALL, _ENOUGH, _ALIKE = 2.0, 8, 3


def _timed(steps: Sequence[TrainingStep]) -> list[tuple[float, TrainingStep]]:
    """Return the steps with their times, or the inverse of their throughput."""
    times = [(step.step_time_s, step) for step in steps if step.step_time_s]
    return times or [(1 / step.throughput, step) for step in steps if step.throughput]


#: The same from one step on, of a log with enough steps on either side: a judgement.
_SLOWER, _EITHER_SIDE = 1.5, 3


def _jump(
    times: Sequence[tuple[float, TrainingStep]], factor: float = _STALL, least: int = 2
) -> tuple[float, float, TrainingStep] | None:
    """Return the times around the step from which on all take ``factor`` as long.

    Two or more steps on either side agree: the first step alone may compile, a single slow one may save a checkpoint.
    """
    for at in range(least, len(times) - least + 1):
        before, after = [time for time, _ in times[:at]], [time for time, _ in times[at:]]
        if min(after) > factor * max(before):
            return median(before), median(after), times[at][1]
    return None


def _alike(steps: Sequence[TrainingStep]) -> bool:
    """Return whether a few steps look healthy: losses above zero, similar times.

    The first one may be slower. Steps without times are judged by losses only, and vice versa.
    """
    times = [time for time, _ in _timed(steps[1:] if len(steps) > _ALIKE else steps)]
    losses = [step.loss for step in steps if step.loss is not None]
    if max(len(times), len(losses)) < _ALIKE:
        return False
    return all(losses) and (not times or max(times) <= _STALL * min(times))


#: MFU below which even a small model leaves its GPUs idle, in per cent: a judgement.
_LOW_MFU_PCT = 15

#: Growth of a diverging loss, and its minimum value: judgements. The loss of a policy is smaller.
_GROWTH, _LEAST_LOSS = 2.0, 1.0


def _rise(steps: Sequence[TrainingStep]) -> tuple[TrainingStep, TrainingStep] | None:
    """Return the first and last step of a loss that rises until the end."""
    with_loss = [(step.loss, step) for step in steps if step.loss is not None]
    losses = [loss for loss, _ in with_loss]
    if len(with_loss) < _ALIKE or min(losses) <= 0 or losses[-1] < _LEAST_LOSS:
        return None
    rises = losses[-1] >= _GROWTH * losses[0] and losses[-2] >= (1 + _GROWTH) / 2 * losses[0]
    return (with_loss[0][1], with_loss[-1][1]) if rises else None


def _of_step(step: TrainingStep, word: str = "in") -> str:
    return f" {word} step {step.step}" if step.step is not None else " from here" if word == "from" else ""


def _steps(part: PastedValue) -> Iterator[Finding]:
    log: TrainingLog = part.value
    bad = False
    if broken := [step for step in log.steps if step.loss is not None and (isnan(step.loss) or isinf(step.loss))]:
        bad = True
        yield failed(
            f"the loss is {broken[0].loss}{_of_step(broken[0], 'from')} on (line {broken[0].line})",
            found=str(broken[0].loss),
            expected="a number",
            evidence=part.evidence,
            fix="Check the learning rate and the data of that step; if only one rank has it, test its GPU.",
        )
    elif norms := [step for step in log.steps if step.grad_norm is not None and isnan(step.grad_norm)]:
        bad = True
        yield warned(
            f"the gradient's norm is nan{_of_step(norms[0])} (line {norms[0].line}); the loss is "
            f"{'0.0, as if nothing was computed' if norms[0].loss == 0 else 'a number'}",
            found="nan",
            expected="a number",
            evidence=part.evidence,
            fix="Mixed precision skips such a step; if they recur, check the learning rate, the data, "
            "and the GPU if only one rank has them.",
        )
    if not bad and (rise := _rise(log.steps)) is not None:
        bad = True
        first, last = rise
        yield warned(f"the loss rises from {first.loss:g}{_of_step(first)} to {last.loss:g}{_of_step(last)} "
                     f"(line {last.line})", found=f"{last.loss:g}", expected="a falling loss", evidence=part.evidence,
                     fix="Check the learning rate and the data; after a restart, whether the checkpoint was read."
                     )  # fmt: skip
    shares = [step.mfu_pct for step in log.steps[1:] if step.mfu_pct is not None]
    if len(shares) >= _ALIKE - 1 and (share := median(shares)) < _LOW_MFU_PCT:
        yield unknown(f"the model uses {share:g} % of the GPUs' arithmetic (MFU), steps of a large model 30 to 60 %",
                      found=f"{share:g} %", expected=f"above {_LOW_MFU_PCT} %", evidence=part.evidence,
                      fix="Profile a few steps: input, communication or small matrices; `preflight read TRACE`."
                      )  # fmt: skip
    times = [(step.step_time_s, step) for step in log.steps[1:] if step.step_time_s is not None]
    rates = [(step.throughput, step) for step in log.steps[1:] if step.throughput]
    if not times and rates:  # the time of a step follows from the throughput
        times = [(1 / rate, step) for rate, step in rates if rate]
    long = len(times) >= _ENOUGH
    jump = None if bad else _jump(times, _SLOWER, _EITHER_SIDE) if long else _jump(_timed(log.steps))
    if jump is not None:
        before, after, step = jump
        yield warned(f"from step {step.step} on, steps take {after / before:.1f} times as long as before: "
                     f"{before:.4g} s, then {after:.4g} s (line {step.line})", found=f"{after / before:.1f} times",
                     expected="equal steps", evidence=part.evidence)  # fmt: skip
    elif len(times) >= _ENOUGH:
        usual = median(time for time, _ in times)
        slow = [(time, step) for time, step in times if time > _STALL * usual]
        if slow:
            bad = True
            time, step = max(slow, key=lambda pair: pair[0])
            yield warned(f"{len(slow)} of {len(times)} steps took more than twice the median, step {step.step} "
                         f"{time / usual:.1f} times (line {step.line})", found=f"{time / usual:.1f} times the median",
                         expected="equal step times", evidence=part.evidence)  # fmt: skip
        elif not bad:
            yield passed(f"{len(times)} steps take about the same time", evidence=part.evidence)
    elif not bad and _alike(log.steps):
        losses = sum(step.loss is not None for step in log.steps)
        sound = f"; the loss is a number in {losses} of them" if losses else ""
        yield passed(f"{len(log.steps)} steps of {log.framework}, none with twice the time of another{sound}",
                     evidence=part.evidence)  # fmt: skip
    elif not bad:
        losses = sum(step.loss is not None for step in log.steps)
        sound = f"the loss is finite in {losses} of them; " if losses else ""
        noun = "step" if len(log.steps) == 1 else "steps"
        yield unknown(f"{len(log.steps)} {noun} of {log.framework}: {sound}too few to compare", found=len(log.steps),
                      expected=f"at least {_ENOUGH}", evidence=part.evidence,
                      fix="Paste more of the log, from its start.")  # fmt: skip


# --- serving ------------------------------------------------------------------------------------------

#: KV cache usage from which requests wait, and number of consecutive reports without a token that are a hang:
#: judgements. An engine reports every 10 s, even while it compiles a graph or reads a long prompt.
_FULL, _SILENT = 0.95, 6


def _cache(part: PastedValue) -> Iterator[Finding]:
    log: ServingLog = part.value
    if log.cache_tokens and not log.reports:
        yield passed(f"the KV cache has room for {log.cache_tokens:,} tokens", evidence=part.evidence)
    used = [(item.cache_used, item) for item in log.reports if item.cache_used is not None]
    if not used:
        return
    full = [(share, item) for share, item in used if share >= _FULL and item.waiting]
    if full:
        share, item = max(full, key=lambda pair: pair[1].waiting or 0)
        yield warned(
            f"{item.waiting} requests wait while the KV cache is {100 * share:.0f} % full (line {item.line}; so in "
            f"{len(full)} of {len(used)} reports)", found=f"{100 * share:.0f} %",
            expected=f"below {100 * _FULL:.0f} %, or no request waits", evidence=part.evidence,
            fix="Add replicas or GPUs, lower max_model_len, or quantise the KV cache.",
        )  # fmt: skip
    else:
        yield passed(
            f"the KV cache is {100 * max(share for share, _ in used):.0f} % full at most", evidence=part.evidence
        )


def _served(part: PastedValue) -> Iterator[Finding]:
    log: ServingLog = part.value
    if not log.reports:
        if log.started is not None:
            yield passed(f"the server started (line {log.started})", evidence=part.evidence)
        return
    silent: dict[str, list[ServingReport]] = {}
    for item in log.reports:
        idle = bool(item.running) and not item.generation_tokens_s and not item.prompt_tokens_s
        silent[item.engine] = [*silent.get(item.engine, ()), item] if idle else []
    for engine, reports in silent.items():  # only the last ones: an engine that continued did not hang
        if len(reports) >= _SILENT:
            of = f"engine {engine}: " if engine else ""
            yield warned(
                f"{of}{reports[-1].running} requests run, and the last {len(reports)} reports have no token (from line "
                f"{reports[0].line})", found="0 tokens/s", expected="above 0", evidence=part.evidence,
                fix="Look for a worker that hangs or ended: `py-spy dump`, `nvidia-smi`, `dmesg | grep -i xid`.",
            )  # fmt: skip
            return
    if any(reports for reports in silent.values()):
        yield unknown("requests are running, but the last reports have no token; too few to call it a hang",
                      evidence=part.evidence, fix="Paste more of the log.")  # fmt: skip
    elif any(item.generation_tokens_s or item.prompt_tokens_s for item in log.reports):
        queue = max((item.waiting or 0 for item in log.reports), default=0)
        yield passed(f"requests that run get tokens{f'; up to {queue} wait' if queue else ''}", evidence=part.evidence)
    else:
        yield passed("no request runs in these reports", evidence=part.evidence)


def _metrics(metrics: ServingMetrics) -> Judged:
    """Return the judges of an engine's metrics; of transfers if it has any."""
    return tuple(
        (ident, partial(_judged, judge))
        for ident, judge in (
            ("serving.first-token", judge_first_token),
            ("serving.queue", judge_queue),
            ("serving.cache", judge_cache),
            ("serving.kv-transfer", judge_transfer),
        )
        if judge is not judge_transfer or transfers_caches(metrics)
    )


def _judged(
    judge: Callable[[ServingMetrics, Sequence[str]], Iterator[Finding]], part: PastedValue
) -> Iterator[Finding]:
    return judge(part.value, part.evidence)


JUDGES: Judges = {
    "ulimit": (("host.memlock", _memlock), ("host.open-files", _files)),
    "training log": (("torch.steps", _steps),),
    "serving metrics": _metrics,
    "serving log": (("gpu.memory-headroom", _cache), ("torch.hang", _served)),
}
