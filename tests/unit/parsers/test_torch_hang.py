"""Who is blamed for a hang: cut dumps, two jobs, ties, chains of waiting."""

from __future__ import annotations

import json
from typing import Any

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
    assert "all 4 ranks hold nothing unfinished" in only(findings(texts), "pass")
    texts[2] = cut(texts[2])
    assert "the dump of rank 2 is cut" in only(findings(texts), "unknown")


def test_a_rank_with_a_cut_dump_is_not_behind() -> None:
    texts = {rank: dump(rank, OPEN) for rank in range(4)}
    texts[2] = cut(texts[2])
    message = only(findings(texts), "unknown")
    assert "the dump of rank 2 is cut before it" in message
    assert "has not come" not in message
    texts[2] = dump(2, DONE)
    assert "rank 2 has not come to it" in only(findings(texts), "fail")


def test_the_cut_dump_of_a_receiver_does_not_blame_it() -> None:
    texts = {0: dump(0, ["all_reduce", "send 0->1!"], (0, 1)), 1: cut(dump(1, ["all_reduce", "recv 1<-0!"], (0, 1)))}
    assert "no dump shows what rank 1 has called" in only(findings(texts), "unknown")


def test_of_a_tie_both_sides_are_named() -> None:
    texts = {rank: dump(rank, ["all_gather!" if rank < 2 else "all_reduce!"]) for rank in range(4)}
    message = only(findings(texts), "fail")
    assert "rank 0-1 called nccl:all_gather" in message
    assert "rank 2-3 called nccl:all_reduce" in message
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
    assert any("rank 2 has not come to it" in message and "(rank 2 waits" not in message for message in messages)
    assert any(
        "rank 3 has not come to it (rank 3 waits in collective 2 of process group 1" in message for message in messages
    )


def test_those_that_have_completed_it_are_named() -> None:
    texts = {rank: dump(rank, ["all_reduce", "all_reduce!"] if rank == 0 else ["all_reduce"] * 2) for rank in range(4)}
    assert "rank 0 waits in collective 2" in (message := only(findings(texts), "warn"))
    assert "rank 1-3 has completed it" in message
    texts = {rank: dump(rank, ["all_reduce", "broadcast" if rank == 0 else "broadcast!"]) for rank in (0, 2, 3)}
    assert "nothing was given of rank 1" in only(findings(texts), "unknown")


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
    assert "several dumps of rank 0 were given, and they differ" in only(findings(texts, **other), "unknown")
    copies = {f"copy/nccl_trace_rank_{rank}": text for rank, text in texts.items()}
    assert "ranks 0, 2-3 wait" in (message := only(findings(texts, **copies), "fail"))
    assert "rank 1 has not come to it" in message
