"""Metrics of serving engines, pasted and as logs: healthy and overloaded ones of each engine; made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from preflight.checks.job import serving
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
    ("dynamo", EngineLoad(until_first_token=40), "serving.queue", "unknown"),
    ("trtllm", EngineLoad(waiting=3), "serving.queue", "unknown"),
    ("sglang", EngineLoad(waiting=1, means={"first_token": 0.35}), "serving.queue", "pass"),
    ("sglang", EngineLoad(waiting=3, running=60, means={"first_token": 0.35}), "serving.queue", "pass"),
    ("sglang", EngineLoad(waiting=4, running=60, means={"first_token": 0.35}), "serving.queue", "unknown"),
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
    ("vllm", EngineLoad(saved_bytes=6e11, loaded_bytes=2e11, loaded_s=9.0), "serving.offload", "pass"),
    ("vllm", EngineLoad(saved_bytes=6e11, loaded_bytes=2e11, loaded_s=60.0), "serving.offload", "warn"),
    ("vllm", EngineLoad(saved_bytes=6e11, loaded_bytes=0.0, loaded_s=0.0), "serving.offload", "unknown"),
    ("vllm", EngineLoad(saved_bytes=1e6, loaded_bytes=0.0, loaded_s=0.0), "serving.offload", "pass"),
    ("vllm", EngineLoad(saved_bytes=6e11, loaded_bytes=2e11, loaded_s=9.0, finished=9), "serving.offload", "unknown"),
    ("vllm", EngineLoad(saved_bytes=6e11, loaded_bytes=2e11), "serving.offload", "unknown"),
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


@pytest.mark.parametrize(("queue", "first", "both"), [(0.01, "unknown", "pass"), (0.1, "unknown", "unknown"),
                                                   (1.5, "warn", "warn")])  # fmt: skip
def test_how_long_requests_wait(queue: float, first: str, both: str) -> None:
    """The mean since the start is that of the past; the mean between two scrapes is that of the present."""
    means = {"first_token": queue + 0.34, "queue": queue, "prefill": 0.3}
    scrapes = [text("vllm", EngineLoad(waiting=5, running=40, finished=400 * n, means=means)) for n in (1, 2)]
    assert (read(scrapes[0])[1]["serving.queue"], read("".join(scrapes))[1]["serving.queue"]) == (first, both)


def test_a_restart_between_two_scrapes() -> None:
    scrapes = text("vllm", EngineLoad(finished=4000, preemptions=80)) + text("vllm", EngineLoad(finished=100))
    assert read(scrapes)[1]["serving.cache"] == "pass"


def test_engines_of_one_server_are_added_up() -> None:
    first, second = EngineLoad(waiting=2, cache_used=0.2), EngineLoad(waiting=1, cache_used=0.95)
    both = text("vllm", first) + text("vllm", second).replace('engine="0"', 'engine="1"')
    (scrape,) = read(both)[0]["scrapes"]
    assert (scrape["running"], scrape["waiting"], scrape["cache_used"]) == (24, 3, 0.95)
    assert scrape["first_token"]["count"] == 800


def heron(engine: int = 0, model: str = "acme/heron-3b") -> str:
    """Return the labels of a vLLM engine."""
    return f'engine="{engine}",model_name="{model}"'


def messages(pasted: str, check: str) -> list[tuple[str, str]]:
    """Return status and message of a check's findings."""
    (part,) = read_text(pasted, "p")
    return [(str(item["status"]), str(item["message"])) for item in part.findings if item["check"] == check]


BUSY = {"first_token": 0.4, "queue": 0.009, "prefill": 0.35, "next_token": 0.03}


def test_a_wait_for_the_next_step_is_no_queue() -> None:
    """Under full load some requests always wait for their next step."""
    loads = [EngineLoad(running=260, waiting=w, finished=900 * n, means=BUSY) for n, w in enumerate((1, 2, 1, 3), 1)]
    assert read("".join(text("vllm", load) for load in loads))[1]["serving.queue"] == "pass"
    stuck = [EngineLoad(running=8, waiting=40, finished=900 * n, means=BUSY) for n in (1, 2, 3)]
    assert read("".join(text("vllm", load) for load in stuck))[1]["serving.queue"] == "warn"
    long = [EngineLoad(running=80, waiting=9, finished=900 * n, means={**BUSY, "queue": 0.3}) for n in (1, 2, 3)]
    assert read("".join(text("vllm", load) for load in long))[1]["serving.queue"] == "warn"


def test_a_first_token_of_one_step_is_no_queue() -> None:
    small = {"first_token": 0.018, "queue": 0.010, "prefill": 0.007, "next_token": 0.015}
    assert read(text("vllm", EngineLoad(means=small)))[1]["serving.first-token"] == "pass"
    slow = {**small, "first_token": 0.18, "queue": 0.16}
    assert read(text("vllm", EngineLoad(means=slow)))[1]["serving.first-token"] == "warn"


def test_a_decode_worker_waits_for_caches_by_design() -> None:
    """Its prefill is one step; its first token is the transfer of a KV cache, and a step."""
    means = {"first_token": 0.030, "queue": 0.016, "prefill": 0.015, "next_token": 0.014, "transfer": 0.012,
             "transfer_bytes": 2.5e8}  # fmt: skip
    statuses = read(text("vllm", EngineLoad(means=means)))[1]
    assert (statuses["serving.first-token"], statuses["serving.kv-transfer"]) == ("pass", "unknown")
    both = text("vllm", EngineLoad(means={**means, "first_token": 0.6, "prefill": 0.35, "transfer": 0.2}))
    assert read(both)[1]["serving.kv-transfer"] == "warn"


def test_a_late_transfer_of_a_large_cache_is_not_late() -> None:
    means, late = {**SPLIT, "transfer": 0.002, "transfer_bytes": 4e7}, {"transfer": 0.4}
    pasted = text("vllm", EngineLoad(means=means, late=late, finished=4000))
    assert read(pasted)[1]["serving.kv-transfer"] == "warn"
    pasted = text("vllm", EngineLoad(means=means, late={**late, "transfer_bytes": 9e9}, finished=4000))
    assert read(pasted)[1]["serving.kv-transfer"] == "pass"


def test_few_lost_transfers_among_many() -> None:
    """Clients that disconnect leave caches that no worker takes."""
    assert read(text("vllm", EngineLoad(means=SPLIT, finished=40_000, failed_transfers=20)))[1][
        "serving.kv-transfer"] == "pass"  # fmt: skip


def test_the_overloaded_one_of_several_engines_is_named() -> None:
    """A mean over all engines, models or replicas would hide it."""
    quick = EngineLoad(finished=10_000, means={"first_token": 0.1, "queue": 0.001, "prefill": 0.095})
    slow = EngineLoad(finished=100, means={"first_token": 5.0, "queue": 4.5, "prefill": 0.4})
    two = text("vllm", quick, heron(model="acme/wren-1b")) + text("vllm", slow, heron())
    ((status, message),) = messages(two, "serving.first-token")
    assert status == "warn"
    assert message.startswith("vLLM, model acme/heron-3b: the first token takes 5.00 s")

    loads = [EngineLoad(finished=2000)] * 5 + [EngineLoad(finished=100, preemptions=40)] + [EngineLoad(finished=2000)]
    eight = "".join(text("vllm", load, heron(number)) for number, load in enumerate(loads))
    assert [message.partition(":")[0] for _, message in messages(eight, "serving.cache")] == ["vLLM, engine 5"]
    waiting = "".join(text("vllm", EngineLoad(waiting=40 * (n == 2)), heron(n)) for n in range(8))
    assert messages(waiting, "serving.queue") == [("warn", "vLLM, engine 2: 40 requests wait and 12 run")]
    # one engine has no room, and another one queues: neither waits for the cache
    apart = text("vllm", EngineLoad(cache_used=0.95), heron(0)) + text("vllm", EngineLoad(waiting=1), heron(1))
    assert [status for status, _ in messages(apart, "serving.cache")] == ["pass", "pass"]


def test_the_start_of_a_process_identifies_a_replica() -> None:
    replicas = [EngineLoad(finished=9000, started=1e9), EngineLoad(finished=9500, preemptions=400, started=1.1e9)]
    ((status, message),) = messages("".join(text("vllm", load) for load in replicas), "serving.cache")
    assert (status, message.partition(":")[0]) == ("warn", "vLLM, process 2")


def test_ranks_of_one_engine_are_not_added_up() -> None:
    ranks = "".join(text("sglang", EngineLoad(waiting=2), f'model_name="m",tp_rank="{rank}"') for rank in range(8))
    (scrape,) = read(ranks)[0]["scrapes"]
    assert (scrape["running"], scrape["waiting"]) == (12, 2)


def test_what_is_not_counted_is_not_judged() -> None:
    """No request between the scrapes, no number of running requests, one preemption while requests run."""
    load = EngineLoad(finished=400, means={"first_token": 9.0, "queue": 8.0, "prefill": 0.9})
    assert read(text("vllm", load) * 2)[1]["serving.first-token"] == "unknown"
    pasted = 'vllm:num_requests_waiting{engine="0"} 2.0\nvllm:num_preemptions_total{engine="0"} 7.0\n'
    statuses = read(pasted)[1]
    assert (statuses["serving.queue"], statuses["serving.cache"]) == ("unknown", "unknown")
    during = text("vllm", EngineLoad(running=200, preemptions=5)) + text("vllm", EngineLoad(running=200, preemptions=6))
    assert read(during)[1]["serving.cache"] == "pass"


def test_growth_over_two_restarts() -> None:
    """A counter that restarted twice grew by more than its last value."""
    loads = [EngineLoad(finished=f, preemptions=p) for f, p in ((900, 0), (1000, 40), (100, 0), (20, 0), (60, 0))]
    assert read("".join(text("vllm", load) for load in loads))[1]["serving.cache"] == "warn"


def test_a_part_of_a_long_text_is_not_judged() -> None:
    text_ = NumberedText(text("vllm", EngineLoad()), range(1, text("vllm", EngineLoad()).count("\n") + 2))
    metrics = serving_metrics.parse(text_)
    assert metrics is not None
    assert [finding.status.value for finding in serving.judge_queue(metrics, ["log:m"])] == ["unknown"]


@pytest.mark.parametrize("value", ["1.2.3", "-5", "1e308", "9" * 40, "1e16"])
def test_values_that_cannot_be(value: str) -> None:
    pasted = "".join(f'vllm:num_requests_waiting{{engine="{n}"}} {value}\n' for n in range(2))
    assert read(f'vllm:num_requests_running{{engine="0"}} 3.0\n{pasted}')[1]["serving.queue"] == "unknown"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("value", ["45.0", "1.2", "-0.1", "NaN", "+Inf"])
def test_a_use_of_the_cache_that_is_not_a_share_is_unknown(engine: str, value: str) -> None:
    """One engine of the text reports per cent, or nothing: it is not ignored."""
    names = {"vllm": "vllm:kv_cache_usage_perc", "sglang": "sglang:token_usage"}
    line = next(line for line in text(engine, EngineLoad()).splitlines() if line.startswith(f"{names[engine]}{{"))
    pasted = text(engine, EngineLoad()).replace(line, f"{line.rsplit(' ', 1)[0]} {value}")
    assert read(pasted)[1]["serving.cache"] == "unknown"


@pytest.mark.parametrize("value", ["1e16", "-3.0", "NaN"])
def test_preemptions_that_cannot_be_are_unknown(value: str) -> None:
    pasted = text("vllm", EngineLoad()).replace(
        "} 0.0\n# HELP vllm:request_success", f"}} {value}\n# HELP vllm:request_success"
    )
    assert value in pasted
    assert read(pasted)[1]["serving.cache"] == "unknown"


def test_loads_count_between_scrapes() -> None:
    """Loads before the first scrape were slow; since then they are fast."""
    loads = (EngineLoad(saved_bytes=6e11, loaded_bytes=2e11, loaded_s=100.0),
             EngineLoad(saved_bytes=9e11, loaded_bytes=4e11, loaded_s=108.0, finished=800))  # fmt: skip
    assert read("".join(text("vllm", load) for load in loads))[1]["serving.offload"] == "pass"


def test_exemplars_of_openmetrics() -> None:
    pasted = text("vllm", EngineLoad()).replace('le="0.5"} 400.0', 'le="0.5"} 400.0 # {trace_id="a1"} 0.39 1.7e9')
    assert read(pasted)[0]["scrapes"][0]["first_token"]["p50_between"] == (0.25, 0.5)


@pytest.mark.parametrize(
    ("pasted", "expected"),
    [
        ('ray_vllm_num_requests_running{WorkerId="a"} 9\nray_vllm_num_requests_waiting{WorkerId="a"} 0\n', (9, 0)),
        ('vllm:num_requests_running{engine="0"} 9\nvllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2'
         '\nvllm:num_requests_waiting_by_reason{engine="0",reason="deferred"} 4\n', (9, 6)),
        ('dynamo_frontend_active_requests 9\ndynamo_frontend_router_queue_pending_requests{worker_type="decode"} 5\n',
         (9, 5)),
    ],
)  # fmt: skip
def test_names_of_present_versions(pasted: str, expected: tuple[int, int]) -> None:
    (scrape,) = read(pasted)[0]["scrapes"]
    assert (scrape["running"], scrape["waiting"]) == expected


@pytest.mark.parametrize(("waiting", "status"), [(0, "pass"), (7, "unknown")])
def test_requests_before_their_first_token(waiting: int, status: str) -> None:
    """Stages of Dynamo's frontend: those after the first token do not count."""
    stages = {"preprocess": 0, "route": 0, "dispatch": waiting, "generate": 50}
    pasted = "".join(f'dynamo_frontend_stage_requests{{stage="{name}"}} {value}\n' for name, value in stages.items())
    part, statuses = read(f"dynamo_frontend_active_requests 57\n{pasted}")
    assert (part["scrapes"][0]["until_first_token"], statuses["serving.queue"]) == (waiting, status)


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


@pytest.mark.parametrize(
    ("waiting", "fraction", "expected"),
    [(0, 0.4, "pass pass"), (1, 0.4, "pass pass"), (3, 0.4, "unknown pass"), (15, 0.4, "warn pass"),
     (15, 0.95, "warn warn"), (0, 0.95, "pass unknown"), (None, 0.4, "unknown pass"), (0, None, "pass unknown")],
)  # fmt: skip
def test_metrics_of_triton(waiting: int | None, fraction: float | None, expected: str) -> None:
    """Other models of the server, and its own queue time, are not those of the engine."""
    labels = 'model="lark",version="1"'
    values = {
        'nv_inference_request_success{model="tokens",version="1"}': 480,
        'nv_inference_queue_duration_us{model="tokens",version="1"}': 7000,
        f'nv_trt_llm_request_metrics{{{labels},request_type="scheduled"}}': 12,
        f'nv_trt_llm_request_metrics{{{labels},request_type="max"}}': 96,
        f'nv_trt_llm_request_metrics{{{labels},request_type="waiting"}}': waiting,
        f'nv_trt_llm_kv_cache_block_metrics{{{labels},kv_cache_block_type="tokens_per"}}': 32,
        f'nv_trt_llm_kv_cache_block_metrics{{{labels},kv_cache_block_type="fraction"}}': fraction,
    }
    part, statuses = read("".join(f"{name} {value}\n" for name, value in values.items() if value is not None))
    assert part["program"] == "Triton"
    assert [statuses["serving.queue"], statuses["serving.cache"]] == expected.split()
    assert statuses["serving.first-token"] == "unknown"


def test_metrics_of_another_program_are_none_of_an_engine() -> None:
    assert serving_metrics.parse(NumberedText("node_load1 0.5\n# HELP up vllm:\n")) is None
