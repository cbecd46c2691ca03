"""Time of kernels other than matrix products: attention, element-wise kernels, the loss, recomputation."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.layout.hardware import described
from preflight.layout.step import ATTENTION, assumptions, step
from preflight.parsers.job_config import torchtitan
from tests.unit.layout.test_formulas import GPT_175B, LLAMA_8B, job

H100 = described("1 x HGX H100")


def seconds(**changes: Any) -> float:
    """Return the arithmetic of a step of Llama 8B with FSDP on eight H100."""
    made = job(
        LLAMA_8B, 8, sharding="full", **{"sequence": 8192, "global_batch": 8, "framework": "megatron", **changes}
    )
    return step(made, H100).parts[0].seconds


def test_attention_runs_at_the_rate_of_its_kernel() -> None:
    """Per token and layer 2 x 4096 x 8192 operations forward, 2.5 times as many backward."""
    tokens, layers, operations = 8192, 32, 2 * 4096 * 8192
    for framework, kernel in (("megatron", "cudnn"), ("torchtitan", "flash-2")):
        ahead, back = ATTENTION[kernel]["Hopper"]
        long, short = (
            seconds(framework=framework, fused_kernels=True, sequence=sequence, micro_batch=8192 // sequence,
                    global_batch=8 * 8192 // sequence)
            for sequence in (8192, 4096)
        )  # fmt: skip
        added = tokens * layers * operations / 2 * (1 / ahead + 2.5 / back) / 989e12
        assert long - short == pytest.approx(added)


def test_attention_in_triton_is_slower() -> None:
    """On long sequences, 1.4 times forward and 1.9 times backward."""
    triton, flash = (seconds(framework="", sequence=65536, attention_kernel=kernel) for kernel in ("triton", "flash-2"))
    assert flash == seconds(framework="", sequence=65536)
    assert 1.4 < triton / flash < 1.8


def test_a_power_limit_slows_arithmetic_and_not_memory() -> None:
    """600 of 700 W costs 10 to 15% of a step; a limit above the datasheet's changes nothing."""
    made = job(LLAMA_8B, 8, sharding="full", sequence=8192, global_batch=8, framework="megatron")

    def of(words: str) -> tuple[float, float]:
        own = step(made, described(f"1 x HGX H100{words}"))
        return own.seconds, own.parts[-1].seconds

    full, optimizer = of("")
    capped, same = of(", 600 W")
    assert 1.09 < capped / full < 1.15
    assert same == optimizer
    assert of(", 900 W") == of(", 700 W") == (full, optimizer)
    assert of(", 2.4 TB/s")[1] == pytest.approx(optimizer * 3.35 / 2.4)
    shown = {name: (value, origin) for name, value, origin in assumptions(made, described("1 x HGX H100, 500 W"))}
    assert shown["power limit"] == ("500 W", "the clock falls to 78%")


def test_an_exchange_that_arithmetic_hides_occupies_a_fifth_of_it() -> None:
    made = job(LLAMA_8B, 8, sharding="full", sequence=8192, global_batch=8, framework="megatron")
    own = step(made, H100)
    hidden = sum(part.hidden for part in own.parts if part.name == "data")
    alone = step(made.changed(sharding="none"), H100)
    assert hidden > 0
    assert own.parts[0].seconds == pytest.approx(alone.parts[0].seconds + 0.2 * hidden)


def test_separate_kernels_of_other_frameworks_move_more() -> None:
    """Norms, residuals, rotary embedding and gate: 84 h + 20 (q + k) + 10 f bytes instead of 22 h + 6 f."""
    more = 62 * 4096 + 20 * (4096 + 1024) + 4 * 14336
    slower, faster = (seconds(framework="torchtitan", fused_kernels=fused) for fused in (False, True))
    assert slower - faster == pytest.approx(3 * 8192 * 32 * more / (0.8 * 3.35e12))
    plain = job(GPT_175B, 8, sharding="full", global_batch=8, framework="deepspeed")  # LayerNorm and GELU are kernels
    assert step(plain, H100).seconds == step(plain.changed(fused_kernels=True), H100).seconds


def test_recomputation_repeats_what_is_not_stored() -> None:
    scores = 8192 * 32 * 2 * 4096 * 8192 / (ATTENTION["cudnn"]["Hopper"][0] * 989e12)
    assert seconds(recompute="selective") - seconds() == pytest.approx(scores)
    assert seconds(recompute="selective", recompute_modules="layernorm") == seconds()
    titan = {"framework": "torchtitan", "fused_kernels": True}
    selective, full = (seconds(recompute=kind, **titan) - seconds(**titan) for kind in ("selective", "full"))
    assert 0.3 < selective / full < 0.6


def test_torchtitan_states_fused_kernels_and_the_overlap_of_tensor_parallelism() -> None:
    stated = torchtitan.parse(
        {"model": {}, "training": {"compile": True}, "parallelism": {"enable_async_tensor_parallel": True}}, "job.toml"
    ).values
    assert stated["fused_kernels"].value is True
    assert stated["fused_kernels"].origin == "job.toml: training.compile"
    assert stated["overlap_tensor"].value is True
    newer = torchtitan.parse({"model": {}, "training": {}, "compile": {"enable": False}}, "job.toml").values
    assert newer["fused_kernels"].value is False
    assert "overlap_tensor" not in newer


def test_the_rates_behind_a_step_have_origins() -> None:
    """`--explain` shows them; the share of each datasheet is that of the computation."""
    made = job(LLAMA_8B, 8, sharding="full", framework="megatron")
    own = {name: (value, origin) for name, value, origin in assumptions(made, H100)}
    assert own["matrix products"] == ("633 TFLOP/s", "0.64 of the datasheet's 989 in bf16; fitted to published runs")
    assert own["attention"][0] == f"{0.54 * 989:.0f} TFLOP/s"
    assert own["GPU memory"] == ("2.68 TB/s", "0.8 of the datasheet's 3.35")
    assert own["range"][0] == "0.86 to 1.16"
    other = {name: value for name, value, _ in assumptions(made.changed(framework="deepspeed"), H100)}
    assert other["attention"] == f"{0.33 * 989:.0f} TFLOP/s"
    assert other["range"] == "0.78 to 3"
