"""The training in a job's log: steps by writer, ranks, and throughput per GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from weakref import WeakKeyDictionary

from preflight._startup.lightclass import dataclass
from preflight.facts.step_times import timed
from preflight.parsers.job_log import JobLog
from preflight.parsers.training import iteration_log
from preflight.parsers.training.iteration_log import TrainingLog
from preflight.parsers.training.repeated_steps import StepsByWriter, read_repeated
from preflight.textprep.line_prefixes import split_by_writer
from preflight.textprep.lines import Line, lines_of
from preflight.textprep.numbered_text import NumberedText

#: Program and unit of throughputs that are printed per GPU, and of those for the entire job.
_PER_GPU = {("torchtitan", "tokens/s"), ("Megatron-LM", "TFLOP/s/GPU"), ("NeMo", "TFLOP/s/GPU")}
_OF_JOB = {("DeepSpeed", "samples/s"), ("HF Trainer", "samples/s")}
#: Minimum number of steps for a throughput.
_ENOUGH = 3


@dataclass(frozen=True)
class TrainingRun:
    """Steps in a log, by writer (a rank or a node; empty if not named)."""

    logs: Sequence[tuple[str, TrainingLog]]
    ranks: int | None  # of the job; None unless the log shows one number


@dataclass(frozen=True)
class Throughput:
    """Throughput of one GPU, with its unit and the number of ranks of the job."""

    value: float
    unit: str
    framework: str
    ranks: int


#: Training of logs that are still in use: reading one takes 0.1 s, and several checks need it.
_RUNS: WeakKeyDictionary[JobLog, TrainingRun | None] = WeakKeyDictionary()


def of_log(log: JobLog) -> TrainingRun | None:
    """Return the training in a log, read once; None without steps."""
    if log not in _RUNS:
        _RUNS[log] = _read(log)
    return _RUNS[log]


def _read(log: JobLog) -> TrainingRun | None:
    candidates = [
        (number, line)
        for number, line in log.text.lines()
        if any(hint in line for hint in iteration_log.HINTS)
    ]  # fmt: skip
    repeated: StepsByWriter = {}
    if log.repeated_steps:
        repeated, candidates = read_repeated(sorted([*candidates, *log.repeated_steps]))
    lines = lines_of(NumberedText("\n".join(line for _, line in candidates), [number for number, _ in candidates]))
    by_writer = _steps(split_by_writer(lines)) or _steps([("", lines)])
    for writer, steps in repeated.items():
        by_writer[writer] = sorted([*steps, *by_writer.get(writer, ())], key=lambda step: step.line)
    if not by_writer:
        return None
    between = log.steps_between()
    most = max(by_writer, key=lambda writer: len(by_writer[writer]))  # lines of all writers are counted together
    logs = [
        (key[0], iteration_log.log_of(key[1], steps, between if key == most else None))
        for key, steps in by_writer.items()
    ]
    ranks = iteration_log.ranks_in(log.text.text)
    ranks = ranks or (log.nccl.nranks if log.nccl is not None else None)
    return TrainingRun(logs, ranks)


def _steps(written: Iterable[tuple[str, Sequence[Line]]]) -> StepsByWriter:
    """Return the steps by writer and framework."""
    by_writer: StepsByWriter = {}
    for writer, lines in written:
        reader = iteration_log.StepReader()
        for line in lines:
            if (hit := reader.step_in(line)) is not None:
                by_writer.setdefault((writer, hit[0]), []).append(hit[1])
        own = by_writer.get((writer, iteration_log.TIMED_BY_BAR), [])
        others = any(writer == name for name, _ in by_writer)
        if early := reader.early(own) if own or not others else []:
            by_writer[writer, iteration_log.TIMED_BY_BAR if own else iteration_log.BAR_ALONE] = [*early, *own]
    return by_writer


def throughput(run: TrainingRun) -> Throughput | None:
    """Return the median throughput per GPU, without the first step; None if unknown."""
    _, log = max(run.logs, key=lambda written: len(written[1].steps))
    steps = log.steps[1:]
    if run.ranks is None or len(steps) < _ENOUGH:
        return None
    rated = [(step.throughput, step.throughput_unit) for step in steps if step.throughput]
    for programs, share in ((_PER_GPU, 1), (_OF_JOB, run.ranks)):
        values = [value for value, unit in rated if (log.framework, unit) in programs]
        if len(values) >= _ENOUGH:
            unit = rated[0][1] if rated[0][1].endswith("/GPU") else f"{rated[0][1]}/GPU"
            return Throughput(median(values) / share, unit, log.framework, run.ranks)
    sized = [step.batch / time for time, step in timed(steps) if step.batch and step.step_time_s]
    return Throughput(median(sized) / run.ranks, "samples/s/GPU", log.framework, run.ranks) if sized else None
