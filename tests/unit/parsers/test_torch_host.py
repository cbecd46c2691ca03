"""The CPU of a rank in a trace: pauses and their function; matrix products; buckets; memory; hostile values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.parsers import torch
from preflight.parsers.torch import json_stream
from preflight.parsers.torch.host_activity import CudaMemory, HostActivity
from preflight.parsers.torch.matrix_products import MatrixProducts
from preflight.parsers.torch.trace_events import NO_ARGUMENTS, Arguments, event_of
from tests.support.kineto_trace import event, trace


def facts_of(text: str) -> dict[str, Any]:
    parsed = torch.parse(text).trace
    assert parsed is not None
    return parsed.document


def test_the_innermost_function_of_a_pause_is_named() -> None:
    host = HostActivity()
    for at in range(100):
        if not 40 <= at < 70:
            host.ran(at * 1000.0, at * 1000.0 + 900)
    host.function("train.py(10): main", 0, 100_000)
    host.function("logging/__init__.py(1100): flush", 39_000, 32_000)
    host.function("short", 50_000, 100)
    pauses = host.pauses([(0.0, 100_000.0)], ())
    assert pauses
    (pause,) = pauses
    assert pause.length_us == pytest.approx(30_000, abs=1000)
    assert pause.function == "logging/__init__.py(1100): flush"


def test_what_waits_for_data_is_no_pause() -> None:
    host = HostActivity()
    host.ran(0.0, 500.0)
    pauses = host.pauses([(0.0, 50_000.0)], [(1000.0, 50_000.0)])
    assert pauses
    (pause,) = pauses
    assert pause.length_us == 0
    assert HostActivity().pauses([(0.0, 1.0)], ()) is None


@pytest.mark.parametrize(("name", "dims", "operations"), [
    ("aten::mm", [[4096, 8192], [8192, 2048]], 2 * 4096 * 8192 * 2048),
    ("aten::addmm", [[2048], [4096, 8192], [8192, 2048]], 2 * 4096 * 8192 * 2048),
    ("aten::bmm", [[8, 4096, 1024], [8, 1024, 4096]], 2 * 8 * 4096 * 1024 * 4096),
])  # fmt: skip
def test_the_operations_of_a_product(name: str, dims: list[list[int]], operations: float) -> None:
    products = MatrixProducts()
    for number in range(3):
        products.called(name, Arguments(external_id=number, shapes=dims, types=["c10::BFloat16"] * len(dims)))
        products.ran(number, 500.0)
    largest = products.largest()
    assert largest is not None
    assert largest["operations"] == operations
    assert largest["flops"] == pytest.approx(operations / 500e-6, rel=1e-6)


@pytest.mark.parametrize("dims", [None, [], [[1, 2]], [["a"], ["b"]], [[4096, 4096], [4096]], [[4096, 16], [16, 4096]],
                                  [[1 << 40, 1 << 40], [1 << 40, 1 << 40]]])  # fmt: skip
def test_what_is_no_large_product(dims: Any) -> None:
    products = MatrixProducts()
    for number in range(3):
        products.called("aten::mm", Arguments(external_id=number, shapes=dims, types=["c10::Half"] * 2))
        products.ran(number, 500.0)
    assert products.largest() is None


@pytest.mark.parametrize("args", [
    {}, {"Device Type": 1}, {"Device Type": 0, "Device Id": 0, "Total Reserved": 5},
    {"Device Type": 1, "Device Id": 0, "Total Reserved": 5, "Total Allocated": 9},
    {"Device Type": 1, "Device Id": -1, "Total Reserved": 9, "Total Allocated": 5},
    {"Device Type": 1, "Device Id": 0, "Total Reserved": "9", "Total Allocated": 5},
])  # fmt: skip
def test_what_is_no_total_of_memory(args: dict[str, Any]) -> None:
    memory = CudaMemory()
    memory.add(event_of({"ph": "i", "args": args}).arguments or NO_ARGUMENTS)
    assert memory.document() == []


@pytest.mark.parametrize("number", [1 << 70, -5, 1.5, "7", None, [1]])
def test_numbers_of_launches_that_no_profiler_writes(number: Any) -> None:
    made = [
        event("user_annotation", "ProfilerStep#1", 0, 10),
        event("cuda_runtime", "cudaLaunchKernel", 0, 1, correlation=number),
        event("cuda_runtime", "cudaMemcpyAsync", 0, 1, correlation=number),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1, 1, correlation=number, device=0),
        event("kernel", "vectorized", 2, 1, correlation=number, device=0),
    ]
    assert facts_of(json.dumps({"traceEvents": made}))["gpu"]["kernels"] == 1


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_events_that_are_decoded_together_are_those_that_are_decoded_alone(
    monkeypatch: pytest.MonkeyPatch, indent: int | None
) -> None:
    """For any layout of the file: a value may contain text that looks like the start of an event."""
    raw = json.loads(trace(steps=6, items=2, pageable_ms=1))
    raw["traceEvents"].insert(3, {"ph": "X", "cat": "cpu_op", "name": '}, {"ph": "X"', "ts": 1e6, "dur": 1, "args": {
        "nested": [{"ph": "X", "cat": "kernel", "name": "no kernel", "ts": 1e6, "dur": 1}]}})  # fmt: skip
    text = json.dumps(raw, indent=indent)
    together = facts_of(text)
    for size in (50, 300, 1000):
        monkeypatch.setattr(json_stream, "CHUNK", size)
        assert facts_of(text) == together
    monkeypatch.setattr(json_stream.Values, "_batch", lambda values: [])
    assert facts_of(text) == together
