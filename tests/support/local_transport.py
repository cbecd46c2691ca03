"""The local transport with programs instead of an interpreter."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from preflight.evidence import document as evidence
from preflight.probes.probe import plan
from preflight.transport.local import node as local
from tests.support.stopwatch import Stopwatch

EVIDENCE = json.loads((resources.files("preflight.schemas") / "evidence-1.json").read_text(encoding="utf-8"))


def make_plan(deadline_s: float = 5, node: str = "gpu001") -> dict[str, Any]:
    return {
        **plan((), node=node, deadline_s=deadline_s),
        "probes": [{"key": "cmd:true", "kind": "cmd", "target": "true", "timeout_s": 1, "argv": ["true"]}],
    }


def interpreter(tmp_path: Path, script: str) -> str:
    """Create a program that replaces the interpreter; ``$PYTHON`` is a real one."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\nPYTHON={shlex.quote(sys.executable)}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def collect(plan: dict[str, Any], python: str = sys.executable) -> dict[str, Any]:
    watch = Stopwatch()
    document = local.collect(plan, python)
    assert watch.seconds < plan["deadline_s"] + local.SLACK_S + 1
    jsonschema.validate(document, EVIDENCE)
    return document


def phase_and_reason(document: dict[str, Any]) -> tuple[str, str]:
    read = evidence.from_document(document, "test")
    assert not read.answered
    assert read.node == "gpu001"
    assert read.no_answer
    return read.no_answer["phase"], read.no_answer["reason"]
