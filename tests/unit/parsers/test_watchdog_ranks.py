"""Conclusions from the watchdog lines of some ranks: permuted, partial and interleaved logs."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.facts.job import RUN
from preflight.judge import findings

CHECKS = [check for check in registry().checks if check.id == "torch.hang"]
SIZE = "gpu001:9:9 [0] NCCL INFO comm 0x55d0c0a0 rank 0 nRanks {n} nNodes 1 localRanks {n} localRank 0 MNNVL 0\n"


def timeout(rank: int, seq: int = 216, op: str = "ALLREDUCE", numel: int = 32) -> str:
    return (
        f"[rank{rank}]:[E307 18:12:40.8 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for "
        "600031 milliseconds before timing out.\n"
    )


def progress(rank: int, at: int | None = 216, enqueued: int = 220, completed: int = 215, pg: str = "0") -> str:
    what = f"detected by watchdog at work: {at}, last" if at is not None else "Received a dump signal. Last"
    group = f"PG ID {pg} PG GUID {pg}({'default_pg' if pg == '0' else 'tp'}) Rank {rank}"
    return (
        f"[rank{rank}]:[E307 18:12:40.9 ProcessGroupNCCL.cpp:1785] [{group}] Exception {what} enqueued NCCL work: "
        f"{enqueued}, last completed NCCL work: {completed}.\n"
    )


def of(lines: list[str]) -> list[dict[str, Any]]:
    log = {"log:job.log": {"status": "ok", "out": "".join(lines)}}
    return [dict(one) for one in findings([], CHECKS, run=Evidence(RUN, "", log))]


def summaries(lines: list[str]) -> list[tuple[str, str, str]]:
    return sorted((one["status"], one["message"], one["fix"]) for one in of(lines))


LATE = [text for rank in (0, 1, 3) for text in (timeout(rank), progress(rank))] + [progress(2, None, 215, 215)]
UNEQUAL = [timeout(0), progress(0), timeout(1, op="BROADCAST"), progress(1), timeout(2, numel=64), progress(2)]
APART = [timeout(0, 5), timeout(1, 7), timeout(2, 7)]
PASSED = [timeout(0), progress(0), timeout(1, 230), progress(1, 230, 240, 229)]


@pytest.mark.parametrize("lines", [LATE, UNEQUAL, APART, PASSED], ids=["late", "unequal", "apart", "passed"])
def test_the_order_of_lines_changes_nothing(lines: list[str]) -> None:
    expected = summaries(lines)
    shuffle = random.Random(14)
    for _ in range(20):
        mixed = [*lines]
        shuffle.shuffle(mixed)
        assert summaries(mixed) == expected


@pytest.mark.parametrize("shown", list(itertools.combinations(range(8), 3))[::9], ids=str)
@pytest.mark.parametrize("size", [None, 8])
def test_three_of_eight_ranks_speak_for_three(shown: tuple[int, ...], size: int | None) -> None:
    lines = [text for rank in shown for text in (timeout(rank), progress(rank))]
    (one,) = of([SIZE.format(n=size)] * (size is not None) + lines)
    assert "all ranks" not in one["message"]
    assert "all ranks with dumps" not in one["message"]
    assert "of 3 ranks that the text shows" in one["message"]
    assert "has not reached" not in one["message"]
    assert ("no dump or log of rank" in one["message"]) == (size is not None)
    assert not one["fix"].startswith("Check that rank")


def test_a_rank_is_blamed_only_where_all_are_shown() -> None:
    (finding,) = of([SIZE.format(n=4), *LATE])
    assert (finding["status"], finding["fix"].startswith("Check that rank first")) == ("fail", True)
    assert "rank 2 has not reached it" in finding["message"]
    for lines in (LATE, [SIZE.format(n=8), *LATE]):
        (some,) = of(lines)
        assert "there may be more" in some["message"]
        assert some["fix"].startswith("Pass the logs or dumps of all ranks")


def test_ranks_that_disagree_are_all_quoted_and_none_stands_for_the_others() -> None:
    (one,) = of(UNEQUAL)
    assert "(ALLREDUCE)" not in one["message"]
    for text in ("rank 0 called ALLREDUCE of 32 elements", "rank 1 called BROADCAST", "rank 2 called ALLREDUCE of 64"):
        assert text in one["message"]
    assert one["status"] == "fail"


def test_a_lower_number_without_a_group_may_be_behind() -> None:
    """Ranks in the same call may share a group; those in other calls, or in sends, are in another one."""
    (found,) = of(APART)
    assert (found["status"], found["found"]) == ("warn", found["message"].partition("); ")[2].partition(" (of 3")[0])
    assert "ranks 1-2 wait in collective 7 (ALLREDUCE); timed out as well: rank 0 in collective 5" in found["message"]
    assert "if all are in one process group, which the text does not name, rank 0 is behind" in found["message"]
    assert found["fix"].startswith("Check rank 0 first")
    for other in ("BROADCAST", "SEND"):
        apart = of([timeout(0, 5, other), *APART[1:]])
        assert [(finding["status"], "behind" in finding["message"]) for finding in apart] == [("warn", False)] * 2
        assert "timed out in other collectives; the text names no process group" in apart[0]["message"]


@pytest.mark.parametrize("started", ["", ", last started NCCL work: 216 (ALLREDUCE)"])
def test_a_version_that_prints_the_last_started_work(started: str) -> None:
    results = of([line.replace(", last completed", f"{started}, last completed") for line in LATE])
    assert "rank 2 has not reached it" in results[0]["message"]


def test_a_rank_that_went_past_is_reported_as_complete() -> None:
    (one,) = of(PASSED)
    assert "rank 0 waits in collective 216" in one["message"]
    assert "rank 1 has completed it" in one["message"]
    assert "has not reached" not in one["message"]


def test_calls_of_other_groups_are_no_disagreement() -> None:
    """Two tensor-parallel groups at one number: without the group's name nothing contradicts."""
    found = of([timeout(0, 5), timeout(1, 5, "SEND")])
    assert [one["status"] for one in found] == ["warn"]


def test_groups_are_separate() -> None:
    found = of([timeout(0), progress(0), timeout(1, 9, "BROADCAST"), progress(1, 9, 9, 8, pg="1")])
    assert len(found) == 2
    assert all("disagree" not in one["message"] for one in found)


def test_numbers_of_sends_and_receives_are_not_compared() -> None:
    """Each rank counts its own: one with fewer is not behind, and the other has not passed it."""
    (one,) = of([timeout(0, 216, "SEND"), progress(0, 216, 216, 215), timeout(1, 214, "RECV"),
                 progress(1, 214, 214, 213), progress(2, None, 100, 100)])  # fmt: skip
    assert one["status"] == "warn"
    assert "rank 0 in SEND 216; rank 1 in RECV 214" in one["message"]
    assert "has completed" not in one["message"]
    assert "has not reached" not in one["message"]


def test_a_rank_that_reports_no_work_of_its_own_is_behind() -> None:
    (one,) = of([*(text for rank in range(3) for text in (timeout(rank), progress(rank))), progress(3, 214, 214, 214)])
    assert one["status"] == "fail"
    assert "ranks 0-2 wait in collective 216" in one["message"]
    assert "rank 3 has not reached it" in one["message"]
