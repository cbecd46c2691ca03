"""The collector on every interpreter of this machine, from the oldest supported version on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from preflight.probes.node import PROBES
from preflight.probes.probe import plan as make_plan
from preflight.transport.local import node

NAMES = (*(f"python3.{minor}" for minor in range(6, 16)), "python3", "pypy3")
IDENTIFY = (
    "import sys; print(sys.implementation.name, *sys.version_info[:2]); "
    "print(getattr(sys, '_base_executable', sys.executable) or sys.executable)"
)


def identify(path: str) -> tuple[str, str] | None:
    """Return the version of an interpreter and its real path, if it can run."""
    try:
        done = subprocess.run([path, "-I", "-c", IDENTIFY], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return (lines[0], lines[1]) if done.returncode == 0 and len(lines) == 2 else None


def candidates() -> list[str]:
    """Return possible interpreters: by name in PATH and in the system, and those beside ours."""
    found = [sys.executable]
    for name in NAMES:
        found += [path for path in (shutil.which(name), shutil.which(name, path="/usr/bin:/usr/local/bin")) if path]
    return found + [str(path) for path in sorted(Path(sys.base_prefix).parent.glob("*/bin/python3"))]


def interpreters() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in candidates():
        known = identify(path)  # a shim of a version that is not active does not run
        if known:
            found.setdefault(known[0], path if path == sys.executable else known[1])
    return dict(sorted(found.items()))


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
