"""The installed files are those of the tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_list_of_packages_equals_the_tree() -> None:
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "preflight").rglob("__init__.py")} | {
        "preflight.checks",
        "preflight.deploy",
        "preflight.reports",
    }
    found |= {
        "preflight." + ".".join(path.parent.relative_to(ROOT).parts)
        for folder in ("checks", "reports")
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source") / "tree"
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", ".*_cache", "build", "dist",
                                    "generated_*.py")  # fmt: skip
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignore)
    # the sdist is built first and the wheel from it, so both are tested
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_everything(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not {name for name in names if name.startswith(("checks/", "deploy/", "reports/", "tests/", "fixtures/"))}
    elsewhere = {"__pycache__", "man", "completions"}  # the last two below share/, in the next test
    for folder in ("checks", "deploy", "reports"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not elsewhere.intersection(path.parts):
                assert f"preflight/{path.relative_to(ROOT)}" in names
    for path in (ROOT / "preflight").rglob("*"):
        inside = path.relative_to(ROOT)
        if (
            path.is_file()
            and "__pycache__" not in inside.parts
            and inside.parts[1] not in ("checks", "deploy", "reports")
        ):
            assert str(inside) in names


def test_wheel_brings_the_man_page_and_completions(wheel: Path) -> None:
    share = {name.partition(".data/data/")[2]: name for name in zipfile.ZipFile(wheel).namelist() if ".data/" in name}
    assert set(share) == {
        "share/man/man1/preflight.1", "share/bash-completion/completions/preflight",
        "share/zsh/site-functions/_preflight", "share/fish/vendor_completions.d/preflight.fish",
    }  # fmt: skip


def test_wheel_brings_current_tables(wheel: Path, tmp_path: Path) -> None:
    """The build wrote them from the sources in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert _stale_tables(tmp_path) == []


def _stale_tables(top: Path) -> list[str]:
    """Return the tables below a folder that are missing or do not match the sources next to them."""
    code = "import json, os, preflight; from preflight.cli.startup_tables import TABLES\n"
    code += "assert preflight.__path__ == [os.path.abspath('preflight')], preflight.__path__\n"
    code += "print(json.dumps({name: text() for name, text in TABLES.items()}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=top, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(top)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    texts: dict[str, str] = json.loads(done.stdout)
    files = {name: top / "preflight" / name for name in texts}
    return [name for name, text in texts.items() if not files[name].exists() or files[name].read_text() != text]


def test_an_editable_install_writes_the_tables_into_the_tree(tmp_path: Path) -> None:
    """As pip does it (PEP 660)."""
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", ".*_cache", "build", "dist",
                                    "generated_*.py", "tests", "fixtures")  # fmt: skip
    shutil.copytree(ROOT, tree, symlinks=True, ignore=ignore)
    assert len(_stale_tables(tree)) == 2
    code = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert _stale_tables(tree) == []
    assert list(tmp_path.glob("*.whl"))


def test_demo_works_from_the_wheel_in_an_empty_directory(wheel: Path, tmp_path: Path) -> None:
    target, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    code = f"import sys; sys.path.insert(0, {str(target)!r}); sys.argv = ['preflight', 'demo', '--html', 'demo.html']\n"
    code += "import preflight; assert preflight.__file__.startswith(sys.path[0]), preflight.__file__\n"
    code += "from preflight.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=empty, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "FAIL" in done.stdout
    assert (empty / "demo.html").stat().st_size > 10_000
    where = "import preflight.deploy; print(preflight.deploy.__path__[0])"  # in docs/kubernetes.md
    code = f"import sys; sys.path.insert(0, {str(target)!r}); {where}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert Path(done.stdout.strip(), "kubernetes", "base").is_dir(), done.stderr


def test_pip_installs_it_from_a_folder_of_wheels(wheel: Path, tmp_path: Path) -> None:
    """``pip download`` needs an index; here, wheels are packed from the files of the installed distributions."""
    from importlib import metadata

    from packaging.requirements import Requirement

    wheels, target = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    (wheels / wheel.name).symlink_to(wheel)
    wanted, seen = list(PROJECT["project"]["dependencies"]), set[str]()
    while wanted:
        one = Requirement(wanted.pop())
        if one.name.lower() not in seen and (one.marker is None or one.marker.evaluate({"extra": ""})):
            seen.add(one.name.lower())
            _pack(metadata.distribution(one.name), wheels)
            wanted += metadata.requires(one.name) or ()
    pip = [_with_pip(), "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--quiet", "--no-index",
           "--no-compile", "--find-links", str(wheels), "--target", str(target), "--python-version",
           ".".join(map(str, sys.version_info[:2])), "--only-binary", ":all:", "gpu-preflight"]  # fmt: skip
    done = subprocess.run(pip, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (target / "preflight" / "_startup").glob("generated_*.py")} == {
        "generated_checks.py", "generated_options.py",
    }, "an image is made so (deploy/container/Containerfile)"  # fmt: skip
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import paramiko"
    code += "; from preflight.cli.main import main; main()"
    argv = [sys.executable, "-I", "-S", "-c", code, str(target), "demo"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={})
    assert (done.returncode, "FAIL" in done.stdout) == (1, True), done.stderr


def _with_pip() -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return python
    pytest.skip("there is no pip")


def _pack(found: Distribution, wheels: Path) -> None:
    """Write a wheel of an installed distribution: the files in its RECORD, without those that pip added."""
    tags = [tag.split("-") for tag in re.findall(r"^Tag: (.*)$", found.read_text("WHEEL") or "", re.M)]
    tag = "-".join(".".join(dict.fromkeys(one[place] for one in tags)) for place in range(3))
    name = re.sub(r"[-_.]+", "_", found.metadata["Name"]).lower()
    with zipfile.ZipFile(wheels / f"{name}-{found.version}-{tag}.whl", "w") as packed:
        for path in found.files or ():
            added = path.name in ("INSTALLER", "REQUESTED", "direct_url.json") or path.suffix == ".pyc"
            if not added and ".." not in path.parts:
                packed.writestr(path.as_posix(), Path(str(path.locate())).read_bytes())


def test_declared_dependencies_are_the_imported_ones() -> None:
    names = {re.split(r"[><=;\[ ]", line)[0].lower() for line in PROJECT["project"]["dependencies"]}
    assert names == {
        "click",
        "clustershell",
        "jinja2",
        "msgspec",
        "nvidia-ml-py",
        "paramiko",
        "psutil",
        "pyyaml",
        "rich",
        "tomli",
    }


def tracked() -> list[Path]:
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, or git is not installed")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def test_no_tracked_file_names_a_place_of_one_machine() -> None:
    """Jdoe and a are invented users, whose names are redacted in tests."""
    folders = r"/(?:root|home/(?!(?:jdoe|a)/)[a-z]+|work|Users(?!/\{))/"
    leak = re.compile(folders + r"|pypi\.org|files\.pythonhosted|index-url")
    for path in tracked():
        if path.is_symlink() or not path.is_file() or path == Path(__file__).resolve():
            continue
        found = leak.search(path.read_text(encoding="utf-8", errors="replace"))
        assert not found, f"{path.name}: {found and found[0]}"


def test_no_module_of_reports_shadows_a_standard_one() -> None:
    standard = sys.stdlib_module_names
    for path in (ROOT / "reports").glob("*.py"):
        assert path.stem == "__init__" or path.stem not in standard
