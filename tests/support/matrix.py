"""Combinations of Python, paramiko and dependencies for the tests: ``python -m tests.support.matrix``.

Each has a separate virtual environment in ``build/matrix``. CI runs the tests with the newest paramiko and its
overrides. The rows here are run before a release and take minutes each: the oldest paramiko that pyproject.toml allows,
the public interface alone (``PREFLIGHT_PLAIN_PARAMIKO=1``), other Pythons, the newest of all dependencies.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.paths import ROOT

_OLD_CIPHERS = "ignore:TripleDES has been moved"

_SSH = ("tests/integration/ssh",)

#: Tests that may depend on Python or a dependency's release: options, start-up, reports, SSH of one host.
_BROAD = (
    "tests/unit", "tests/checks/test_checks.py", "tests/architecture/test_startup_tables.py",
    "tests/performance/test_startup.py", "tests/integration/ssh/test_ssh.py",
)  # fmt: skip


@dataclass(frozen=True)
class Combination:
    """One environment, and its tests."""

    name: str
    tests: Sequence[str]
    paramiko: str = "newest"  # or oldest
    plain: bool = False
    python: str = ""  # such as 3.13; empty: this one
    upgrade: bool = False  # the newest release of all dependencies


COMBINATIONS = (
    Combination("oldest-plain", _SSH, "oldest", plain=True),
    Combination("oldest-tuned", _SSH, "oldest"),
    Combination("newest-plain", _SSH, plain=True),
    Combination("python3.10", _BROAD, python="3.10"),
    Combination("python3.13", _BROAD, python="3.13"),
    Combination("newest-of-all", _BROAD, upgrade=True),
)


def main() -> int:
    """Run the combinations; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[each.name for each in COMBINATIONS], help="these alone")
    options, pytest = parser.parse_known_args()
    results = []
    for each in COMBINATIONS:
        if not options.only or each.name in options.only:
            results.append((each, *_run(each, pytest)))
    for each, status, summary in results:
        print(f"{'ok  ' if status == 0 else 'FAIL'} {each.name}: {summary}")
    return max((status != 0 for _, status, _ in results), default=0)


def _run(each: Combination, more: Sequence[str]) -> tuple[int, str]:
    python = interpreter(each.python)
    if python is None:
        return 1, f"there is no Python {each.python} here"
    folder = ROOT / "build" / "matrix" / each.name
    shutil.rmtree(folder, ignore_errors=True)
    wanted = [f"paramiko=={oldest('paramiko')}"] if each.paramiko == "oldest" else []
    flags = ["--upgrade", "--upgrade-strategy=eager"] if each.upgrade else []
    _checked(python, "-m", "venv", "--without-pip", str(folder))
    _checked(pip_of(), "-m", "pip", "--python", str(folder), "install", "-q", *flags, "-e", ".[test]", *wanted)
    inside = str(folder / "bin" / "python")
    code = "import sys, paramiko; print(sys.version.split()[0], 'paramiko', paramiko.__version__)"
    about = subprocess.run([inside, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True).stdout
    env = {**os.environ, "PREFLIGHT_PLAIN_PARAMIKO": "1" if each.plain else ""}
    old = each.paramiko == "oldest"  # it imports ciphers from a module that cryptography removed
    env |= {"PYTHONWARNINGS": _OLD_CIPHERS} if old else {}
    print(f"\n== {each.name}: Python {about.strip()}{', plain' * each.plain}", flush=True)
    command = [inside, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider",
               *(["-W", _OLD_CIPHERS] if old else []), *each.tests, *more]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        last = ""
        for line in run.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return run.returncode, f"Python {about.strip()}{', plain' * each.plain}: {last}"


def oldest(name: str) -> str:
    """Return the oldest release that pyproject.toml allows, such as ``3.4.0``."""
    found = re.search(rf'"{name}>=([0-9.]+)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found, name
    return found[1] + ".0" * (2 - found[1].count("."))


def interpreter(version: str) -> str | None:
    """Return the path of a Python: this one, or the one in PATH."""
    return shutil.which(f"python{version}") if version else sys.executable


def pip_of() -> str:
    """Return an interpreter that has pip."""
    for python in (sys.executable, sys._base_executable, "/usr/bin/python3"):  # type: ignore[attr-defined]
        if python and subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return str(python)
    sys.exit("there is no pip: apt install python3-pip")


def _checked(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
