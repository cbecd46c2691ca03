"""Hangs in sends and receives: which rank waits for which, from the flight-recorder dumps of all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from preflight.cli.app import main
from preflight.parsers.torch import hang, messages
from tests.support.flight_dumps import dump, recording
from tests.support.judged import judged

#: Calls of ranks 0 to 3: the verdict, and words of the finding.
PLANTED: dict[str, tuple[list[Any], str, str]] = {
    "healthy": (
        [["send 0->1"], ["recv 1<-0", "send 1->2"], ["recv 2<-1", "send 2->3"], ["recv 3<-2"]],
        "pass",
        "the dumps of all 4 ranks have no unfinished operation",
    ),
    "healthy batches": (
        [[["send 0->1", "recv 0<-1"]], [["recv 1<-0", "send 1->0"]], [], []],
        "pass",
        "have no unfinished operation",
    ),
    "all wait in a circle of receives": (
        [["recv 0<-3!"], ["recv 1<-0!"], ["recv 2<-1!"], ["recv 3<-2!"]],
        "fail",
        "wait for each other in a cycle",
    ),
    "a pipeline of which the first stage never sends": (
        [["all_reduce"], ["all_reduce", "recv 1<-0!"], ["all_reduce", "recv 2<-1!"], ["all_reduce", "recv 3<-2!"]],
        "fail",
        "rank 0 has not called the other end",
    ),
    "a send without its receive": ([["send 0->1!"], [], [], []], "fail", "rank 1 has not called the other end"),
    "the other stage is in a collective": (
        [["recv 0<-1!"], ["all_reduce!"], ["all_reduce!"], ["all_reduce!"]],
        "fail",
        "it waits in collective 1",
    ),
    "two that both send first": (
        [["send 0->1!", "recv 0<-1!"], ["send 1->0!", "recv 1<-0!"], [], []],
        "fail",
        "ranks 0, 1 wait for each other in a cycle",
    ),
    "a batch of which one end is missing": (
        [[["send 0->1!", "recv 0<-1!"]], [], [], []],
        "fail",
        "rank 1 has not called the other end",
    ),
    "a batch against single calls": (
        [[["send 0->1!", "recv 0<-1!"]], ["recv 1<-0!", "send 1->0!"], [], []],
        "warn",
        "both ends have been called",
    ),
    "both ends are there": ([["send 0->1!"], ["recv 1<-0!"], [], []], "warn", "both ends have been called"),
    "a small send is done before it is received": (
        [["send 0->1"], ["recv 1<-0!"], [], []],
        "warn",
        "both ends have been called",
    ),
    "an entry names no peer": ([["recv!"], [], [], []], "unknown", "without a named peer: rank 0 in nccl:recv"),
}


def findings(texts: dict[int, str]) -> list[Any]:
    return judged("torch.hang", {f"log:nccl_trace_rank_{rank}": text for rank, text in texts.items()})


@pytest.mark.parametrize("case", PLANTED)
def test_planted(case: str) -> None:
    calls, status, words = PLANTED[case]
    found = [one for one in findings({rank: dump(rank, called) for rank, called in enumerate(calls)})
             if one["subject"] != "collective 1 of process group 0"]  # fmt: skip
    assert [one["status"] for one in found] == [status]
    assert words in found[0]["message"]


def test_waiting_that_ends_at_a_rank_without_a_dump_is_unknown() -> None:
    calls = {1: ["recv 1<-0!"], 2: ["recv 2<-1!"], 3: ["recv 3<-2!"]}
    (one,) = findings({rank: dump(rank, called) for rank, called in calls.items()})
    assert one["status"] == "unknown"
    assert "no dump shows what rank 0 has called" in one["message"]


def test_ends_that_differ_in_size_fail() -> None:
    (one,) = findings({0: dump(0, ["send 0->1!"], (0, 1)), 1: dump(1, ["recv 1<-0!"], (0, 1), size=2048)})
    assert one["status"] == "fail"
    assert "rank 0 and rank 1 disagree on the size or type of nccl:send 0->1" in one["message"]


def test_ranks_in_the_name_count_in_the_process_group() -> None:
    stall = messages.of_recordings({5: recording(5, ["recv 0<-1!"], (5, 9)), 9: recording(9, ["all_reduce"], (5, 9))})
    assert stall is not None
    assert stall.behind == (9,)


def test_groups_of_one_name_and_other_ranks_are_separate() -> None:
    """Groups created by a split have the same name on all ranks."""
    pairs = {rank: recording(rank, ["all_reduce"], (0, 1) if rank < 2 else (2, 3), group="7") for rank in range(4)}
    assert hang.of_recordings(pairs) == ()
    pairs[3] = recording(3, [], (2, 3), group="7")
    pairs[2] = recording(2, ["all_reduce!"], (2, 3), group="7")
    (one,) = hang.of_recordings(pairs)
    assert (one.waiting, one.behind, one.silent) == ((2,), (3,), ())


def test_a_dump_without_a_call_of_the_group_is_not_a_missing_dump() -> None:
    (one,) = hang.of_recordings({0: recording(0, ["all_reduce!"]), 1: recording(1, ["send 1->2"])})
    assert (one.waiting, one.behind, one.silent) == ((0,), (1,), (2, 3))


def test_the_calls_of_a_batch_of_collectives_have_its_state() -> None:
    """PyTorch leaves each of them ``scheduled`` forever."""
    batch = ["all_reduce", "all_reduce"]
    assert hang.of_recordings({rank: recording(rank, [batch], (0, 1)) for rank in (0, 1)}) == ()


def test_a_dump_that_no_longer_reaches_back_is_compared_by_what_is_not_done() -> None:
    done = ["send 0->1"] * 4
    answered = ["recv 1<-0"] * 4
    stall = messages.of_recordings({0: recording(0, done, from_record=2), 1: recording(1, [*answered, "recv 1<-0!"],
                                                                                     from_record=3)})  # fmt: skip
    assert stall is not None
    assert stall.behind == (0,)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] != pair[1]), max_size=30),
       st.integers(0, 3), st.integers(0, 20))  # fmt: skip
def test_the_rank_that_stops_is_named(sent: list[tuple[int, int]], stopped: int, after: int) -> None:
    """Four ranks exchange messages in one order, and one stops: all others wait for it, and for no other rank."""
    calls: dict[int, list[str]] = {rank: [] for rank in range(4)}
    pending = False
    left = after
    for source, target in sent:
        met = True
        if stopped in (source, target):
            met, left = left > 0, left - 1
            pending |= not met
        mark = "" if met else "!"
        if source != stopped or met:
            calls[source].append(f"send {source}->{target}{mark}")
        if target != stopped or met:
            calls[target].append(f"recv {target}<-{source}{mark}")
    stall = messages.of_recordings({rank: recording(rank, called) for rank, called in calls.items()})
    assert (stall is not None) == pending
    if stall is not None:
        assert (stall.behind, stall.circle, stall.absent) == ((stopped,), (), ())


def test_a_dump_of_one_rank_that_waits_is_no_pass_when_it_is_read(tmp_path: Path) -> None:
    """`preflight read` judges each file by itself, so it is unknown whether the peer has called the other end."""
    path = tmp_path / "nccl_trace_rank_1"
    path.write_text(dump(1, ["recv 1<-0!"]), encoding="utf-8")
    result = CliRunner().invoke(main, ["read", str(path)])
    assert result.exit_code == 3, result.output
    assert "unfinished messages" in " ".join(result.output.split())
    path.write_text(dump(1, ["recv 1<-0"]), encoding="utf-8")
    assert CliRunner().invoke(main, ["read", str(path)]).exit_code == 3  # the calls of the other ranks are unknown
