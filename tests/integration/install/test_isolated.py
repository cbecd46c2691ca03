"""Programs that root runs start Python with -I: modules in PYTHONPATH, home or working directory have no effect."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from preflight.transport import bootstrap_protocol, payload
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"

#: Modules that Python or preflight imports early; each leaves a mark when it runs.
NAMES = (
    "sitecustomize", "usercustomize", "json", "zlib", "os", "click", "runpy", "preflight/__init__",
    "preflight/cli/main",
    "collector/__init__", "__main__", "__init__",
)  # fmt: skip

CLUSTER = 'name = "x"\n[class.h100]\nnodes = "*"\n'


class ImportTrap:
    """A folder of hostile modules, and an environment that points to it."""

    def __init__(self, folder: Path) -> None:
        self.marks, self.modules, self.home = folder / "marks", folder / "modules", folder / "home"
        user_site = self.home / ".local/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        for place in (self.modules, self.modules / "preflight" / "cli", self.modules / "collector", user_site):
            place.mkdir(parents=True)
        self.marks.mkdir()
        for name in NAMES:
            mark = self.marks / name.replace("/", ".")
            (self.modules / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
        (user_site / "x.pth").write_text(f"import pathlib; pathlib.Path({str(self.marks / 'pth')!r}).touch()\n")
        self.startup = self.modules / "__main__.py"

    def run(self, argv: list[str], given: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.modules), "HOME": str(self.home),
                       "PYTHONSTARTUP": str(self.startup),
                       "PYTHONUSERBASE": str(self.home / ".local"), **more}  # fmt: skip
        return subprocess.run(argv, input=given, cwd=self.modules, env=environment, capture_output=True, timeout=120)

    @property
    def sprung(self) -> set[str]:
        return {path.name for path in self.marks.iterdir()}


@pytest.fixture
def trap(tmp_path: Path) -> ImportTrap:
    return ImportTrap(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with this preflight, as in /opt/preflight."""
    folder = tmp_path_factory.mktemp("opt") / "preflight"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    (folder / "bin/python3").symlink_to(os.path.realpath(sys.executable))
    if (config := Path(sys.prefix) / "pyvenv.cfg").exists():
        shutil.copy(config, folder)
    return folder


def script(name: str, installed: Path, folder: Path) -> Path:
    """Copy a script of deploy, with the test's installation and cluster file in it."""
    cluster = folder / "cluster.toml"
    cluster.write_text(CLUSTER)
    text = (DEPLOY / name).read_text().replace("/opt/preflight", str(installed))
    copy = folder / Path(name).name
    copy.write_text(text.replace("/etc/slurm/preflight/cluster.toml", str(cluster)))
    copy.chmod(0o755)
    return copy


def test_the_trap_works(trap: ImportTrap) -> None:
    trap.run([sys.executable, "-m", "preflight", "--version"])
    assert {"sitecustomize", "preflight.__init__"} <= trap.sprung


@pytest.mark.parametrize("name", ["slurm/prolog", "slurm/healthcheck", "slurm/epilog", "slurm/job.sh"])
@pytest.mark.parametrize("context", ["prolog_slurmd", "prolog_slurmctld"])
def test_scripts_of_slurm(trap: ImportTrap, installed: Path, tmp_path: Path, name: str, context: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "srun").write_text('#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nexec "$@"\n')
    (tools / "srun").chmod(0o755)
    ran = trap.run([str(script(name, installed, tmp_path))], SLURM_SCRIPT_CONTEXT=context, SLURMD_NODENAME="n1",
                   SLURM_JOB_ID="1", SLURM_JOB_NUM_NODES="1", SLURM_JOB_NODELIST="n1", STATE_DIRECTORY=str(tmp_path),
                   PATH=f"{tools}:{os.environ['PATH']}")  # fmt: skip
    assert b"preflight:" in ran.stderr + ran.stdout, ran  # the gate itself, not the script if the gate is missing
    assert b"broken" not in ran.stderr
    assert not trap.sprung


def test_the_one_file(trap: ImportTrap, tmp_path: Path) -> None:
    built = tmp_path / "preflight.pyz"
    make = [sys.executable, "-m", "preflight.cli.zipapp", "-o", str(built), "-p", os.path.realpath(sys.executable)]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True, timeout=120)
    for words in (["--version"], ["check", "--only", "host.shm"], ["gate", "ci"]):
        trap.run([str(built), *words])
    assert not trap.sprung


def container_commands() -> dict[str, list[str]]:
    """All commands that a manifest or the image starts, as argument vectors."""
    found = {}
    entry = re.search(r"^ENTRYPOINT (.*)$", (DEPLOY / "container/Containerfile").read_text(), re.M)
    assert entry
    found["Containerfile"] = yaml.safe_load(entry[1])
    for path in sorted((DEPLOY / "kubernetes").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            pod = ((document or {}).get("spec") or {}).get("template", {}).get("spec", {})
            for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
                if "preflight" in container["image"] and "command" in container:
                    found[f"{path.parent.name}/{path.name}:{container['name']}"] = container["command"]
    return found


@pytest.mark.parametrize("name", container_commands())
def test_commands_of_containers(trap: ImportTrap, installed: Path, name: str) -> None:
    app = trap.home / "app"
    app.mkdir()
    (app / "__main__.py").write_text(
        f"import sys; sys.path += {sys.path!r}\nfrom preflight.cli.main import main; main()\n"
    )
    folders = DEPLOY / "kubernetes"
    command = [
        re.sub("^(?=/(metrics|taint)/)", str(folders), word).replace("/opt/preflight", str(app))
        .replace("sleep 300", "kill $$").replace("9798", "no-port")
        for word in container_commands()[name]
    ]  # fmt: skip
    ran = trap.run([*command, *(["--version"] if name == "Containerfile" else [])], NODE_NAME="n1",
                   PATH=f"{installed}/bin:{os.environ['PATH']}")  # fmt: skip
    ends = (b"preflight", b"'no-port'", b"'KUBERNETES_SERVICE_HOST'")  # a program without a port or a cluster ends
    assert any(end in ran.stdout + ran.stderr for end in ends), ran
    assert not trap.sprung


def test_the_collector_of_a_node(trap: ImportTrap) -> None:
    """Commands that ssh, kubectl and srun start on a node, and that this node starts itself."""
    plan = {"schema": "preflight.plan/1", "probes": []}
    given = bootstrap_protocol.OPENING + bootstrap_protocol.request(plan)
    for argv in (
        ["sh", "-c", bootstrap_protocol.SCRIPT],
        list(bootstrap_protocol.WITHOUT_SHELL),
        [sys.executable, *payload.OPTIONS, payload.BOOT],
    ):
        trap.run(argv, given)
    trap.run([f"{sys.prefix}/bin/python", "-I", "-m", "preflight", "check", "--only", "host.shm"])
    assert not trap.sprung


def text_files() -> list[Path]:
    suffixes = (".md", ".sh", ".conf", ".yaml", ".yml", ".json", ".toml", "")
    places = (ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md"), *DEPLOY.rglob("*"))
    return [path for path in places if path.is_file() and (path.suffix in suffixes or path.name == "Containerfile")]


def unisolated(text: str) -> list[str]:
    """Return the lines that start Python as root without -I, by a full path or in a script or manifest."""
    started = re.compile(
        r"(?<![\w-])(?:/\S+/)?python3?(?:\.\d+)? +(?!-[A-Za-z]*I\b)(-\w+ +)*(?:preflight|/opt/|\S*\.pyz)"
    )
    wrapped = re.compile(r"/opt/preflight/bin/preflight\b")
    return [line for line in text.splitlines() if started.search(line) or wrapped.search(line)]


@pytest.mark.parametrize("path", text_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_or_recipe_starts_it_otherwise(path: Path) -> None:
    lines = [line for line in unisolated(path.read_text(errors="replace")) if "preflight.cli.zipapp" not in line]
    assert not lines


@pytest.mark.parametrize(("line", "found"), [
    ("exec /opt/preflight/bin/python3 -m preflight gate x", True), ("python3 /opt/preflight gate", True),
    ("/usr/bin/python3 preflight.pyz gate", True), ("/opt/preflight/bin/preflight gate ci", True),
    ("/usr/bin/python3 -I preflight.pyz", False), ("python3 -I -m preflight", False),
    ("python3 -I /opt/preflight x", False),
])  # fmt: skip
def test_the_lint_finds_what_it_is_for(line: str, found: bool) -> None:
    assert bool(unisolated(line)) is found
