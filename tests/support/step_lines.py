"""Step lines of training programs, in their documented formats."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

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
    "Lightning": "Epoch 0:   1%|1         | {step}/200000 [{elapsed}<99:01:00, {mean:5.2f}s/it, v_num=1, "
    "train_loss={loss:.3f}]",
    "a program": "step {step} | loss {loss:.4f} | dt: {ms:.2f}ms | tok/s: {tps:.0f}",
}


def log(
    times: Sequence[float], framework: str = "Megatron-LM", *, first: int = 1, every: int = 1, batch: int = 256,
    ranks: int | None = None, rate: float = 1.0,
) -> str:  # fmt: skip
    """Return a log with one line for each time in s; ``rate`` scales the throughput of a GPU.

    Lightning's bar shows the mean time since its start: its steps take forty times as long, so that each is visible.
    """
    head = f"using world size: {ranks}, data-parallel size: {ranks}\n" if ranks else ""
    lines = []
    times = [40 * time for time in times] if framework == "Lightning" else times
    elapsed = (first - every) * sorted(times)[len(times) // 2]
    for number, time in enumerate(times):
        step = first + every * number
        elapsed += every * time
        work = rate / time
        lines.append(FORMS[framework].format(
            step=step, samples=step * batch, ms=1000 * time, s=time, batch=batch, loss=2.5 - step * 1e-6,
            tflops=400 * work, tps=5000 * work, mfu=min(40 * work, 99.0), rate=batch / time,
            mean=elapsed / max(step, 1), elapsed=clock(elapsed),
        ))  # fmt: skip
    return head + "\n".join(lines) + "\n"


def clock(seconds: float) -> str:
    """Format a time as tqdm does."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


def bar(
    times: Sequence[float], framework: str = "HF Trainer", *, losses: int = 10,
    pauses: Mapping[int, float] | None = None,
) -> str:  # fmt: skip
    """Return a log in which tqdm overwrites its bar: a moving average of all steps, or Lightning's mean.

    HF Trainer prints a loss after every tenth step, or never, and shows the bar again. ``pauses`` are seconds of
    evaluations, by the step before.
    """
    text, elapsed, total, average, pause = "", 0.0, len(times), 0.0, 0.0
    for step, time in enumerate(times, 1):
        elapsed += time + pause
        average, pause = 0.3 * (time + pause) + 0.7 * average, 0.0
        pace = elapsed / step if framework == "Lightning" else average / (1 - 0.7**step)
        rate = f"{pace:5.2f}s/it" if pace > 1 else f"{1 / pace:5.2f}it/s"
        more = ", v_num=1, train_loss=2.500" if framework == "Lightning" else ""
        head = "Epoch 0: " if framework == "Lightning" else ""
        state = f"\r{head}{100 * step // total:3}%|{'#' * (10 * step // total):10}| {step}/{total} " \
            f"[{clock(elapsed)}<{clock((total - step) * pace)}, {rate}{more}]"  # fmt: skip
        text += state
        if framework == "HF Trainer" and losses and step % losses == 0:
            text += f"\n{{'loss': {3 - step / total:.3f}, 'grad_norm': 1.1, 'epoch': {step / total:.2f}}}\n{state}"
        if pause := (pauses or {}).get(step, 0.0):
            text += f"\r100%|{'#' * 10}| 8/8 [00:04<00:00,  1.90it/s]\n{{'eval_loss': 2.2, 'epoch': 1.0}}\n"
    return f"{text}\n"


def jittered(chance: random.Random, steps: int, jitter: float = 0.03) -> list[float]:
    """Return step times around 1 s; the first step is slow."""
    return [chance.uniform(3, 20), *(max(0.5, chance.gauss(1, jitter)) for _ in range(steps - 1))]
