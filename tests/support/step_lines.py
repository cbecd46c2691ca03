"""Step lines of training programs, in their documented formats."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Framework -> a line; all print the time of a step or its throughput.
FORMS = {
    "Megatron-LM": " [2026-05-11 09:00:00] iteration {step:8d}/  200000 | consumed samples: {samples:12d} | elapsed "
    "time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | learning rate: 2.0E-04 | "
    "global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.412 | number of skipped "
    "iterations:   0 | number of nan iterations:   0 |",
    "NeMo": "Training epoch 0, iteration {step}/199999 | lr: 2e-04 | global_batch_size: {batch} | "
    "global_step: {step} | reduced_train_loss: {loss:.3f} | train_step_timing in s: {s:.4f}",
    "torchtitan": "[titan] 2026-05-11 09:00:00,101 - root - INFO - step: {step:2d}  loss: {loss:7.4f}  memory: "
    "61.20GiB(77.10%)  tps: {tps:,.0f}  tflops: {tflops:.2f}  mfu: {mfu:.2f}%",
    "DeepSpeed": "steps: {step} loss: {loss:.4f} iter time (s): {s:.3f} samples/sec: {rate:.3f}",
    "Lightning": "Epoch 0:   1%|1         | {step}/200000 [00:01<9:01, {s:6.3f}s/it, v_num=1, train_loss={loss:.3f}]",
    "a program": "step {step} | loss {loss:.4f} | dt: {ms:.2f}ms | tok/s: {tps:.0f}",
}


def log(
    times: Sequence[float], framework: str = "Megatron-LM", *, first: int = 1, every: int = 1, batch: int = 256,
    ranks: int | None = None, rate: float = 1.0,
) -> str:  # fmt: skip
    """Return a log with one line for each time in s; ``rate`` scales the throughput of a GPU."""
    head = f"using world size: {ranks}, data-parallel size: {ranks}\n" if ranks else ""
    lines = []
    for number, time in enumerate(times):
        step = first + every * number
        work = rate / time
        lines.append(FORMS[framework].format(
            step=step, samples=step * batch, ms=1000 * time, s=time, batch=batch, loss=2.5 - step * 1e-6,
            tflops=400 * work, tps=5000 * work, mfu=min(40 * work, 99.0), rate=batch / time,
        ))  # fmt: skip
    return head + "\n".join(lines) + "\n"


def jittered(chance: random.Random, steps: int, jitter: float = 0.03) -> list[float]:
    """Return step times around 1 s; the first step is slow."""
    return [chance.uniform(3, 20), *(max(0.5, chance.gauss(1, jitter)) for _ in range(steps - 1))]
