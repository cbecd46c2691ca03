"""Metrics of serving engines, pasted and as logs: healthy and overloaded ones, of each engine; made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from preflight.parsers.training import serving_metrics
from preflight.recognition import read_text
from preflight.textprep.numbered_text import NumberedText
from tests.support.engine_metrics import HISTOGRAMS, NUMBERS, EngineLoad, text

SPLIT = {"first_token": 0.35, "queue": 0.01, "prefill": 0.25, "transfer": 0.02, "transfer_bytes": 2.5e8}


def read(pasted: str) -> tuple[Any, Mapping[str, str]]:
    """Return the only part of a pasted text, and the status of each finding."""
    (part,) = read_text(pasted, "p")
    assert part.kind == "serving metrics"
    return part.taken.facts, {finding["check"]: finding["status"] for finding in part.findings}


@pytest.mark.parametrize("engine", NUMBERS)
def test_all_values_of_an_engine_are_read(engine: str) -> None:
    part, _ = read(text(engine, EngineLoad(waiting=3, preemptions=1, failed_transfers=2, means=SPLIT)))
    (scrape,) = part["scrapes"]
    expected = {
        "running": 12,
        "waiting": 3,
        "cache_used": 0.4,
        "preemptions": 1,
        "finished": 400,
        "failed_transfers": 2,
    }
    assert {name: scrape[name] for name in expected} == {
        name: value if name in NUMBERS[engine] else None for name, value in expected.items()
    }
    for name, mean in SPLIT.items():
        if name in HISTOGRAMS[engine]:
            assert scrape[name]["count"] == 400
            assert scrape[name]["mean"] == pytest.approx(mean)
            low, high = scrape[name]["p99_between"]
            assert low < mean <= high
        else:
            assert scrape[name] is None
    assert part["models"] == ["acme/lark-70b"]


@pytest.mark.parametrize(("engine", "expected"), [
    ("vllm", {"serving.first-token": "pass", "serving.queue": "pass", "serving.cache": "pass"}),
    ("sglang", {"serving.first-token": "unknown", "serving.queue": "pass", "serving.cache": "pass"}),
    ("trtllm", {"serving.first-token": "unknown", "serving.queue": "pass", "serving.cache": "pass"}),
    ("dynamo", {"serving.first-token": "unknown", "serving.queue": "pass", "serving.cache": "unknown"}),
])  # fmt: skip
def test_a_healthy_engine(engine: str, expected: Mapping[str, str]) -> None:
    assert read(text(engine, EngineLoad()))[1] == expected


@pytest.mark.parametrize(("engine", "load", "check", "status"), [
    ("vllm", EngineLoad(means={"first_token": 1.9, "queue": 1.5, "prefill": 0.3}), "serving.first-token", "warn"),
    ("sglang", EngineLoad(means={"first_token": 1.9, "queue": 1.5}), "serving.first-token", "warn"),
    ("trtllm", EngineLoad(means={"first_token": 1.9, "queue": 1.5}), "serving.first-token", "warn"),
    ("vllm", EngineLoad(means={"first_token": 1.0, "queue": 0.1, "prefill": 0.2}), "serving.first-token", "warn"),
    ("vllm", EngineLoad(finished=19), "serving.first-token", "unknown"),
    ("vllm", EngineLoad(waiting=12), "serving.queue", "warn"),
    ("sglang", EngineLoad(waiting=40), "serving.queue", "warn"),
    ("dynamo", EngineLoad(waiting=40), "serving.queue", "warn"),
    ("trtllm", EngineLoad(waiting=3), "serving.queue", "unknown"),
    ("vllm", EngineLoad(cache_used=0.97), "serving.cache", "pass"),
    ("vllm", EngineLoad(cache_used=0.97, waiting=4), "serving.cache", "warn"),
    ("trtllm", EngineLoad(cache_used=0.97), "serving.cache", "unknown"),
    ("vllm", EngineLoad(preemptions=4), "serving.cache", "pass"),
    ("vllm", EngineLoad(preemptions=5), "serving.cache", "warn"),
    ("sglang", EngineLoad(preemptions=50), "serving.cache", "warn"),
    ("vllm", EngineLoad(means=SPLIT), "serving.kv-transfer", "pass"),
    ("sglang", EngineLoad(means=SPLIT), "serving.kv-transfer", "pass"),
    ("vllm", EngineLoad(means={**SPLIT, "transfer": 0.1}), "serving.kv-transfer", "warn"),
    ("vllm", EngineLoad(means=SPLIT, late={"transfer": 0.2}), "serving.kv-transfer", "pass"),
    ("vllm", EngineLoad(means={**SPLIT, "transfer": 0.001}, late={"transfer": 0.4}), "serving.kv-transfer", "warn"),
    ("sglang", EngineLoad(means=SPLIT, failed_transfers=1), "serving.kv-transfer", "warn"),
    ("vllm", EngineLoad(means=SPLIT, finished=5), "serving.kv-transfer", "unknown"),
])  # fmt: skip
def test_a_fault_is_named_by_its_check_alone(engine: str, load: EngineLoad, check: str, status: str) -> None:
    statuses = read(text(engine, load))[1]
    assert statuses[check] == status
    beside = {"serving.queue"} if load.waiting else {"serving.first-token", "serving.kv-transfer"}
    assert not [name for name, other in statuses.items() if other == "warn" and name != check and name not in beside]


def test_of_several_scrapes_the_time_between_them_counts() -> None:
    """An overload before the first scrape is over."""
    before = EngineLoad(preemptions=90, finished=400, means={"first_token": 1.9, "queue": 1.5, "prefill": 0.3})
    after = EngineLoad(preemptions=90, finished=4000, means={"first_token": 0.505, "queue": 0.16, "prefill": 0.3})
    scrapes = text("vllm", before) + text("vllm", after)
    assert read(scrapes)[1] == {"serving.first-token": "pass", "serving.queue": "pass", "serving.cache": "pass"}
    assert read(text("vllm", before))[1]["serving.cache"] == "warn"


@pytest.mark.parametrize(("waiting", "status"), [((0, 5, 0), "pass"), ((1, 5, 0), "warn"), ((0, 0, 0, 9), "pass")])
def test_how_often_requests_wait(waiting: tuple[int, ...], status: str) -> None:
    scrapes = "".join(text("vllm", EngineLoad(waiting=count, running=20)) for count in waiting)
    assert read(scrapes)[1]["serving.queue"] == status


def test_a_restart_between_two_scrapes() -> None:
    scrapes = text("vllm", EngineLoad(finished=4000, preemptions=80)) + text("vllm", EngineLoad(finished=100))
    assert read(scrapes)[1]["serving.cache"] == "pass"


def test_engines_of_one_server_are_added_up() -> None:
    first, second = EngineLoad(waiting=2, cache_used=0.2), EngineLoad(waiting=1, cache_used=0.95)
    both = text("vllm", first) + text("vllm", second).replace('engine="0"', 'engine="1"')
    (scrape,) = read(both)[0]["scrapes"]
    assert (scrape["running"], scrape["waiting"], scrape["cache_used"]) == (24, 3, 0.95)
    assert scrape["first_token"]["count"] == 800


def test_older_names_and_other_metrics() -> None:
    pasted = (
        'process_cpu_seconds_total 12.5\nvllm:gpu_cache_usage_perc{model_name="m"} 0.5\npython_info{version="3"} 1\n'
    )
    (scrape,) = read(pasted)[0]["scrapes"]
    assert scrape["cache_used"] == 0.5
    metrics = serving_metrics.parse(NumberedText("trtllm:request_queue_time_seconds_count 30\n"
                                                 "trtllm:request_queue_time_seconds_sum 3\n"))  # fmt: skip
    assert metrics is not None
    assert metrics.scrapes[0].queue is not None
    assert metrics.scrapes[0].queue.mean == pytest.approx(0.1)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1e400", "abc", ""])
def test_values_that_are_no_number(value: str) -> None:
    pasted = f'vllm:num_requests_running{{engine="0"}} 3.0\nvllm:num_requests_waiting{{engine="0"}} {value}\n'
    part, statuses = read(pasted)
    assert part["scrapes"][0]["waiting"] is None
    assert statuses["serving.queue"] == "unknown"


def test_metrics_of_another_program_are_none_of_an_engine() -> None:
    assert serving_metrics.parse(NumberedText("node_load1 0.5\n# HELP up vllm:\n")) is None
