"""The parts of a step's time add up to it, and idle time has the right cause."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.parsers import torch
from preflight.parsers.torch.gpu_work import COMMUNICATION, COMPUTE, COPY, COPY_TO_GPU, GpuWork
from preflight.parsers.torch.intervals import Spans, Stretches
from preflight.parsers.torch.step_budget import Activities, BusyTime, budget
from tests.support.kineto_trace import GEMM, event, trace

SPANS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 20)), max_size=8)


def joined(spans: list[tuple[int, int]]) -> Spans:
    stretches = Stretches()
    for begin, length in spans:
        stretches.add(begin, length)
    return stretches.joined()


@settings(max_examples=300, deadline=None)
@given(SPANS, SPANS, SPANS, SPANS, SPANS, st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120) | st.none(),
                                                             st.booleans()), max_size=9))  # fmt: skip
def test_the_parts_add_up(compute: Any, talk: Any, copies: Any, loads: Any, waits: Any, activities: Any) -> None:
    windows = [(0.0, 30.0), (30.0, 70.0), (80.0, 110.0)]
    work = GpuWork()
    for kind, spans in ((COMPUTE, compute), (COMMUNICATION, talk), (COPY, copies)):
        for begin, length in spans:
            work.add(begin, begin + length, None, kind)
    work.order()
    ordered = sorted(activities, key=lambda activity: activity[0])
    ran = Activities(
        [begin for begin, _, _ in ordered],
        [float("nan") if launch is None else launch for _, launch, _ in ordered],
        [COPY_TO_GPU if to_gpu else COPY for _, _, to_gpu in ordered],
    )
    parts = budget(windows, BusyTime(work), ran, joined(loads), joined(waits))
    assert parts.all == 100
    assert sum(parts[1:]) == pytest.approx(100)
    assert all(part >= -1e-9 for part in parts)


def shares_of(events: list[dict[str, Any]]) -> dict[str, float]:
    parsed = torch.parse(json.dumps({"traceEvents": events})).trace
    assert parsed is not None
    shares = parsed.document["gpu"]["budget"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    return {name: share for name, share in shares.items() if share}


def step(launch_ms: float, begin_ms: float, length_ms: float = 50, **more: Any) -> list[dict[str, Any]]:
    """Return a step of 100 ms with two kernels: one at its start, and one launched late."""
    return [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("cuda_runtime", "cudaLaunchKernel", 0, 0.01, correlation=1),
        event("kernel", GEMM, 0, 20, device=0, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", launch_ms, 0.01, correlation=2),
        event("kernel", GEMM, begin_ms, length_ms, device=0, correlation=2),
    ]


def test_the_cpu_launches_too_late() -> None:
    assert shares_of(step(49, 50)) == pytest.approx({"compute": 0.7, "idle_host": 0.2902, "idle_other": 0.0098})


def test_a_kernel_that_was_launched_starts_late() -> None:
    assert shares_of(step(10, 50)) == pytest.approx({"compute": 0.7, "idle_other": 0.3})


def test_the_cpu_waited_for_the_gpu() -> None:
    events = [*step(50, 50), event("cuda_runtime", "cudaStreamSynchronize", 5, 15.005, correlation=9)]
    assert shares_of(events) == pytest.approx({"compute": 0.7, "idle_sync": 0.3})


def test_the_data_came_late() -> None:
    loader = event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 20, 25)
    assert shares_of([*step(50, 50), loader]) == pytest.approx({"compute": 0.7, "idle_data": 0.25, "idle_host": 0.05})


def test_an_unnamed_loader_shows_by_the_copy_that_follows() -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100), event("user_annotation", "ProfilerStep#2", 100, 100),
        event("cuda_runtime", "cudaLaunchKernel", 0, 0.01, correlation=1),
        event("kernel", GEMM, 0, 100, device=0, correlation=1),
        event("cuda_runtime", "cudaMemcpyAsync", 160, 0.01, correlation=2),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 160, 10, device=0, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 165, 0.01, correlation=3),
        event("kernel", GEMM, 170, 30, device=0, correlation=3),
    ]  # fmt: skip
    assert shares_of(events) == pytest.approx({"compute": 0.65, "copies": 0.05, "idle_data": 0.3})
    # after a wait that ends with the last kernel, the CPU works for 60 ms
    events.append(event("cuda_runtime", "cudaStreamSynchronize", 20, 80, correlation=9))
    parts = {"compute": 0.65, "copies": 0.05, "idle_sync": 0.0001, "idle_data": 0.2999}
    assert shares_of(events) == pytest.approx(parts)


def test_the_first_copy_of_the_profile_waits_for_data() -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("cuda_runtime", "cudaMemcpyAsync", 40, 0.01, correlation=2),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 10, device=0, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 45, 0.01, correlation=3),
        event("kernel", GEMM, 50, 50, device=0, correlation=3),
    ]  # fmt: skip
    assert shares_of(events) == pytest.approx({"compute": 0.5, "copies": 0.1, "idle_data": 0.4})


def test_without_calls_of_the_cpu_the_cause_is_open() -> None:
    events = [made for made in step(50, 50) if made["cat"] != "cuda_runtime"]
    assert shares_of(events) == pytest.approx({"compute": 0.7, "idle_other": 0.3})


def test_without_steps_the_time_of_the_gpu_is_divided() -> None:
    assert shares_of([made for made in step(30, 30, 20) if "Profiler" not in made["name"]]) == pytest.approx(
        {"compute": 0.8, "idle_host": 0.2}
    )


def test_bare_communication_and_what_computation_hides() -> None:
    parsed = torch.parse(trace(compute_ms=70, talk_at_ms=60, talk_ms=20)).trace
    assert parsed is not None
    shares = parsed.document["gpu"]["budget"]
    assert (shares["compute"], shares["communication"]) == pytest.approx((0.7, 0.1))


def test_steps_that_overlap_by_a_rounding_error_all_count() -> None:
    raw = json.loads(trace(steps=6))
    for made in raw["traceEvents"]:
        made["dur"] += 0.001 if made["name"].startswith("ProfilerStep") else 0.0
    parsed = torch.parse(json.dumps(raw)).trace
    assert parsed is not None
    assert len(parsed.document["pauses"]) == 6
