"""``python -m tests.new_check``: its output passes, and the number of files that a new check touches."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.paths import ROOT

CHECK = "made.threads"

#: The command of docs/adding-a-check.md, as printed, and its limit of CPU seconds.
PAGE = (ROOT / "docs" / "adding-a-check.md").read_text()
PRINTED = re.findall(r"^\.venv/bin/python -m (tests\.new_check .* --record .*)$", PAGE, re.MULTILINE)[0].split()
PRINTED_CPU_S = 10

#: The parser on the page, its line in the registry, and the command that calls it.
PARSER, REGISTERED = map(dedent, re.findall(r"^   ```python\n(.*?)^   ```$", PAGE, re.MULTILINE | re.DOTALL))
WITH_PARSER = re.findall(r"^   \.venv/bin/python -m (tests\.new_check .*?)\n   ```$", PAGE, re.MULTILINE | re.DOTALL)[0]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree."""
    copy = tmp_path_factory.mktemp("new") / "tree"
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", ".*_cache", "build", "dist")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    return copy


def contents(tree: Path) -> dict[str, str]:
    """Return the files of a tree with digests, without uncommitted ones."""
    return {
        str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in tree.rglob("*")
        if path.is_file() and not {"__pycache__", ".hypothesis"} & set(path.parts) and "generated_" not in path.name
    }


def cpu_s() -> float:
    """Return the CPU time of all children that ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def run(tree: Path, *argv: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "CI"} | {"PYTHONPATH": str(tree)}
    done = subprocess.run([sys.executable, "-m", *argv], cwd=tree, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "files"), [("as the page has it", 2), ("with a probe", 3), ("with a probe and a parser", 5)]
)
def test_files_that_a_new_check_touches(tree: Path, kind: str, files: int) -> None:
    """docs/adding-a-check.md has these numbers."""
    before = contents(tree)
    number, module = (PRINTED[1], PRINTED[3]) if files == 2 else (CHECK + str(files), "host.kernel")
    new = ["tests.new_check", number, "--module", module]
    selected = number
    if files == 2:
        spent = cpu_s()
        out = run(tree, *PRINTED)
        assert cpu_s() - spent < PRINTED_CPU_S
        assert " passed" in run(tree, *new[:2], "--test")
    elif files == 3:
        out = run(tree, *new, "--record", "file:/proc/sys/kernel/pid_max")
    else:
        (tree / "preflight" / "parsers" / "host" / "pressure.py").write_text(PARSER)
        registry = tree / "tests" / "support" / "parser_registry.py"
        place = '_text("parsers.host.services.parse"'
        registry.write_text(registry.read_text().replace(place, REGISTERED + place))
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {WITH_PARSER}"], capture_output=True, text=True, check=True
        ).stdout.split("\0")[:-1]
        out, number, module = run(tree, *words), words[1], "host.limits"
        selected = number
        selected += " or pressure or test_every_parser_is_registered"
    assert " passed" in out
    after = contents(tree)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert len(changed) == files, changed
    selected += f" or test_healthy_node_raises_nothing or (matches and {module})"
    others = ["tests/golden/test_formats.py", "tests/robustness/test_parsers.py", "tests/scenarios/test_nodes.py",
              "tests/architecture/test_startup_tables.py"]  # fmt: skip
    assert " passed" in run(tree, "pytest", "-q", "-p", "no:cacheprovider", *others, "-k", selected)
