"""Lessons from other tools: every row has existing tests; rows without one elsewhere are tested here."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.evidence.document import from_document
from preflight.judge import findings, judge
from preflight.model import Check, failed, passed
from preflight.pair import endpoints as pair_ends
from preflight.pair import tests as pair_kinds
from preflight.probes.node import PROBES
from preflight.probes.probe import Probe, plan
from preflight.transport.local import node as local
from tests.checks.test_checks import CHECKS as ALL
from tests.checks.test_checks import findings_of
from tests.support import machines
from tests.support.fixture import cases, evidence, whole_node
from tests.support.lessons import FALSE_ALARMS, NODE, XID
from tests.support.machines import hgx_h100, with_gpu
from tests.support.node_documents import document
from tests.support.paths import ROOT, TESTS
from tests.support.stopwatch import Stopwatch
from tests.support.whole_nodes import CHECKS, readers, site
from tests.unit.judge.test_honesty import _made

ROCE = "hgx-h100-roce"


# --- the table -------------------------------------------------------------------------------------


def test_every_row_is_here_once() -> None:
    rows = [f"L{number:02}" for number in range(1, 65)]
    assert sorted(NODE) == rows
    assert all(tests for _, tests in NODE.values())


def test_the_experts_list_of_false_alarms_is_complete() -> None:
    """Seventeen entries in the order of the list; further ones are ours."""
    words = ("SYS", "PCIe", "down", "IPoIB", "LID", "lifespan", "xmit_wait", "flush", "SrcValid", "NIC rows", "DMA-BUF",
             "fabric", "13", "2X NDR", "4X SDR", "ECN", "GID")  # fmt: skip
    for word, entry in zip(words, FALSE_ALARMS, strict=False):
        assert word in entry


@cache
def functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def named() -> Iterator[str]:
    for _, tests in NODE.values():
        yield from tests
    for table in (XID, FALSE_ALARMS):
        for tests in table.values():
            yield from tests


@pytest.mark.parametrize("test", sorted(set(named())))
def test_the_named_test_exists(test: str) -> None:
    match = re.fullmatch(r"((?:\w+/)*test_\w+\.py)::(test_\w+)(?:\[(.+)\])?", test)
    assert match, "name it file::test[case]"
    file, function, case = match.groups()
    assert function in functions(file)
    if case is None:
        return
    if function == "test_fixture":
        assert (ROOT / "fixtures" / f"{case}.json").is_file()
        return
    text = (TESTS / file).read_text(encoding="utf-8")
    literals = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert case in literals, "no such case"


# --- rows that had no test -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "empty", "comments only", "a directory", "not text"])
def test_a_cluster_file_without_content_ends_the_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L01: exit status 2, and no node is collected."""
    monkeypatch.setattr("preflight.transport.local.node.collect", lambda *a, **k: pytest.fail("a node was collected"))
    path = tmp_path / "cluster.toml"
    make: dict[str, Callable[[], object]] = {
        "missing": lambda: None,
        "empty": path.touch,
        "comments only": lambda: path.write_text("# nothing\n"),
        "a directory": path.mkdir,
        "not text": lambda: path.write_bytes(b"\xff\xfe\x00"),
    }
    make[kind]()
    result = CliRunner().invoke(main, ["check", "--cluster", str(path)])
    assert result.exit_code == 2, result.output
    assert str(path) in result.output.replace("\n", "")


def test_a_machine_from_nowhere_passes_nothing_that_needs_its_numbers() -> None:
    """L02: without catalogue and cluster file there is no expectation, and generic checks still run."""
    strange = replace(hgx_h100("strange"), gpu_id="ffff", gpu_name="NVIDIA X1")
    for index in range(8):
        strange = with_gpu(strange, index, health={"name": "NVIDIA X1"})
    report = judge([from_document(machines.evidence(strange), "x")], CHECKS)
    assert report["nodes"][0]["part"] is None
    statuses = report["nodes"][0]["checks"]
    assert {check: statuses[check] for check in ("gpu.count", "gpu.right-part", "rdma.device-count")} == dict.fromkeys(
        ("gpu.count", "gpu.right-part", "rdma.device-count"), "unknown"
    )
    assert statuses["gpu.driver"] == statuses["rdma.port-state"] == statuses["gpu.ecc-uncorrected"] == "pass"
    assert not [f for f in report["findings"] if "HGX" in f"{f['expected']}{f['message']}"]


def test_no_metadata_service_is_queried() -> None:
    """L03: nothing on a node opens a connection except to its own pod's API server; no probe names one."""
    for probe in PROBES:
        assert not re.search(r"169\.254|metadata|https?://|curl|wget", probe.target)
    for path in (ROOT / "preflight" / "collector").glob("*.py"):
        words = {
            node.attr if isinstance(node, ast.Attribute) else node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Attribute, ast.alias))
        }
        if path.name == "kubernetes_api.py":
            assert "169.254" not in path.read_text()
            continue
        if path.name == "redis_databases.py":  # a socket on the switch itself, never a remote host
            assert path.read_text().count("socket.socket(") == path.read_text().count("socket.AF_UNIX") == 1
            continue
        wrong = words & {"connect", "create_connection", "getaddrinfo", "http", "http.client", "urllib.request", "ssl"}
        assert not wrong, (path.name, wrong)


#: A file that the kernel lacks: it has no IOMMU, or was built without NUMA balancing.
ABSENCE_IS_AN_ANSWER = {"dir:/sys/kernel/iommu_groups", "file:/proc/sys/kernel/numa_balancing"}

FAILED: dict[str, Any] = {
    "not found": {"status": "missing", "why": "there is no such tool"},
    "empty": {"status": "ok", "out": "", "rc": 0},
    "status 1": {"status": "ok", "out": "", "rc": 1, "err": "failed\n"},
    "status 127": {"status": "ok", "out": "", "rc": 127},
    "garbage": {"status": "ok", "out": "\x00<html>403 proxy</html>\n", "rc": 0},
}


def pattern(key: str) -> re.Pattern[str]:
    """Return what matches the records of a probe."""
    words = re.split(r"(\{[^}]*\}|\*)", key)
    made = ""
    for word in words:
        if word in ("*", "{}"):
            made += "[^/]*"
        elif word.startswith("{"):
            made += "(" + "|".join(re.escape(one).replace(r"\*", "[^/]*") for one in word[1:-1].split(",")) + ")"
        else:
            made += re.escape(word)
    return re.compile(made)


#: Complete nodes in the order of trial: the last one was recorded by our collector.
BASES = (ROCE, "hgx-b200", LAST := "soft-roce")

#: Records that no complete node has: a network switch (test_nothing_to_judge), a PyTorch (fixtures of versions.nccl,
#: versions.compatibility), a bond (roce.chain), a pod's API (container.*), podman's file (nccl-tests.record), NVMe over
#: a network (storage.network).
ONLY_IN_FIXTURES = (
    "Eos-release", "/host/machine.conf", "dist-info", "/torch/version.py", "/cuda/compat", "/bonding/", "kube:",
    "containerenv", "/sys/class/nvme/",
)  # fmt: skip


def answers_to(probe: Probe) -> Iterator[tuple[str, list[str]]]:
    """Yield node -> the keys of its records that answer a probe."""
    for name in BASES:
        yield name, [key for key in whole_node(name)["records"] if pattern(probe.key).fullmatch(key)]


@cache
def _readers(name: str) -> Mapping[str, list[Check]]:
    """Return the checks that read each record of a node."""
    return readers(from_document(whole_node(name), "x"), CHECKS, site(name))


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.key[:60])
def test_no_pass_rests_on_a_probe_that_failed(probe: Probe) -> None:
    """L04: every probe with every kind of failure; a check without another source does not pass."""
    name, keys = next(found for found in answers_to(probe) if found[1] or found[0] == LAST)
    assert keys or any(part in probe.key for part in ONLY_IN_FIXTURES), (
        "no whole node has such a record: name it, or give it one"
    )
    document, reading = whole_node(name), _readers(name)
    checks = list(dict.fromkeys(check for key in keys for check in reading[key]))
    for kind, record in FAILED.items():
        if kind == "not found" and probe.key in ABSENCE_IS_AN_ANSWER:
            continue
        records = {**document["records"], **dict.fromkeys(keys, record)}
        judged = findings([from_document({**document, "records": records}, "x")], checks, site(name))
        wrong = [f for f in judged
                 if f["status"] == "pass" and (not f["evidence"] or set(f["evidence"]) <= set(keys))]  # fmt: skip
        assert not wrong, (kind, [(f["check"], f["message"], f["evidence"]) for f in wrong])


def test_one_failure_among_many_is_the_exit_status() -> None:
    """L09: checks return values; one place computes the status, wherever the failure is."""
    for place in (0, 7, 15):
        made = [_made(f"n{i}", failed("no") if i == place else passed("yes")) for i in range(16)]
        assert judge([document({"file:x": "y"})], made)["exit_status"] == 1


def test_a_rehearsal_is_marked_in_every_format(tmp_path: Path) -> None:
    """L19: the demo's evidence was made by hand; text, JSON and HTML state it before any verdict."""
    html, data = tmp_path / "demo.html", tmp_path / "demo.json"
    text = CliRunner().invoke(main, ["demo", "--html", str(html), "--json", str(data)]).output
    for output in (text, data.read_text(), re.sub(r"<style.*?</style>", "", html.read_text(), flags=re.DOTALL)):
        assert "made by hand" in output
    assert text.index("made by hand") < text.lower().index("pass")


def test_every_tool_hangs_and_the_run_ends_and_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L34, L37: no tool ever ends; the run does, and reports which node hung in which tool for how long."""
    tools = {probe.argv[0] for probe in PROBES if probe.argv}
    for tool in tools:
        script = tmp_path / tool
        script.write_text("#!/bin/sh\ntrap '' TERM\nexec sleep 1000\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    probes = [replace(probe, timeout_s=1, where=()) for probe in PROBES if probe.argv and not probe.each]
    watch = Stopwatch()
    evidence = from_document(local.collect(plan(probes, node="x", deadline_s=4, parallel=len(probes))), "x")
    assert watch.seconds < 4 + 1 + 2, "the deadline, the slack, and the start of fifty tools"
    tool_records = {key: record for key, record in evidence.records.items() if not key.startswith("psutil:")}
    assert {record["status"] for record in tool_records.values()} == {"timeout"}
    assert len(tool_records) == len(probes)
    records = {**whole_node(ROCE)["records"], **evidence.records}
    report = judge([from_document({**whole_node(ROCE), "records": records}, "x")], CHECKS, site(ROCE))
    messages = [f["message"] for f in report["findings"] if f["check"] == "xid.gpu"]
    assert len(messages) == 1
    assert re.search(r"dmesg .*\b[0-9.]+ s\b", messages[0]), messages


def test_no_text_is_ever_run_as_code() -> None:
    """L45: nothing is evaluated and no shell is started; three modules handle code, all of it our own.

    One loads the library sent to a node (psutil); one writes the ``__init__`` of our classes; one compiles what it
    packs.
    """
    ours = ("collector/library.py", "_startup/lightclass.py", "cli/zipapp.py")
    loads = {ROOT / "preflight" / name for name in ours}
    for folder in ("preflight", "checks", "reports"):
        for path in (ROOT / folder).rglob("*.py"):
            loading = path.resolve() in loads
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and not loading:
                    name = node.func.id if isinstance(node.func, ast.Name) else ""
                    assert name not in ("eval", "exec", "compile", "__import__"), f"{path}:{node.lineno}"
                if isinstance(node, ast.Attribute):
                    assert node.attr not in ("system", "popen", "getoutput"), f"{path}:{node.lineno}"
                if isinstance(node, ast.keyword):
                    assert node.arg != "shell", f"{path}:{node.lineno}"


def test_grace_is_healthy_with_every_nic_behind_the_cpu() -> None:
    """The first of the false alarms, on the complete tray."""
    name = "gb200-tray"
    report = judge([evidence(name, {"base": name, "records": {}})], CHECKS, site(name))
    assert not [f for f in report["findings"] if f["status"] in ("fail", "warn")]
    assert "SYS" in whole_node(name)["records"]["cmd:nvidia-smi topo -m"]["out"]


def test_a_flap_before_the_window_is_no_fault() -> None:
    """L24: only counts within the window are judged, not totals since the node started."""
    check = ALL["counters.flaps"]
    flapping = next(case for case in cases("counters.flaps") if case.path.stem == "link-flaps")
    assert {"fail", "warn"} & {f["status"] for f in findings_of(check, flapping)}
    still = json.loads(flapping.path.read_text())
    for record in still["records"].values():
        if isinstance(record, dict) and isinstance(record.get("again"), dict):
            record["again"] = {**record["again"], **{k: record[k] for k in ("out", "value") if k in record}}
    made = evidence("link-flaps", still)
    report = judge([made], [check], flapping.cluster())
    assert {f["status"] for f in report["findings"]} <= {"pass", "skip"}


def test_nothing_of_ours_burns_or_times_a_gpu() -> None:
    """L29: no probe and no test loads a GPU, so no GPU is judged while it is hot or busy from another."""
    load = re.compile(r"gpu[-_]?burn|dcgmi|nvvs|_perf\b|gemm|bandwidthTest|nvbandwidth|stress|hpl|mpirun")
    for probe in PROBES:
        assert not load.search(probe.target), probe.key
    assert not [kind for kind in pair_kinds.KINDS.values() if load.search(kind.tool) or "cuda" in kind.tool]


def test_what_we_measure_ourselves_is_long_enough() -> None:
    """L64: at least 200 messages, or two seconds of traffic for a port with a rate; never one iteration."""
    for rate in (1.0, 25.0, 400.0, 800.0, None):
        end = pair_ends.End("n1", "mlx5_0", 1, rate, False, False, None, "", "10.0.0.1", "ib0", 4092, 4096)
        for kind in pair_kinds.KINDS.values():
            words = pair_kinds.command(kind, end, end, pair_ends.Wanted(), 18515)
            messages = int(words[words.index("-n") + 1])
            assert messages >= pair_kinds.LEAST_MESSAGES == 200
            if kind.name in pair_kinds.BANDWIDTH and rate is not None and rate >= 25:
                assert messages * kind.size >= rate * 1e9 / 8 * pair_kinds.TRAFFIC_S * 0.99
