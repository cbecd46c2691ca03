"""Runs of a few nodes on days of a month, judged with a history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.evidence.document import Evidence, from_document
from preflight.plugin_fixture import record
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet

NODES = ("gpu001", "gpu002", "gpu003")
ONLY = ("--only", "rdma.port-state", "--only", "gpu.persistence", "--only", "host.memlock", "--only", "trend.*")


@cache
def healthy() -> Mapping[str, Mapping[str, Any]]:
    return {document["node"]: document for document in fleet(hgx_h100("x"), len(NODES), 1)}


def node(name: str, day: int, changed: Mapping[str, Any] | None = None) -> Evidence:
    document = healthy()[name]
    records = {**document["records"], **{key: record(key, value) for key, value in (changed or {}).items()}}
    at = f"2026-11-{day:02d}T03:00:00Z"
    return from_document({**document, "collected_at": at, "records": records}, name)


def run(folder: Path, nodes: list[Evidence], *words: str) -> dict[str, Any]:
    """Judge a run of one day, with the history."""
    saved = folder / nodes[0].collected_at[:10]
    save(saved, nodes)
    command = ["judge", str(saved), "--history", str(folder / "history.db"), *ONLY, *words, "--json", "-"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.stdout, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def verdict(tmp_path: Path, history: Path) -> tuple[int, str]:
    save(tmp_path / "n", [node("gpu001", 1)])
    words = ["judge", str(tmp_path / "n"), "--only", "rdma.port-state", "--history", str(history)]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    return done.exit_code, done.output
