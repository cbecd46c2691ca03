"""Documents of one node made of records, and their judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import SCHEMA, Evidence, from_document
from preflight.model import Scope

CHECKS = registry().checks

#: Replacements of a record.
GARBAGE: list[Any] = [
    None, 7, "text", [], [1], {}, {"status": 1}, {"status": "ok"}, {"status": "fine"},
    {"status": "ok", "out": 3}, {"status": "ok", "entries": []}, {"status": "ok", "entries": {"x": 1}},
    {"status": "ok", "rc": "0"}, {"status": "ok", "out": "\x00\x1b[31m<script>\u202egarbage", "rc": 0},
    {"status": "ok", "rc": 127, "out": ""}, {"status": "ok", "rc": 1, "out": "PASS 400 Gb/sec"},
    {"status": "ok", "out": "", "rc": 0}, {"status": "ok", "value": "garbage"}, {"status": "ok", "value": [1]},
    {"status": "ok", "value": {"gpus": [7], "driver": 1}}, {"status": "cut", "out": "4: ACTIVE\n"},
    {"status": "timeout"}, {"status": "denied"}, {"status": "abandoned"}, {"status": "error"},
    {"status": "not-run"}, {"status": "missing"},
]  # fmt: skip


def document(records: Mapping[str, Any], name: str = "node1") -> Evidence:
    return from_document({"schema": SCHEMA, "node": name, "collected_at": "", "records": records}, name)


def statuses(report: Mapping[str, Any], scope: Scope = Scope.NODE) -> dict[str, str]:
    of_scope = {c.id for c in CHECKS if c.scope is scope and c.id != "node.expected"}
    return {c: s for c, s in report["nodes"][0]["checks"].items() if c in of_scope}
