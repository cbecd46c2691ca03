"""Logs of jobs in shapes that the generator of NCCL logs lacks; made up, for measurements.

Lines of training programs, alone and between those of NCCL, few and many ranks, times and launcher prefixes.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from tests.support.nccl_log_generate import Job, generate

#: Step lines of programs, by the program's name.
_STEPS = {
    "Megatron-LM": b"iteration %(step)8d/ 500000 | consumed samples: %(samples)12d | elapsed time per iteration (ms):"
    b" %(ms).1f | learning rate: %(norm).6E | global batch size: 1024 | lm loss: %(loss).6E | loss scale: 1.0"
    b" | grad norm: %(norm).3f |\n",
    "DeepSpeed": b"steps: %(step)d loss: %(loss).4f iter time (s): %(s).3f samples/sec: %(rate).3f\n",
    "torchtitan": b"2025-11-21 10:%(minute)02d:00,123 - root - INFO - step: %(step)2d  loss: %(loss)7.4f  "
    b"memory: 61.20GiB(77.21%%)  tps: %(rate).0f  tflops: %(rate).2f  mfu: 41.20%%\n",
    "progress bar": b"%(minute)3d%%|%(bar)-60s| %(step)d/900000 [%(minute)02d:00<10:00:00,  %(s).2fs/it,"
    b" loss=%(loss).3f]\n",
}
_AT_ONCE = 4 << 20


def _values(step: int, dice: random.Random) -> dict[bytes, object]:
    minute, share = step // 60 % 60, dice.random()
    return {b"step": step, b"samples": step * 1024, b"minute": minute, b"bar": b"\xe2\x96\x88" * (minute // 3),
            b"ms": 5000 + 100 * share, b"s": 1 + share / 50, b"rate": 7000 + share, b"loss": 2 + share,
            b"norm": share}  # fmt: skip


def write(size: int, out: BinaryIO, *, job: Job, steps: float = 0.0, times: bool = False) -> None:
    """Write a log of at least this many bytes, with a share (``steps``) of lines of a training program."""
    dice = random.Random(job.seed)
    held = io.BytesIO()
    generate(job, min(size, _AT_ONCE), held)
    lines = held.getvalue().splitlines(keepends=True)
    written = number = 0
    while written < size:
        for line in lines:
            own = [line]
            while dice.random() < steps:
                number += 1
                own.append(_STEPS["Megatron-LM"] % _values(number, dice))
            for line in own:
                time = b"2025-11-21T10:%02d:%02d.%06dZ " % (number // 60 % 60, number % 60, dice.randrange(10**6))
                text = time + line if times else line
                out.write(text)
                written += len(text)
            if written >= size:
                break


def _generated(size: int, out: BinaryIO, ranks: int) -> None:
    generate(Job(ranks=ranks, dead=ranks // 2), size, out)


def write_steps(size: int, out: BinaryIO, *, program: str, prefix: bytes = b"", ranks: int = 1) -> None:
    """Write a log that consists of the step lines of all ranks, without a line of NCCL."""
    dice = random.Random(size)
    written = step = 0
    while written < size:
        step += 1
        for rank in range(ranks):
            written += out.write((prefix % rank if prefix else b"") + _STEPS[program] % _values(step, dice))


#: Measured logs by name; each function writes at least this many bytes.
SHAPES: dict[str, Callable[[int, BinaryIO], object]] = {
    "128 ranks": partial(_generated, ranks=128),
    "1,024 ranks": partial(_generated, ranks=1024),
    "8 ranks, srun -l, steps": partial(write, job=Job("2.18", 8, launcher="{rank}: "), steps=0.3),
    "64 ranks, mostly steps": partial(write, job=Job(ranks=64), steps=0.9),
    "64 ranks, times, steps": partial(write, job=Job(ranks=64), steps=0.5, times=True),
    "256 ranks, mpirun --tag-output": partial(write, job=Job(ranks=256, launcher="[1,{rank}]<stdout>:"), steps=0.3),
    "256 ranks, torchrun": partial(write, job=Job("2.27", 256, launcher="[rank{rank}]: "), steps=0.3),
    "only steps, DeepSpeed": partial(write_steps, program="DeepSpeed"),
    "only steps, progress bar": partial(write_steps, program="progress bar"),
    "only steps, 8 ranks, torchtitan": partial(write_steps, program="torchtitan", prefix=b"[rank%d]: ", ranks=8),
    "only steps, 8 ranks, Megatron-LM": partial(write_steps, program="Megatron-LM", prefix=b"[1,%d]<stdout>:", ranks=8),
}
