"""Step lines of training programs.

The supported programs are Megatron-LM, DeepSpeed, Hugging Face's Trainer, Lightning, NeMo and torchtitan. tqdm progress
bars that show a loss, and lines of other programs with a step and its loss, are read as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed
from preflight.parsers.training.progress_bar import MEANS, seconds_of, with_times
from preflight.parsers.training.step_classes import StepsBetween
from preflight.textprep.lines import Line, Lines

_NUMBER = r"-?(?:\d{1,12}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,3})?|(?i:nan|inf(?:inity)?))"


@dataclass(frozen=True)
class TrainingStep:
    """One training step; a value that its line lacks is None."""

    step: int | None
    step_time_s: float | None
    throughput: float | None
    throughput_unit: str
    loss: float | None
    line: int
    grad_norm: float | None = None
    mfu_pct: float | None = None  # model FLOPs utilisation, as printed
    batch: int | None = None  # global batch size in samples
    elapsed_s: float | None = None  # since the start of a progress bar, whose average is ``step_time_s``
    paused: bool = False  # an evaluation ran between the state of the bar before and this one


@dataclass(frozen=True)
class TrainingLog:
    """The training steps that one program logged."""

    framework: str
    steps: tuple[TrainingStep, ...]
    between: StepsBetween | None = None  # steps of a long log that are only counted
    hidden: bool = False  # single long steps are not visible: times are means over several states of a progress bar


_FRAMEWORKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("Megatron-LM", re.compile(rf".{{0,60}}?\biteration\s{{1,12}}(?P<step>\d{{1,10}})/\s{{0,12}}\d{{1,10}} \|.*?"
                               rf"elapsed time per iteration \(ms\): {{1,12}}(?P<ms>{_NUMBER}).*")),
    ("NeMo", re.compile(rf".{{0,80}}?Training epoch \d{{1,6}}, iteration (?P<step>\d{{1,10}})/\d{{1,10}} \|.*?"
                        rf"train_step_timing in s: {{1,12}}(?P<s>{_NUMBER}).*")),
    ("torchtitan", re.compile(rf".{{0,120}}?\bstep: {{0,12}}(?P<step>\d{{1,10}}) {{1,4}}loss:"
                              rf" {{0,12}}(?P<loss>{_NUMBER}).*?"
                              r"\btps: {0,12}(?P<tps>[\d,]{1,14}(?:\.\d+)?).*")),
    ("DeepSpeed", re.compile(rf".{{0,160}}?\bsteps: {{1,12}}(?P<step>\d{{1,10}}) loss: {{1,12}}(?P<loss>{_NUMBER}) "
                             rf"iter time \(s\): {{1,12}}(?P<s>{_NUMBER}).*")),
    ("DeepSpeed", re.compile(rf".{{0,200}}?global_step=(?P<step>\d{{1,10}}), RunningAvgSamplesPerSec={_NUMBER}, "
                             rf"CurrSamplesPerSec=(?P<sps>{_NUMBER}).*")),
    ("HF Trainer", re.compile(rf".{{0,200}}?\{{'loss': '?(?P<loss>{_NUMBER})'?,.*'epoch': '?{_NUMBER}'?.*\}}.*")),
    ("HF Trainer", re.compile(rf".{{0,200}}?\{{'train_runtime': '?{_NUMBER}'?, 'train_samples_per_second': '?"
                              rf"(?P<sps>{_NUMBER})'?.*\}}.*")),
    ("Lightning", re.compile(r".{0,40}?Epoch (?P<epoch>\d{1,6}): {1,4}\d{1,3}%\|[^|]{0,200}\|"
                             r" (?P<step>\d{1,10})/\d{1,10} "
                             rf"\[(?P<elapsed>\d[\d:]{{1,11}})<[\d:?]{{1,12}}, {{1,3}}(?P<rate>{_NUMBER})(?P<unit>it/s"
                             rf"|s/it)(?P<rest>.*)")),
    ("progress bar", re.compile(r"(?=.*loss).{0,80}?\d{1,3}%\|[^|]{0,200}\| (?P<step>\d{1,10})/\d{1,10}"
                                r" \[(?P<elapsed>\d[\d:]{1,11})<[\d:?]{1,12}, "
                                rf"{{1,3}}(?P<rate>{_NUMBER})(?P<unit>it/s|s/it)(?P<rest>.*)")),
)  # fmt: skip
#: A progress bar, on a line of its own or before other text. HF Trainer's lines have no time, but its bar has.
_BAR = re.compile(
    r"(?P<what>.{0,80}?)\d{1,3}%\|[^|]{0,200}\| (?P<step>\d{1,10})/(?P<total>\d{1,10})"
    r" \[(?P<elapsed>\d[\d:]{1,11})<[\d:?-]{1,12}, {1,3}(?P<rate>\d{1,7}(?:\.\d{1,6})?)(?P<unit>it/s|s/it)\]"
)
#: What precedes a bar of training: nothing, or one of these words. Other bars load, tokenise or evaluate.
_OF_TRAINING = re.compile(r"(?:\[[^\]]{0,60}\]:?|\s){0,8}|(?i:.*(?:train|epoch|step|iter|loss).*)")
#: Minimum number of states of a bar without a loss, and number of lines that are searched for them.
_STATES, _AHEAD = 8, 12
#: A line in a program's own format: ``step 10 loss 9.81 …``, ``iter 100: loss 3.1, time 250ms``.
_ANY = re.compile(
    rf"(?i)(?:.{{0,100}}?[\s\]|:('\"{{])?(?:global[ _]?)?(?:step|iter|iteration)s?['\"]?[ :=/]{{1,12}}"
    rf"(?P<step>\d{{1,10}})(?:/\d{{1,10}})?\b.{{0,200}}?\b(?:train[ _/])?loss['\"]?[ :=]{{1,12}}"
    rf"(?P<loss>{_NUMBER})(?:(?<=[nf])\.0)?(?![\w.]).*"  # tqdm prints nan.0
)
_ANY_TIME = re.compile(
    rf"(?i)\b(?:(?:step|iter)[ _]?)?(?:time|dt)['\"]?[ :=]{{1,12}}(?P<t>{_NUMBER}) ?(?P<unit>ms|s)\b"
)
#: The time of a step by its unit alone: ``| 1.02 s/it |``, ``850 ms/step``.
_ANY_PACE = re.compile(rf"(?i)(?<![\w.])(?P<t>{_NUMBER}) ?(?:(?P<unit>s/it|it/s)|(?P<time>ms|s|sec)/(?:step|iter))\b")
_ANY_RATE = re.compile(
    r"(?i)\b(?:tok(?:ens)?|samples)(?:/s(?:ec)?|_per_sec(?:ond)?)['\"]?[ :=]{1,12}(?P<tps>[\d,]{1,14}(?:\.\d+)?)"
)
_LOSS = re.compile(rf"(?:lm loss|reduced_train_loss|train_loss|\bloss)(?:_step)?(?::|=) {{0,12}}(?P<loss>{_NUMBER})")
_GRAD_NORM = re.compile(rf"(?i)\bgrad(?:ient)?[_ ]?norm'?(?::|=)? {{0,12}}'?(?P<norm>{_NUMBER})")
_MFU = re.compile(r"(?i)\bmfu[:= ]{1,12}(?P<mfu>\d{1,3}(?:\.\d{1,3})?) ?%")
_BATCH = re.compile(r"\bglobal[ _]batch[ _]size: {0,12}(?P<batch>\d{1,9})\b")
_TFLOPS = re.compile(r"(?:TFLOP/s/GPU\)|TFLOPs\)|tflops): {0,12}(?P<throughput>[\d,]{1,10}(?:\.\d+)?)")
#: The program whose step lines have no time, and the number of lines before its first step that may have its bar.
TIMED_BY_BAR, _BEFORE = "HF Trainer", 3
BAR_ALONE = "progress bar"
#: Maximum number of lines between two steps, and maximum number of examined characters of a line.
_GAP, _LONGEST = 60, 4000


@dataclass(frozen=True)
class StepFields:
    """The spans of the values in a step line, by name."""

    framework: str
    spans: dict[str, tuple[int, int]]
    time_unit: str = ""  # ms, s, it/s or s/it
    throughput_unit: str = ""

    def step(self, values: Mapping[str, str], number: int) -> TrainingStep:
        """Convert the values of a line, given as text, to a step."""
        seconds = _real(values.get("time"))
        if seconds is not None and self.time_unit == "ms":
            seconds /= 1000
        elif seconds is not None and self.time_unit == "it/s":
            seconds = 1 / seconds if seconds else None
        step, batch = values.get("step"), values.get("batch")
        return TrainingStep(
            int(step) if step else None, seconds, _real(values.get("throughput")), self.throughput_unit,
            _real(values.get("loss")), number, _real(values.get("norm")), _real(values.get("mfu")),
            int(batch) if batch else None, seconds_of(values["elapsed"]) if "elapsed" in values else None,
        )  # fmt: skip


class StepReader:
    """Reader of steps in the lines of a writer, with times of progress bars."""

    def __init__(self) -> None:
        self._state: tuple[str, TrainingStep] | None = None  # total, and step without a loss, of the bar's last state
        self._total = ""  # of the bar that counts the steps; other bars count batches of an evaluation, or files
        self._early: dict[str, list[TrainingStep]] = defaultdict(list)  # total → states before the first loss
        self._paused = False  # an evaluation ran since the last state
        self._printed: int | None = None  # the last step with a loss; tqdm shows its state again

    def step_in(self, line: Line) -> tuple[str, TrainingStep] | None:
        """Return the framework and the step of a line; None if it is not a step line."""
        bar = _bar_in(line.text)
        if "'eval_" in line.text or (bar and self._total not in ("", bar["total"])):
            self._paused = True
        elif bar:
            return self._next_state(bar, line.number)
        if (hit := step_in(line)) is None or hit[0] != TIMED_BY_BAR:
            return hit
        state, self._state = self._state, None
        if state is None or hit[1].loss is None:
            return hit
        self._total, last = state
        self._printed = last.step
        return hit[0], replace(hit[1], step=last.step, step_time_s=last.step_time_s, elapsed_s=last.elapsed_s,
                               paused=last.paused)  # fmt: skip

    def _next_state(self, bar: re.Match[str], number: int) -> tuple[str, TrainingStep] | None:
        """Store a state, and return the last one if no loss was printed for it."""
        if int(bar["step"]) == self._printed:
            return None
        last, rate = self._state, float(bar["rate"])
        if bar["unit"] == "it/s":
            rate = 1 / rate if rate else 0.0
        step = TrainingStep(int(bar["step"]), rate or None, None, "", None, number,
                            elapsed_s=seconds_of(bar["elapsed"]), paused=self._paused)  # fmt: skip
        self._state, self._paused = (bar["total"], step), False
        if not self._total and _OF_TRAINING.fullmatch(bar["what"]):
            self._early[bar["total"]].append(step)
        return (TIMED_BY_BAR, last[1]) if last and last[0] == self._total and last[1].step != step.step else None

    @property
    def pending(self) -> bool:
        """Whether the last line was a state of a bar."""
        return self._state is not None

    def early(self, steps: Sequence[TrainingStep]) -> list[TrainingStep]:
        """Return the states before the first loss; all states of a bar without a loss."""
        if self._total:
            return [state for state in self._early[self._total] if not steps or state.step != steps[0].step]
        most = max(self._early.values(), key=len, default=[])
        return most if len({state.step for state in most}) >= _STATES and not steps else []


def _bar_in(text: str) -> re.Match[str] | None:
    """Return the progress bar in a line; None for Lightning's."""
    return _BAR.match(text[:_LONGEST]) if "%|" in text and "Epoch " not in text else None


def _bar_begins(lines: Lines, at: int) -> bool:
    """Return whether a progress bar without a loss begins at a line."""
    bar = _bar_in(lines[at].text)
    if bar is None or not _OF_TRAINING.fullmatch(bar["what"]):
        return False
    ahead = [other["step"] for line in lines[at : at + _AHEAD]
             if (other := _bar_in(line.text)) and other["total"] == bar["total"]]  # fmt: skip
    return len(set(ahead)) >= _STATES


def step_in(line: Line) -> tuple[str, TrainingStep] | None:
    """Return the framework and the step of a line; None if it is not a step line."""
    text = line.text[:_LONGEST]
    fields = fields_in(text)
    if fields is None:
        return None
    values = {name: text[start:end] for name, (start, end) in fields.spans.items()}
    return fields.framework, fields.step(values, line.number)


def fields_in(text: str) -> StepFields | None:
    """Find the values in a step line; return None for any other line."""
    if any(hint in text for hint in _MARKS):
        for framework, pattern in _FRAMEWORKS:
            if match := pattern.fullmatch(text):
                return _fields(framework, match, text)
    if "loss" in text.lower() and (match := _ANY.fullmatch(text)):
        return _own_fields(match, text)
    return None


def _time_unit(timed: re.Match[str] | None) -> str:
    """Return the unit of a line's time, as in ``StepFields``; empty without a time."""
    if timed is None:
        return ""
    groups = timed.groupdict()
    return (groups["unit"] or groups["time"].removesuffix("ec")).lower()


def _own_fields(match: re.Match[str], text: str) -> StepFields:
    timed, rated = _ANY_TIME.search(text) or _ANY_PACE.search(text), _ANY_RATE.search(text)
    spans = {"step": match.span("step"), "loss": match.span("loss")}
    unit = ""
    if timed:
        spans["time"] = timed.span("t")
    if rated:
        spans["throughput"] = rated.span("tps")
        unit = "samples/s" if rated[0].lower().startswith("samples") else "tokens/s"
    return StepFields("a program", spans | _found(text, _GRAD_NORM, _MFU), _time_unit(timed), unit)


#: Throughput groups of the framework patterns, with their units.
_THROUGHPUTS = {"tps": "tokens/s", "sps": "samples/s"}


def _fields(framework: str, match: re.Match[str], text: str) -> StepFields:
    groups = {name for name, value in match.groupdict().items() if value}
    spans = _found(text, _LOSS, _GRAD_NORM, _MFU, _BATCH)
    spans |= {name: match.span(name) for name in groups & {"step", "loss"}}
    spans |= {"elapsed": match.span("elapsed")} if "elapsed" in groups else {}
    time = next((name for name in ("rate", "ms", "s") if name in groups), None)
    if time is not None:
        spans["time"] = match.span(time)
    throughput = next((name for name in _THROUGHPUTS if name in groups), None)
    unit = _THROUGHPUTS.get(throughput or "", "")
    if throughput is not None:
        spans["throughput"] = match.span(throughput)
    elif flops := _found(text, _TFLOPS):
        spans |= flops
        unit = "TFLOP/s/GPU"
    return StepFields(framework, spans, match["unit"] if time == "rate" else time or "", unit)


#: The lower-case word without which a pattern cannot match; tested first, since a case-insensitive search is slow.
_NEEDED = {_GRAD_NORM: "norm", _MFU: "mfu"}


def _found(text: str, *patterns: re.Pattern[str]) -> dict[str, tuple[int, int]]:
    """Return the spans of each pattern's first match, by group name."""
    lowered = text.lower()
    patterns = tuple(pattern for pattern in patterns if _NEEDED.get(pattern, "") in lowered)
    matches = (match for pattern in patterns if (match := pattern.search(text)) is not None)
    return {name: match.span(name) for match in matches for name in match.re.groupindex}


def _real(text: str | None) -> float | None:
    return float(text.replace(",", "")) if text else None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a training log begins at a line."""
    return step_in(lines[at]) is not None or _bar_begins(lines, at)


def parse_lines(lines: Lines, at: int) -> Parsed[TrainingLog]:
    """Read one framework's steps, up to an error message or a long gap."""
    # import-at-use: takes 90 ms, and is only needed to find the end of a log in other text
    from preflight.parsers.messages.scan import error_in

    steps: list[TrainingStep] = []
    framework = ""
    end = last = at
    reader = StepReader()
    for line in lines[max(0, at - _BEFORE) : at]:
        reader.step_in(line)
    while end < len(lines) and end - last <= _GAP:
        if (hit := reader.step_in(lines[end])) is not None and (not framework or hit[0] == framework):
            framework = hit[0]
            steps.append(hit[1])
            last = end
        elif reader.pending:
            last = end
        elif error_in(lines[end].text) is not None:
            break
        end += 1
    log = log_of(framework or BAR_ALONE, [*reader.early(steps), *steps])
    return Parsed(log, (), last + 1)


def log_of(framework: str, steps: Sequence[TrainingStep], between: StepsBetween | None = None) -> TrainingLog:
    """Return the log of steps, with the times that progress bars give."""
    timed, hidden = with_times(framework, steps)
    return TrainingLog(framework, timed, between, hidden or (between is not None and framework in MEANS))


#: A line in which a program prints its number of ranks.
_WORLD = re.compile(
    r"(?i)(?<!\w)(?:using )?world[ _]?size(?: |=|: |:|['\"]: ){1,3}(?P<ranks>\d{1,7})\b"
    r"|building [^\n]{0,60}mesh[^\n]{0,120}?world_size=(?P<mesh>\d{1,7})"
)


def ranks_in(text: str) -> int | None:
    """Return the number of ranks in a log; None if it prints none, or several numbers."""
    lines = [line for line in text.split("\n") if "world" in line.lower()]
    counts = {int(match["ranks"] or match["mesh"]) for line in lines for match in _WORLD.finditer(line)}
    return counts.pop() or None if len(counts) == 1 else None


_MARKS = ("iteration", "step:", "steps: ", "global_step=", "{'loss'", "{'train_runtime'", "it/s", "s/it")
HINTS = (*_MARKS, "loss", "Loss", "LOSS")
