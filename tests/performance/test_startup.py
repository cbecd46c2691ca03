"""Causes of a fast start, measured by events instead of a clock; ``benchmarks/startup.py`` has the times."""

from __future__ import annotations

import ast
import dataclasses
import gc
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight._startup import lightclass, prestart
from preflight.checks import registry
from preflight.checks._registry import plugins
from preflight.probes.probe import Probe
from preflight.probes.probe import plan as make_plan
from preflight.reports import text_layout
from preflight.reports.text_layout import Listing, Paragraph, Part
from preflight.transport.local import node
from tests.architecture.test_layers import module_of, sources

#: Modules that no check of this node needs, and that take longer to import than all the checks.
HEAVY = {
    "ClusterShell", "asyncio", "cryptography", "difflib", "email", "importlib.metadata",
    "importlib.resources", "jinja2", "logging", "markupsafe", "paramiko", "psutil", "pynvml", "rich", "socket",
    "ssl", "tempfile", "tomllib", "xml", "zipfile",
}  # fmt: skip

#: Modules for unusual command lines, and those that class definitions would need (see ``_startup.lightclass``).
SPARED = {"click", "copy", "dataclasses", "datetime", "inspect", "selectors", "statistics"}

_HAS_GPU_OR_RDMA = os.path.exists("/proc/driver/nvidia") or os.path.exists("/sys/class/infiniband")

#: Parsers of output that a machine without GPU and RDMA does not have, or of files that were not passed.
ELSEWHERE = {f"preflight.{name}" for name in (
    "facts.counter_catalogue", "facts.counter_growth", "parsers.qos.dcb", "facts.fabric.sweep", "facts.fabric.compare",
    "facts.fabric.graph", "facts.fabric.load", "facts.nvidia.health", "parsers.infiniband.ibqueryerrors",
    "parsers.infiniband.iblinkinfo",
    "parsers.infiniband.sminfo_saquery", "parsers.infiniband.ibnetdiscover", "facts.lspci", "parsers.qos.mlnx_qos",
    "parsers.nccl_tests.collective", "parsers.nccl_tests.curve",
    "parsers.nccl_log", "parsers.nccl_tests.text", "parsers.network.perftest", "parsers.network.ping",
    "facts.roce_chain.flow_control", "parsers.nvidia.topo_matrix",
    "parsers.torch", "facts.xid",
)}  # fmt: skip


# --- what is imported --------------------------------------------------------------------------------


def imported(*arguments: str) -> set[str]:
    argv = [sys.executable, "-X", "importtime", "-m", "preflight", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1, 3), done.stderr
    lines = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {parts[2].strip() for parts in lines if len(parts) == 3}


@pytest.mark.parametrize("arguments", [("check",), ("check", "--json", "-"), ("collect",)], ids=" ".join)
def test_checking_this_node_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    found = imported(*arguments)
    assert "preflight.transport.local.node" in found
    assert found & HEAVY == set()
    if arguments[0] == "check":
        assert found & SPARED == set(), "use preflight._startup.lightclass, or import it where it is needed"
    if not _HAS_GPU_OR_RDMA:
        assert found & ELSEWHERE == set()


def test_a_gate_that_judges_imports_nothing_heavy(tmp_path: Path) -> None:
    """A cluster file as in README is read before the node is collected, so reading it delays every job."""
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        '[class.cpu]\ngpus = 0\n[class.h100]\nnodes = "gpu[001-064]"\n'
        '[class.h100.ports]\ncompute = "mlx5_[0,3-6,9-11]"\n'
    )
    found = imported("gate", "slurm-prolog", "--refresh", "--cluster", str(cluster), "--state-dir", str(tmp_path / "s"))
    assert "preflight.transport.local.node" in found
    assert found & (HEAVY - {"tomllib"} | SPARED - {"datetime"}) == set()


#: Checks of several nodes, a window, a sweep, a history or a log, none of which is present.
NEEDLESS = {
    "rdma.congestion", "rdma.error_counters", "host.cpu_usage", "fabric.sweep", "fabric.links", "fabric.load",
    "fabric.shape", "fleet.core",
    "fleet.gpu", "fleet.host", "fleet.unique_ids", "fleet.nic", "fleet.outliers", "fleet.rails", "fleet.software",
    "job.built_for", "job.bus_bandwidth", "job.bandwidth_curve", "job.failures", "job.log_settings", "job.rails",
    "job.rank_agreement", "job.hca_roles", "job.hca_count", "job.within_node",
    "job.transport", "job.benchmark_scale", "job.nccl_tests", "job.communicators", "pair.bandwidth",
    "job.benchmark_metadata", "roce.fleet", "job.roofline", "job.torch_gpu",
    "job.torch_hang", "job.torch_trace", "rdma.traffic", "rdma.rail_balance", "fleet.trends",
}  # fmt: skip

#: Checks for GPUs and RDMA only, and the modules they need.
OF_GPUS_AND_RDMA = {
    "gpu.per_gpu", "rdma.per_port", "gpu.memory", "gpu.part", "gpu.state", "gpu.processes", "gpu.gpudirect_host",
    "gpu.gpudirect_path",
    "nccl.load_balancing", "host.numa", "gpu.nvlink", "gpu.nvlink_fabric",
    "rdma.optics", "rdma.pcie", "rdma.ip_rails", "rdma.ports",
    "rdma.verbs", "roce.chain", "fleet.switch_peer",
    "gpu.topology", "host.versions", "gpu.xid",
}  # fmt: skip

_MODULES_OF_A_RUN = """
import sys
from preflight.cli import main as entry

def leave(status, **options):
    sys.exit(" ".join(sys.modules))

entry.leave = leave
entry.main()
"""


def test_a_check_is_imported_only_where_it_is_to_run() -> None:
    argv = [sys.executable, "-c", _MODULES_OF_A_RUN, "check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    modules = {name.removeprefix("preflight.checks.") for name in done.stderr.split()}
    assert "host" in modules
    needless = NEEDLESS | (set() if _HAS_GPU_OR_RDMA else OF_GPUS_AND_RDMA)
    assert modules & needless == set(), (
        "if tests/architecture/test_startup_tables.py fails as well: run `python -m preflight.cli.startup_tables`"
    )


def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    script = 'exec "$0" -m preflight check --json "$1" 0<&- 1>&- 2>&-'
    done = subprocess.run(["sh", "-c", script, sys.executable, str(report)], timeout=60)
    assert done.returncode in (0, 1, 3)
    assert json.loads(report.read_text())["coverage"]["nodes"]["answered"] == 1


def test_what_this_node_needs_defines_its_dataclasses_cheaply() -> None:
    names = {
        name for name in imported("check") if name.startswith("preflight.") and name != "preflight._startup.lightclass"
    }
    sources = {name: inspect.getsource(importlib.import_module(name)) for name in names}
    assert {
        name for name, source in sources.items() if re.search(r"^from dataclasses .*\bdataclass\b", source, re.M)
    } == set()


HOT_FILE = Path(prestart.__file__).with_name("hot_modules.txt")

#: Command -> the modules in which functions may import, and TYPE_CHECKING may be set manually.
HOT = {
    group.partition("\n")[0]: set(re.findall(r"^preflight\.\S+", group, re.M))
    for group in HOT_FILE.read_text().split("# group: ")[1:]
}

#: Function-level imports elsewhere, each with its reason.
MOST_ELSEWHERE = 23

REASON = "# import-at-use: "


def loaded(*arguments: str) -> set[str]:
    """Return the modules that a run has loaded when it ends."""
    code = _MODULES_OF_A_RUN.replace("entry.main()", "try:\n entry.main()\nfinally:\n leave(0)")
    argv = [sys.executable, "-c", code, *arguments]
    stderr = subprocess.run(argv, capture_output=True, text=True, timeout=60).stderr
    return set(stderr.splitlines()[-1].split())


def test_each_hot_module_is_loaded_by_its_command(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[class.cpu]\ngpus = 0\nhcas = 0\n[class.h100]\nnodes = "gpu[001-064]"\n')
    gate = ("gate", "slurm-prolog", "--cluster", str(cluster), "--state-dir", str(tmp_path / "state"))
    judging, check = loaded(*gate), loaded("check") | loaded("collect")
    fresh = loaded(*gate)
    cached, judged, commands = HOT.values()
    assert cached <= fresh, f"not loaded by a fresh verdict: {cached - fresh}"
    assert judged <= judging | check, f"not loaded: {judged - judging - check}"
    assert commands <= (helped := loaded("--help")), f"not loaded by --help: {commands - helped}"
    assert sum(map(len, HOT.values())) == len(cached | judged | commands)


def test_each_hot_module_makes_use_of_it() -> None:
    """A module with all imports at the top, and typing's constant, is not listed."""
    cached, judged, commands = HOT.values()
    listed = [(name, name in cached) for name in sorted(cached | judged | commands)]
    unused = []
    for name, by_hand in listed:
        tree = ast.parse(inspect.getsource(importlib.import_module(name)))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = {type(node) for function in functions for node in ast.walk(function)}
        if not inside & {ast.Import, ast.ImportFrom} and not (by_hand and "TYPE_CHECKING = False" in ast.unparse(tree)):
            unused.append(name)
    assert not unused


def _sources(hot: set[str]) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield the sources outside some modules, ``_startup`` and the collector."""
    for path in sources():
        module = module_of(path)
        if module not in hot and not module.startswith(("preflight._startup", "preflight.collector")):
            text = path.read_text()
            yield path, text, ast.parse(text)


def test_imports_stand_at_the_top_outside_hot_modules() -> None:
    missing, number = [], 0
    for path, text, tree in _sources(set().union(*HOT.values())):
        lines = text.splitlines()
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        imports = {
            node.lineno for function in functions for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }  # fmt: skip
        number += len(imports)
        for line in imports:
            if not any(REASON in above for above in lines[max(0, line - 5) : line]):
                missing.append(f"{path.name}:{line}")
    assert not missing, f"move them to the top, or give the reason: {REASON}…"
    assert number <= MOST_ELSEWHERE


def test_typing_is_spared_by_modules_of_a_fresh_verdict_alone() -> None:
    cached = next(iter(HOT.values()))
    by_hand = {
        path.name for path, _, tree in _sources(cached) for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node) == "TYPE_CHECKING = False"
    }  # fmt: skip
    assert not by_hand, "from typing import TYPE_CHECKING"


# --- plug-ins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("check",), ("collect",), ("list",)], ids=" ".join)
def test_the_interface_for_plugins_is_imported_by_plugins_only(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) & {"preflight.plugin", "preflight.plugin_fixture"} == set()


ENTRY_POINTS = "[preflight.checks]\nsite = our_checks\n"


def distribution(folder: Path, name: str, entry_points: str | None = ENTRY_POINTS) -> None:
    info = folder / name
    info.mkdir(parents=True)
    (info / ("PKG-INFO" if "egg" in name.lower() else "METADATA")).write_text(
        f"Metadata-Version: 2.1\nName: {name.split('-')[0]}\nVersion: 1.0\n"
    )
    if entry_points is not None:
        (info / "entry_points.txt").write_text(entry_points)


def archive(folder: Path) -> Path:
    distribution(folder / "inside", "zipped-1.0.dist-info")
    path = folder / "plugins.zip"
    with zipfile.ZipFile(path, "w") as members:
        for file in (folder / "inside").rglob("*"):
            if file.is_file():
                members.write(file, file.relative_to(folder / "inside"))
    return path


def installed(folder: Path, kind: str) -> Path:
    """Create a distribution in a folder in the form ``kind``; return the entry for ``sys.path``."""
    if kind == "archive":
        return archive(folder)
    if kind == "egg":
        distribution(folder / "one-1.0.egg", "EGG-INFO")
        return folder / "one-1.0.egg"
    names = {"wheel": "one-1.0.dist-info", "legacy": "one-1.0.egg-info", "capitals": "One-1.0.DIST-INFO"}
    if kind == "file":
        (folder / "one-1.0.egg-info").write_text("Metadata-Version: 1.0\nName: one\nVersion: 1.0\n")
    elif kind == "others":
        distribution(folder, "one-1.0.dist-info", "[console_scripts]\nx = y:z\n")
    elif kind == "twice":
        distribution(folder / "first", "one-1.0.dist-info", None)
        distribution(folder, "one-1.0.dist-info")
        sys.path.insert(0, str(folder / "first"))
    elif kind != "nothing":
        distribution(folder, names[kind])
    return folder


KINDS = ["wheel", "legacy", "egg", "capitals", "archive", "file", "others", "nothing", "twice"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_plugins_are_those_of_importlib_metadata(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "absent"), *sys.path])
    sys.path.insert(1, str(installed(tmp_path, kind)))
    reference = metadata.entry_points(group=plugins.GROUP)
    assert list(plugins.entry_points()) == sorted(reference, key=lambda point: point.name)
    assert bool(reference) == (kind in ("wheel", "legacy", "egg", "capitals", "archive"))


def test_a_finder_with_distributions_of_its_own_is_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder(metadata.DistributionFinder):
        def find_spec(self, *_: Any) -> None:
            return None

        def find_distributions(self, context: Any = None) -> list[metadata.Distribution]:
            return [Strange()]

    class Strange(metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return {"METADATA": "Name: strange\nVersion: 1\n", "entry_points.txt": ENTRY_POINTS}.get(filename)

        def locate_file(self, path: Any) -> Path:
            return Path("/no/where")

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert [point.value for point in plugins.entry_points()] == ["our_checks"]


# --- the command line without click -------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--only no.such", "--cluster /no/such.toml", "--deadline 15 --window 10"])
def test_usage_errors_are_those_of_click(words: str) -> None:
    ran = []
    for more in ([], ["--via", "ssh"]):  # click handles it, and it is the default
        argv = [sys.executable, "-m", "preflight", "check", *words.split(), *more]
        ran.append(subprocess.run(argv, capture_output=True, text=True, timeout=60))
    assert ran[0].stderr == ran[1].stderr != ""
    assert ran[0].returncode == ran[1].returncode == 2


def test_a_closed_stdout_does_not_change_the_exit_status() -> None:
    argv = [sys.executable, "-m", "preflight", "check", "--only", "host.*"]
    read = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert run.stderr
        run.stdout.close()
        stderr = run.stderr.read()
    assert (run.returncode, stderr) == (read.returncode, "")


# --- the text without rich ---------------------------------------------------------------------------

TEXT = st.text(st.sampled_from("ab é…–→,.\n     ") | st.characters(max_codepoint=0x2FF), max_size=150)
WORDS = st.lists(st.text("ab-/…é", min_size=1, max_size=130), max_size=8).map(" ".join)
PARTS = st.one_of(
    st.builds(Paragraph, st.tuples(st.tuples(TEXT | WORDS, st.just("bold")), st.tuples(WORDS, st.just(""))),
              hang=st.sampled_from([0, 4, 10])),
    st.lists(st.tuples(st.sampled_from(["found", "evidence"]), TEXT | WORDS, st.just("dim")), min_size=1, max_size=3)
    .map(lambda rows: Listing(tuple(rows))),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(PARTS, max_size=3), st.integers(40, 130))
def test_text_is_set_as_rich_sets_it(parts: list[Part], width: int) -> None:
    by_rich = text_layout._by_rich(parts, colour=False, width=width)
    expected = "\n".join(line.rstrip() for line in by_rich.split("\n"))
    assert text_layout.typeset(parts, colour=False, width=width) == expected


# --- dataclasses -------------------------------------------------------------------------------------


def _define(dataclass: Any) -> Any:
    @dataclass(frozen=True)
    class Point:
        """A point."""

        x: int
        names: tuple[str, ...] = ()
        more: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        note: str = dataclasses.field(default="", repr=False)

    return Point


def test_lean_dataclasses_are_as_those_of_the_standard_library() -> None:
    made, standard = _define(lightclass.dataclass), _define(dataclasses.dataclass)
    assert repr(made(1, ("a",), note="n")) == repr(standard(1, ("a",), note="n"))
    assert made(1) == made(1, more={"a": 1}) != made(2)
    assert made(1) != standard(1)
    assert hash(made(1)) == hash(made(1, more={"a": 1}))
    assert made(1).more is not made(1).more
    assert dataclasses.replace(made(1, note="n"), x=2) == made(2, note="n")
    assert [field.name for field in dataclasses.fields(made)] == [field.name for field in dataclasses.fields(standard)]
    for cls in (made, standard):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            cls(1).x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del cls(1).x
        with pytest.raises(TypeError):
            cls()


def test_a_lean_dataclass_that_is_not_frozen_can_be_changed_and_has_no_hash() -> None:
    @lightclass.dataclass
    class Count:
        number: int = 0

    count = Count()
    count.number = 3
    assert count == Count(3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)


def test_the_first_objects_of_a_class_are_as_the_many_that_follow() -> None:
    made = _define(lightclass.dataclass)
    some = [made(number, names=("a",), note=str(number)) for number in range(200)]
    assert some[0] == made(0, ("a",), note="0")
    assert all(one.x == number and one.more == {} and one.note == str(number) for number, one in enumerate(some))
    for cls in (made, _define(lightclass.dataclass)):
        for wrong in ((), (1, 2, 3, 4, 5)):
            with pytest.raises(TypeError, match="__init__"):
                cls(*wrong)
        with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
            cls(1, y=2)
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            cls(1, x=2)


def test_an_invalid_lean_dataclass_is_an_error_at_its_definition() -> None:
    for body in ({"__annotations__": {"x": "int", "y": "int"}, "x": 1}, {"__annotations__": {"x": "ClassVar[int]"}}):
        with pytest.raises(TypeError):
            lightclass.dataclass(type("Wrong", (), dict(body)))
    with pytest.raises(ValueError, match="default_factory"):
        lightclass.dataclass(type("Wrong", (), {"__annotations__": {"x": "list"}, "x": []}))


def test_a_lean_dataclass_takes_the_fields_of_both_and_of_its_base() -> None:
    @lightclass.dataclass(frozen=True)
    class Base:
        x: int
        y: list[int] = lightclass.field(default_factory=list)

    @lightclass.dataclass(frozen=True)
    class Derived(Base):
        z: int = dataclasses.field(default=3, metadata={"a": 1})

    assert Derived(1) == Derived(1, [], 3) == lightclass.replace(Derived(1, [], 4), z=3)
    assert [one.name for one in lightclass.fields(Derived)] == ["x", "y", "z"]
    assert dataclasses.asdict(Derived(1)) == {"x": 1, "y": [], "z": 3}
    assert Base(1) != Derived(1)


def test_the_page_of_a_check_is_its_docstring() -> None:
    pages = {check.id: check.doc for check in registry().checks}
    assert pages == {check.id: inspect.getdoc(check.run) for check in registry().checks}


# --- early start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("check", True), ("collect -o x.json", True), ("check --only gpu.* --json -", True),
        ("", False), ("demo", False), ("judge check", False), ("--help", False), ("check --help", False),
        ("check --hosts gpu[1-4]", False), ("check --hosts=gpu1", False), ("check --job 1", False),
    ],
)  # fmt: skip
def test_only_a_run_on_this_node_gets_a_head_start(words: str, expected: bool) -> None:
    assert prestart.collects_locally(words.split()) is expected


def test_only_a_process_with_one_thread_is_forked() -> None:
    code = "import threading, time\nfrom preflight._startup import prestart\n"
    code += "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    code += "prestart.start()\nprint(type(prestart.take()).__name__)\n"
    argv = [sys.executable, "-W", "ignore", "-c"]
    alone = "\n".join(line for line in code.splitlines() if "Thread" not in line)
    for text, kind in ((code, "NoneType\n"), (alone, "Forked\n")):
        assert subprocess.run([*argv, text], capture_output=True, text=True, timeout=30).stdout == kind


def test_an_unused_collector_ends_itself() -> None:
    code = "from preflight._startup import prestart; prestart.start(); print(prestart.take().pid)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=30)
    until = time.monotonic() + 60
    while Path(f"/proc/{int(done.stdout)}").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert done.stderr == ""


def test_the_installed_collector_and_the_shipped_one_are_one(tmp_path: Path) -> None:
    """The collector that was started early, the one that was not, and the one sent as source."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    paths = ("/proc/sys/kernel/{osrelease,hostname}", "/no/such/file")
    queries = [Probe("file", path, "") for path in paths] + [Probe("psutil", "virtual_memory", "")]
    plan = make_plan(queries, node="gpu001", deadline_s=20)
    prestart.start()
    gc.enable()
    documents = [node.collect(plan), node.collect(plan), node.collect(plan, str(python))]
    assert prestart.take() is None
    statuses = [{key: record["status"] for key, record in document["records"].items()} for document in documents]
    assert statuses[0] == statuses[1] == statuses[2]
    assert len(statuses[0]) == 5


def test_an_interpreter_without_docstrings_keeps_the_pages_of_checks(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, timeout=120).stdout

    for check in ("rdma.port-rate", "xid.gpu"):
        words = ("-m", "preflight", "explain", check)
        assert run("-OO", *words) == run(*words)


def test_an_interpreter_without_docstrings_writes_the_same_report(tmp_path: Path) -> None:
    reports = []
    for option in ("-O", "-OO"):
        path = tmp_path / f"report{option}.json"
        done = subprocess.run([sys.executable, option, "-m", "preflight", "demo", "--json", str(path)],
                              capture_output=True, timeout=300)  # fmt: skip
        assert done.returncode == 1, done.stderr
        report = json.loads(path.read_text(encoding="utf-8"))
        del report["run"]
        reports.append(report)
    assert reports[0] == reports[1]
