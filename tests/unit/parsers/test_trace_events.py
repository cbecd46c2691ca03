"""Events of a trace: msgspec and the standard library decode the same events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflight.parsers import torch
from preflight.parsers.torch import trace_events
from tests.support.kineto_trace import trace
from tests.support.training_job import JobPlan, Layout, traces

_NUMBERS = st.one_of(st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=True), st.booleans())
_VALUES = st.recursive(
    st.one_of(_NUMBERS, st.none(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)
_NAMES = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "correlation", "device", "stream", "External id", "dtype",
          "Collective name", "In msg nelems", "Group size", "Process Group Name", "Process Group Ranks", "Seq",
          "Input Dims", "Input type", "Device Id", "Total Reserved", "args", "grid")  # fmt: skip
_FIELDS = st.dictionaries(st.sampled_from(_NAMES), st.one_of(_VALUES, st.integers(0, 99), st.just("X")), max_size=8)


@contextmanager
def without_msgspec() -> Iterator[None]:
    """Decode like the single-file build."""
    with mock.patch.object(trace_events, "_fast_decoder", return_value=None):
        yield


def _float(time: float) -> float:
    """Return a time as a float: the standard library decodes integers of any size."""
    return float(time) if abs(time) < 1e300 else float("inf")


def fields(events: Sequence[trace_events.Event]) -> list[str]:
    """Return all fields of the events as repr, because NaN does not equal itself."""
    plain = trace_events.Event._fields
    return [
        repr([_float(value) if name in ("begin", "length") else value for name in plain if name != "arguments"
              for value in [getattr(event, name)]]
             + [getattr(event.arguments or trace_events.NO_ARGUMENTS, name) for name in trace_events.Arguments._fields])
        for event in events
    ]  # fmt: skip


def test_msgspec_is_used() -> None:
    assert trace_events._fast_decoder() is not None
    ordinary = json.loads(trace(steps=2))["traceEvents"]
    fast = trace_events._fast_decoder()
    assert fast is not None
    assert len(fast(json.dumps(ordinary))) == len(ordinary)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(st.builds(lambda event, args: {**event, "args": args}, _FIELDS, _FIELDS), _VALUES), max_size=4)
)
@example([{"ph": "X", "ts": 1, "dur": 2.5, "args": {"correlation": True}}])
@example([{"ph": "X", "ts": "1", "dur": 2}, {"ph": "X", "ts": 1, "dur": 2, "args": {"device": None}}])
@example([{"ph": "X", "ts": 10**400, "dur": 2}])
def test_both_decoders_give_the_same_events(elements: list[Any]) -> None:
    text = json.dumps(elements)
    decoded = fields(trace_events.decode(text))
    with without_msgspec():
        assert fields(trace_events.decode(text)) == decoded


@pytest.mark.parametrize("text", [
    '[{"ph": "X", "name": "\\ud800", "ts": 1}]', '[{"ph": "X", "name": "a\x01b", "ts": 1}]',
    '[{"ph": "X", "ts": NaN, "dur": -Infinity}]', '[{"ph": "X", "ts": 1e999}]', '[{"ph": "X", "ph": "i"}]',
    '[{"ph": "X", "args": [1]}, {"ph": 5}, 7, null, {}]', "[]", '[{"ph": "X", "args": {}}]',
])  # fmt: skip
def test_what_json_allows_and_msgspec_refuses(text: str) -> None:
    decoded = fields(trace_events.decode(text))
    with without_msgspec():
        assert fields(trace_events.decode(text)) == decoded


@pytest.mark.parametrize("text", ['[{"ph": "X"', '[{"ph": "X", "ts": 1.2.3}]', '[{"ph": "X" "ts": 1}]', "[{]", ""])
def test_what_is_no_json_is_refused_by_both(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        trace_events.decode(text)
    with without_msgspec(), pytest.raises(ValueError, match=r"."):
        trace_events.decode(text)


@pytest.mark.parametrize("text", [trace(steps=6, items=2, pageable_ms=1), *traces(JobPlan(Layout(2, 2)))[:2]])
def test_both_give_the_same_facts(text: str) -> None:
    fast = torch.parse(text).trace
    with without_msgspec():
        plain = torch.parse(text).trace
    assert fast is not None
    assert plain is not None
    assert fast.document["events"] == len(json.loads(text)["traceEvents"])
    assert fast.document == plain.document
    assert fast.steps == plain.steps
