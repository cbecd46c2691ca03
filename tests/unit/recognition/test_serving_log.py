"""Reports of serving engines, and steps that a program prints in its own words; made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.recognition import read_text

VLLM = (
    "INFO 10-03 07:00:{second:02} [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
    "throughput: {rate} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {cache}%, "
    "Prefix cache hit rate: 3.0%\n"
)
ACCESS = 'INFO:     10.8.0.3:40112 - "POST /v1/completions HTTP/1.1" 200 OK\n'


def vllm(rates: list[float], running: int = 9, waiting: int = 0, cache: float = 40.0) -> str:
    return "".join(
        VLLM.format(second=second, rate=rate, running=running, waiting=waiting, cache=cache) + ACCESS
        for second, rate in enumerate(rates)
    )


def findings(text: str) -> dict[str, tuple[str, str]]:
    return {item["check"]: (item["status"], item["message"]) for part in read_text(text, "p") for item in part.findings}


def facts(text: str) -> dict[str, Any]:
    (part,) = read_text(text, "p")
    return part.taken.facts


@pytest.mark.parametrize(
    ("text", "check", "status"),
    [
        (vllm([911.0, 905.5]), "gpu.memory-headroom", "pass"),
        (vllm([911.0, 905.5]), "torch.hang", "pass"),
        (vllm([911.0], waiting=12), "gpu.memory-headroom", "pass"),  # more requests than the engine runs at once
        (vllm([911.0], waiting=12, cache=98.9), "gpu.memory-headroom", "warn"),
        (vllm([911.0], waiting=0, cache=98.9), "gpu.memory-headroom", "pass"),
        (vllm([911.0] + [0.0] * 6), "torch.hang", "warn"),
        (vllm([0.0] * 6 + [911.0]), "torch.hang", "pass"),  # it compiled its graphs
        (vllm([911.0, 0.0]), "torch.hang", "unknown"),
        (vllm([0.0] * 9, running=0), "torch.hang", "pass"),  # it has no request
    ],
)
def test_what_a_serving_engine_reports(text: str, check: str, status: str) -> None:
    assert findings(text)[check][0] == status


def test_values_of_both_engines() -> None:
    line = "[2026-10-03 07:00:00 TP0] Decode batch. #running-req: 4, #token: 811, token usage: 0.25, gen throughput " \
        "(token/s): 77.5, #queue-req: 2,\n"  # fmt: skip
    assert facts(line)["reports"][0] == {
        "engine": None, "generation_tokens_s": 77.5, "prompt_tokens_s": None, "running": 4, "waiting": 2,
        "kv_cache_used": 0.25, "line": 1,
    }  # fmt: skip
    assert facts(vllm([911.0]))["reports"][0]["kv_cache_used"] == 0.4


STEPS = {
    "step {step} loss {loss} lr 1e-5 tok/s 181022\n": (None, 181022.0),
    "iter {step}: loss {loss}, time 250.00ms, mfu 40.10%\n": (0.25, None),
    "[rank0] Step {step}/5000 | loss: {loss} | grad_norm: 0.4 | step_time: 1.50 s | tokens/s: 104,233\n": (
        1.5,
        104233.0,
    ),
}


@pytest.mark.parametrize("form", STEPS)
def test_steps_in_a_programs_own_words(form: str) -> None:
    text = "".join(form.format(step=step, loss=f"2.{step}") for step in range(10, 30))
    seconds, rate = STEPS[form]
    read = facts(text)
    assert (read["steps"], read["first_step"], read["last_step"], read["last_loss"]) == (20, 10, 29, 2.29)
    assert (read["step_time_s"] or {}).get("median") == seconds
    assert (read["throughput"] or {}).get("median") == rate
    assert findings(text)["torch.steps"][0] == "pass"
    assert findings(form.format(step=3, loss="nan"))["torch.steps"][0] == "fail"
    assert findings(form.format(step=3, loss="1.5"))["torch.steps"][0] == "unknown", "one step is not compared"


@pytest.mark.parametrize(
    "line",
    ["the loss of step 3 is what matters\n", "step 3: link loss detected\n", "packet loss 0%, step 4\n", "step loss\n"],
)
def test_a_sentence_about_a_loss_has_no_step(line: str) -> None:
    assert not read_text(line, "p")


@pytest.mark.parametrize(
    ("loss", "norm", "status"), [("2.1E+00", "0.3", "unknown"), ("NAN", "nan", "fail"), ("2.1E+00", "NaN", "warn")]
)
def test_a_loss_or_a_gradient_that_is_not_a_number(loss: str, norm: str, status: str) -> None:
    text = (
        f" iteration      7/  90 | elapsed time per iteration (ms): 410.2 | lm loss: {loss} | grad norm: {norm} |"
        " number of nan iterations: 0 |\n"
    )
    assert findings(text)["torch.steps"][0] == status


def test_a_gradient_of_the_trainers_dictionary() -> None:
    form = "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 1.9e-05, 'epoch': 0.31}}\n"
    assert findings(form.format(loss=2.1, norm="nan"))["torch.steps"][0] == "warn"
    assert findings(form.format(loss=2.1, norm="0.4"))["torch.steps"][0] == "unknown"
