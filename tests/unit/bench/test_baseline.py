"""Baselines: learnt from good campaigns only, and used on the same hardware only."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.bench import baseline, campaign
from preflight.bench.comparison import compare
from preflight.campaign import folder
from preflight.parsers import nccl_tests
from tests.support.in_process import run
from tests.support.pair_runs import CASES, GIB, NODES, RAILS, log
from tests.support.pair_runs import campaign as records

GPU, NCCL = "NVIDIA H100 80GB HBM3", "2.30.7"


def judged(made: Mapping[str, object], entries: tuple[baseline.BaselineEntry, ...] = ()) -> Any:
    value: Any = copy.deepcopy(made["bench:campaign"])
    done = campaign.read_record(value["value"])
    done = replace(done, plan=replace(done.plan, baseline=entries))
    reports = {key.removeprefix("log:"): nccl_tests.text.parse(str(text)) for key, text in made.items()
               if key.startswith("log:")}  # fmt: skip
    return compare(campaign.observations(done, reports), campaign.references(done, reports))


def learnt() -> tuple[baseline.BaselineEntry, ...]:
    return baseline.learn(judged(CASES["bench.ports"]["no-errors"][0]), [NCCL])


def test_a_good_campaign_is_learnt() -> None:
    (entry,) = learnt()
    assert (entry.collective, entry.ranks, entry.nodes, entry.bytes) == ("alltoall", 2, 2, GIB)
    assert entry.busbw_gbytes_s == pytest.approx(44.09, abs=0.05)
    assert (entry.launches, entry.gpu, entry.nccl) == (28, GPU, NCCL)
    assert baseline.from_document(json.loads(json.dumps(baseline.document((entry,))))) == (entry,)


@pytest.mark.parametrize(("case", "nccl", "why"), [
    ("errors-in-slow-runs", [NCCL], "slow"),
    ("script", [NCCL], "fewer than 3"),
    ("no-errors", ["2.28.3", NCCL], "the same GPU model and NCCL version"),
])  # fmt: skip
def test_what_is_not_learnt(case: str, nccl: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        baseline.learn(judged(CASES["bench.ports"][case][0]), nccl)


def test_two_runs_are_compared_with_a_baseline() -> None:
    (alone,) = judged(records())
    assert not alone.judged
    (comparison,) = judged(records(), learnt())
    assert [(held.slow, held.reference is not None and held.reference.given) for held in comparison.held] == [
        (False, True), (False, True),
    ]  # fmt: skip


def test_a_baseline_of_other_hardware_is_not_used() -> None:
    (entry,) = learnt()
    for other in (replace(entry, gpu="NVIDIA B200"), replace(entry, nccl="2.28.3"), replace(entry, ranks=16)):
        (comparison,) = judged(records(), (other,))
        assert not comparison.judged


@pytest.mark.parametrize(("rate", "entry", "check", "message"), [
    (22.0, {}, "bench.pairs", "runs are slow, at 50% of the baseline"),
    (44.0, {}, "bench.pairs", "2 runs, none slow"),
    (44.0, {"gpu": "NVIDIA B200"}, "bench.coverage", "the baseline was not used"),
])  # fmt: skip
def test_report_of_a_small_campaign(
    tmp_path: Path, rate: float, entry: dict[str, Any], check: str, message: str
) -> None:
    value: Any = copy.deepcopy(records()["bench:campaign"])
    plan = replace(campaign.read_plan(value["value"]["plan"]), baseline=(replace(learnt()[0], **entry),))
    opened = folder.create(tmp_path / "c", plan)
    for line in value["value"]["journal"]:
        opened.record(line)
    for number, pair in ((1, NODES[:2]), (2, NODES[2:4])):
        opened.output(f"{number:04d}.txt").write_text(log("alltoall", {node: [RAILS[0]] for node in pair}, {GIB: rate}))
    assert folder.open_folder(opened.path).plan == plan
    report = json.loads(run("judge", str(opened.path), "--json", expect=(0, 1, 3)))
    assert any(message in finding["message"] for finding in report["findings"] if finding["check"] == check)


def test_damaged_baselines(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    for text in ("", "[]", '{"schema": "preflight.bench.baseline/2", "entries": []}'):
        path.write_text(text)
        run("bench", "--hosts", "gpu[1-4]", "--gpus", "8", "--print", "--baseline", str(path), expect=(2,))
