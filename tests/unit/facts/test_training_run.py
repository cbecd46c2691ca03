"""Step lines of job logs, through ``--log`` and ``read``; slow steps, drift and scaling."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.facts.step_times import drift, slow_steps
from preflight.judge import judge
from preflight.parsers.training.iteration_log import TrainingStep
from preflight.recognition import read_text
from tests.support.step_lines import FORMS, jittered, log

CHECKS = [check for check in registry().checks if check.id in ("torch.steps", "job.scaling")]


def judged(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    records = {f"log:{name}": {"status": "ok", "out": text} for name, text in texts.items()}
    results: list[dict[str, Any]] = judge([], CHECKS, run=Evidence("@run", "", records))["findings"]
    return results


def steps_of(text: str) -> list[tuple[str, str]]:
    """Return (status, message) of the findings of the steps in a log."""
    results = [(item["status"], item["message"].removeprefix("job.log: ")) for item in judged({"job.log": text})]
    return [item for item in results if "is logged" not in item[1]]


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
    assert (status, message) == ("pass", "199 steps take about the same time: 4,000 tokens/s, MFU 32 %")
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
            "but for 1 with more than twice",
        ),  # a checkpoint: 0.4 % of the time
        ([1.0] * 20 + [4.0] + [1.0] * 20, "warn", "took more than twice the median"),
        ([1.0, 1.5, 0.6, 1.3, 0.8, 1.45, 0.7, 1.2, 0.55, 1.4] * 4, "unknown", "differ"),  # sequences of all lengths
        ([3.0, 2.0, 1.5, 1.2, 1.1] + [1.0] * 60, "pass", "about the same"),  # it warms up
        ([1.0] * 30 + [1.7] * 30, "warn", "from step 31 on"),
        (
            [1.0] * 20 + [1.3] * 20 + [1.0] * 40,
            "warn",
            "20 of 80 steps took longer, from step 21 to 40",
        ),  # it recovered
        ([1.0, 1.4] * 30, "unknown", "differ"),
    ],
)
def test_shapes_of_step_times(times: list[float], status: str, words: str) -> None:
    results = steps_of(log([5.0, *times], first=0))
    assert {item for item, _ in results} == {status}, results
    assert words in results[0][1]


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
    assert (results, f"{rate:.0%} of the throughput per GPU" in message) == (status, True), message


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
