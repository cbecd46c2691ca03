"""Step lines of job logs, through ``--log`` and ``read``; slow steps, drift and scaling."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from itertools import accumulate
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from preflight import recognition
from preflight.checks import registry
from preflight.checks.job.training_log import judge_steps
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.expectations.waivers import Chosen
from preflight.facts.step_times import drift, slow_steps
from preflight.facts.training_run import of_log
from preflight.judge import judge
from preflight.parsers import line_selection
from preflight.parsers.job_log import parse
from preflight.parsers.training import iteration_log, skipped_steps
from preflight.parsers.training.iteration_log import TrainingStep
from preflight.parsers.training.repeated_steps import read_repeated
from preflight.parsers.training.step_classes import StepLines
from preflight.recognition import read_text
from preflight.recognition.input_sources import InputSource
from preflight.reports.verdict_line import headline
from preflight.textprep.lines import lines_of
from tests.support.step_lines import FORMS, bar, clock, jittered, log

CHECKS = [check for check in registry().checks if check.id in ("torch.steps", "job.scaling")]


def judged(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    records = {f"log:{name}": {"status": "ok", "out": text} for name, text in texts.items()}
    results: list[dict[str, Any]] = judge([], CHECKS, run=Evidence("@run", "", records))["findings"]
    return results


def steps_of(text: str) -> list[tuple[str, str]]:
    """Return (status, message) of the findings of the steps in a log."""
    results = [(item["status"], item["message"].removeprefix("job.log: ")) for item in judged({"job.log": text})]
    return [item for item in results if "are logged" not in item[1]]


def statuses(text: str) -> set[str]:
    return {status for status, _ in steps_of(text)}


def as_steps(times: list[float]) -> list[tuple[float, TrainingStep]]:
    return [(time, TrainingStep(number, time, None, "", None, number)) for number, time in enumerate(times)]


@pytest.mark.parametrize("framework", FORMS)
def test_a_log_gives_the_findings_that_read_gives(framework: str) -> None:
    chance = random.Random(framework)
    healthy = jittered(chance, 120)
    sick = [time * (1.5 if number % 10 == 7 else 1) for number, time in enumerate(healthy)]
    for times, status in ((healthy, "pass"), (sick, "warn")):
        text = log(times, framework)
        pasted = {
            (item["status"], item["message"])
            for part in read_text(text, "p") for item in part.findings if item["check"] == "torch.steps"
        }  # fmt: skip
        assert set(steps_of(text)) == pasted
        assert statuses(text) == {status}
    assert "every 10 steps" in steps_of(log(sick, framework))[0][1]


def test_figures_of_a_healthy_job() -> None:
    ((status, message),) = steps_of(log([9.0] + [1.25] * 199, "torchtitan"))
    assert (status, message) == ("pass", "199 steps take about the same time: 4,000 tokens/s, MFU 32%")
    assert "median 1.25 s, p99 1.25 s, 320 TFLOP/s/GPU" in steps_of(log([9.0] + [1.25] * 199))[0][1]


def test_healthy_jobs_are_not_warned_of() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        times = as_steps(jittered(chance, chance.choice((12, 20, 50, 200, 1000)))[1:])
        long = slow_steps(times, 1.2)
        assert drift(times) is None, seed
        assert long is None or long.every is None or long.cost < 0.01, seed


@pytest.mark.parametrize("seed", range(20))
def test_planted_faults_are_found(seed: int) -> None:
    chance = random.Random(seed)
    steps, every = chance.choice((60, 200, 400)), chance.randint(3, 15)
    times = jittered(chance, steps)
    periodic = [time * (1.4 if number % every == 1 else 1) for number, time in enumerate(times)]
    long = slow_steps(as_steps(periodic)[1:], 1.2)
    assert long is not None
    assert long.every == every
    grown = drift(as_steps([time * (1 + 0.25 * number / steps) for number, time in enumerate(times)][1:]))
    assert grown is not None
    assert 1.12 < grown.after / grown.before < 1.26
    later = chance.randrange(steps // 3, steps // 2)
    assert "warn" in statuses(log([time * (1.15 if number > later else 1) for number, time in enumerate(times)]))


@pytest.mark.parametrize(
    ("times", "status", "words"),
    [
        (
            [1.0] * 400 + [4.0] + [1.0] * 400,
            "pass",
            "except 1 with more than twice",
        ),  # a checkpoint: 0.4% of the time
        ([1.0] * 20 + [4.0] + [1.0] * 20, "warn", "took more than twice the median"),
        ([1.0, 1.5, 0.6, 1.3, 0.8, 1.45, 0.7, 1.2, 0.55, 1.4] * 4, "unknown", "deviation"),  # sequences of all lengths
        ([3.0, 2.0, 1.5, 1.2, 1.1] + [1.0] * 60, "pass", "about the same"),  # it warms up
        ([1.0] * 30 + [1.7] * 30, "warn", "from step 31 on"),
        (
            [1.0] * 20 + [1.3] * 20 + [1.0] * 40,
            "warn",
            "20 of 80 steps took longer, from step 21 to 40",
        ),  # it recovered
        ([1.0, 1.4] * 30, "unknown", "standard deviation"),
        (([1.0] * 9 + [1.95] + [1.0] * 9 + [2.05]) * 15, "warn", "30 of 300 steps took longer, every 10 steps"),
        (([1.0] * 9 + [2.5]) * 30, "warn", "30 of 300 steps took more than twice the median, every 10 steps"),
    ],
)
def test_shapes_of_step_times(times: list[float], status: str, words: str) -> None:
    results = steps_of(log([5.0, *times], first=0))
    assert {item for item, _ in results} == {status}, results
    assert words in results[0][1]


@pytest.mark.parametrize("framework", ["Megatron-LM", "torchtitan", "NeMo", "DeepSpeed", "a program"])
@pytest.mark.parametrize(("first", "later", "status"), [(5.0, 1.0, "pass"), (5.0, 5.0, "warn"), (1.0, 1.0, "pass")])
def test_the_first_step_after_a_restart_is_no_spike(framework: str, first: float, later: float, status: str) -> None:
    """The job continues from the checkpoint of step 150; another slow step, 100 steps later, is a stall."""
    again = [first, *[1.0] * 99, later, *[1.0] * 80]
    ((result, message),) = steps_of(log([5.0, *[1.0] * 178], framework) + log(again, framework, first=151))
    assert (result, message.endswith("; the first step after 1 restart is not compared")) == (status, True)


@pytest.mark.parametrize("framework", ["Lightning", "a program"])
def test_the_first_step_of_an_epoch_is_compared(framework: str) -> None:
    assert statuses(log([5.0, *[1.0] * 40], framework) * 4) == {"warn"}


@pytest.mark.parametrize(("loss", "shadow", "status"), [("2.5000", "", 0), ("nan", "", 1), ("nan", "torch.*", 0)])
def test_a_failure_in_a_log_decides_the_exit_status(loss: str, shadow: str, status: int) -> None:
    """The check is not gating, but the log was given to be judged."""
    run = Evidence("@run", "", {"log:a": {"status": "ok", "out": log([1.0] * 9, "a program").replace("2.5000", loss)}})
    report = judge([], CHECKS, Cluster(checks=Chosen(shadow=(shadow,) if shadow else ())), run=run)
    assert (report["exit_status"], headline(report).partition(":")[0]) == (
        status, {"2.5000": "PASS", "nan": "FAIL"}[loss] if not shadow else "NO BLOCKER",
    )  # fmt: skip


@pytest.mark.parametrize("time", ["", " | time: 1.02 s"])
def test_steps_without_times_do_not_answer_for_them(time: str) -> None:
    text = "\n".join(f"step {number} | loss: 2.{number}{time}" for number in range(1, 7))
    (finding,) = judge_steps(iteration_log.parse_lines(lines_of(text), 0).value, ())
    assert finding.answers == (("PA-21",) if time else ())
    assert ("without their times" in finding.message) != bool(time)


def test_the_loss_of_one_rank_counts() -> None:
    ranks = {
        rank: log([2.0, *[1.0] * 20], "a program").replace("loss 2.5000", "loss nan" if rank == 3 else "loss 2.5")
        for rank in range(4)
    }
    lines = zip(*(text.splitlines() for text in ranks.values()), strict=True)
    text = "\n".join(f"[rank{rank}]: {line}" for step in lines for rank, line in enumerate(step)) + "\n"
    results = judged({"job.log": text})
    assert [(item["status"], item["subject"]) for item in results if item["status"] != "pass"] == [
        ("fail", "job.log rank3")
    ]


def test_lines_repeated_by_ranks_without_names() -> None:
    text = "".join(line + "\n" + line + "\n" for line in log([2.0, *[1.0, 1.0, 1.4, 1.0] * 20]).splitlines())
    assert "every 4 steps" in steps_of(text)[0][1]


def test_a_long_log_keeps_all_its_steps() -> None:
    chance = random.Random(5)
    results = steps_of(log(jittered(chance, 6000)))
    assert results[0][1].startswith("5999 steps take about the same time")


@pytest.mark.parametrize("framework", ["Megatron-LM", "torchtitan", "NeMo"])
@pytest.mark.parametrize(("rate", "status"), [(0.92, "pass"), (0.6, "warn")])
def test_efficiency_of_a_larger_job(framework: str, rate: float, status: str) -> None:
    seconds = 1 / rate
    texts = {
        "small.log": log([1.0] * 20, framework, ranks=16, batch=64),
        "large.log": log([seconds] * 20, framework, ranks=128, batch=512),
    }
    ((results, message),) = [
        (item["status"], item["message"]) for item in judged(texts) if item["check"] == "job.scaling"
    ]
    assert (results, f"are {rate:.0%} of the" in message) == (status, True), message


@pytest.mark.parametrize(
    "texts",
    [
        {"a": log([1.0] * 20, ranks=16), "b": log([2.0] * 20, ranks=16)},  # one size
        {"a": log([1.0] * 20, ranks=16), "b": log([2.0] * 20)},  # how many?
        {"a": log([1.0] * 20, "a program", ranks=16), "b": log([2.0] * 20, "a program", ranks=32)},  # whose tok/s?
    ],
)
def test_sizes_that_are_not_known_are_not_compared(texts: Mapping[str, str]) -> None:
    assert not [item for item in judged(texts) if item["check"] == "job.scaling"]


def test_different_programs_do_not_compare() -> None:
    texts = {"a": log([1.0] * 20, ranks=16), "b": log([1.0] * 20, "torchtitan", ranks=32)}
    assert [item["status"] for item in judged(texts) if item["check"] == "job.scaling"] == ["unknown"]


PREFIXES = ("", "[rank{rank}]: ", "{rank}: ", "2026-05-11T09:00:{second:02d}.{step:06d}Z ", "node{rank:02d}: ")


@pytest.mark.parametrize("framework", FORMS)
def test_repeated_lines_are_read_like_single_ones(framework: str) -> None:
    chance = random.Random(framework)
    for prefix in PREFIXES:
        lines = log(jittered(chance, 40), framework, first=chance.choice((7, 95, 99_980))).splitlines()
        text = "".join(
            f"{prefix.format(rank=number % 4, second=number, step=chance.randrange(10**6))}{line}\n"
            for number, line in enumerate(lines)
        )
        run = of_log(parse(text))
        assert run is not None
        repeated, rest = read_repeated(enumerate(text.splitlines(), 1))
        assert not rest
        timed = {(writer, name): iteration_log.log_of(name, steps) for (writer, name), steps in repeated.items()}
        assert {(writer, steps.framework): steps for writer, steps in run.logs} == timed, prefix


def test_values_that_are_no_numbers_have_their_own_pattern() -> None:
    lines = log([1.0] * 6, "a program").replace("loss 2.5000", "loss nan").splitlines()
    repeated, rest = read_repeated([*enumerate(lines, 1), (8, "\x1b[32mstep 9 | loss 2.1 | dt: 9.00ms\x1b[0m")])
    ((_, steps),) = repeated.items()
    assert [step.loss is not None and isnan(step.loss) for step in steps] == ["nan" in line for line in lines]
    assert [number for number, _ in rest] == [8]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "Infinity"])
@pytest.mark.parametrize("framework", FORMS)
def test_a_loss_that_is_no_number_is_read_however_wide_its_field_is(framework: str, value: str) -> None:
    """Programs that pad a loss, such as torchtitan, print "nan" after more blanks than a number."""
    text = log([1.0] * 40, framework)
    padded = [re.sub(r"(loss[:= ] *)2\.[0-9E+]+", rf"\g<1>{' ' * (framework != 'Lightning') * 6}{value}", line)
              if number > 20 else line for number, line in enumerate(text.splitlines())]  # fmt: skip
    assert statuses(text) == {"pass"}
    results = steps_of("\n".join(padded))
    assert [message for status, message in results if status == "fail"], results


def test_a_loss_in_the_middle_of_a_very_long_log_is_read() -> None:
    lines = log([1.0] * 26_000).splitlines(keepends=True)
    lines[13_000] = lines[13_000].replace("lm loss: 2.4", "lm loss: nan (was 2.4")
    ((status, message),) = steps_of("".join(lines))
    assert (status, "loss is nan" in message) == ("fail", True), message


@pytest.mark.parametrize(
    ("line", "longest"),
    [
        ("step 12 | loss 2.5100 | dt: 210.40ms | tok/s: 5000", 0.2104),
        ("1 dt: 0.20ms step 12 loss 2.5100 dt: 210.40ms 7", 0.0002),  # the first time is read of every line
        ("step 12 loss 2.5100 time: 5 time: 210.40 s", 210.4),
        ("step 12 loss 2.5100 grad_norm: 0.5", 0.0),
    ],
)
def test_the_time_of_lines_that_are_not_stored(line: str, longest: float) -> None:
    lines = [line.replace("210.40", time).encode() for time in ("7.05", "210.40", "7.05", ".")]
    skipped = skipped_steps.SkippedSteps()
    skipped.add(StepLines(range(5, 9), lines, [text.translate(None, b"0123456789") for text in lines]))
    between = skipped.counted()
    assert between.count == 4
    assert between.longest_s == pytest.approx(longest)
    if "210.40" in line and longest > 0.001:
        assert (between.timed, between.unread, between.longest_line) == (3, 1, 6)


INIT = "n1:7:7 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 8 cudaDev 0 busId 1000 commId 0x2 - Init COMPLETE"


@pytest.mark.parametrize("head", ["", INIT], ids=["alone", "with NCCL"])
@pytest.mark.parametrize(
    ("middle", "exit_status", "status", "words"),
    [
        (1.0, 0, "pass", "steps in the middle of the log were compared by their time only"),
        (2.6, 0, "warn", "200 of 4,"),
        (1.3, 0, "warn", "took longer than the median, and cost"),
        (None, 3, "unknown", "lines of steps in the middle of the log were not read"),
    ],
)
def test_steps_in_the_middle_of_a_very_long_log(
    head: str, middle: float | None, exit_status: int, status: str, words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of 6,000 steps, 1,400 are stored; 200 others are slow (middle), or their shape is unknown (None)."""
    monkeypatch.setattr(line_selection, "MOST_STEPS", 200)
    times = [1.0] * 2900 + [middle or 1.0] * 200 + [1.0] * 2900
    if middle is None:
        monkeypatch.setattr(skipped_steps, "_MOST_SHAPES", 0)
    path = tmp_path / "job.log"
    path.write_text(f"{head}\n{log(times, first=10_000)}")
    parts = recognition.read(InputSource("job.log", path))
    (training,) = [part for part in parts if part.kind == "training log"]
    facts = training.taken.facts
    assert (facts["first_step"], facts["last_step"]) == (10_000, 15_999)
    assert facts["steps"] + facts["steps_between"] == len(times)
    assert recognition.exit_status([("job.log", parts)]) == exit_status
    assert [item["status"] for item in training.findings if words in item["message"]] == [status]
    assert (status == "pass") == ({item["status"] for item in training.findings} == {"pass"})


def test_a_growing_progress_bar_is_one_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in the middle are counted even though each length of the bar has few lines; slow ones are named."""
    monkeypatch.setattr(line_selection, "MOST_STEPS", 200)
    paces = list(accumulate([1.0] * 2900 + [4.0] * 200 + [1.0] * 2900, lambda mean, pace: 0.7 * mean + 0.3 * pace))
    metrics = ", ".join(f"{name}=0.731" for name in ("grad_norm", "learning_rate", "entropy", "accuracy", "aux_weight"))
    lines = [
        f"{step // 60:3d}%|{'█' * (step // 300)}{'▏▎▍▌▋▊▉'[step % 7]:<{20 - step // 300}}| {step}/6000 "
        f"[{clock(3700 + step + 600 * (step > 3000))}<02:00, {pace:5.2f}s/it, loss={2 + step % 7 / 10:.3f}, {metrics}]"
        for step, pace in enumerate(paces)
    ]
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines))
    (training,) = [part for part in recognition.read(InputSource("job.log", path)) if part.kind == "training log"]
    facts = training.taken.facts
    assert facts["steps"] == line_selection.ALIKE + 2 * 200
    assert facts["steps"] + facts["steps_between"] == len(paces)
    assert [item["status"] for item in training.findings if " of 4,600 steps in the middle" in item["message"]] == [
        "warn"
    ]


def test_the_shape_of_a_line_leaves_out_digits_and_the_bar() -> None:
    bars = [f"{step}%|{'#' * step:<10}| {step}/10 [0:01<0:09]".encode() for step in range(11)]
    assert len({line_selection.shape_of(bar) for bar in bars}) == 1
    others = [b"  8  16", b"8 16", b"   ", b"a 8%", b"a8%", b"#1", b"1"]
    assert len({line_selection.shape_of(line) for line in others}) == len(others)


@pytest.mark.parametrize(("slower", "status"), [(1.0, "pass"), (2.5, "warn")])
def test_the_progress_bar_of_hf_trainer_has_the_time(slower: float, status: str) -> None:
    """The bar shows a moving average; an evaluation every 100 steps is not a slow step."""
    jitter = random.Random(3)
    times = [1.2 * jitter.gauss(1, 0.01) * (slower if step > 250 else 1) for step in range(1, 401)]
    text = bar(times, losses=5, pauses=dict.fromkeys((100, 200, 300), 60.0))
    assert statuses(text) == {status}
    run = of_log(parse(text))
    assert run is not None
    ((_, read),) = run.logs
    shown = {step.step: step.step_time_s for step in read.steps if step.step is not None and step.step_time_s}
    assert set(range(1, 401)) - set(shown) <= {101, 201, 301, 400}
    assert all(shown[step] == pytest.approx(times[step - 1], rel=0.03) for step in shown)


def test_a_bar_that_is_not_read_to_its_end_is_no_pass() -> None:
    """Of a line above the limit, the last states are missing: they may be slow, or without a loss."""
    assert statuses(bar([1.2] * 400, "Lightning").rstrip("\n") * 40) <= {"unknown"}


#: Seconds of a step, and how much longer each 25th takes; programs; status and words of the message.
BARS = [
    (1.2, 1.0, "HF Trainer", "pass", "about the same time"),
    (1.2, 4.0, "HF Trainer", "warn", "16 of 399 steps took more than twice the median, every 25 steps, and cost 11%"),
    (1.2, 1.6, "HF Trainer", "warn", "took longer, every 25 steps, and cost 2%"),
    (0.35, 3.0, "HF Trainer", "warn", "every 25 steps, and cost 7%"),
    (1.2, 1.0, "Lightning", "unknown", "single long steps are not visible in this progress bar"),
    (1.2, 4.0, "Lightning", "warn", "more than twice the median, every 25 steps, and cost 10%"),
    (0.05, 1.0, "Lightning", "unknown", "single long steps are not visible in this progress bar"),
    (0.05, 3.0, "Lightning", "warn", "every 25 steps, and cost 7%"),
    (30.0, 1.0, "Lightning", "pass", "about the same time"),
    (30.0, 1.5, "Lightning", "warn", "took longer, every 25 steps, and cost 2%"),
]


@pytest.mark.parametrize(("pace", "longer", "framework", "status", "words"), BARS)
def test_a_progress_bar_shows_averages(
    pace: float, longer: float, framework: str, status: str, words: str, tmp_path: Path
) -> None:
    """A moving average, or the mean since the start, would hide or smear steps that recur."""
    text = bar([pace * (longer if number % 25 == 0 else 1) for number in range(1, 401)], framework)
    path = tmp_path / "job.log"
    path.write_bytes(text.encode())
    (part,) = [part for part in recognition.read(InputSource("job.log", path)) if part.kind == "training log"]
    for results in (steps_of(text), [(item["status"], item["message"]) for item in part.findings]):
        ((result, message),) = results
        assert (result, words in message) == (status, True), message


@pytest.mark.parametrize(("longer", "status"), [(1.0, "pass"), (3.0, "warn")])
def test_a_progress_bar_without_a_loss_is_read(longer: float, status: str) -> None:
    text = bar([1.2 * (longer if number % 25 == 0 else 1) for number in range(1, 401)], losses=0)
    pasted = [item["status"] for part in read_text(text, "p") for item in part.findings]
    assert (statuses(text), set(pasted)) == ({status}, {status})
    for other in ("Loading checkpoint shards: ", "Tokenising: "):
        assert not steps_of(text.replace("\r", f"\r{other}"))
    assert not read_text(text.replace("\r", "\rLoading checkpoint shards: "), "p")
    assert not steps_of(bar([1.2] * 4, losses=0))
