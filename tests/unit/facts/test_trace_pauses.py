"""The time of a pause belongs to the pause, on all ranks, and to no other finding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.judge import judge
from tests.support.kineto_trace import GEMM, event

NAMES = ("torch.pauses", "torch.data-loader", "torch.synchronisation", "torch.idle", "torch.steps")
CHECKS = [check for check in registry().checks if check.id in NAMES]
STEPS = 12


def text(rank: int, pauses: Mapping[int, float], at_the_end: bool) -> str:
    """Write a trace of steps of 10 ms; each copies its batch, computes, and reads its loss."""
    events, now = [], 0.0
    for number in range(STEPS):
        begin, pause = now, pauses.get(number, 0.0)
        now += 0.0 if at_the_end else pause
        first, second = 2 * number + 1, 2 * number + 2
        events += [
            event("cuda_runtime", "cudaMemcpyAsync", now, 0.01, correlation=first),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", now + 0.02, 0.2, device=0, correlation=first),
            event("cuda_runtime", "cudaLaunchKernel", now + 0.02, 0.01, correlation=second),
            event("kernel", GEMM, now + 0.22, 9.7, device=0, correlation=second),
            event("cuda_runtime", "cudaStreamSynchronize", now + 0.1, 9.85, correlation=90 + number),
            *(event("cpu_op", "aten::add", now + at, 0.9) for at in range(10)),
        ]
        now += 10.0 + (pause if at_the_end else 0.0)
        events.append(event("user_annotation", f"ProfilerStep#{number + 5}", begin, now - begin))
    about = {"backend": "nccl", "rank": rank, "world_size": 4}
    return json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": events})


def warned(of_ranks: Sequence[Mapping[int, float]], at_the_end: bool = False) -> list[tuple[str, str]]:
    """Return the check and the message of each finding that warns."""
    records: dict[str, Any] = {f"log:rank{rank}.json": {"status": "ok", "out": text(rank, pauses, at_the_end)}
                               for rank, pauses in enumerate(of_ranks)}  # fmt: skip
    report = judge([], CHECKS, run=Evidence("@run", "", records))
    return [(each["check"], each["message"]) for each in report["findings"] if each["status"] != "pass"]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_pause_of_all_ranks_is_one_finding(at_the_end: bool) -> None:
    """Some of the pauses are just below the limit of 5 ms, on some ranks."""
    pauses = [{2: 7.5 + rank / 2, 6: 9.0 - rank, 10: 6.5 + rank / 2} for rank in range(4)]
    ((check, message),) = warned(pauses, at_the_end)
    assert check == "torch.pauses"
    assert message.startswith("ranks 0 to 3: in 3 of 12 steps (steps 7, 11, 15), no thread runs an operator for up to ")


def test_a_pause_of_one_rank_names_it() -> None:
    ((check, message),) = warned([{}, {}, {4: 30.0}, {}])
    assert check == "torch.pauses"
    assert message.startswith("rank2.json (rank 2): in 1 of 12 steps (step 9)")


def test_even_steps_have_no_pause_and_loading_in_each_is_none() -> None:
    assert warned([{}] * 4) == []
    checks = {check for check, _ in warned([dict.fromkeys(range(STEPS), 8.0)])}
    assert checks == {"torch.data-loader", "torch.idle"}


def test_waiting_for_data_in_each_step_is_not_hidden_by_a_pause() -> None:
    checks = {check for check, _ in warned([{**dict.fromkeys(range(STEPS), 6.0), 5: 60.0}])}
    assert checks == {"torch.data-loader", "torch.idle", "torch.pauses"}
