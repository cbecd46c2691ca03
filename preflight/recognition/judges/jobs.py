"""Judges of a job's limits and of training logs."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf, isnan
from statistics import median

from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.host.ulimit import ProcessLimits
from preflight.parsers.training.iteration_log import TrainingLog
from preflight.recognition.judges import Judges, PastedValue

#: Open files below which a job of eight ranks with data loaders runs out: a judgement, as in host.open-files.
_FEW_FILES = 4096


def _memlock(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "max locked memory" not in limits.soft:
        return
    locked = limits.soft["max locked memory"]
    if locked is None:
        yield passed("locked memory is unlimited", evidence=part.evidence)
    else:
        yield warned(f"locked memory is limited to {locked // 1024} KiB: RDMA cannot pin its buffers",
                     found=f"{locked // 1024} KiB", expected="unlimited", evidence=part.evidence)  # fmt: skip


def _files(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "open files" not in limits.soft:
        return
    files = limits.soft["open files"]
    if files is not None and files < _FEW_FILES:
        yield warned(f"a process may open {files} files", found=files, expected=f"at least {_FEW_FILES}",
                     evidence=part.evidence)  # fmt: skip
    else:
        yield passed(f"a process may open {'any number of' if files is None else files} files", evidence=part.evidence)


# --- training -----------------------------------------------------------------------------------------

#: A step that takes this many times the median is a stall, and how many steps a judgement needs: judgements.
_STALL, _ENOUGH = 2.0, 8


def _steps(part: PastedValue) -> Iterator[Finding]:
    log: TrainingLog = part.value
    bad = False
    if broken := [step for step in log.steps if step.loss is not None and (isnan(step.loss) or isinf(step.loss))]:
        bad = True
        yield failed(f"the loss is {broken[0].loss} from step {broken[0].step} on (line {broken[0].line})",
                     found=str(broken[0].loss), expected="a number", evidence=part.evidence,
                     fix="Look at the learning rate and the data of that step; if one rank alone has it, test its"
                         " GPU.")  # fmt: skip
    times = [(step.step_time_s, step) for step in log.steps[1:] if step.step_time_s is not None]
    rates = [(step.throughput, step) for step in log.steps[1:] if step.throughput]
    if not times and rates:  # the time of a step follows from the throughput
        times = [(1 / rate, step) for rate, step in rates if rate]
    if len(times) >= _ENOUGH:
        usual = median(time for time, _ in times)
        slow = [(time, step) for time, step in times if time > _STALL * usual]
        if slow:
            bad = True
            time, step = max(slow, key=lambda pair: pair[0])
            yield warned(f"{len(slow)} of {len(times)} steps took more than twice the median, step {step.step} "
                         f"{time / usual:.1f} times (line {step.line})", found=f"{time / usual:.1f} times the median",
                         expected="steps alike", evidence=part.evidence)  # fmt: skip
        elif not bad:
            yield passed(f"{len(times)} steps take about the same time", evidence=part.evidence)
    elif not bad:
        yield unknown(f"{len(log.steps)} steps of {log.framework} are too few to compare", found=len(log.steps),
                      expected=f"at least {_ENOUGH}", evidence=part.evidence,
                      fix="Give more of the log, from its beginning.")  # fmt: skip


JUDGES: Judges = {
    "ulimit": (("host.memlock", _memlock), ("host.open-files", _files)),
    "training log": (("torch.steps", _steps),),
}
