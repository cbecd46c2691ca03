"""Logs of jobs in shapes that the generator of NCCL logs lacks; made up, for measurements.

Lines of a training program between those of NCCL, few and many ranks, times and launcher prefixes.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from tests.support.nccl_log_generate import Job, generate

_STEP = (
    b"iteration %8d/ 500000 | consumed samples: %12d | elapsed time per iteration (ms): %.1f | learning rate: %.6E"
    b" | global batch size: 1024 | lm loss: %.6E | loss scale: 1.0 | grad norm: %.3f |\n"
)
_AT_ONCE = 4 << 20


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
                values = (5000 + 100 * dice.random(), 3e-4 * dice.random(), 2 + dice.random(), dice.random())
                own.append(_STEP % (number, number * 1024, *values))
            for line in own:
                time = b"2025-11-21T10:%02d:%02d.%06dZ " % (number // 60 % 60, number % 60, dice.randrange(10**6))
                text = time + line if times else line
                out.write(text)
                written += len(text)
            if written >= size:
                break


def _generated(size: int, out: BinaryIO, ranks: int) -> None:
    generate(Job(ranks=ranks, dead=ranks // 2), size, out)


#: Measured logs by name; each function writes at least this many bytes.
SHAPES: dict[str, Callable[[int, BinaryIO], object]] = {
    "128 ranks": partial(_generated, ranks=128),
    "1,024 ranks": partial(_generated, ranks=1024),
    "8 ranks, srun -l, steps": partial(write, job=Job("2.18", 8, launcher="{rank}: "), steps=0.3),
    "64 ranks, mostly steps": partial(write, job=Job(ranks=64), steps=0.9),
    "64 ranks, times, steps": partial(write, job=Job(ranks=64), steps=0.5, times=True),
    "256 ranks, mpirun --tag-output": partial(write, job=Job(ranks=256, launcher="[1,{rank}]<stdout>:"), steps=0.3),
    "256 ranks, torchrun": partial(write, job=Job("2.27", 256, launcher="[rank{rank}]: "), steps=0.3),
}
