"""Garbage and damage in a node's records: no check crashes, and none passes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.judge import findings, judge
from preflight.model import Scope
from tests.support.fixture import whole_node
from tests.support.node_documents import CHECKS, GARBAGE, document, statuses
from tests.support.whole_nodes import readers

#: ``node.expected`` has nothing to compare, because there is no cluster file here.
NODE_CHECKS = [c for c in CHECKS if c.scope is Scope.NODE and c.id != "node.expected"]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda value: json.dumps(value)[:50])
@pytest.mark.parametrize("base", ["hgx-h100", "hgx-h100-roce"])
def test_garbage_in_every_record(garbage: Any, base: str, caplog: pytest.LogCaptureFixture) -> None:
    report = judge([document(dict.fromkeys(whole_node(base)["records"], garbage))], CHECKS)
    assert not caplog.records, "a check crashed"
    undeclared = ("host.inventory", "host.mounts", "host.services", "host.processes", "host.failed-units")
    read = {name: status for name, status in statuses(report).items() if name not in undeclared}
    assert set(read.values()) <= {"unknown"}, read
    for finding in report["findings"]:
        if finding["check"].startswith(("fleet.", "serving.placement", "checkpoint.", "node.expected", *undeclared)):
            continue  # no cluster file, and one node: nothing to compare
        assert any(key.partition(":")[2] in finding["message"] for key in finding["evidence"]), finding
    assert report["exit_status"] == 3


def _one_by_one(base: str) -> Iterator[tuple[str, Any]]:
    """Each kind of garbage in turn; the test above uses all kinds in every record at once."""
    yield from zip(whole_node(base)["records"], cycle(GARBAGE), strict=False)


@pytest.mark.parametrize("base", ["hgx-h100", "hgx-h100-roce"])
def test_garbage_in_one_record_never_crashes(base: str, caplog: pytest.LogCaptureFixture) -> None:
    records = whole_node(base)["records"]
    reading = readers(document(records), NODE_CHECKS)
    assert sum(map(len, reading.values())) > len(records), "who reads what is seen"
    seen: Counter[str] = Counter()
    for key, garbage in _one_by_one(base):
        shape = re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", key)
        if seen[shape] == 2:  # two of the twelve ports, eight interfaces or all PCI functions represent the rest
            continue
        seen[shape] += 1
        findings([document({**records, key: garbage})], reading[key])
        assert not caplog.records, (key, garbage)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_records_never_crash(data: st.DataObject) -> None:
    records = dict(whole_node("hgx-h100-roce")["records"])
    for _ in range(5):
        key = data.draw(st.sampled_from(sorted(records)))
        record = records[key]
        if isinstance(record, dict) and isinstance(record.get("out"), str):
            at = data.draw(st.integers(0, len(record["out"])))
            text = record["out"][:at] + data.draw(st.text(max_size=20))
            records[key] = {**record, "out": text + record["out"][at + data.draw(st.integers(0, 9)) :]}
    assert not [f for f in findings([document(records)], NODE_CHECKS) if "crashed" in f["message"]]
