"""Cluster files compared with the roofline: unreachable floors, fat trees, models, and the good run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.checks import registry
from preflight.cli.app import main
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster, NodeClass, Site
from preflight.expectations import cluster_file as cluster
from preflight.expectations.catalogue import PARTS, part_by_name
from preflight.expectations.cluster_file import ClusterFileError
from preflight.expectations.roofline_table import highest_floor
from preflight.facts.job import RunFacts
from preflight.judge import judge
from preflight.model import Finding
from tests.support.nccl_tests_grammar import Run, printed

GIB = 1 << 30
SIZES = tuple(8 << shift for shift in range(31))

PAIRS = """\
[class.h100]
gpus = 8
part = "{part}"

[class.h100.thresholds]
all_reduce_busbw_gbytes_s = {floor}
"""


def refused(text: str) -> str:
    with pytest.raises(ClusterFileError) as error:
        cluster.decode(text.encode(), "cluster.toml")
    return str(error.value)


def test_a_floor_above_the_roofline_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L28: 900 GB/s on eight H100: exit status 2 with line, limit and fix, before any node is contacted."""
    monkeypatch.setattr("preflight.transport.local.node.collect", lambda *a, **k: pytest.fail("a node was contacted"))
    path = tmp_path / "cluster.toml"
    path.write_text(PAIRS.format(part="HGX H100", floor=900))
    result = CliRunner().invoke(main, ["check", "--cluster", str(path)])
    assert result.exit_code == 2
    output = result.output.replace("\n", " ")
    assert "cluster.toml:6: class.h100.thresholds.all_reduce_busbw_gbytes_s: is 900 GB/s, more than" in output
    assert "HGX H100 can reach: 700 GB/s" in output
    assert "usually about 468" in output


@pytest.mark.parametrize(
    ("part", "floor", "legal"),
    [
        ("HGX H100", 700, True), ("HGX H100", 700.1, False), ("HGX A100", 300, True), ("HGX A100", 301, False),
        ("HGX B200", 1400, True), ("HGX B200", 1401, False), ("GB200 tray", 1700, True), ("GB200 tray", 1800, False),
        ("L40S PCIe", 9000, True),
    ],
)  # fmt: skip
def test_the_highest_legal_floor(part: str, floor: float, legal: bool) -> None:
    text = PAIRS.format(part=part, floor=floor).replace("gpus = 8", "gpus = 4" if "tray" in part else "gpus = 8")
    if legal:
        cluster.decode(text.encode(), "cluster.toml")
    else:
        assert "more than" in refused(text)


def test_every_nvlink_part_of_the_catalogue_has_a_roofline() -> None:
    for part in PARTS:
        assert (highest_floor(part, None) is not None) is (part.gpu.nvlinks > 0 and part.gpus is not None), part.name


def test_trees_and_models_in_part() -> None:
    head = '[class.a]\npart = "HGX H100"\n'
    assert "describes the tree only partially" in refused(f"{head}[class.a.tree]\nunit_leaves = 8\n")
    assert "needs the number of experts" in refused(f"{head}[class.a.model]\nexperts = 8\n")
    assert "needs the number of experts" in refused(f"{head}[class.a.model]\nexperts = 8\nactive_experts = 9\n")
    shared = f"{head}[class.a.model]\nexperts = 8\nactive_experts = 2\nexpert_ways = 9\n"
    assert "exceeds the number of experts" in refused(shared)
    assert "exceeds the number of experts" in refused(f"{head}[class.a.model]\nexpert_ways = 2\n")
    assert "did you mean" in refused(f"{head}[class.a.tree]\nunit_node = 32\n")


# --- the good run ----------------------------------------------------------------------------------

GOOD = Run(sizes=SIZES, busbw=tuple(max(480 * size / (size + GIB / 32), 0.01) for size in SIZES))
CURVE = next(check for check in registry().checks if check.id == "nccl-tests.curve")


def against(path: Path, run: Run) -> list[Finding]:
    (path / "good.txt").write_text(printed(GOOD).text)
    (path / "cluster.toml").write_text('[class.h100]\npart = "HGX H100"\nbaseline = "good.txt"\n')
    known = cluster.load(path / "cluster.toml")
    facts = RunFacts(Evidence("@run", "", {"log:out": {"status": "ok", "out": printed(run).text}}))
    return [f for f in CURVE.run(facts, known.run_site([])) if f.answers == ("FP-LAT-4",)]


def scaled(share: float, at_least: int = 0) -> Run:
    busbw = (value * (share if size >= at_least else 1) for size, value in zip(SIZES, GOOD.busbw, strict=True))
    return replace(GOOD, busbw=tuple(busbw))


@pytest.mark.parametrize(
    ("run", "status", "message"),
    [
        (GOOD, "pass", "at least 100% of that of the good run of class h100"),
        (scaled(0.95), "pass", "at least 95%"),
        (scaled(0.8, GIB), "warn", "80% of the"),
        (scaled(0.6, GIB), "fail", "60% of the"),
        (scaled(0.7, 512 << 20), "fail", "at 512 MiB"),
        (replace(GOOD, hosts=("a1", "a2")), "unknown", "different collectives or rank counts"),
        (replace(GOOD, collective="all_gather"), "unknown", "different collectives or rank counts"),
        (replace(GOOD, busbw=tuple(b / 3 if s <= 4096 else b for s, b in zip(SIZES, GOOD.busbw, strict=True))), "warn",
         "smallest messages take"),
    ],
)  # fmt: skip
def test_a_run_against_the_good_one(run: Run, status: str, message: str, tmp_path: Path) -> None:
    (finding,) = against(tmp_path, run)
    assert (str(finding.status), message in finding.message) == (status, True), finding.message


def test_a_baseline_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    for file, message in (
        ("gone.txt", "cannot be read"),
        (".", "cannot be read"),
        ("cluster.toml", "has no complete report"),
    ):
        path.write_text(f'[class.a]\nbaseline = "{file}"\n')
        with pytest.raises(ClusterFileError, match=message):
            cluster.load(path)


def test_without_a_good_run_the_item_is_open() -> None:
    run = Evidence("@run", "", {"log:out": {"status": "ok", "out": printed(GOOD).text}})
    report = judge([], [CURVE], Cluster(), run=run)
    items = {line["id"]: line["status"] for line in report["checklists"]}
    assert (items["NT-NCCL-4"], items["FP-LAT-4"]) == ("pass", "unknown")


# --- checklist items ---------------------------------------------------------------------------------

PROVED = {"GS-2", "GS-3", "GS-4", "NT-NCCL-3", "NT-NCCL-4", "PA-18", "PA-25", "FP-OBS-2", "FP-LAT-4"}


@pytest.mark.parametrize("item", sorted(PROVED))
def test_some_check_answers_the_item(item: str) -> None:
    assert any(item in check.answers for check in registry().checks)


def items_of(text: str, site: dict[str, Any]) -> dict[str, set[str]]:
    """Return item -> statuses of its questions, without those that no benchmark check answers."""
    checks = [check for check in registry().checks if check.id.startswith(("nccl-tests.", "scale."))]
    ids = {check.id for check in checks}
    run = Evidence("@run", "", {"log:out": {"status": "ok", "out": text}})
    report = judge([], checks, cluster.from_data({"class": {"a": site}}, "cluster.toml"), run=run)
    return {
        line["id"]: {question["status"] for question in line["questions"] if ids.intersection(question["checks"])}
        for line in report["checklists"]
    }


NDR: dict[str, Any] = {"part": "HGX H100", "hcas": 8, "ports": {"rate_gbps": 400}}
TREE = {"unit_nodes": 32, "unit_leaves": 8, "units": 4, "spines": 16, "links_per_spine": 2, "switch_gbytes_s": 1600}
LARGE = tuple(size for size in SIZES if size >= 64 << 20)


def test_a_good_run_of_all_collectives_passes_the_items() -> None:
    peaks = {"all_reduce": 470.0, "all_gather": 365.0, "reduce_scatter": 365.0, "alltoall": 90.0}
    text = "".join(printed(Run(name, hosts=("a1", "a2"), sizes=LARGE, peak=peak)).text for name, peak in peaks.items())
    inside = peaks | {"alltoall": 340.0}
    text += "".join(printed(Run(name, hosts=("a1",), sizes=LARGE, peak=peak)).text for name, peak in inside.items())
    model = {"tokens_per_gpu": 8192, "sharding": "fsdp", "gpus": 16}
    site = NDR | {"tree": TREE | {"oversubscription": 2}, "model": model}
    found = items_of(text, site)
    assert all(found[item] == {"pass"} for item in PROVED - {"FP-LAT-4"})


def test_a_bad_run_does_not() -> None:
    text = printed(
        Run("alltoall", hosts=("a1", "a2"), sizes=LARGE, busbw=(9, 20, 30, 12, 35, 36, 36, 36)[: len(LARGE)])
    ).text
    found = items_of(text, NDR | {"tree": TREE, "model": {"tokens_per_gpu": 100}})
    assert all(found[item] == {"fail"} for item in ("NT-NCCL-3", "PA-25"))
    assert found["GS-3"] == {"fail", "unknown"}, "too slow, and the other three were not measured"
    assert all(found[item] == {"warn"} for item in ("GS-2", "GS-4", "NT-NCCL-4"))
    assert found["PA-18"] == {"unknown"}


def test_site_of_a_run_keeps_its_baseline() -> None:
    part = part_by_name("HGX H100")
    site = Site("cluster.toml", "a", NodeClass(), part)
    assert site.baseline == ()
