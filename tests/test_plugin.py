"""The README's page "how to add a check", followed: in the tree, and as a third party's plug-in."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text()
    page = text.split("## How to add a check")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


FUNCTION = blocks("python")[0]
FIXTURE = blocks("json")[0]
IMPORTS = """
from preflight.facts.text import integer
from preflight.model import warned, passed, check
"""
KEY = "file:/proc/sys/vm/nr_hugepages"


def test_in_the_tree(tmp_path: Path) -> None:
    """One function and its fixture files, in a copy of the tree; the walking test finds and passes them."""
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", ".*_cache", "build", "dist")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=ignore)
    module = tree / "checks" / "host.py"
    module.write_text(module.read_text() + IMPORTS + "\n\n" + FUNCTION)
    folder = tree / "fixtures" / "host.hugepages"
    folder.mkdir()
    (folder / "many.json").write_text(FIXTURE)
    hand = {"origin": json.loads(FIXTURE)["origin"]}
    for name, record, finding in (
        ("few", "12\n", {"status": "pass", "message": "12 huge pages"}),
        ("not-read", {"denied": "Permission denied"}, {"status": "unknown"}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(hand | {"records": {KEY: record}, "findings": [finding]}))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_checks.py", "-k", "hugepages",
         f"--basetemp={tmp_path / 'base'}"],
        cwd=tree, capture_output=True, text=True, timeout=120, env=_environment(tree),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout, done.stdout
    # nobody has written the table of checks anew: the module that has more than it says is imported at once
    assert "data loaders swap" in preflight(tree, "explain", "host.hugepages", top=tree).stdout


def _environment(*paths: Path) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "CI"}
    return environment | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def plugin(site: Path, name: str, source: str) -> None:
    """Install a distribution with one module and our entry point, as pip leaves it behind."""
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[preflight.checks]\nsite = {name}\n")


PLUGIN = (
    """
from collections.abc import Iterator
from preflight.cluster import Site
from preflight.facts import NodeFacts
from preflight.facts.text import integer
from preflight.model import Finding, check, passed, warned
from preflight.probes import Probe

PROBES = (Probe("file", "/proc/sys/vm/nr_hugepages", "reserved huge pages"),)

"""
    + FUNCTION
)


def preflight(site: Path, *arguments: str, top: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", *arguments],
        capture_output=True, text=True, timeout=60, env=_environment(site, top), cwd=top,
    )  # fmt: skip


def test_as_a_plugin(tmp_path: Path) -> None:
    plugin(tmp_path, "our_checks", PLUGIN)
    done = preflight(tmp_path, "check", "--json", "-")
    assert not done.stderr
    document = json.loads(done.stdout)
    found = [f for f in document["findings"] if f["check"] == "host.hugepages"]
    assert found
    assert found[0]["evidence"] == [KEY]
    assert KEY in preflight(tmp_path, "probes").stdout
    assert "data loaders swap" in preflight(tmp_path, "explain", "host.hugepages").stdout


@pytest.mark.parametrize("source", ["raise RuntimeError('boom')", "import no_such_module", "PROBES = (1,)", "def ("])
def test_a_broken_plugin_is_reported_and_does_not_end_the_run(tmp_path: Path, source: str) -> None:
    plugin(tmp_path, "broken", source)
    done = preflight(tmp_path, "list")
    assert done.returncode == 0
    assert "a plug-in could not be loaded: site (broken 1.0)" in done.stderr
    assert "rdma.port-rate" in done.stdout


def test_a_duplicate_id_is_an_error(tmp_path: Path) -> None:
    plugin(tmp_path, "twice", textwrap.dedent(PLUGIN).replace("host.hugepages", "gpu.count"))
    done = preflight(tmp_path, "check")
    assert done.returncode == 2
    assert "gpu.count is defined twice" in done.stderr
