"""deploy/debian/build.sh, with a wheel of preflight's name and version, but without dependencies."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from preflight.version import VERSION
from tests.support.debian import small_wheel
from tests.support.paths import ROOT

PYTHON = "/usr/bin/python3"
BUILD = ROOT / "deploy" / "debian" / "build.sh"


def missing() -> str:
    if not shutil.which("dpkg-deb"):
        return "no dpkg-deb"
    pip = subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False)
    return "no pip for Debian's python3" if pip.returncode else ""


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_package_is_a_virtual_environment_without_traces_of_the_build(tmp_path: Path) -> None:
    small_wheel(tmp_path / "wheels")
    built = []
    for name in ("first.deb", "second.deb"):
        done = subprocess.run(["sh", str(BUILD), str(tmp_path / "wheels"), str(tmp_path / name)], capture_output=True,
                              text=True, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})  # fmt: skip
        assert done.returncode == 0, done.stderr
        built.append((tmp_path / name).read_bytes())
    assert built[0] == built[1], "the same input makes the same file"
    assert not list(tmp_path.glob("tmp.*")), "nothing of the build is left"

    tree = tmp_path / "tree"
    subprocess.run(["dpkg-deb", "-R", str(tmp_path / "first.deb"), str(tree)], check=True)
    fields = dict(line.split(": ", 1) for line in (tree / "DEBIAN/control").read_text().splitlines() if line[0] != " ")
    assert (fields["Package"], fields["Version"]) == ("gpu-preflight", VERSION)
    assert fields["Depends"].startswith("python3 (>= 3.")
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert str(tmp_path).encode() not in path.read_bytes(), path
    links = {str(path.relative_to(tree)): os.readlink(path) for path in (tree / "usr/bin").iterdir()}
    assert links == {"usr/bin/preflight": "../../opt/preflight/bin/preflight"}
    assert {"preflight", "python3"} <= {path.name for path in (tree / "opt/preflight/bin").iterdir()}
    assert (tree / "usr/share/man/man1/preflight.1").exists()
    assert (tree / "usr/share/zsh/vendor-completions/_preflight").exists()
    assert (tree / "usr/share/doc/gpu-preflight/copyright").read_text() == "Apache\n"
    (code,) = tree.rglob("preflight/cli/__pycache__/main.*.pyc")
    assert int.from_bytes(code.read_bytes()[4:8], "little") == 1, "never compared with its source"
    start = [str(tree / "opt/preflight/bin/python3"), "-I", "-c", "from preflight.cli.main import main; main()"]
    ran = subprocess.run(start, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{tree}/opt/preflight/bin/python3 1\n"


def test_a_wrong_call_builds_nothing(tmp_path: Path) -> None:
    done = subprocess.run(["sh", str(BUILD), str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage:" in done.stderr) == (2, True)
