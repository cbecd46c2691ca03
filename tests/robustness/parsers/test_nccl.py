"""Logs of NCCL and nccl-tests: time grows with the text."""

from __future__ import annotations

import time

import pytest

from preflight.parsers import nccl_log
from preflight.parsers.nccl_tests import text as nccl_tests
from tests.unit.parsers.test_nccl import HEAD, OK, PREAMBLE, ROW, info


@pytest.mark.parametrize(
    "unit",
    [
        info("Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0/GDRDMA") + "\n", ROW + "\n", PREAMBLE + "\n", "1 2 3 4\n",
        "x" * 50, "1 " * 25, " " * 50, "NCCL ", "a:1:1 ", "[" * 50, "12: " * 12, "\x1b[" * 20, "> " * 20, OK,
    ],
    ids=range(14),
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    def seconds(size: int) -> float:
        text = HEAD + "\n" + unit * (size // len(unit))
        began = time.process_time()
        nccl_log.parse(text)
        nccl_tests.parse(text)
        return time.process_time() - began

    seconds(10_000)
    small = min(seconds(100_000) for _ in range(3))
    assert seconds(800_000) < 8 * small * 4 + 0.5
