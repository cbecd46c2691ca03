"""Fixture files: ``fixtures/<check-id>/<case>.json`` as ``{origin, records, site?, findings}``.

Records may be written short, as ``preflight.plugin_fixture`` describes. ``base`` names a complete node of
``fixtures/nodes`` whose records come first; ``null`` removes one of them. A fleet check's fixture has ``nodes``
instead, each with its own ``base`` and ``records``. ``waivers`` are those of the cluster file. The fixture of a check
of logs has those logs as ``records``, and ``nodes`` where it joins them with what their hosts show. A check of switches
has the changes of a ``clos`` (``tests.support.clos.from_case``), and ``switches``, the body of that table of the
cluster file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from preflight.evidence.document import SCHEMA, Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.facts.job import RUN
from preflight.plugin_fixture import record
from tests.support import paths
from tests.support.clos import from_case

FIXTURES = paths.ROOT / "fixtures"
NODE = "node1"


@dataclass(frozen=True)
class Case:
    """One fixture file."""

    check: str
    path: Path
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.check}/{self.path.stem}"

    def evidences(self) -> list[Evidence]:
        """Return the documents of the case's nodes, or those of its Clos."""
        if "clos" in self.body:
            return from_case(self.body["clos"])
        nodes = self.body.get("nodes") or {NODE: self.body}
        return [evidence(name, node) for name, node in nodes.items()]

    def run(self) -> tuple[Evidence, list[Evidence]]:
        """Return the logs of a run, and the documents of its nodes."""
        nodes = [evidence(name, node) for name, node in self.body.get("nodes", {}).items()]
        return evidence(RUN, self.body), nodes

    def cluster(self) -> Cluster:
        """Return the case's cluster file: ``site`` is the body of one class, others those of a table."""
        data: dict[str, Any] = {"class": {"site": self.body["site"]}} if "site" in self.body else {}
        data |= {table: self.body[table] for table in ("class", "leaves", "fabric", "switches") if table in self.body}
        if waivers := self.body.get("waivers"):
            data["waiver"] = [{**waiver, "until": date.fromisoformat(waiver["until"])} for waiver in waivers]
        return from_data(data, str(self.path.parent / "cluster.toml")) if data else Cluster()


def evidence(name: str, node: Mapping[str, Any]) -> Evidence:
    """Make a node's document from its description in a fixture."""
    base: dict[str, Any] = {}
    collector: dict[str, Any] = {}
    if "base" in node:
        document = whole_node(node["base"])
        base, collector = dict(document["records"]), dict(document["collector"])
    for key, value in node["records"].items():
        if value is None:
            base.pop(key)
        else:
            base[key] = record(key, value)
    collector |= node.get("collector", {})
    return from_document(
        {
            "schema": SCHEMA, "node": name, "collector": collector,
            "collected_at": node.get("collected_at", "2026-11-21T03:00:00Z"),
            "records": base,
        },
        name,
    )  # fmt: skip


@cache
def whole_node(name: str) -> Mapping[str, Any]:
    """Return the document of a complete node; hand-made ones also have all healthy records of the checks."""
    loaded: dict[str, Any] = json.loads((FIXTURES / "nodes" / f"{name}.json").read_text())
    if loaded["origin"].startswith("made by hand"):
        loaded["records"] = {**healthy_records(), **loaded["records"]}
    return loaded


def cases(check: str | None = None) -> list[Case]:
    """Return all cases, or those of one check."""
    listed = []
    for path in sorted(FIXTURES.glob("*/*.json" if check is None else f"{check}/*.json")):
        if path.parent.name != "nodes":
            body = json.loads(path.read_text())
            for name, case in body.get("cases", {path.stem: body}).items():
                origin = {"origin": body["origin"]}
                listed.append(Case(path.parent.name, path.with_name(f"{name}.json"), {**origin, **case}))
    return listed


@cache
def collections() -> Mapping[str, Mapping[str, Any]]:
    """Return check -> its file ``cases.json``: its cases, the healthy records, and a fault of a complete node."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*/cases.json"))}


@cache
def healthy_records() -> Mapping[str, Any]:
    """Return the records of every healthy hand-made node in addition to those of its machine."""
    return {
        key: record(key, value) for body in collections().values() for key, value in body.get("healthy", {}).items()
    }
