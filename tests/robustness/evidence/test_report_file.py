"""Reports with arbitrary values are read part by part without a change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.evidence import report_file
from tests.robustness.test_decoding import VALUES


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=5), st.sampled_from((None, 1)))
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, value: Any, indent: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    read = report_file.read(path)
    assert json.dumps(read) == json.dumps(value)
