"""Handwritten records for tests of checks, in a short form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.evidence.document import SCHEMA, STATUSES, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.facts.node import NodeFacts
from preflight.judge.check_result import outcome
from preflight.model import Check, Finding, Scope


def findings_of(check: Check, records: Mapping[str, Any], site: Mapping[str, Any] | None = None) -> tuple[Finding, ...]:
    """Return the findings of a node check on handwritten records.

    ``records`` maps record keys to short forms: a string is the content of a file or the output of a command; a list of
    names is a directory; ``{"missing": "why"}`` (also denied, timeout, cut, error, not-run) is a record without a
    value; any other mapping is a value. ``site`` is the body of a node class in the cluster file, as a dictionary.
    As in a run, a record that cannot answer, an exception in the check and a check without a finding become *unknown*.
    """
    if check.scope is not Scope.NODE:
        raise ValueError(f"{check.id} is a check of a {check.scope}; findings_of only runs node checks")
    name = "node1"
    document = {
        "schema": SCHEMA, "node": name, "collector": {}, "collected_at": "2026-01-01T00:00:00Z",
        "records": {key: record(key, value) for key, value in records.items()},
    }  # fmt: skip
    evidence = from_document(document, name)
    node = NodeFacts(evidence)
    cluster = from_data({"class": {"site": dict(site)}}, "cluster.toml") if site else Cluster()
    return outcome(0, check, name, node, cluster.site(node), lambda: evidence).findings


def record(key: str, value: Any) -> Any:
    """Return a record in the collector's form; ``findings_of`` has the short forms."""
    if isinstance(value, str):
        return {"status": "ok", "out": value} | ({"rc": 0} if key.startswith("cmd:") else {})
    if isinstance(value, list):
        return {"status": "ok", "entries": {name: {"type": "link", "target": ""} for name in value}}
    if isinstance(value, dict):
        if "status" in value:
            return value
        if len(value) == 1 and (status := next(iter(value))) in STATUSES:
            return {"status": status, "why": value[status]}
        return {"status": "ok", "value": value}
    raise TypeError(f"{key}: {type(value).__name__} is not a valid short form of a record")
