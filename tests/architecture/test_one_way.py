"""One path through a run: its values are created once and never changed, and each key function is entered once."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sshfarm import Farm
from tests.support.sshfarm.marks import needs_farm

FOLDERS = ("gate", "run", "collect", "pair", "commands")

#: Attributes that code outside their class assigns, and why.
ASSIGNED = {
    ("preflight/gate/scheduler_env.py", "sys.executable"): "the interpreter's own, empty where slurmd started it",
    ("preflight/commands/options.py", "function.__click_params__[-1].heading"): "of an option that Click has just made",
    ("preflight/collect/connection.py", "every.through_openssh"): "of a transport that has just been made there",
}

#: Key functions by purpose: each is one function of one module.
PLACES = {
    ("preflight.run.request", "new_request"): "request",
    ("preflight.gate.request", "from_options"): "request",
    ("preflight.collect.local", "collect"): "this node",
    ("preflight.collect.fleet", "collect"): "many nodes",
    ("preflight.run.run_block", "run_block"): "run block",
    ("preflight.run.outputs", "write_outputs"): "outputs",
    ("preflight.gate.announce", "announce"): "outputs",
    ("preflight.cli.main", "leave"): "end",
}

#: A run of the program that records the key functions that it enters.
_COUNTING = """
import os, sys

counted, pid, calls = {counted!r}, os.getpid(), []

def profile(frame, event, argument):
    if event == "call":
        place = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if place in counted:
            calls.append(counted[place])
            if counted[place] == "end":
                write()

def write():
    if os.getpid() == pid:
        with open({path!r}, "w") as stream:
            stream.write("\\n".join(calls))

sys.setprofile(profile)
sys.argv = {words!r}
from preflight.cli.main import main
main()
"""


def places_of(folder: Path, *words: str, expect: Sequence[int] = (0,)) -> list[str]:
    """Return the key functions that a command enters, in order."""
    path = folder / "places"
    code = _COUNTING.format(counted=PLACES, path=str(path), words=["preflight", *words])
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder, env=environ
    )
    assert done.returncode in expect, done.stderr
    return path.read_text().split("\n")


DEMO = str(ROOT / "preflight" / "demo")
CLUSTER = "[class.a]\ngpus = 0\nhcas = 0\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("check --cluster cluster.toml --save saved", ["request", "this node", "run block", "outputs", "end"]),
        ("check --cluster cluster.toml --html page.html -v --deadline 50.5",
         ["request", "this node", "run block", "outputs", "end"]),
        ("gate ci --cluster cluster.toml", ["request", "this node", "run block", "outputs", "end"]),
        ("gate slurm-prolog --refresh --cluster cluster.toml --state-dir state",
         ["request", "this node", "run block", "outputs", "end"]),
        ("gate slurm-controller --cluster cluster.toml", ["request", "outputs", "end"]),
        (f"judge {DEMO} --json report.json", ["request", "run block", "outputs", "end"]),
        ("demo", ["request", "run block", "outputs", "end"]),
        (f"checklist {DEMO}", ["request", "run block", "end"]),
        ("collect -o node.json", ["request", "this node", "end"]),
        (f"read {DEMO}/job.log", ["end"]),
    ],
)  # fmt: skip
def test_each_place_is_entered_once(command: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    assert places_of(tmp_path, *command.split(), expect=(0, 1, 3)) == expected


def test_a_cached_verdict_is_announced_once(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    words = ("gate", "slurm-prolog", "--cluster", "cluster.toml", "--state-dir", "state")
    places_of(tmp_path, *words)
    assert places_of(tmp_path, *words) == ["request", "outputs", "end"]


@needs_farm
def test_a_run_of_many_nodes_enters_each_place_once(tmp_path: Path) -> None:
    with Farm(2) as farm:
        words = ("--hosts", ",".join(farm.hosts), "--ssh-config", str(farm.ssh_config), "--save", "saved")
        entered = places_of(tmp_path, "check", *words, expect=(0, 1, 3))
        assert entered == ["request", "many nodes", "run block", "outputs", "end"]
        assert len(list((tmp_path / "saved").glob("*.json"))) == 2


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_one_module_collects_from_this_node() -> None:
    """A second function would bypass the one that is counted above."""
    paths = sorted((ROOT / "preflight").rglob("*.py"))
    naming = {
        str(path.relative_to(ROOT))
        for path in paths
        if "preflight.transport.local.node" in imports(ast.parse(path.read_text()))
    }
    assert naming == {"preflight/collect/local.py"}


def test_one_module_writes_the_run_block() -> None:
    writing = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "preflight").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Dict)
        and {"at", "command", "seconds"} <= {key.value for key in node.keys if isinstance(key, ast.Constant)}
    }
    assert writing == {"preflight/run/run_block.py"}


SETTERS = ("setattr", "object.__setattr__")


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / "preflight" / folder).rglob("*.py"))


def assigned(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes that are assigned or deleted outside their class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if ast.unparse(node.value) not in ("self", "cls"):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in SETTERS and ast.unparse(node.args[0]) != "self":
            yield ast.unparse(node)


def test_no_module_assigns_to_the_attributes_of_a_value() -> None:
    changed = {
        (str(path.relative_to(ROOT)), name) for path in sources() for name in assigned(ast.parse(path.read_text()))
    }
    assert changed == set(ASSIGNED)


def test_what_is_an_assignment() -> None:
    source = "class A:\n def f(self, b):\n  self.x = b.x = 1\n  b.y += 1\n  del b.z\n  setattr(b, 'q', 1)\n"
    source += "  self.p, b.r = 1, 2\n"
    assert sorted(assigned(ast.parse(source))) == ["b.r", "b.x", "b.y", "b.z", "setattr(b, 'q', 1)"]


def frozen(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each dataclass of a module, and whether it is frozen."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            for decorator in map(ast.unparse, node.decorator_list):
                if decorator.startswith("dataclass"):
                    yield node.name, "frozen=True" in decorator


def test_the_values_of_a_run_are_frozen() -> None:
    values = {name: is_frozen for path in sources() for name, is_frozen in frozen(path)}
    required = {"GateRequest", "GateRules", "Judgement", "Progress", "GateResult", "RunRequest", "CollectRequest"}
    assert required | {"Outputs", "Targets", "Collected", "CollectOptions"} <= set(values)
    assert [name for name, is_frozen in values.items() if not is_frozen] == []


ENDS = {"sys.exit", "os._exit", "exit", "quit"}

#: Modules that end a process, and their functions.
ENDING = {
    "preflight/cli/main.py": "every run",
    "preflight/gate/watchdog.py": "a gate whose deadline is over",
    "preflight/gate/background_refresh.py": "its own children",
}


def test_one_module_ends_the_process() -> None:
    paths = [*sources(), *sorted((ROOT / "preflight" / "cli").glob("*.py"))]
    ending = {
        str(path.relative_to(ROOT))
        for path in paths
        if path.name != "zipapp.py"  # a separate program
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in ENDS)
        or (isinstance(node, ast.Raise) and "SystemExit" in ast.unparse(node))
    }
    assert ending == set(ENDING)
