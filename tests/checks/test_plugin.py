"""The example of docs/plugin-api.md, followed by a third party."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight import plugin as api
from preflight.checks._registry import plugins
from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


KEY = "file:/proc/sys/vm/nr_hugepages"


def _environment(*paths: Path) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "CI"}
    return environment | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def plugin(site: Path, name: str, source: str) -> None:
    """Install a distribution with one module and our entry point, as pip would."""
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[preflight.checks]\nsite = {name}\n")


PAGE = (ROOT / "docs" / "plugin-api.md").read_text()
PROJECT, PLUGIN, ITS_TEST = re.findall(r"```(?:toml|python)\n(.*?)```", PAGE, re.DOTALL)


def preflight(site: Path, *arguments: str, top: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", *arguments],
        capture_output=True, text=True, timeout=60, env=_environment(site, top), cwd=top,
    )  # fmt: skip


def test_as_a_plugin(tmp_path: Path) -> None:
    """The page's module, installed outside the tree by its pyproject.toml."""
    entry_points = tomllib.loads(PROJECT)["project"]["entry-points"]
    assert entry_points == {plugins.GROUP: {"site": "our_checks"}}
    plugin(tmp_path, "our_checks", PLUGIN)
    done = preflight(tmp_path, "check", "--json", "-")
    assert not done.stderr
    document = json.loads(done.stdout)
    (finding,) = (f for f in document["findings"] if f["check"] == "ours.hugepages")
    assert finding["evidence"] == [KEY]
    assert finding["status"] in ("pass", "warn")
    assert KEY in preflight(tmp_path, "probes").stdout
    assert "ours.hugepages" in preflight(tmp_path, "list").stdout
    page = preflight(tmp_path, "explain", "ours.hugepages").stdout
    assert "data loaders swap" in page
    for heading in ("What it does", "Why it matters", "Verdicts", "False alarms", "Sources"):
        assert f"\n{heading}\n" in page


def test_the_tests_of_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "our_checks.py").write_text(PLUGIN)
    (tmp_path / "test_our_checks.py").write_text(ITS_TEST)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=_environment(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_page_imports_nothing_else_of_preflight() -> None:
    for source in (PLUGIN, ITS_TEST):
        modules = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
        assert {name for name in modules if name and name.startswith("preflight")} == {"preflight.plugin"}


def test_the_page_names_the_interface_exactly() -> None:
    table = PAGE.split("## Names")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.M)) == api.__all__ == dir(api)


@pytest.mark.parametrize("name", api.__all__)
def test_each_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(api, name))


def test_a_name_outside_the_interface_is_an_error() -> None:
    with pytest.raises(AttributeError, match=re.escape("see docs/plugin-api.md")):
        _ = api.judge


def test_a_plugin_imports_only_what_it_names() -> None:
    code = "import sys; from preflight.plugin import Probe; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("preflight.")} == {
        "preflight._startup",
        "preflight._startup.lightclass",
        "preflight.plugin",
        "preflight.probes",
        "preflight.probes.probe",
        "preflight.version",
    }


def test_findings_of_a_check_of_the_node_only() -> None:
    @api.check("ours.fleet", title="t", source="s", fix="f", scope="fleet")
    def fleet(nodes: object, sites: object) -> Iterator[api.Finding]:
        """Compare the nodes.

        It slows jobs.
        """
        yield api.passed("good")

    with pytest.raises(ValueError, match=r"ours\.fleet is a check of a fleet"):
        api.findings_of(fleet, {})


def test_findings_of_knows_what_the_site_expects() -> None:
    @api.check("ours.gpus", title="t", source="s", fix="f")
    def gpus(node: api.NodeFacts, site: api.Site) -> Iterator[api.Finding]:
        """Compare the number of GPUs.

        It slows jobs.
        """
        yield api.compare(7, site.gpus, what="GPUs", evidence=["file:/x"])

    assert [f.status for f in api.findings_of(gpus, {}, {"gpus": 8})] == [api.Status.FAIL]
    assert [f.status for f in api.findings_of(gpus, {})] == [api.Status.UNKNOWN]


def test_a_function_of_the_plugin_declares_that_a_check_does_not_apply() -> None:
    def no_daemon(node: api.NodeFacts, site: api.Site) -> api.Finding | None:
        return None if node.parsed(KEY, str) else api.skipped("no daemon runs here", evidence=[KEY])

    @api.check("ours.daemon", title="t", source="s", fix="f", unless=(no_daemon,))
    def daemon(node: api.NodeFacts, site: api.Site) -> Iterator[api.Finding]:
        """Look for the daemon.

        It slows jobs.
        """
        yield api.passed("it runs")

    assert [f.message for f in api.findings_of(daemon, {KEY: "1"})] == ["it runs"]
    assert [f.message for f in api.findings_of(daemon, {KEY: ""})] == ["no daemon runs here"]
    assert [f.status for f in api.findings_of(daemon, {})] == [api.Status.UNKNOWN]


def test_an_older_plugin_calls_it_in_the_check() -> None:
    """Older plug-ins yield the result of ``no_gpu``."""

    @api.check("ours.old", title="t", source="s", fix="f")
    def old(node: api.NodeFacts, site: api.Site) -> Iterator[api.Finding]:
        """Look at the GPUs.

        It slows jobs.
        """
        if absent := api.no_gpu(node, site):
            yield absent
            return
        yield api.passed("there are some")

    @api.check("ours.new", title="t", source="s", fix="f", unless=(api.no_gpu,))
    def new(node: api.NodeFacts, site: api.Site) -> Iterator[api.Finding]:
        """Look at the GPUs.

        It slows jobs.
        """
        yield api.passed("there are some")

    bus: dict[str, object] = {"dir:/sys/bus/pci/devices": []}
    assert api.findings_of(old, bus) == api.findings_of(new, bus)
    assert [f.status for f in api.findings_of(new, bus)] == [api.Status.SKIP]


def test_findings_of_a_check_that_crashes_is_unknown() -> None:
    @api.check("ours.crash", title="t", source="s", fix="f")
    def crash(node: api.NodeFacts, site: api.Site) -> Iterator[api.Finding]:
        """Divide by zero.

        It slows jobs.
        """
        yield api.passed(f"{1 / 0}")

    assert [f.status for f in api.findings_of(crash, {})] == [api.Status.UNKNOWN]


@pytest.mark.parametrize("source", ["raise RuntimeError('boom')", "import no_such_module", "PROBES = (1,)", "def ("])
def test_a_broken_plugin_is_reported_and_does_not_end_the_run(tmp_path: Path, source: str) -> None:
    plugin(tmp_path, "broken", source)
    done = preflight(tmp_path, "list")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: a plug-in could not be loaded: site (broken 1.0)")
    assert done.stderr.count("\n") == 1
    assert "Traceback" in preflight(tmp_path, "-v", "list").stderr
    assert "rdma.port-rate" in done.stdout


@pytest.mark.parametrize(
    "source", ["import no_such_module", "import sys; sys.exit(0)", "raise ValueError('a\\nb' * 999)"]
)
def test_a_plugin_that_cannot_be_loaded_is_unknown_and_gates(tmp_path: Path, source: str) -> None:
    """Its checks did not run, so neither a node nor a hook may pass."""
    plugin(tmp_path, "broken", source)
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[class.a]\ngpus = 0\nhcas = 0\n[checks]\nshadow = ["ours.hugepages"]\n')
    done = preflight(tmp_path, "check", "--cluster", str(cluster))
    assert done.returncode == 3
    assert "a plug-in cannot be loaded: site (broken 1.0): " in " ".join(done.stdout.split())[:200]
    document = json.loads(preflight(tmp_path, "check", "--json", "-").stdout)
    (finding,) = (f for f in document["findings"] if f["check"] == plugins.LOADED)
    assert (finding["status"], finding["gating"]) == ("unknown", True)
    assert len(finding["message"]) < 300
    for only in ("", '[gate]\nonly = ["gpu.*", "ours.*"]\n'):
        cluster.write_text("[class.a]\ngpus = 0\nhcas = 0\n" + only)
        for hook, status in (("ci", 3), ("slurm-step", 3), ("slurm-prolog", 0)):
            words = ("gate", hook, "--cluster", str(cluster), "--state-dir", str(tmp_path / "state"))
            done = preflight(tmp_path, *words)
            assert done.returncode == status
            assert "NOT JUDGED: site.plugins: a plug-in cannot be loaded: site (broken 1.0)" in done.stderr
            assert "Traceback" not in done.stderr
    assert plugins.LOADED not in preflight(tmp_path / "none", "list").stdout


def test_a_duplicate_id_is_an_error(tmp_path: Path) -> None:
    plugin(tmp_path, "twice", PLUGIN.replace("ours.hugepages", "gpu.count"))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("[class.a]\ngpus = 0\nhcas = 0\n")
    saved = tmp_path / "saved"
    assert preflight(tmp_path / "none", "check", "--save", str(saved)).returncode != 2
    file = str(cluster)
    for words in (
        ["check"], ["list"], ["probes"], ["explain", "gpu.count"], ["lint", file], ["checklist"],
            ["learn", str(saved), "-o", str(tmp_path / "new.toml")],
        ["judge", str(saved)], ["collect"], ["gate", "ci", "--cluster", file], ["gate", "--policy", "--cluster", file],
    ):  # fmt: skip
        done = preflight(tmp_path, *words)
        assert (done.returncode, "gpu.count is defined twice" in done.stderr) == (2, True), (words, done.stderr)


def test_a_cluster_file_may_name_checks_of_an_installed_plugin(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[class.a]\ngpus = 0\nhcas = 0\n[gate]\njob = ["ours.*"]\n')
    done = preflight(tmp_path, "lint", str(cluster))
    assert (done.returncode, f'{cluster}:5: gate.job: no check is called "ours.*"' in done.stderr) == (2, True)
    plugin(tmp_path, "ours", PLUGIN)
    assert preflight(tmp_path, "lint", str(cluster)).returncode == 0
    assert preflight(tmp_path, "gate", "ci", "--cluster", str(cluster)).returncode == 0
