"""GPUDirect RDMA in logs by part and network; `check` and `read` report the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.cli import app
from preflight.facts.nccl_gpudirect import NETWORKS, NetworkFamily, ability, network_of
from tests.support.fixture import Case, cases

CASES = [case for case in cases("nccl.gpudirect-rdma") if "nodes" not in case.body]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check_and_read_agree(case: Case, tmp_path: Path) -> None:
    (text,) = case.body["records"].values()
    log = tmp_path / "job.log"
    log.write_text(text)
    CliRunner().invoke(
        app.main, ["check", "--only", "nccl.gpudirect-rdma", "--log", str(log), "--json", str(tmp_path / "r.json")]
    )
    report = json.loads((tmp_path / "r.json").read_text())
    ran = CliRunner().invoke(app.main, ["read", str(log), "--json"])
    parts = [part for source in json.loads(ran.output)["sources"] for part in source["parts"]]
    read = [one for part in parts for one in part["findings"] if one["check"] == "nccl.gpudirect-rdma"]
    assert reported(report["findings"]) == reported(read)


def reported(findings: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    """Return the findings of both, without the name of the log; `read` omits unjudged ones."""
    loud = ("fail", "warn", "pass")
    return [(one["status"], one["message"].partition(": ")[2], one["fix"]) for one in findings if one["status"] in loud]


#: Networks of plug-ins with their own advice.
PLUGINS = ("AWS Libfabric", "Libfabric", "FasTrak", "FasTrak_v8", "GPUDirectTCPX_v7", "gIB", "UCX", "Other")


@pytest.mark.parametrize("network", PLUGINS)
def test_a_plug_in_has_advice_of_its_own(network: str) -> None:
    assert "peermem" not in network_of(network).fix
    assert network_of(network).fix != network_of("IB").fix


@pytest.mark.parametrize("network", ["FasTrak", "GPUDirectTCPX"])
def test_the_version_of_a_plug_in_changes_no_advice(network: str) -> None:
    assert network_of(f"{network}_v7") is network_of(network) is not network_of("Other")


@pytest.mark.parametrize("network", [one for one in NETWORKS if "peermem" in one.fix], ids=str)
def test_locality_comes_before_modules(network: NetworkFamily) -> None:
    fix = network.fix
    assert fix.index("nvidia-smi topo -m") < fix.index("NCCL_NET_GDR_LEVEL") < fix.index("nvidia-peermem")


@pytest.mark.parametrize(
    ("network", "gpu", "able"),
    [
        ("IB", "NVIDIA H100 80GB HBM3", True), ("IB", "NVIDIA A100-SXM4-80GB", True), ("IB", "NVIDIA L40S", True),
        ("IB", "Tesla V100-SXM2-16GB", True), ("IB", "NVIDIA RTX A6000", True), ("IB", "NVIDIA GB200", True),
        ("IB", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True), ("IBext_v8", "NVIDIA H200", True),
        ("IB", "NVIDIA RTX 6000 Ada Generation", True), ("IB", "NVIDIA B200", True), ("IB", "NVIDIA A10", True),
        ("IB", "NVIDIA GeForce RTX 5090", False), ("IB", "NVIDIA GB10", False), ("IB", "NVIDIA TITAN RTX", False),
        ("IB", "", None), ("IB", "NVIDIA Z900", None),
        ("AWS Libfabric", "NVIDIA A10G", False), ("AWS Libfabric", "Tesla T4", False),
        ("AWS Libfabric", "NVIDIA A100-SXM4-40GB", True), ("AWS Libfabric", "NVIDIA H100 80GB HBM3", True),
        ("AWS Libfabric", "", None), ("FasTrak", "NVIDIA H100 80GB HBM3", None), ("Other", "NVIDIA H100", None),
    ],
)  # fmt: skip
def test_ability_by_part_and_network(network: str, gpu: str, able: bool | None) -> None:
    assert ability(network, [gpu]).able is able
