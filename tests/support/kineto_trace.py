"""Traces of a GPU's training loop, made up in the format of PyTorch's profiler (Kineto, Chrome trace JSON).

The form is that of the recordings in ``tests/data/outside/torch`` (without a GPU) and, for kernels and CUDA calls, that
of Kineto's documentation. Times are given in milliseconds.
"""

from __future__ import annotations

import json
from typing import Any

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"


def event(kind: str, name: str, begin: float, length: float, **args: Any) -> dict[str, Any]:
    """Make a complete event; a kernel's stream is its thread."""
    gpu = kind == "kernel"
    return {
        "ph": "X", "cat": kind, "name": name, "pid": 0 if gpu else 4711, "tid": args.get("stream", 7) if gpu else 4711,
        "ts": 1_000_000.0 + begin * 1000, "dur": length * 1000, "args": args,
    }  # fmt: skip


def trace(
    steps: int = 6, *, rank: int = 0, backend: str = "nccl", step_ms: float = 100, compute_ms: float = 90,
    talk_at_ms: float = 40, talk_ms: float = 40, collectives: int = 1, last_ms: float | None = None,
    loader_ms: float | None = 1, items: int = 0, gpu: bool = True, lengths: tuple[float, ...] = (), mark: bool = True,
    backward: bool = True, optimizer_at_ms: float | None = None, item_ms: float = 0.4, gap_ms: float = 0,
    pageable_ms: float = 0, data_ms: float = 0,
) -> str:  # fmt: skip
    """Write a trace: each step computes from its start on, and communicates from ``talk_at_ms`` on.

    ``last_ms`` is the duration of the very last collective; ``lengths`` are those of the steps. The compute
    kernel belongs to the backward pass. ``gap_ms`` lies between two collectives; ``item_ms`` is how long the CPU waits
    in each .item(), 0 for a tensor on the CPU; ``pageable_ms`` is the length of a copy of pageable memory in each step;
    ``data_ms`` is how long the GPU waits for data.
    """
    events: list[dict[str, Any]] = []
    begin = 0.0
    for number in range(steps):
        length = lengths[number] if lengths else step_ms
        if mark:
            events.append(event("user_annotation", f"ProfilerStep#{number}", begin, length))
        if loader_ms is not None:
            name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            events.append(event("user_annotation", name, begin, loader_ms))
        if gpu:
            if backward:
                name = "autograd::engine::evaluate_function: AddmmBackward0"
                events.append(event("cpu_op", name, begin, 0.2))
            start, correlation = begin + data_ms, 1000 + number
            computes = min(compute_ms, begin + length - start)
            events.append(event("cuda_runtime", "cudaLaunchKernel", start + 0.1, 0.01, correlation=correlation))
            events.append(event("kernel", GEMM, start, computes, device=0, stream=7, correlation=correlation))
            if optimizer_at_ms is not None:
                at = begin + optimizer_at_ms
                events.append(event("user_annotation", "Optimizer.step#AdamW.step", begin + 1, 0.2))
                events.append(event("cuda_runtime", "cudaLaunchKernel", begin + 1.1, 0.01, correlation=2000 + number))
                events.append(event("kernel", "multi_tensor_apply_kernel", at, 1, device=0, correlation=2000 + number))
            if pageable_ms:
                copy = 3000 + number
                events.append(event("cuda_runtime", "cudaMemcpyAsync", begin + 2, pageable_ms, correlation=copy))
                events.append(
                    event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin + 2, 0.01, correlation=copy)
                )
        for one in range(collectives):
            each = talk_ms / collectives
            last = last_ms is not None and (number, one) == (steps - 1, collectives - 1)
            args = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 25_000_000, "Group size": 8}
            at, takes = begin + talk_at_ms + one * (each + gap_ms), last_ms if last and last_ms is not None else each
            if backend == "nccl":
                events.append(event("kernel", ALL_REDUCE, at, takes, device=0, stream=20, **args))
            else:
                events.append(event("user_annotation", f"{backend}:all_reduce", at, takes))
        for one in range(items):
            events.append(event("cpu_op", "aten::_local_scalar_dense", begin + 95 + one, 0.5))
            if item_ms:
                at = begin + 95 + one
                events.append(event("cuda_runtime", "cudaStreamSynchronize", at, item_ms, correlation=one))
        begin += length
    events.append(event("cuda_runtime", "cudaDeviceSynchronize", begin, 0.1, correlation=0))
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}] if gpu else [],
        "distributedInfo": {"backend": backend, "rank": rank, "world_size": 8},
    }
    return json.dumps({**head, "traceEvents": events}, separators=(",", ":"))
