"""The order of a running job's ranks: complete orders are used, anything else is refused with its reason."""

from __future__ import annotations

import pytest

from preflight.facts.nccl_settings.collect import RankEnvironment, Ranks
from preflight.layout.job import LayoutError
from preflight.layout.running import RunningRanks


def ranks(*processes: dict[str, tuple[int, ...]], job: str = "7", size: str = "4") -> Ranks:
    variables = {"SLURM_JOB_ID": job, **dict.fromkeys(("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"), size)}
    return Ranks(tuple(RankEnvironment((1,), 1, "python3", variables, own) for own in processes), 0, True)


def order(**nodes: Ranks) -> list[str]:
    running = RunningRanks()
    for name, own in nodes.items():
        running.add(name, own)
    return list(running.nodes())


def test_consecutive_and_alternating_ranks() -> None:
    assert order(a=ranks({"RANK": (0, 1)}), b=ranks({"RANK": (2, 3)})) == ["a", "a", "b", "b"]
    assert order(a=ranks({"RANK": (2, 0)}), b=ranks({"RANK": (3, 1)})) == ["a", "b", "a", "b"]
    assert order(a=ranks({"SLURM_PROCID": (0, 1)}, size="2")) == ["a", "a"]


def test_torchrun_itself_is_not_a_rank() -> None:
    """Slurm numbers the one process that it starts on each node, torchrun the ranks."""
    own = (ranks({"SLURM_PROCID": (0,)}, {"RANK": (0, 1)}), ranks({"SLURM_PROCID": (1,)}, {"RANK": (2, 3)}))
    assert order(a=own[0], b=own[1]) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ({"a": ranks()}, "no rank of a job was running"),
        ({"a": ranks({"RANK": (0, 1, 2, 3)}), "b": ranks()}, "no rank was running on b"),
        ({"a": ranks({"RANK": (0, 1)}), "b": ranks({"RANK": (2, 3)}, job="8")}, "ranks of 2 jobs were running: 7, 8"),
        ({"a": ranks({"RANK": (0, 1)}), "b": ranks({"RANK": (0, 1)})}, "RANK=0 runs on a,b: these are two jobs"),
        ({"a": ranks({"RANK": (0, 1)}), "b": ranks({"RANK": (3,)})}, "rank 2 of 4 was not running"),
        ({"a": ranks({"RANK": (0, 1, 2)})}, "rank 3 of 4 was not running on these nodes: 3 ranks were found"),
        ({"a": ranks({"OMPI_COMM_WORLD_RANK": (0, 1)})}, "rank 2 of 4 was not running"),
        ({"a": ranks({"SLURM_PROCID": (0, 1)}, size="1(x4)")}, "goes up to 1 for a job of 1 ranks"),
        ({"a": ranks({"RANK": (0, 1, 2, 3, 4)})}, "RANK goes up to 4 for a job of 4 ranks on these nodes"),
        ({"a": ranks({"RANK": (0, 1)}, size="")}, "the ranks do not state the size of their job"),
        ({"a": ranks({"RANK": (0, 1)}, size="9" * 12)}, "do not state the size of their job"),
        (
            {"a": ranks({"RANK": (0, 1)}), "b": ranks({"RANK": (2, 3)}, size="8")},
            "the ranks report different job sizes",
        ),
        ({"a": ranks({"RANK": (0, 1)}, size="900000000")}, "the job has 900,000,000 ranks"),
    ],
)
def test_an_incomplete_order_is_refused(nodes: dict[str, Ranks], why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        order(**nodes)
