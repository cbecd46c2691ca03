"""Hostile traces and dumps of PyTorch: time grows linearly with the text."""

from __future__ import annotations

import pytest

from preflight.parsers import torch
from preflight.recognition import read_text


@pytest.mark.parametrize("text", ["[" * 200_000, '{"traceEvents":[' + '{"ph":' * 100_000, '{"ph":"X"},' * 60_000,
                                  '{"entries": [' + '{"record_id":1,' * 60_000, '{"a":"' + "x" * 2_000_000,
                                  '{"ph":"X","ts":1e999,"dur":NaN},{"ph":"X","ts":' + "9" * 5000 + "}"])  # fmt: skip
def test_hostile_json_takes_linear_time(text: str) -> None:
    torch.parse(text)


@pytest.mark.parametrize(
    "line", ['{"ph":"X","cat":"a" bad', '{"pg_config": 1', '{"traceEvents":[', '[{"record_id": 1, "state": x']
)
def test_many_beginnings_of_nothing_take_linear_time(line: str) -> None:
    read_text(f"{line}\n" * 20_000, "pasted")
