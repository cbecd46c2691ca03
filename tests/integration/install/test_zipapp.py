"""preflight as one file: its content, and that it runs where only Python is available."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from preflight.cli import startup_tables, zipapp
from preflight.gate import policy
from tests.support.paths import ROOT

UNPRIVILEGED = 65534
OLD = shutil.which("pypy3")
#: Compiled packages and those that need them: not included.
_COMPILED = {"msgspec", "paramiko", "psutil"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A world-readable directory; pytest's own are private."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="preflight-zipapp-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packed sources: no edit happens between two builds."""
    copy = tmp_path_factory.mktemp("source")
    for top in ("preflight", "checks", "deploy", "reports"):
        ignore = shutil.ignore_patterns("__pycache__", "generated_*.py")
        shutil.copytree(ROOT / top, copy / top, symlinks=True, ignore=ignore)
    return copy


@pytest.fixture(scope="module")
def built(folder: Path, source: Path) -> Path:
    return _build(folder / "preflight.pyz", source, "0")


def _build(path: Path, source: Path, seed: str) -> Path:
    argv = [sys.executable, "-m", "preflight.cli.zipapp", "-o", str(path), "--python", _bare_python()]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, cwd=source)
    assert done.returncode == 0, done.stderr
    assert re.search(r"preflight .*, \d+ bytes, for Python 3\.10 or newer; without paramiko", done.stdout)
    return path


def _bare_python() -> str:
    """Return an interpreter outside every virtual environment that everybody may run, if there is one."""
    code = "import sys; print(sys.version_info >= (3, 10))"
    if subprocess.run(["/usr/bin/python3", "-I", "-c", code], capture_output=True).stdout == b"True\n":
        return "/usr/bin/python3"
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def run(built: Path, *words: str, before: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """Run the file itself, with only ``env`` as environment."""
    argv = [*before, str(built), *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, cwd="/")


# --- what is in it -----------------------------------------------------------------------------------


def test_the_same_source_gives_the_same_bytes(built: Path, source: Path, folder: Path) -> None:
    again = _build(folder / "again.pyz", source, "1")
    assert again.read_bytes() == built.read_bytes()
    assert not list(folder.glob(".preflight-*"))


def test_it_holds_all_of_ours_and_only_pure_python(built: Path, source: Path) -> None:
    names = set(zipfile.ZipFile(built).namelist())
    for top in ("preflight", "checks", "deploy", "reports"):
        for path in (source / top).rglob("*"):
            inside = path.relative_to(source)
            if path.is_file() and "__pycache__" not in inside.parts and not path.name.startswith("."):
                name = inside.as_posix()
                assert (f"preflight/{name}" if top != "preflight" else name) in names
    assert not {name for name in names if name.endswith((".so", ".pyd"))}
    assert not {name for name in names if name.startswith(("tests/", "paramiko/", "psutil/", "msgspec/"))}
    licences = {name.split("-")[0].lower() for name in names if "/licenses/" in name}
    assert licences >= {"click", "clustershell", "jinja2", "markupsafe", "rich", "tomli"}


def test_the_build_writes_the_tables(built: Path) -> None:
    """From the packed sources: the folder has no tables."""
    with zipfile.ZipFile(built) as members:
        for name, text in startup_tables.TABLES.items():
            assert members.read(f"preflight/{name}").decode() == text()


def test_every_dependency_is_carried_or_named_as_missing() -> None:
    named = {re.split(r"[<>=!~; ]", line, maxsplit=1)[0].lower() for line in metadata.requires("gpu-preflight") or ()
             if "extra ==" not in line}  # fmt: skip
    assert {name.lower() for name in zipapp.CARRIED} == (named | {"markupsafe", "tomli"}) - _COMPILED


def test_byte_code_is_that_of_its_source(built: Path) -> None:
    import importlib.util
    import marshal

    with zipfile.ZipFile(built) as members:
        for name in ("preflight/cli/main.py", "preflight/gate/verdict_cache.py", "click/core.py"):
            source, code = members.read(name), members.read(name + "c")
            assert code[:4] == importlib.util.MAGIC_NUMBER
            assert code[8:16] == importlib.util.source_hash(source)
            assert marshal.loads(code[16:]).co_filename == name


def test_what_reads_toml_on_an_older_python_works_from_inside(built: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import tomli, json; assert '.pyz' in tomli.__file__\n"
    code += "print(json.dumps(tomli.loads(open(sys.argv[2]).read())))"
    argv = [_bare_python(), "-I", "-S", "-c", code, str(built), str(ROOT / "pyproject.toml")]
    stdout = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    assert json.loads(stdout)["project"]["name"] == "gpu-preflight"


def test_what_is_missing_here_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(zipapp.CARRIED, "no-such-distribution", "no_such/")
    with pytest.raises(zipapp.MissingPackage, match="no-such-distribution is not installed"):
        zipapp.contents()


@pytest.mark.parametrize("python", ["python3", "/usr/bin/python3\n", "/" + 200 * "x"])
def test_the_interpreter_is_an_absolute_path(python: str, tmp_path: Path) -> None:
    out = tmp_path / "x.pyz"
    argv = [sys.executable, "-m", "preflight.cli.zipapp", "-o", str(out), "--python", python]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert (done.returncode, out.exists()) == (2, False)


# --- it runs -----------------------------------------------------------------------------------------


def _without(text: str, *paths: Path) -> list[str]:
    """Return the words of a text without these paths, whose length affects the wrapping."""
    return [word for word in text.split() if word not in map(str, paths)]


def test_it_judges_the_demo_as_the_installed_one_does(built: Path, source: Path, tmp_path: Path) -> None:
    reports = []
    for name, argv in (("one", [str(built)]), ("installed", [sys.executable, "-m", "preflight"])):
        out = tmp_path / f"{name}.json"
        page = tmp_path / f"{name}.html"
        command = [*argv, "demo", "--json", str(out), "--html", str(page)]
        done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=60, cwd=source)
        assert done.returncode == 1, done.stderr
        report = json.loads(out.read_text())
        report.pop("run")
        reports.append((report, page.read_text().count("<"), _without(done.stdout, page, out)))
    assert reports[0] == reports[1]


@pytest.mark.parametrize("before", [(), ("-I", "-S")], ids=["as it is", "without site-packages"])
def test_it_checks_this_node_without_an_environment(built: Path, before: tuple[str, ...], tmp_path: Path) -> None:
    prefix = (_bare_python(), *before) if before else ()
    out = tmp_path / "report.json"
    done = run(built, "check", "--json", str(out), before=prefix)
    assert done.returncode in (0, 1, 3), done.stderr
    assert json.loads(out.read_text())["coverage"]["nodes"]["answered"] == 1


def test_it_collects_with_the_nvml_that_it_carries(built: Path) -> None:
    document = json.loads(run(built, "collect").stdout)
    nvml = [record for key, record in document["records"].items() if key.startswith("nvml:")]
    assert nvml
    assert not [record for record in nvml if "not installed" in record.get("why", "")]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("bwrap"), reason="root and bubblewrap are needed")
@pytest.mark.parametrize("user", [0, UNPRIVILEGED])
def test_on_a_read_only_root_by_root_and_an_ordinary_user(built: Path, user: int) -> None:
    drop = ("/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
    bare = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net")
    before = (*drop, str(shutil.which("bwrap")), *bare)
    assert run(built, "check", before=before).returncode in (0, 1, 3)
    done = run(built, "gate", "slurm-prolog", before=before)
    assert (done.returncode, "NOT JUDGED: gate.expectations" in done.stderr) == (0, True), done.stderr
    assert "the verdict is not saved" in done.stderr or "no state directory" in done.stderr


def test_a_verdict_of_the_gate_is_cached_until_the_file_changes(built: Path, tmp_path: Path) -> None:
    path, state = tmp_path / "preflight.pyz", tmp_path / "state"
    shutil.copy(built, path)
    words = ("gate", "slurm-prolog", "--state-dir", str(state))
    assert "judged in" in run(path, *words).stderr
    assert " s ago" in run(path, *words).stderr
    shutil.copy(built, path)
    assert "judged in" in run(path, *words).stderr


def test_the_health_check_judges_in_the_background_wherever_it_was_started(built: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    argv = [_bare_python(), "preflight.pyz", "gate", "slurm-healthcheck", "--state-dir", str(state)]
    done = subprocess.run(argv, cwd=built.parent, env={}, capture_output=True, text=True, timeout=60)
    assert "one is being made" in done.stderr
    from preflight.gate.verdict_cache import FILE

    _until(lambda: (state / FILE).exists())


def _until(there: Any) -> None:
    import time

    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.02)


def test_nodes_are_judged_in_several_processes(built: Path, tmp_path: Path) -> None:
    """The workers of the pool find their modules in the archive."""
    document = json.loads((ROOT / "fixtures" / "nodes" / "hgx-h100.json").read_text())
    for number in range(40):
        (tmp_path / f"n{number}.json").write_text(json.dumps({**document, "node": f"n{number}"}))
    out = tmp_path / "report"
    done = run(built, "judge", str(tmp_path), "--only", "gpu.driver", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["coverage"]["nodes"]["answered"] == 40


@pytest.mark.parametrize("words", [
    ("check", "--hosts", "n1"), ("check", "--hosts", "n1", "--via", "openssh"), ("pair", "n1", "n2"), ("--help",),
    ("check", "--hosts", "n1", "--via", "ssh"), ("pair", "n1", "n2", "--via", "ssh"),
], ids=" ".join)  # fmt: skip
def test_it_has_no_ssh_of_its_own(built: Path, words: tuple[str, ...]) -> None:
    done = run(built, *words)
    assert "Traceback" not in done.stderr
    if words[-1] == "ssh":
        assert done.returncode == 2
        assert "this build does not include paramiko; use --via openssh, or install gpu-preflight" in done.stderr
    elif "openssh" in words or words == ("--help",):
        assert "paramiko" not in done.stderr + done.stdout
    elif done.returncode == 2:  # the system has none either
        assert "there is no `ssh` in PATH" in done.stderr
    else:
        hosts = "n1" if words[0] == "check" else "n[1-2]"
        assert done.returncode == 3
        assert f"through the system's ssh: {hosts}: this build does not include paramiko" in done.stdout


@pytest.mark.skipif(OLD is None, reason="no Python older than 3.10: install pypy3")
@pytest.mark.parametrize("words", ["check", "--version", *(f"gate {hook}" for hook in policy.HOOKS)])
def test_a_python_that_is_too_old_is_reported_and_drains_no_node(built: Path, words: str) -> None:
    assert OLD
    code = "import sys; print(sys.version_info < (3, 10))"
    if subprocess.run([OLD, "-c", code], capture_output=True).stdout != b"True\n":
        pytest.skip("pypy3 is as new as it has to be")
    done = subprocess.run([OLD, str(built), *words.split()], capture_output=True, text=True, timeout=60)
    assert "CONFIGURATION ERROR: this file needs Python 3.10 or newer" in done.stderr
    hook = words.removeprefix("gate ")
    expected = policy.rule(hook, "error").exit if hook in policy.HOOKS else 2
    assert done.returncode == expected
    assert ("NOT JUDGED" in done.stderr) is (expected == 0)


def test_the_first_lines_are_understood_by_any_python(built: Path) -> None:
    """``__main__.py`` must be valid Python 3.6, so that it can reject an old Python."""
    source = zipfile.ZipFile(built).read("__main__.py").decode()
    ast.parse(source, feature_version=(3, 6))
    assert source.index("sys.exit") < source.index("from preflight")
