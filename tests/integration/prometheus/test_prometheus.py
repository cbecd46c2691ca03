"""Metrics: bounded, escaped, complete files; read by the real promtool, node_exporter and Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.reports.prometheus import MOST_SERIES, render
from tests.support.paths import ROOT
from tests.support.report_samples import HOSTILE
from tests.unit.judge.test_waivers import DOWN, node

RULES = ROOT / "deploy" / "prometheus" / "preflight.rules.yml"
EXPORTER = "prometheus-node-exporter"

_LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+]+)')


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def textfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Judge a healthy and a sick node, and return the folder of the metrics."""
    folder = tmp_path_factory.mktemp("metrics")
    save(folder / "saved", [node("gpu001", DOWN), node("gpu002")])
    done = CliRunner().invoke(
        main, ["judge", str(folder / "saved"), "--textfile", str(folder / "preflight.prom")], catch_exceptions=False
    )
    assert done.exit_code == 1
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    return folder


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        assert found, line
        labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
        yield found[1], labels, float(found[3])


def test_a_sick_and_a_well_node(textfile: Path) -> None:
    series = list(samples((textfile / "preflight.prom").read_text()))
    status = {labels["node"]: value for name, labels, value in series if name == "preflight_node_status"}
    assert status["gpu001"] == 3
    sick = {labels["node"] for name, labels, value in series if name == "preflight_check_status"
            and labels["check"] == "rdma.port-state" and value == 3}  # fmt: skip
    assert sick == {"gpu001"}
    assert ("preflight_nodes", {"state": "answered"}, 2.0) in series
    (ended,) = (value for name, _, value in series if name == "preflight_run_timestamp_seconds")
    assert abs(ended - time.time()) < 3600


def test_promtool_finds_nothing(textfile: Path) -> None:
    text = (textfile / "preflight.prom").read_bytes()
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_rules() -> None:
    for words in (["check", "rules", RULES], ["test", "rules", RULES.with_suffix(".test.yml")]):
        done = subprocess.run(
            [tool("promtool"), *map(str, words)], capture_output=True, text=True, check=False, cwd=RULES.parent
        )
        assert done.returncode == 0, done.stdout + done.stderr


def report(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    counts = dict.fromkeys(("planned", "ran", "passed", "warned", "failed", "unknown", "skipped", "no_answer"), 0)
    return {
        "run": {"version": "1", "command": "check", "seconds": 1.5, "at": "2026-11-21T03:00:00Z"},
        "coverage": {**counts, "nodes": {"planned": len(nodes), "answered": len(nodes), "no_answer": 0}},
        "nodes": nodes, "findings": [], "checklists": [], "exit_status": 0,
    }  # fmt: skip


def test_series_are_bounded_and_the_urgent_come_first() -> None:
    nodes = [{"name": f"n{n}", "status": "pass", "checks": {"a.b": "unknown"}} for n in range(MOST_SERIES + 50)]
    nodes[-1] |= {"status": "fail", "checks": {"a.b": "fail"}}
    series = list(samples(render(report(nodes))))
    assert sum(name == "preflight_node_status" for name, *_ in series) == MOST_SERIES
    assert any(labels.get("node") == nodes[-1]["name"] and value == 3 for _, labels, value in series)
    left = {labels["metric"]: value for name, labels, value in series if name == "preflight_series_left_out"}
    assert left["preflight_check_status"] == left["preflight_node_status"] == 50


@pytest.mark.parametrize("text", [HOSTILE, '"} 1\npreflight_evil 1\n', "\\", '\\"', "x" * 10_000, ""])
def test_hostile_names_stay_in_their_label(text: str) -> None:
    rendered = render(report([{"name": text * 3, "status": "fail", "class": text, "checks": {"a.b": "fail"}}]))
    assert len([1 for name, *_ in samples(rendered) if name == "preflight_check_status"]) == 1
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=rendered.encode("utf-8"), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_dashboard_and_the_rules_use_existing_metrics(textfile: Path) -> None:
    exported = {line.split()[2] for line in (textfile / "preflight.prom").read_text().splitlines() if "TYPE" in line}
    source = (ROOT / "preflight" / "gate" / "outputs.py").read_text()
    exported |= {"preflight_gate_verdict"} | {
        f"preflight_gate_{name}" for name in re.findall(r'\("([a-z_]+)", ', source)
    }
    status = (ROOT / "preflight" / "gate" / "fleet_status.py").read_text()
    exported |= set(re.findall(r'Metric\("([a-z_]+)"', status))
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "preflight.json").read_text())
    queries = json.dumps([panel["targets"] for panel in dashboard["panels"]]) + RULES.read_text()
    named = set(re.findall(r"\bpreflight_[a-z_]+", queries))
    assert named
    assert named <= exported | {"preflight_node_answered"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


# --- the real ones ---------------------------------------------------------------------------------


#: A private address among the 16 million local ones, so a free port stays free.
HERE = "127.78.{}.{}".format(*divmod(os.getpid() % 65536, 256))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        return int(taken.getsockname()[1])


@contextmanager
def running(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def wait_for(condition: Any, until_s: float = 180) -> Any:
    end = time.monotonic() + until_s
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    pytest.fail("it did not come")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def test_scraped_by_a_real_prometheus_and_the_alert_fires(textfile: Path, tmp_path: Path) -> None:
    exporter, server, source = free_port(), free_port(), tool(EXPORTER)
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES.read_text().replace("for: 5m", "for: 1s"))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": [f"{HERE}:{exporter}"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    with ExitStack() as stack:
        stack.enter_context(running(
            source, f"--web.listen-address={HERE}:{exporter}", "--collector.disable-defaults",
            "--collector.textfile", f"--collector.textfile.directory={textfile}",
        ))  # fmt: skip
        scraped = wait_for(lambda: get(f"http://{HERE}:{exporter}/metrics"))
        assert "node_textfile_scrape_error 0" in scraped
        stack.enter_context(running(
            tool("prometheus"), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={HERE}:{server}", "--log.level=error",
        ))  # fmt: skip
        base = f"http://{HERE}:{server}/api/v1"
        query = quote('preflight_check_status{check="rdma.port-state"} == 3')
        wait_for(lambda: json.loads(get(f"{base}/query?query={query}"))["data"]["result"])

        def firing() -> list[Mapping[str, str]]:
            alerts = json.loads(get(f"{base}/alerts"))["data"]["alerts"]
            return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

        wait_for(lambda: any(a["alertname"] == "PreflightNodeFailed" and a["node"] == "gpu001" for a in firing()))
