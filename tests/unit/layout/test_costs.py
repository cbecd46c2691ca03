"""Costs of a run, the batch of each level and a pipeline's timeline: worked numbers of the documents."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.layout.costs import Cost, checkpoint_interval, costs, level_batches, lost_run, number
from preflight.layout.hardware import described
from preflight.layout.step import active_stages, bubble_share
from tests.support.paths import ROOT
from tests.unit.layout.test_formulas import GPT_175B, LLAMA_8B, MIXTRAL, job

SCHEMA = json.loads((ROOT / "preflight" / "schemas" / "layout-1.json").read_text())

INPUTS = {"watts": 350.0, "hours": 1440.0, "price": 0.10, "checkpoint_seconds": 120.0, "mtbf_hours": 3.0}


def test_a_lost_run_is_the_documents() -> None:
    """Document 001: 350 W x 50,000 GPUs x 1,440 h = 25,200,000 kWh, at 0.10 USD: 2.52 million USD."""
    assert lost_run(350, 50_000, 1440, 0.10) == pytest.approx(2_520_000)
    lost, _ = costs(INPUTS, 50_000)
    assert lost.value == pytest.approx(2_520_000)
    assert lost.origin == "350 W x 50,000 GPUs x 1440 h x 0.1 per kWh"


def test_the_checkpoint_interval_is_youngs() -> None:
    """Young 1974: sqrt(2 x write x MTBF). 120 s and 3 h: 26 min 50 s."""
    assert checkpoint_interval(120, 3 * 3600) == pytest.approx(1609.97, abs=0.01)
    assert costs(INPUTS, 8)[1].value == pytest.approx(1609.97, abs=0.01)


def test_a_missing_input_is_named_and_never_assumed() -> None:
    lost, interval = costs({"watts": 700.0}, 8)
    assert lost == Cost("a lost run", None, "", "", ("hours", "price"))
    assert interval.missing == ("checkpoint_seconds", "mtbf_hours")


@pytest.mark.parametrize("word", ["0", "-1", "nan", "inf", "1e999", "x", "", "1" * 40])
def test_an_input_is_a_number_above_zero(word: str) -> None:
    assert number(word) is None
    assert number("0.10") == 0.1


def test_a_pipeline_is_busy_as_in_the_documents_table() -> None:
    """Document 001, pipeline bubble timeline: t1 to t10 of four GPUs and four microbatches; 65% on average."""
    table = [25, 50, 75, 100, 75, 75, 100, 75, 50, 25]
    active = active_stages(4, 4)
    assert [25 * stages for stages in active] == table
    assert sum(active) / len(active) / 4 == pytest.approx(0.65)
    assert bubble_share(4, 1, 4) == pytest.approx(3 / 7)
    assert active_stages(1, 3) == [1, 1, 1]
    assert sum(active_stages(2, 8)) > 0.9 * 2 * 8


def test_the_batch_of_each_level() -> None:
    """Document 002: 1098 in a node whose switches reduce, 1236 above it if they reduce there too, FSDP twice."""
    made = job(LLAMA_8B, 512, 8192, 512)
    on = "64 x HGX H100, rail-optimised, units of 32 nodes"
    node, leaf, spine = level_batches(made, described(on))
    assert (node.level, int(node.least), node.tokens) == ("NVLink", 1098, 8192)
    assert (leaf.level, int(leaf.least / 2)) == ("leaf", 1236)
    assert (spine.level, int(spine.least / 2)) == ("spine", 1236)
    assert int(level_batches(made, described(f"{on}, 2:1"))[2].least / 4) == 1236
    assert int(level_batches(made.changed(sharding="full"), described(on))[1].least / 2) == 2472
    assert all(own.busy for own in level_batches(made, described(on)))
    assert not level_batches(made.changed(tensor=8, global_batch=64), described(on))[1].busy
    experts = job(MIXTRAL, 512, 4096, 512, expert=1)
    assert level_batches(experts, described(on))[1].least == pytest.approx(leaf.least * 8 / 2)
    assert level_batches(job(GPT_175B, 8, tensor=8), described(on)) == ()
    inside = level_batches(job(LLAMA_8B, 8), described(on))
    assert [own.level for own in inside] == ["NVLink"]


def test_the_plan_shows_costs_and_their_origin(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc-per-node 8 x.py --num-layers 8 --hidden-size 4096 --num-attention-heads 32 "
        "--vocab-size 50257 --seq-length 4096 --bf16 --use-distributed-optimizer --pipeline-model-parallel-size 4 "
        "--micro-batch-size 1 "
        "--global-batch-size 64"
    )
    path = tmp_path / "job.sh"
    path.write_text(text)
    words = ["plan", str(path), "--on", "8 x HGX H100", "--set", "watts=350", "--set", "hours=10", "--set", "price=0.1"]
    shown = CliRunner().invoke(main, [*words, "--explain"], catch_exceptions=False).stdout
    assert "a lost run           22 = 350 W x 64 GPUs x 10 h x 0.1 per kWh" in shown
    assert "checkpoint interval  unknown: state --set checkpoint_seconds=... (time to write" in shown
    assert "stages at work       1 2 3 4 3 3 4 3 2 1 of 4: 65% busy" in shown
    document = json.loads(CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False).stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["pipeline"]["active"] == active_stages(4, 4)
    assert [own["level"] for own in document["batches"]] == ["NVLink", "leaf", "spine"]
    refused = CliRunner().invoke(main, [*words, "--set", "mtbf_hours=-1"])
    assert refused.exit_code == 2
    assert "mtbf_hours must be a number above 0" in refused.output
