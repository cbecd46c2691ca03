"""A simulated InfiniBand fabric with the real tools: each fault is reported correctly, and nothing else is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight._startup.lightclass import replace
from preflight.archive.directory import save
from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.reports.html_page import render
from tests.support import report_samples
from tests.support.fabric.ibsim import IbSim, fat_tree, hca, leaf, missing, spine

if lacking := missing():
    pytest.skip(f"not installed: {lacking}", allow_module_level=True)

CHECKS = [check for check in registry().checks if check.sweep]
SIZES = {32: {"down": 8, "spines": 4, "up": 2}, 256: {"down": 16, "spines": 16, "up": 1}}
LATER = "2026-11-21T04:00:00Z"


def tree(size: int, slow: dict[tuple[str, int], str] | None = None) -> str:
    shape = SIZES[size]
    return fat_tree(size, down=shape["down"], spines=shape["spines"], up=shape["up"], slow=slow)


Findings = set[tuple[str, str, str]]


def loud(report: dict[str, Any]) -> Findings:
    """Return the findings other than passes and skips: status, check, subject."""
    return {(f["status"], f["check"], f["subject"]) for f in report["findings"] if f["status"] not in ("pass", "skip")}


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size} HCAs")
def size(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def sweeps(size: int) -> dict[str, Evidence]:
    """Sweep one fabric, first healthy, then with one fault after another."""
    unplugged = (f'"{leaf(1)}"[{SIZES[size]["down"] + 1}]', f'"{hca(3)}"[1]')
    found = {}
    with IbSim(tree(size)) as sim:
        found["healthy"] = sim.sweep()
        sim.console(*(f"Unlink {end}" for end in unplugged))
        found["unplugged"] = sim.sweep(at=LATER)
        sim.console(*(f"ReLink {end}" for end in unplugged))
        sim.console(*(f'PerformanceSet "{leaf(0)}"[1] PortCounters.{name}' for name in (
            "SymbolErrorCounter=1234", "LocalLinkIntegrityErrors=3", "PortXmitWait=4000000000")))  # fmt: skip
        found["error counters"] = sim.sweep(at=LATER)
        sim.console(*(f'PerformanceSet "{leaf(0)}"[1] PortCounters.{name}=0' for name in (
            "SymbolErrorCounter", "LocalLinkIntegrityErrors")), f'Error "{leaf(1)}" 100')  # fmt: skip
        found["lost queries"] = sim.sweep(at=LATER)
    return found


@pytest.fixture(scope="module")
def site(sweeps: dict[str, Evidence], tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster file of a site with a saved sweep of the healthy fabric."""
    folder = tmp_path_factory.mktemp("site")
    save(folder, [sweeps["healthy"]])
    (folder / "cluster.toml").write_text('[fabric]\nreference = "gpu000.json"\noversubscription = 1\n')
    return load(folder / "cluster.toml")


def test_healthy(sweeps: dict[str, Evidence], site: Cluster) -> None:
    """The hundreds of spare ports that are down, and faster speeds that a cable supports, are not reported."""
    report = judge([sweeps["healthy"]], CHECKS, Cluster(fabric=site.fabric))
    assert loud(report) == set()
    assert {f["check"] for f in report["findings"] if f["status"] == "skip"} == {
        "fabric.hops", "fabric.fan-in", "fabric.sharp"  # one node was queried; ibsim's switches do not aggregate
    }  # fmt: skip
    assert report["exit_status"] == 0


def test_unplugged(size: int, sweeps: dict[str, Evidence], site: Cluster) -> None:
    port = SIZES[size]["down"] + 1
    uplink = f"leaf01 port {port} - spine00 port {SIZES[size]['up'] + 1}"
    assert loud(judge([sweeps["unplugged"]], CHECKS, site)) == {
        ("fail", "fabric.reference", uplink), ("fail", "fabric.reference", "gpu003 mlx5_0"),
        ("fail", "fabric.oversubscription", "leaf01"),
    }  # fmt: skip


def test_error_counters(sweeps: dict[str, Evidence], site: Cluster) -> None:
    report = judge([sweeps["error counters"]], CHECKS, site)
    assert loud(report) == {("fail", "fabric.link-errors", "leaf00 port 1")}
    messages = [f["message"] for f in report["findings"] if f["status"] == "fail"]
    grown = {name for message in messages for name in re.findall(r"(\w+) grew by", message)}
    assert grown == {"SymbolErrorCounter", "LocalLinkIntegrityErrors"}


def test_lost_queries(size: int, sweeps: dict[str, Evidence], site: Cluster) -> None:
    """Half a sweep is never complete: the missing part is unknown, even if the tools exited with 0."""
    lost = sweeps["lost queries"]
    assert {raw["rc"] for raw in lost.records.values()} <= {0, 1}  # 1: ibqueryerrors has found errors
    report = judge([lost], CHECKS, site)
    assert not {f["check"] for f in report["findings"] if f["status"] == "fail"}
    assert {check for status, check, _ in loud(report) if status == "unknown"} == {
        "fabric.sweep", "fabric.oversubscription", "fabric.sharp", "fabric.link-speed", "fabric.reference",
        "fabric.link-errors",
    }  # fmt: skip
    port = SIZES[size]["up"] + 1
    where = f"behind spine00 port {port}, spine00 port" if SIZES[size]["up"] > 1 else f"behind spine00 port {port}"
    assert where in "".join(sorted(f["message"] for f in report["findings"] if f["check"] == "fabric.sweep"))
    assert report["fabrics"][0]["partial"].startswith("the sweep is partial")
    assert report["exit_status"] == 3


@pytest.mark.parametrize(
    ("tool", "unsure"),
    [
        ("cmd:iblinkinfo -l", {"fabric.sweep"}),
        ("cmd:ibqueryerrors", {"fabric.sweep", "fabric.link-errors"}),
        ("cmd:saquery -s", {"fabric.subnet-manager"}),
    ],
)
def test_a_tool_that_crashed(sweeps: dict[str, Evidence], site: Cluster, tool: str, unsure: set[str]) -> None:
    """Its output is incomplete: ibqueryerrors crashes if answers are lost."""
    healthy = sweeps["healthy"]
    half = {**healthy.records[tool], "rc": -11, "out": healthy.records[tool]["out"][:100]}
    report = judge([replace(healthy, records={**healthy.records, tool: half})], CHECKS, site)
    assert {check for status, check, _ in loud(report) if status == "unknown"} == unsure


def test_slow_links(size: int, site: Cluster) -> None:
    up = SIZES[size]["down"] + 1
    with IbSim(tree(size, slow={(leaf(0), 2): "4xEDR", (leaf(1), up): "1xHDR"})) as sim:
        report = judge([sim.sweep(at=LATER)], CHECKS, site)
    host, uplink = "leaf00 port 2 - gpu001 mlx5_0", f"leaf01 port {up} - spine00 port {SIZES[size]['up'] + 1}"
    assert loud(report) == {
        ("fail", "fabric.link-speed", host), ("fail", "fabric.link-speed", uplink),
        ("fail", "fabric.reference", host), ("fail", "fabric.reference", uplink),
        ("fail", "fabric.oversubscription", "leaf01"),
    }  # fmt: skip


def test_no_subnet_manager(size: int, site: Cluster) -> None:
    with IbSim(tree(size), opensm=False) as sim:
        report = judge([sim.sweep(at=LATER)], CHECKS, site)
    assert loud(report) == {("fail", "fabric.subnet-manager", ""), ("unknown", "fabric.link-errors", "")}


def test_two_masters(size: int, site: Cluster) -> None:
    """They have different sm_keys, so neither yields; a standby is not counted."""
    with IbSim(tree(size)) as sim:
        sim.start_manager(hca(size - 1), "sm_key 0x7\n")
        report = judge([sim.sweep(at=LATER)], CHECKS, site)
    assert {one for one in loud(report) if one[1] != "fabric.link-errors"} == {("fail", "fabric.subnet-manager", "")}
    message = next(f["message"] for f in report["findings"] if f["status"] == "fail")
    assert message.startswith("2 subnet managers are master: ")
    assert "gpu000 mlx5_0" in message
    assert f"gpu{size - 1:03d} mlx5_0" in message


def test_what_no_fault_is(tmp_path: Path) -> None:
    """Aggregation nodes, HCAs of another speed, an unused second port, a standby: none of these is reported."""
    topology = fat_tree(8, down=4, spines=2, up=3, ports=14, aggregation=True, extra=2,
                        slow={(leaf(0), 11): "4xEDR", (leaf(0), 12): "4xEDR"})  # fmt: skip
    topology = topology.replace('Ca\t1 "H-', 'Ca\t2 "H-')
    with IbSim(topology) as sim:
        sim.start_manager(hca(5))
        sim.console(f'PerformanceSet "{spine(0)}"[1] PortCounters.PortXmitWait=4000000000',
                    f'PerformanceSet "{spine(0)}"[1] PortCounters.PortRcvSwitchRelayErrors=77',
                    f'PerformanceSet "{leaf(0)}"[1] PortCounters.LinkDownedCounter=3')  # fmt: skip
        evidence = sim.sweep()
    report = judge([evidence], [check for check in CHECKS if check.id != "fabric.sharp"])
    assert {(status, check) for status, check, _ in loud(report)} == {
        ("unknown", "fabric.reference"), ("unknown", "fabric.link-errors"),  # no reference, one reading
    }  # fmt: skip
    assert "LinkDownedCounter 3" in str(report["findings"])
    assert "PortXmitWait" not in json.dumps([f["message"] for f in report["findings"]])


def test_256_hcas_are_judged_in_time(sweeps: dict[str, Evidence], size: int, site: Cluster) -> None:
    """Allows 2 s in addition to the tools' own time; it takes a fiftieth of that."""
    began = time.process_time()
    report = judge([sweeps["unplugged"]], CHECKS, site)
    page = render(report | {"run": report_samples.RUN})
    assert time.process_time() - began < 2
    assert report["fabrics"][0]["hcas"] == size - 1
    assert '<svg class="topo fabric"' in page


@pytest.fixture
def small() -> Iterator[IbSim]:
    with IbSim(fat_tree(4, down=2, spines=2, ports=6)) as sim:
        yield sim


def preflight(sim: IbSim, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PATH=f"{sim.folder_of_tools()}:{os.environ['PATH']}")
    return subprocess.run([sys.executable, "-m", "preflight", *words], env=environment, cwd=cwd, capture_output=True,
                          text=True, timeout=120)  # fmt: skip


def test_from_the_command_line(small: IbSim, tmp_path: Path) -> None:
    """Sweep, save the sweep as reference, sweep again, pull a cable, judge: as an operator would."""
    (tmp_path / "cluster.toml").write_text("[fabric]\noversubscription = 1\n")
    words = ("check", "-v", "--fabric", "--only", "fabric.*", "--cluster", "cluster.toml")
    first = preflight(small, *words, "--save", "kept", cwd=tmp_path)
    assert first.returncode == 3, first.stderr
    assert "no reference sweep is declared; the fabric now has 4 switches, 4 HCAs and 8 links" in " ".join(
        first.stdout.split()
    )
    (saved,) = (tmp_path / "kept").glob("*.json")
    (tmp_path / "cluster.toml").write_text(f'[fabric]\nreference = "kept/{saved.name}"\n')
    second = preflight(small, *words, cwd=tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr
    assert second.stdout.startswith("PASS: the fabric passed every check that applies")
    small.console(f'Unlink "{hca(1)}"[1]')
    third = preflight(small, *words, "--html", "page.html", "--json", "-", cwd=tmp_path)
    assert third.returncode == 1, third.stderr
    report = json.loads(third.stdout)
    assert loud(report) == {("fail", "fabric.reference", "gpu001 mlx5_0")}
    assert report["coverage"]["planned"] == len([check for check in CHECKS if not check.window])
    page = (tmp_path / "page.html").read_text()
    assert "missing: gpu001 mlx5_0" in page
    assert "FAIL" in page


def test_no_sweep_without_the_option(small: IbSim, tmp_path: Path) -> None:
    done = preflight(small, "check", "--only", "fabric.*", "--save", "kept", "--json", "-", cwd=tmp_path)
    (saved,) = (tmp_path / "kept").glob("*.json")
    assert not [key for key in json.loads(saved.read_text())["records"] if "ibnetdiscover" in key or "sminfo" in key]
    report = json.loads(done.stdout)
    assert report["coverage"]["without_sweep"] == [check.id for check in CHECKS if not check.window]
    assert "fabric.uplink-balance" in report["coverage"]["without_window"]
    assert (report["coverage"]["planned"], report["findings"], report["exit_status"]) == (0, [], 3)
