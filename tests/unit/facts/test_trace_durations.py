"""Durations of collectives are pooled over similar process groups, and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from preflight.checks import registry
from preflight.checks.job.torch_collectives import collective_times
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.facts.job import RunFacts
from preflight.judge import judge
from tests.support.kineto_trace import ALL_REDUCE, event

Groups = Mapping[str, tuple[float, ...]]  # description: duration of each collective in milliseconds
_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def text(rank: int, groups: Groups, *, world: int = 2, kind: str = "allreduce", wait_ms: float = 0.0) -> str:
    """Write a trace of collectives of one size; a rank waits ``wait_ms`` in every tenth of them."""
    events = []
    for number, (description, durations) in enumerate(groups.items()):
        args = {"Collective name": kind, "In msg nelems": 1 << 20, "dtype": "BFloat16", "stream": 20 + number,
                "Process Group Name": str(number), "Process Group Description": description,
                "Process Group Ranks": str(list(range(world))), "Group size": world}  # fmt: skip
        name = _SEND_RECV if kind in ("send", "recv") else ALL_REDUCE
        for at, duration in enumerate(durations):
            waits = wait_ms if at % 10 == 0 else 0.0
            begin = 1000.0 * number + 8.0 * at - waits
            events.append(event("kernel", name, begin, duration + waits, device=0, **args))
    about = {"backend": "nccl", "rank": rank, "world_size": world}
    return json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": events})


def run_of(*texts: str) -> Evidence:
    records = {f"log:rank{rank}.json": {"status": "ok", "out": each} for rank, each in enumerate(texts)}
    return Evidence("@run", "", records)


def statuses(*texts: str) -> list[str]:
    findings = collective_times.run(RunFacts(run_of(*texts)), Cluster().run_site([]))
    return [str(finding.status) for finding in findings]


def test_groups_within_and_between_nodes_are_judged_separately() -> None:
    groups = {"TENSOR_MODEL_PARALLEL_GROUP": (0.1,) * 110, "DATA_PARALLEL_GROUP": (1.0,) * 110}
    assert statuses(text(0, groups), text(1, groups)) == ["pass", "pass"]
    assert statuses(text(0, groups)) == ["pass", "pass"]


def test_a_tail_in_one_of_two_groups_warns() -> None:
    groups = {"TENSOR_MODEL_PARALLEL_GROUP": (*(0.1,) * 105, *(0.5,) * 5), "DATA_PARALLEL_GROUP": (1.0,) * 110}
    assert statuses(text(0, groups), text(1, groups)) == ["warn", "pass"]


@pytest.mark.parametrize(("late", "expected"), [(0, "pass"), (2, "warn")])
def test_one_collective_in_a_thousand(late: int, expected: str) -> None:
    groups = {"DATA_PARALLEL_GROUP": (*(0.1,) * 1000, *(2.0,) * late)}
    assert statuses(text(0, groups), text(1, groups)) == [expected]


def test_a_tail_that_may_be_waiting_is_unknown() -> None:
    groups = {"DATA_PARALLEL_GROUP": (0.1,) * 110}
    late = text(0, groups, wait_ms=2.0)
    assert statuses(late) == ["unknown"]
    assert statuses(late, text(1, groups)) == ["pass"]
    assert statuses(text(0, groups, world=3, wait_ms=2.0), text(1, groups, world=3, wait_ms=2.0)) == ["unknown"]


def bubbles(description: str) -> list[str]:
    texts = [text(rank, {description: (0.1,) * 4}, kind=kind) for rank, kind in enumerate(("send", "recv"))]
    checks = [check for check in registry().checks if check.id == "torch.bubble"]
    return [finding["status"] for finding in judge([], checks, run=run_of(*texts))["findings"]]


def test_messages_of_context_parallelism_are_not_a_pipeline() -> None:
    assert bubbles("CONTEXT_PARALLEL_GROUP") == ["skip"]
    assert bubbles("PIPELINE_MODEL_PARALLEL_GROUP") == ["unknown"]
    assert bubbles("") == ["unknown"]
