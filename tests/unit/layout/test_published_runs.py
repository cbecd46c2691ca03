"""The computed time of a step against published runs, each read at its source unless its set is *quoted*."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import pytest

from preflight.layout import step as step_module
from preflight.layout.step import EFFICIENCY, step
from tests.support.published_runs import PublishedRun, published_runs

#: Largest mean and single error of each set, as shares of the published time.
LIMITS = {"fitted": (0.08, 0.20), "a100": (0.08, 0.32), "quoted": (0.08, 0.20), "not fitted": (0.15, 0.28)}

#: Rows of *a100* beyond a fifth: two that are at the edge of their GPU's memory.
_A100_OUTLIERS = {"mpt-a100-80-30b-s8192-x8-bf16-mb1-ga21", "mpt-a100-40-70b-s2048-x64-bf16-mb2-ga1"}


def of(name: str) -> list[PublishedRun]:
    return [run for run in published_runs() if run.set == name]


def errors(runs: list[PublishedRun]) -> list[float]:
    return [step(run.job, run.hardware).seconds / run.seconds - 1 for run in runs]


def test_there_are_enough_rows_that_were_read_at_their_source() -> None:
    counted = [run for run in published_runs() if run.read_at_source]
    assert len(counted) >= 100
    assert all(run.source for run in published_runs())
    assert {run.set for run in published_runs() if not run.read_at_source} == {"quoted"}


@pytest.mark.parametrize("name", LIMITS)
def test_the_error_of_a_set(name: str) -> None:
    mean, worst = LIMITS[name]
    error_of = {run.id: abs(error) for run, error in zip(of(name), errors(of(name)), strict=True)}
    assert fmean(error_of.values()) <= mean
    assert {id for id, error in error_of.items() if error > worst} == set()
    assert {id for id, error in error_of.items() if error > 0.20 and name == "a100"} <= _A100_OUTLIERS


def test_three_constants_are_fitted() -> None:
    assert len(EFFICIENCY) == 3


def left_out() -> Iterator[tuple[PublishedRun, float]]:
    """Yield each run of Hopper with its error after the constant of its precision was fitted to the rest."""
    for precision in ("bf16", "fp8"):
        key = ("Hopper", precision)
        runs = [run for run in of("fitted") if run.job.schedule.precision == precision]
        ratio = [step(run.job, run.hardware).seconds / run.seconds for run in runs]
        # the share that is arithmetic scales with the constant: about nine tenths of a step
        for number, run in enumerate(runs):
            others = fmean(ratio[:number] + ratio[number + 1 :])
            fitted = EFFICIENCY[key] * (1 + (others - 1) / 0.9)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(step_module, "EFFICIENCY", {**EFFICIENCY, key: fitted})
                yield run, step(run.job, run.hardware).seconds / run.seconds - 1


def test_a_run_that_was_left_out_of_the_fit_is_as_near() -> None:
    left = [abs(error) for _, error in left_out()]
    assert fmean(left) <= 0.08
    assert max(left) <= 0.20


@pytest.mark.parametrize("name", ["fitted", "not fitted", "quoted"])
def test_the_range_holds_nine_of_ten(name: str) -> None:
    runs = of(name)
    steps = [step(run.job, run.hardware) for run in runs]
    inside = [own.low <= run.seconds <= own.high for own, run in zip(steps, runs, strict=True)]
    assert sum(inside) / len(inside) >= 0.9


def test_layouts_of_one_model_are_ordered_as_published() -> None:
    """Pairs of rows of one model on as many GPUs with another layout: the faster one is the faster one."""
    agree = total = 0
    runs = [run for run in published_runs() if run.read_at_source]
    computed = {run.id: step(run.job, run.hardware).seconds for run in runs}
    for number, run in enumerate(runs):
        for other in runs[:number]:
            same = (run.job.model, run.job.gpus, run.hardware.part) == (
                other.job.model, other.job.gpus, other.hardware.part,
            )  # fmt: skip
            same = same and run.job.schedule.global_batch == other.job.schedule.global_batch
            if same and abs(run.seconds / other.seconds - 1) > 0.1:
                total += 1
                agree += (run.seconds < other.seconds) == (computed[run.id] < computed[other.id])
    assert total >= 10
    assert agree / total >= 0.9
