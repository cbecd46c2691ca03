"""Comparison of nodes: a value that a check cannot use costs only the node that has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.node import NodeFacts
from preflight.judge.comparison import compared
from preflight.model import Finding, passed

Values = Mapping[str, object]


class Highest:
    """A check that fails to read a text, and to compare a tuple with a number."""

    def __init__(self, values: Values) -> None:
        self.values, self.runs = values, 0

    def findings(self, nodes: list[NodeFacts], sites: object) -> Iterator[Finding]:
        self.runs += 1
        values: list[Any] = [self.values[node.node] for node in nodes]
        for value in values:
            if isinstance(value, str):
                raise EvidenceError("file:/x", value)
            if value is None:
                raise SystemExit(0)
        yield passed(f"the highest is {max(values)} of {len(values)}")


def results(values: Values) -> tuple[list[str], str, dict[str, str]]:
    """Return the messages, the error, and the error of each node that is left out."""
    nodes = {place: NodeFacts(Evidence(name, "", {})) for place, name in enumerate(values)}
    check: Any = Highest(values)
    findings, error, errors = compared(check, nodes, {})
    assert check.runs < 2 * len(nodes) + 140
    left_out = {nodes[place].node: type(wrong).__name__ for place, wrong in errors.items()}
    return [finding.message for finding in findings], type(error).__name__, left_out


MANY = {f"n{number}": number for number in range(300)}


@pytest.mark.parametrize(
    ("values", "message", "left_out"),
    [
        ({"a": 1, "b": 2}, "the highest is 2 of 2", {}),
        ({"a": "no", "b": 2, "c": 3}, "the highest is 3 of 2", {"a": "EvidenceError"}),
        ({"a": 1, "b": None, "c": 3}, "the highest is 3 of 2", {"b": "SystemExit"}),
        ({"a": "no", "b": "no", "c": None, "d": 4, "e": 5}, "the highest is 5 of 2",
         {"a": "EvidenceError", "b": "EvidenceError", "c": "SystemExit"}),
        ({"a": (9,), "b": 2, "c": 3}, "the highest is 3 of 2", {"a": "TypeError"}),
        ({"a": 1, "b": (9,), "c": 3}, "the highest is 3 of 2", {"b": "TypeError"}),
        ({"a": 1, "b": 2, "c": (9,)}, "the highest is 2 of 2", {"c": "TypeError"}),
        ({**MANY, "x": (9,), "y": "no"}, "the highest is 299 of 300", {"x": "TypeError", "y": "EvidenceError"}),
        ({"x": (9,), **MANY}, "the highest is 299 of 300", {"x": "TypeError"}),
    ],
)  # fmt: skip
def test_nodes_are_compared_without_the_one_that_ends_it(
    values: Values, message: str, left_out: Mapping[str, str]
) -> None:
    assert results(values) == ([message], "NoneType", left_out)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"a": "no", "b": "no"}, "EvidenceError"),
        ({"a": None, "b": 2}, "SystemExit"),
        ({"a": 1, "b": (9,)}, "TypeError"),
        ({"a": 1, "b": 2, "c": (8,), "d": (9,)}, "TypeError"),
        ({name: (value,) if value % 2 else value for name, value in MANY.items()}, "TypeError"),
    ],
)
def test_no_node_is_singled_out_where_none_can_be(values: Values, error: str) -> None:
    assert results(values) == ([], error, {})
