"""The collector on every interpreter of this machine, from the oldest supported version on."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from preflight.probes.node import PROBES
from preflight.probes.probe import plan as make_plan
from preflight.transport.local import node
from tests.support.interpreters import interpreters

INTERPRETERS = interpreters()


@pytest.mark.parametrize("version", INTERPRETERS)
def test_the_collector_runs(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")  # as with an empty environment: many Pythons then support only ASCII
    extra = [
        {"key": "cmd:hang", "kind": "cmd", "target": "x", "timeout_s": 2, "argv": ["sh", "-c", "echo é; sleep 60"]},
        {"key": "cmd:flood", "kind": "cmd", "target": "x", "timeout_s": 5, "argv": ["yes"]},
        {"key": "cmd:each {}", "kind": "cmd", "target": "x", "timeout_s": 5, "argv": ["echo", "{}"],
         "each": ["/proc/se*f"]},
        {"key": "cmd:held", "kind": "cmd", "target": "x", "timeout_s": 5, "argv": ["sh", "-c", "sleep 60 & echo x"]},
        {"key": "file:absent", "kind": "file", "target": "/no/such/file", "timeout_s": 5},
    ]  # fmt: skip
    extra.append({"key": "psutil:virtual_memory", "kind": "psutil", "target": "virtual_memory", "timeout_s": 5})
    plan = make_plan(PROBES, node="gpu001", deadline_s=10)
    plan["probes"] += extra
    document = node.collect(plan, INTERPRETERS[version])
    schema = json.loads((resources.files("preflight.schemas") / "evidence-1.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    assert "no_answer" not in document, document
    implementation, *numbers = version.split()
    assert document["collector"]["python"].startswith(".".join(numbers))
    assert implementation in (document["collector"]["python"] + " cpython")
    found = document["records"]
    assert (found["cmd:hang"]["status"], found["cmd:hang"]["out"]) == ("timeout", "é\n")
    assert (found["cmd:flood"]["status"], len(found["cmd:flood"]["out"])) == ("cut", 1_000_000)
    assert found["cmd:each self"]["out"] == "self\n"
    assert (found["cmd:held"]["status"], found["cmd:held"]["rc"]) == ("ok", 0)
    assert found["file:absent"]["status"] == "missing"
    assert found["psutil:virtual_memory"]["status"] in ("ok", "missing")
    assert found["file:/proc/self/status"]["status"] == "ok"


def test_this_interpreter_is_among_those_tried() -> None:
    assert sys.executable in INTERPRETERS.values()


def test_the_source_needs_nothing_newer_than_3_6() -> None:
    pytest.importorskip("vermin")
    folder = str(resources.files("preflight.collector"))
    argv = [sys.executable, "-c", "import vermin; vermin.main()", "-t=3.6-", "--no-tips", "--violations", folder]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_collector_imports_nothing_else_of_preflight() -> None:
    for entry in resources.files("preflight.collector").iterdir():
        if entry.name.endswith(".py"):
            assert "preflight" not in [
                word.split(".")[0]
                for line in entry.read_text(encoding="utf-8").splitlines()
                if line.startswith(("import ", "from "))
                for word in line.split()[1:2]
            ]
