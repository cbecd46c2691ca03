"""Parameters, operations, memory, bytes and bubbles, compared with numbers computed by hand or published."""

from __future__ import annotations

from math import isclose
from typing import Any

import pytest

from preflight.layout.arithmetic import model_flops, operations, parameters
from preflight.layout.hardware import described
from preflight.layout.job import Parallelism, Schedule, TrainingJob, Transformer
from preflight.layout.memory import memory
from preflight.layout.placement import RankPlacement
from preflight.layout.step import bubble, bubble_share
from preflight.layout.traffic import Exchange, exchanges

GPT_175B = Transformer(96, 12288, 4 * 12288, 96, 96, 51200, 128)
LLAMA_8B = Transformer(32, 4096, 14336, 32, 8, 128256, 128, gated=True, tied=False)
LLAMA_70B = Transformer(80, 8192, 28672, 64, 8, 128256, 128, gated=True, tied=False)
LLAMA_405B = Transformer(126, 16384, 53248, 128, 8, 128256, 128, gated=True, tied=False)
MIXTRAL = Transformer(32, 4096, 14336, 32, 8, 32000, 128, True, False, 8, 2, 14336)
DEEPSEEK_V3 = Transformer(
    61, 7168, 18432, 128, 128, 129280, 128, True, False, 256, 8, 2048, 2048, 3,
    query_rank=1536, kv_rank=512, position_size=64, value_size=128,
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "billions", "active"),
    [(GPT_175B, 174.6, 174.6), (LLAMA_8B, 8.03, 8.03), (LLAMA_70B, 70.55, 70.55), (LLAMA_405B, 405.85, 405.85),
     (MIXTRAL, 46.7, 12.88), (DEEPSEEK_V3, 671.0, 37.5)],
)  # fmt: skip
def test_parameters_are_those_of_the_published_models(model: Transformer, billions: float, active: float) -> None:
    count = parameters(model)
    assert isclose(count.total / 1e9, billions, rel_tol=0.005)
    assert isclose(count.active / 1e9, active, rel_tol=0.01)


def test_operations_are_those_of_narayanans_equation() -> None:
    """96 B s l h^2 (1 + s/6h + V/16lh) counts the recomputed forward pass and the scores above the diagonal."""
    model, sequence = GPT_175B, 2048
    hidden, layers = model.hidden, model.layers
    equation = 96 * layers * hidden**2 * (
        1 + sequence / (6 * hidden) + model.vocabulary / (16 * layers * hidden)
    )  # fmt: skip
    own = operations(model, sequence)
    recomputed = own.layers(model) + 2 * layers * own.scores
    assert isclose(model_flops(model, sequence, causal=False) + recomputed, equation, rel_tol=1e-9)


def job(model: Transformer, gpus: int, sequence: int = 2048, global_batch: int = 64, **changes: Any) -> TrainingJob:
    made = TrainingJob(model, Parallelism(), Schedule(sequence, 1, global_batch), gpus)
    return made.changed(**changes)


def test_bubble_of_the_documents() -> None:
    assert bubble_share(4, 1, 4) == pytest.approx(3 / 7)
    assert bubble(4, 1, 4) == pytest.approx(3 / 4)
    assert bubble(8, 2, 16) == pytest.approx(7 / 32)


def moved(made: TrainingJob, on: str = "64 x HGX H100, rail-optimised") -> dict[str, list[Exchange]]:
    by_axis: dict[str, list[Exchange]] = {}
    for exchange in exchanges(made, RankPlacement(described(on), made.gpus)):
        by_axis.setdefault(exchange.axis, []).append(exchange)
    return by_axis


def test_bytes_of_tensor_parallelism() -> None:
    """Megatron-LM, 2019: four all-reduces of 2 s b h bytes for each layer and microbatch, six with recomputation."""
    made = job(GPT_175B, 64, tensor=8, pipeline=8)
    (own,) = moved(made)["tensor"]
    assert own.size == 2 * 2048 * 12288
    assert own.count == 64 * 4 * 12
    assert own.moved == pytest.approx(own.count * own.size * 2 * 7 / 8)
    (again,) = moved(made.changed(recompute="full"))["tensor"]
    assert again.count == own.count * 1.5


def test_bytes_of_a_pipeline_and_of_data_parallelism() -> None:
    made = job(GPT_175B, 128, tensor=8, pipeline=8)
    parts = moved(made)
    assert parts["pipeline"][0].moved == 2 * 32 * 2 * 2048 * 12288
    (reduced,) = parts["data"]
    assert reduced.collective == "all_reduce"
    assert reduced.size == pytest.approx(4 * memory(made).parameters)
    sharded = moved(made.changed(sharding="optimizer"))["data"]
    assert [own.collective for own in sharded] == ["reduce_scatter", "all_gather"]
    assert sharded[0].size == 2 * sharded[1].size


def test_bytes_of_experts() -> None:
    """DeepSeek-V3: dispatch and combine, forward and backward; each token goes to its experts in 16 bit."""
    made = job(MIXTRAL, 64, expert=8, global_batch=64)
    (own,) = moved(made)["expert"]
    assert own.size == 2 * 2048 * 2 * 4096
    assert own.count == 4 * 32
    assert own.moved == pytest.approx(own.count * own.size * 7 / 8)
