"""Single iterations and split runs of nccl-tests: the same facts from text and JSON, for each group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from preflight.bench.comparison import compare
from preflight.bench.observation import Observation, observations
from preflight.parsers.nccl_tests.model import Report, fewest_iterations
from preflight.parsers.nccl_tests.text import parse
from tests.support.in_process import run
from tests.support.iteration_runs import document, pairs, table, tail_times


def only(text: str) -> Report:
    (report,) = parse(text)
    return report


def split(document_: dict[str, Any]) -> list[Observation]:
    return observations({"pairs.json": parse(json.dumps(document_))})


def test_the_table_shows_the_columns_of_each_half() -> None:
    report = only(table(tail_times(500, 20, 3.0)))
    assert report.iterations == 500
    (row,) = report.rows
    assert [half.iterations.max_us for half in row.halves if half.iterations] == [90.0, 90.0]
    (first, _) = row.halves
    assert first.iterations is not None
    assert (first.iterations.min_us, first.iterations.p99_us) == (30.0, 90.0)
    assert first.iterations.times_us == ()
    assert first.iterations.quantile(0.99) is None  # the table lists no iteration


def test_the_columns_are_found_behind_others() -> None:
    """A later version prints #bitdiff before them."""
    text = table([30.0] * 300).replace("#wrong    i_min", "#wrong  #bitdiff    i_min")
    text = text.replace("       0    30.00", "       0         0    30.00")
    text = text.replace("N/A    30.00", "N/A         0    30.00")
    (row,) = only(text).rows
    assert [half.iterations.p99_us for half in row.halves if half.iterations] == [30.0, 30.0]


def test_skipped_iterations_are_left_out() -> None:
    times = [[900.0, 31.0, 30.0, 32.0], [850.0, 29.0, 33.0, 30.0]]
    report = only(json.dumps(document([["gpu001", "gpu002"]], times, skipped=1)))
    iterations = report.rows[0].halves[0].iterations
    assert iterations is not None
    assert iterations.times_us == (31.0, 33.0, 32.0)
    assert iterations.processes == ((31.0, 30.0, 32.0), (29.0, 33.0, 30.0))


@pytest.mark.parametrize(("share", "count"), [(0.99, 299), (0.999, 2995)])
def test_a_percentile_needs_enough_iterations(share: float, count: int) -> None:
    assert fewest_iterations(share) == count
    for length in (count - 1, count):
        times = tail_times(length, 3, 4.0)
        iterations = only(json.dumps(document([["gpu001", "gpu002"]], [times, times]))).rows[0].halves[0].iterations
        assert iterations is not None
        assert (iterations.quantile(share) is None) is (length < count)


def test_a_split_run_is_a_run_of_each_group() -> None:
    runs = observations({"pairs.json": parse(pairs("gpu003"))})
    assert [item.nodes for item in runs][:2] == [("gpu001", "gpu002"), ("gpu003", "gpu004")]
    assert {item.kind.ranks for item in runs} == {2}
    (comparison,) = compare(runs)
    assert [held.run.nodes for held in comparison.held if held.slow] == [("gpu003", "gpu004")]
    assert not any(held.slow for held in compare(observations({"pairs.json": parse(pairs())}))[0].held)


def test_the_rate_of_a_group_is_that_of_its_own_launch() -> None:
    """The same times give the same bandwidth, split or alone; all GPUs of a process count."""
    times = [[20_000.0, 20_100.0], [20_050.0, 20_000.0]]
    for gpus in (1, 8):
        (alone,) = split(document([["gpu001", "gpu002"]], times, gpus=gpus))
        together = split(document([["gpu001", "gpu002"], ["gpu003", "gpu004"]], times * 2, gpus=gpus))
        assert [item.kind for item in together] == [alone.kind] * 2
        assert [item.busbw for item in together] == [pytest.approx(alone.busbw)] * 2


def test_a_failed_split_run_names_no_group() -> None:
    """The report does not show which communicator has the wrong values."""
    assert not split(document([["gpu001", "gpu002"], ["gpu003", "gpu004"]], [[20_000.0]] * 4, wrong=3))


@pytest.mark.parametrize(
    "rows",
    [None, [], [[1.0, 2.0]] * 3, [[1.0, 2.0]] * 5, [[1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0]], [["x", 2.0]] * 4,
     [[-1.0, 2.0]] * 4, [[float("inf"), 2.0]] * 4, [{}] * 4, "1234", [[]] * 4],
)  # fmt: skip
def test_rows_that_do_not_fit_the_processes_are_no_rates(rows: object) -> None:
    made = document([["gpu001", "gpu002"], ["gpu003", "gpu004"]], [[20_000.0, 20_000.0]] * 4)
    for half in ("out_of_place_per_iter", "in_place_per_iter"):
        made["results"][0][half]["per_process_max_times_us"] = rows
    assert not split(made)


def test_read_and_judge_agree(tmp_path: Path) -> None:
    (tmp_path / "pairs.json").write_text(pairs("gpu003"))
    document_ = json.loads(run("read", "--json", str(tmp_path), expect=(0, 1, 3)))
    (part,) = document_["sources"][0]["parts"]
    assert part["facts"]["communicators"] == 10
    groups = {tuple(group["hosts"]): group["busbw"][0]["busbw"] for group in part["facts"]["groups"]}
    assert groups["gpu003", "gpu004"] == pytest.approx(groups["gpu001", "gpu002"] / 4, rel=0.01)
    half = part["facts"]["rows"][0]["out_of_place"]["iterations"]
    assert (half["count"], half["p999_us"], len(half["processes"])) == (20, None, 20)
    wanted = "gpu003 and gpu004: alltoall over 2 GPUs on 2 nodes at 1 GiB reaches 9.996 of 39.99 GB/s"
    assert wanted in run("read", str(tmp_path), expect=(0, 1, 3)).replace("\n", " ")
    report = json.loads(run("judge", str(tmp_path), "--json", expect=(0, 1, 3)))
    assert any(wanted in finding["message"] for finding in report["findings"] if finding["check"] == "bench.pairs")


@pytest.mark.parametrize(("slow", "factor", "status"), [(0, 1.0, "pass"), (6, 8.0, "warn"), (6, 3.0, "pass")])
def test_the_slowest_of_a_thousand(tmp_path: Path, slow: int, factor: float, status: str) -> None:
    """Six of 3,000 iterations take eight times as long: the 99th percentile does not show them."""
    times = tail_times(3000, slow, factor)
    (tmp_path / "tail.json").write_text(json.dumps(document([["gpu001", "gpu002"]], [times, times])))
    report = json.loads(run("judge", str(tmp_path), "--json", expect=(0, 1, 3)))
    (finding,) = [finding for finding in report["findings"] if finding["check"] == "bench.tail"]
    assert finding["status"] == status, finding["message"]
    assert "p99.9" in finding["message"]
