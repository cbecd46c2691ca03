"""Memory of a GPU: each term compared with numbers computed by hand, the sum with published peaks."""

from __future__ import annotations

from math import isclose
from typing import Any

import pytest

from preflight.layout.job import Parallelism, Schedule, TrainingJob, Transformer
from preflight.layout.memory import GIB, in_flight, in_flight_last, least, memory, most, open_settings
from preflight.parsers.job_config import megatron
from tests.support.published_memory import PublishedMemory, published_memory
from tests.support.published_runs import published_runs
from tests.unit.layout.test_formulas import GPT_175B, LLAMA_8B, LLAMA_70B, job

PEAKS = [row for row in published_memory() if row.peak_gib is not None]
EXHAUSTED = [row for row in published_memory() if row.peak_gib is None]


def test_there_are_enough_published_peaks() -> None:
    read = [row for row in PEAKS if row.read_at_source and row.source]
    assert len(read) >= 20
    assert len({row.source.partition(" / ")[0] for row in read}) >= 4
    assert len(EXHAUSTED) >= 25


@pytest.mark.parametrize("row", PEAKS, ids=lambda row: row.id)
def test_the_need_is_within_a_tenth_of_a_published_peak(row: PublishedMemory) -> None:
    assert row.described.job is not None
    assert memory(row.described.job).total / GIB == pytest.approx(row.peak_gib, rel=0.1)


@pytest.mark.parametrize("row", EXHAUSTED, ids=lambda row: row.id)
def test_a_run_that_ran_out_of_memory_never_fits(row: PublishedMemory) -> None:
    """If a source leaves out a setting, the check is unknown and requests it by name."""
    if row.described.job is None:
        assert row.described.missing
        return
    assert row.gpu_gib is not None
    assert most(row.described.job) > row.gpu_gib * GIB


def test_a_run_that_trained_never_fails() -> None:
    """Each run with published step times had enough memory."""
    wrong = [
        run.id for run in published_runs()
        if run.hardware.memory_gib is not None and least(run.job) > run.hardware.memory_gib * GIB
    ]  # fmt: skip
    assert wrong == []
    assert [row.id for row in PEAKS if row.gpu_gib and least(_job(row)) > row.gpu_gib * GIB] == []


def _job(row: PublishedMemory) -> TrainingJob:
    assert row.described.job is not None
    return row.described.job


def test_settings_that_a_job_leaves_open_are_named() -> None:
    made = job(LLAMA_70B, 64, 8192, 64, sharding="full")
    assert set(open_settings(made)) == {"recompute", "gradient_bytes", "moment_bytes"}
    assert open_settings(made.changed(framework="megatron")) == {}
    stated = TrainingJob(
        made.model, made.parallel, made.schedule, made.gpus, {"recompute": "row", "moment_bytes": "row"}
    )
    assert set(open_settings(stated)) == {"gradient_bytes"}
    assert least(made) < least(made.changed(framework="megatron"))


@pytest.mark.parametrize(
    ("model", "gpus", "changes", "published"),
    [
        # V. Korthikanti et al., figure 1: sequence parallelism and selective recomputation
        (Transformer(48, 6144, 24576, 64, 64, 51200, 96), 8, {"tensor": 8, "micro_batch": 4, "global_batch": 4}, 55.1),
        (GPT_175B, 64, {"tensor": 8, "pipeline": 8, "virtual_stages": 3}, 57.9),
        (Transformer(105, 20480, 81920, 128, 128, 51200, 160), 280,
         {"tensor": 8, "pipeline": 35, "virtual_stages": 3, "global_batch": 280}, 54.7),
        (Transformer(128, 25600, 102400, 160, 160, 51200, 160), 512,
         {"tensor": 8, "pipeline": 64, "global_batch": 512}, 59.5),
    ],
)  # fmt: skip
def test_memory_is_that_of_korthikanti(
    model: Transformer, gpus: int, changes: dict[str, Any], published: float
) -> None:
    made = job(model, gpus, sequence_parallel=True, recompute="selective", **changes)
    assert isclose(memory(made).total / GIB, published, rel_tol=0.1)


@pytest.mark.parametrize(
    ("changes", "measured"),
    [({"tensor": 4, "micro_batch": 2}, 54.2), ({"pipeline": 4}, 56.3)],
)
def test_memory_is_near_what_megatron_measured(changes: dict[str, Any], measured: float) -> None:
    """Megatron-LM, functional tests gpt3_7b_*_memory_speed on 8 A100, commit 57a02672: largest allocated GiB."""
    model = Transformer(32, 4096, 16384, 32, 8, 131072, 128, tied=False)
    made = job(model, 8, 8192, 8, sharding="optimizer", **changes)
    assert memory(made).total / GIB == pytest.approx(measured, rel=0.1)


def test_states_are_eighteen_bytes_and_six_with_a_distributed_optimizer() -> None:
    """Megatron-LM, theoretical_memory_usage.py: 18, or 6 + 12 / data."""
    plain = memory(job(LLAMA_8B, 8))
    per = (plain.weights + plain.gradients + plain.states) / plain.parameters
    assert per == pytest.approx(18)
    sharded = memory(job(LLAMA_8B, 8, sharding="optimizer"))
    assert (sharded.weights + sharded.gradients + sharded.states) / sharded.parameters == pytest.approx(6 + 12 / 8)
    full = memory(job(LLAMA_8B, 8, sharding="full"))
    assert (full.weights + full.gradients + full.states) / full.parameters == pytest.approx(18 / 8)


TOKENS = 2048  # of one microbatch of `job`


def layer(made: TrainingJob) -> float:
    """Return the bytes of one token and layer in a job without a pipeline."""
    schedule, parallel = made.schedule, made.parallel
    tokens = schedule.sequence * schedule.micro_batch / parallel.context
    embedding = 8 * made.model.hidden / parallel.tensor
    return (memory(made).activations / tokens - embedding) / made.model.layers


def test_activations_of_a_layer_are_korthikantis_thirty_four() -> None:
    """Each layer keeps s b h (34 + 5 a s / h); with tensor parallelism 10 + 24 / t; with its sequence, 34 / t."""
    hidden = GPT_175B.hidden
    plain = job(GPT_175B, 8)
    assert layer(plain) == pytest.approx(34 * hidden)
    scores = 5 * 96 * 2048
    assert layer(plain.changed(fused_attention=False)) == pytest.approx(34 * hidden + scores)
    assert layer(plain.changed(fused_attention=False, recompute="selective")) == pytest.approx(34 * hidden)
    assert layer(plain.changed(tensor=8)) == pytest.approx((10 + 24 / 8) * hidden)
    assert layer(plain.changed(tensor=8, sequence_parallel=True)) == pytest.approx(34 / 8 * hidden)
    assert layer(plain.changed(dropout=False)) == pytest.approx(32 * hidden)


def test_activations_of_a_gated_layer_in_16_and_8_bit() -> None:
    """Norms keep input and output, attention q, k, v and its output, the gate both halves and their product."""
    hidden, inner, keys = 4096, 14336, 8 * 128
    made = job(LLAMA_8B, 8, dropout=False)
    assert layer(made) == 8 * hidden + (4 * hidden + 4 * keys) + 6 * inner
    # in FP8 the inputs of the four products take a byte, and that of the projection is a copy
    assert layer(made.changed(precision="fp8")) == 6 * hidden + (5 * hidden + 4 * keys) + 5 * inner


def test_activations_of_experts() -> None:
    """A GPU of a tensor group routes its share of the tokens; an expert keeps the input, both halves, the product."""
    model = Transformer(32, 4096, 14336, 32, 8, 32000, 128, True, False, 8, 2, 14336)
    made = job(model, 16, dropout=False, expert=8)
    dense = 8 * 4096 + 4 * 4096 + 4 * 1024
    assert layer(made) == dense + 2 * (2 * 4096 + 6 * 14336)
    shared = made.changed(tensor=2, sequence_parallel=True)
    assert layer(shared) == layer(made) / 2
    assert layer(made.changed(recompute="selective", recompute_modules="moe_act")) == dense + 2 * (2 * 4096 + 4 * 14336)
    assert layer(made.changed(recompute="selective", recompute_modules="moe")) == dense
    assert layer(made.changed(recompute="selective", recompute_modules="layernorm,moe")) == dense - 4 * 4096


def test_complete_recomputation_keeps_inputs_and_one_layer() -> None:
    model = Transformer(32, 4096, 16384, 32, 32, 51200, 128)
    made = job(model, 8, recompute="full")
    embedding, full, logits = 8 * 4096, 34 * 4096, 8 * 51200
    assert memory(made).activations == TOKENS * (32 * 2 * 4096 + embedding)  # the layer comes after the logits
    assert memory(made).logits == TOKENS * logits
    tiny = job(Transformer(32, 4096, 16384, 32, 32, 512, 128), 8, recompute="full")
    assert memory(tiny).activations == TOKENS * (32 * 2 * 4096 + embedding + full - 8 * 512)
    uniform = tiny.changed(recompute_layers=4, recompute_method="uniform")
    assert memory(uniform).activations == TOKENS * (8 * 2 * 4096 + embedding + 4 * full - 8 * 512)
    block = tiny.changed(recompute_layers=4)
    assert memory(block).activations == TOKENS * (4 * 2 * 4096 + 28 * full + embedding + full - 8 * 512)


def test_offloaded_layers_and_states_leave_the_gpu() -> None:
    made = job(LLAMA_8B, 8)
    assert layer(made.changed(offload_layers=8)) == pytest.approx(layer(made) * 24 / 32)
    assert memory(made.changed(host_states=100)).states == 0
    assert memory(made.changed(host_states=25)).states == pytest.approx(0.75 * memory(made).states)
    assert memory(made.changed(moment_bytes=4, master_bytes=2)).states == pytest.approx(memory(made).states / 2)
    assert memory(made.changed(accumulated_bytes=4)).gradients == 2 * memory(made).gradients


def test_microbatches_in_flight() -> None:
    """1F1B: p on the first stage, 1 on the last; interleaved: p + (p - 1) / v, and all but one of v parts."""
    made = job(GPT_175B, 8, pipeline=8, global_batch=64)
    assert (in_flight(made), in_flight_last(made)) == (8, 1)
    interleaved = made.changed(virtual_stages=3)
    assert in_flight(interleaved) == pytest.approx(8 + 7 / 3)
    assert in_flight_last(interleaved) == pytest.approx(17 / 3)
    assert in_flight(made.changed(global_batch=4)) == 4


def test_the_last_stage_may_be_the_most_loaded() -> None:
    """A small model with a large vocabulary: logits outweigh the microbatches in flight."""
    model = Transformer(2, 512, 2048, 8, 8, 256000, 64)
    made = job(model, 2, pipeline=2, global_batch=8)
    assert memory(made).logits == TOKENS * 8 * 256000


def test_full_sharding_gathers_layers() -> None:
    made = TrainingJob(LLAMA_70B, Parallelism(sharding="full"), Schedule(8192, 1, 64), 64)
    width = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    assert memory(made).buffers == 3 * 2 * max(width, 128256 * 8192)
    assert memory(made.changed(sharding="optimizer")).buffers == 0


def test_options_of_memory() -> None:
    """Modules are several words; Adam's two types add up; a fraction is per cent."""
    text = (
        "--num-layers 4 --recompute-granularity selective --recompute-modules core_attn mla_up_proj mlp "
        "--exp-avg-dtype bf16 --main-grads-dtype bf16 --optimizer-cpu-offload --optimizer-offload-fraction 0.25 "
        "--hidden-dropout 0.0 --cpu-offloading-num-layers 2"
    )
    values = {name: own.value for name, own in megatron.parse(text, "job").values.items()}
    assert values["recompute_modules"] == "core_attn,mla_up_proj,mlp"
    assert (values["moment_bytes"], values["gradient_bytes"]) == (6, 2)
    assert (values["host_states"], values["dropout"], values["offload_layers"]) == (25, False, 2)
    assert values["framework"] == "megatron"
    assert megatron.parse("--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", "").get("moment_bytes") == 2
    odd = megatron.parse("--num-layers 4 --recompute-modules --hidden-dropout nan --optimizer-offload-fraction x", "")
    assert odd.get("recompute_modules") is None
    assert (odd.get("dropout"), odd.get("host_states")) == (True, 100)
