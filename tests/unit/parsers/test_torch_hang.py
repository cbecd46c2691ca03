"""Attribution of hangs: cut dumps, two jobs, ties, chains of waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.checks.job.torch_hang import _stacks
from preflight.parsers import torch
from preflight.parsers.torch import hang
from tests.support.flight_dumps import dump
from tests.support.judged import judged

DONE, OPEN = ["all_reduce"], ["all_reduce", "all_reduce!"]


def findings(texts: dict[int, str], **more: str) -> list[Any]:
    named = {f"log:nccl_trace_rank_{rank}": text for rank, text in texts.items()}
    return judged("torch.hang", named | {f"log:{name}": text for name, text in more.items()})


def cut(text: str) -> str:
    """Cut a dump within its last entry."""
    return text[: text.rindex('"retired"')]


def only(results: list[Any], status: str) -> str:
    assert [finding["status"] for finding in results] == [status], results
    message: str = results[0]["message"]
    return message


def test_a_dump_that_is_cut_is_no_proof_that_all_is_done() -> None:
    texts = {rank: dump(rank, DONE * 3) for rank in range(4)}
    assert "all 4 ranks have no unfinished operation" in only(findings(texts), "pass")
    texts[2] = cut(texts[2])
    assert "truncated dump of rank 2" in only(findings(texts), "unknown")


def test_a_rank_with_a_cut_dump_is_not_behind() -> None:
    texts = {rank: dump(rank, OPEN) for rank in range(4)}
    texts[2] = cut(texts[2])
    message = only(findings(texts), "unknown")
    assert "truncated dump of rank 2" in message
    assert "has not come" not in message
    texts[2] = dump(2, DONE)
    assert "rank 2 has not reached it" in only(findings(texts), "fail")


def test_the_cut_dump_of_a_receiver_does_not_blame_it() -> None:
    texts = {0: dump(0, ["all_reduce", "send 0->1!"], (0, 1)), 1: cut(dump(1, ["all_reduce", "recv 1<-0!"], (0, 1)))}
    assert "no dump shows what rank 1 has called" in only(findings(texts), "unknown")


def test_of_a_tie_both_sides_are_named() -> None:
    texts = {rank: dump(rank, ["all_gather!" if rank < 2 else "all_reduce!"]) for rank in range(4)}
    message = only(findings(texts), "fail")
    assert "ranks 0-1 called nccl:all_gather" in message
    assert "ranks 2-3 called nccl:all_reduce" in message
    texts = {rank: dump(rank, ["all_gather!" if rank < 1 else "all_reduce!"]) for rank in range(4)}
    message = only(findings(texts), "fail")
    assert "ranks disagree: rank 0 called nccl:all_gather" in message
    assert "rank 1" not in message


def test_a_rank_that_waits_in_another_group_is_named_with_it() -> None:
    both = {rank: json.loads(dump(rank, DONE if rank == 2 else OPEN if rank == 3 else [], (2, 3), group="1"))
            for rank in (2, 3)}  # fmt: skip
    across = {rank: json.loads(dump(rank, OPEN if rank == 1 else DONE, (1, 3), group="2")) for rank in (1, 3)}
    merged = across[3] | {"entries": across[3]["entries"] + both[3]["entries"],
                          "pg_config": across[3]["pg_config"] | both[3]["pg_config"]}  # fmt: skip
    results = findings({1: json.dumps(across[1]), 2: json.dumps(both[2]), 3: json.dumps(merged)})
    messages = [finding["message"] for finding in results]
    assert any("rank 2 has not reached it" in message and "(rank 2 waits" not in message for message in messages)
    assert any(
        "rank 3 has not reached it (rank 3 waits in collective 2 of process group 1" in message for message in messages
    )


def test_those_that_have_completed_it_are_named() -> None:
    texts = {rank: dump(rank, ["all_reduce", "all_reduce!"] if rank == 0 else ["all_reduce"] * 2) for rank in range(4)}
    assert "rank 0 waits in collective 2" in (message := only(findings(texts), "warn"))
    assert "ranks 1-3 have completed it" in message
    texts = {rank: dump(rank, ["all_reduce", "broadcast" if rank == 0 else "broadcast!"]) for rank in (0, 2, 3)}
    assert "no dump or log of rank 1" in only(findings(texts), "unknown")


def test_a_rank_that_gave_no_tensor_gave_no_other_type() -> None:
    texts = {}
    for rank in range(4):
        document = json.loads(dump(rank, ["scatter", "all_reduce"]))
        if rank:
            document["entries"][0] |= {"input_sizes": [], "input_dtypes": ["Undefined"] if rank < 3 else []}
        texts[rank] = json.dumps(document)
    only(findings(texts), "pass")
    document = json.loads(texts[1])
    document["entries"][0]["input_dtypes"] = ["Float"]
    texts[1] = json.dumps(document)
    assert "ranks disagree" in only(findings(texts), "fail")


def test_dumps_of_two_jobs_are_not_compared() -> None:
    texts = {rank: dump(rank, DONE if rank == 1 else OPEN) for rank in range(4)}
    other = {f"other/nccl_trace_rank_{rank}": dump(rank, DONE * 9) for rank in range(4)}
    assert "the dumps of rank 0 differ" in only(findings(texts, **other), "unknown")
    copies = {f"copy/nccl_trace_rank_{rank}": text for rank, text in texts.items()}
    assert "ranks 0, 2-3 wait" in (message := only(findings(texts, **copies), "fail"))
    assert "rank 1 has not reached it" in message


def sized(sizes: dict[int, tuple[list[int], list[int]]], op: str, **members: Any) -> dict[int, str]:
    """Write dumps of ranks that have completed a collective.

    Sizes are those in and out; []: without a tensor.
    """
    texts = {}
    for rank, sides in sizes.items():
        document = json.loads(dump(rank, [op]))
        for name, side in zip(("input", "output"), sides, strict=True):
            document["entries"][0] |= {
                f"{name}_sizes": [side] if side else [],
                f"{name}_dtypes": ["Float"] if side else [],
            }
        texts[rank] = json.dumps(document | members)
    return texts


HEALTHY_SIZES: dict[str, tuple[str, dict[int, tuple[list[int], list[int]]]]] = {
    "another shape": ("all_reduce", {r: ([32, 32],) * 2 if r else ([1024],) * 2 for r in range(4)}),
    "gather, to one rank": ("gather", {r: ([8], [] if r else [4, 8]) for r in range(4)}),
    "scatter, of one rank": ("scatter", {r: ([] if r else [4, 8], [8]) for r in range(4)}),
    "reduce, to one rank": ("reduce", {r: ([8], [] if r else [8]) for r in range(4)}),
    "uneven all-to-all": ("all_to_all", {r: ([10], [4 * (r + 1)]) for r in range(4)}),
    "all_gather": ("_all_gather_base", {r: ([8], [32]) for r in range(4)}),
    "reduce_scatter": ("_reduce_scatter_base", {r: ([32], [8]) for r in range(4)}),
}  # fmt: skip
SICK_SIZES: dict[str, tuple[str, dict[int, tuple[list[int], list[int]]], str]] = {
    "all_reduce": ("all_reduce", {r: ([9 if r == 2 else 8],) * 2 for r in range(4)}, "rank 2 called nccl:all_reduce(9"),
    "all_gather": ("_all_gather_base", {r: ([9], [36]) if r == 1 else ([8], [32]) for r in range(4)},
                   "rank 1 called nccl:_all_gather_base(9 Float into 36)"),
    "room for fewer ranks": ("_all_gather_base", {r: ([8], [24 if r == 3 else 32]) for r in range(4)},
                             "rank 3 called nccl:_all_gather_base(8 Float into 24)"),
    "reduce_scatter": ("_reduce_scatter_base", {r: ([32], [16 if r == 0 else 8]) for r in range(4)},
                       "rank 0 called nccl:_reduce_scatter_base(32 Float into 16)"),
    "scatter": ("scatter", {r: ([] if r else [32], [7 if r == 3 else 8]) for r in range(4)},
                "rank 3 called nccl:scatter"),
    "all-to-all": ("all_to_all", {r: ([8], [9 if r == 1 else 8]) for r in range(4)},
                   "all ranks together send 32 elements and receive 33"),
}  # fmt: skip


@pytest.mark.parametrize("case", HEALTHY_SIZES)
def test_sizes_that_may_differ(case: str) -> None:
    op, sizes = HEALTHY_SIZES[case]
    only(findings(sized(sizes, op)), "pass")


@pytest.mark.parametrize("case", SICK_SIZES)
def test_sizes_that_must_agree(case: str) -> None:
    op, sizes, expected = SICK_SIZES[case]
    assert expected in only(findings(sized(sizes, op)), "fail")


def test_totals_of_an_all_to_all_need_all_ranks_and_a_version_that_records_them() -> None:
    op, sizes, _ = SICK_SIZES["all-to-all"]
    only(findings(sized({rank: each for rank, each in sizes.items() if rank != 2}, op)), "unknown")
    only(findings(sized(sizes, op, version="2.3")), "pass")


def test_stacks_are_quoted_those_behind_first() -> None:
    texts = {}
    for rank in range(4):
        document = json.loads(dump(rank, DONE if rank == 1 else OPEN))
        for line, entry in enumerate(document["entries"], 40):
            entry["frames"] = [
                {"filename": "/usr/lib/python3/torch/distributed/c10d.py", "line": 7, "name": "all_reduce"},
                {"filename": "/opt/training/loss.py", "line": line, "name": "mean"},
                {"filename": "/opt/training/train.py", "line": 12, "name": "main"},
            ]
        texts[rank] = json.dumps(document)
    recordings = {rank: recorded for rank, text in texts.items() if (recorded := torch.parse(text).recording)}
    (behind,) = hang.of_recordings(recordings)
    first, second = _stacks(behind).splitlines()
    assert first.startswith("rank 1: nccl:all_reduce: ")
    assert "loss.py:40 (mean)" in first
    assert first.endswith("< /opt/training/train.py:12 (main)")
    assert second.startswith("rank 0: nccl:all_reduce: ")
    assert "loss.py:41" in second


def changed(text: str, **values: Any) -> str:
    """Change values of the last entry of a dump."""
    document = json.loads(text)
    document["entries"][-1].update(values)
    return json.dumps(document)


def test_a_gpu_that_has_not_started_what_most_have() -> None:
    texts = {rank: changed(dump(rank, OPEN), state="started") for rank in range(4)}
    message = only(findings(texts), "warn")
    assert "all ranks with dumps have reached it" in message
    assert findings(texts)[0]["fix"].startswith("The network or a GPU hangs")
    texts[2] = changed(texts[2], state="scheduled")
    assert "rank 2 has called it, but its GPU has not started it" in only(findings(texts), "warn")
    every = {rank: changed(text, state="scheduled") for rank, text in texts.items()}
    assert "has not started" not in only(findings(every), "warn"), "without timing, no start is recorded"


def test_dumps_of_two_attempts_do_not_pass() -> None:
    texts = {rank: dump(rank, DONE * 3) for rank in range(4)}
    later = json.loads(texts[3])
    for entry in later["entries"]:
        entry["collective_seq_id"] += 1000
    texts[3] = json.dumps(later)
    assert "those of ranks 0 and 3 share no collective" in only(findings(texts), "unknown")


def test_the_usual_call_is_shown_beside_the_one_that_differs() -> None:
    texts = {rank: dump(rank, ["all_gather!" if rank < 1 else "all_reduce!"]) for rank in range(4)}
    assert "; most ranks called nccl:all_reduce(" in only(findings(texts), "fail")


def test_a_size_that_no_tensor_has_is_not_printed() -> None:
    texts = {rank: dump(rank, OPEN) for rank in range(4)}
    texts[1] = changed(texts[1], input_sizes=[[10**300]])
    assert all(len(finding["message"]) < 400 for finding in findings(texts))


def calls(done: int, waiting: int = 0) -> list[str]:
    return ["all_reduce"] * done + ["all_reduce!"] * waiting


def by_gloo(text: str) -> str:
    """Let Gloo carry the calls, which it only retires."""
    document = json.loads(text)
    for entry in document["entries"]:
        entry |= {"profiling_name": entry["profiling_name"].replace("nccl", "gloo"), "state": "scheduled"}
    return json.dumps(document)


#: Calls that ranks have completed and those in which they wait, the status, and parts of the message.
PROGRESS: dict[str, tuple[tuple[tuple[int, int], ...], str, tuple[str, ...]]] = {
    "never called, another's dump is older": (
        ((4, 1), (4, 0), (2, 3), (4, 1)), "fail",
        ("ranks 0, 2-3 wait in collective 5", "rank 1 has not reached it;", "rank 2 has not completed collective 4,"),
    ),
    "stuck early, others wait for it": (
        ((3, 1), (3, 1), (2, 1), (3, 1)), "fail",
        ("ranks 0-1, 3 wait in collective 4", "rank 2 has not reached it;", "rank 2 has not completed collective 3,"),
    ),
    "stuck early, with calls in its queue": (
        ((3, 1), (3, 1), (2, 3), (3, 1)), "warn",
        ("ranks 0-3 wait in collective 4", "rank 2 has not completed collective 3, which others have"),
    ),
    "stuck in the last one": (
        ((3, 0), (3, 0), (2, 1), (3, 0)), "warn", ("rank 2 waits in collective 3", "ranks 0-1, 3 have completed it"),
    ),
    "most are stuck": (
        ((2, 1), (3, 1), (2, 1), (2, 1)), "warn",
        ("ranks 0, 2-3 wait in collective 3", "rank 1 has completed it"),
    ),
    "never called, most dumps are older": (
        ((4, 0), (3, 2), (3, 2), (3, 2)), "fail",
        ("ranks 1-3 wait in collective 5", "rank 0 has not reached it;", "ranks 1-3 have not completed collective 4,"),
    ),
    "older dump": (
        ((4, 1), (2, 0), (4, 1), (4, 1)), "unknown",
        ("ranks 0, 2-3 wait in collective 5", "older dump of rank 1: it ends before collective 4"),
    ),
    "older dump of a job that goes on": (
        ((5, 0), (2, 1), (5, 0), (5, 0)), "unknown", ("older dump of rank 1: it ends before collective 5",),
    ),
    "healthy": (((5, 0),) * 4, "pass", ("no unfinished operation",)),
}  # fmt: skip


@pytest.mark.parametrize("gloo", [False, True], ids=["nccl", "gloo"])
@pytest.mark.parametrize("case", PROGRESS)
def test_who_is_stuck_and_who_never_called(case: str, gloo: bool) -> None:
    progress, status, parts = PROGRESS[case]
    texts = {rank: dump(rank, calls(*made)) for rank, made in enumerate(progress)}
    message = only(findings({rank: by_gloo(text) for rank, text in texts.items()} if gloo else texts), status)
    assert [part for part in parts if part not in message] == [], message
    assert ("not reached" in message) == any("not reached" in part for part in parts), message


def test_calls_that_have_left_the_ring_buffer() -> None:
    texts = {rank: dump(rank, calls(5, 1), from_record=4) for rank in (0, 3)}
    texts |= {1: dump(1, calls(5), from_record=4), 2: dump(2, calls(2, 4))}
    message = only(findings(texts), "fail")
    assert "ranks 0, 2-3 wait in collective 6" in message
    assert "rank 1 has not reached it; rank 2 has not completed collective 5" in message


def test_a_dump_without_a_call_of_the_group() -> None:
    texts = {rank: dump(rank, calls(2, 1)) for rank in (0, 2, 3)}
    older = texts | {1: dump(1, calls(9), (1,), group="1")}
    assert "older dump of rank 1: it ends before collective 2" in only(findings(older), "unknown")
    overwritten = texts | {1: dump(1, calls(9), (1,), group="1", from_record=4)}
    assert "rank 1 has not reached it" in only(findings(overwritten), "fail")


@pytest.mark.parametrize("gloo", [False, True], ids=["nccl", "gloo"])
def test_an_end_that_was_not_recorded_is_no_hang(gloo: bool) -> None:
    texts = {rank: dump(rank, ["all_reduce", "all_reduce!" if rank == 2 else "all_reduce", "all_reduce"])
             for rank in range(4)}  # fmt: skip
    only(findings({rank: by_gloo(text) for rank, text in texts.items()} if gloo else texts), "pass")


@pytest.mark.parametrize("op", ["broadcast", "reduce", "scatter", "gather", "all_to_all"])
def test_what_a_rank_completes_without_the_others_proves_nothing_of_them(op: str) -> None:
    texts = {rank: dump(rank, ["all_reduce", f"{op}!"]) for rank in (1, 2)}
    texts |= {0: dump(0, ["all_reduce", op, "all_reduce!"]), 3: dump(3, ["all_reduce"])}
    message = only(findings(texts), "fail")
    assert "ranks 1-2 wait in collective 2" in message
    assert "rank 3 has not reached it; rank 0 has completed it" in message


def test_gloo_completes_calls_in_any_order() -> None:
    texts = {rank: dump(rank, ["all_reduce", "all_reduce!", "broadcast!" if rank else "broadcast"])
             for rank in range(3)}  # fmt: skip
    texts[3] = dump(3, ["all_reduce"])
    message = only(findings({rank: by_gloo(text) for rank, text in texts.items()}), "fail")
    assert "ranks 0-2 wait in collective 2" in message
    assert "rank 3 has not reached it" in message


def test_a_call_that_nccl_gave_up_proves_nothing() -> None:
    texts = {rank: dump(rank, ["all_reduce", "all_reduce!"]) for rank in range(3)}
    texts |= {1: changed(dump(1, calls(2)), state="started"), 3: dump(3, calls(1))}
    assert "rank 3 has not reached it" in only(findings(texts), "fail")


def test_a_difference_that_all_completed_hides_no_hang() -> None:
    texts = {rank: dump(rank, ["all_reduce", "broadcast" if rank == 2 else "all_reduce", "all_reduce"]
                        + ["all_reduce!"] * (rank != 1)) for rank in range(4)}  # fmt: skip
    differ, stuck = [finding["message"] for finding in findings(texts)]
    assert "in collective 2" in differ
    assert "rank 2 called nccl:broadcast" in differ
    assert "ranks 0, 2-3 wait in collective 4" in stuck
    assert "rank 1 has not reached it" in stuck
