"""The first screen: the causes of the demo by name, a common fault in a few lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import decode
from preflight.judge import judge
from preflight.reports.summary_text import render, unexplained
from tests.support.in_process import run
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet, names
from tests.support.planted_fleet import CLUSTER
from tests.support.whole_nodes import Fault, both, every_rail, nic

#: The causes of the demo: title, nodes, impact, owner; reviewed by hand.
DEMO = [
    ("GPUs on the PCI bus: found 7, expected 8", "gpu007", "blocks-job", "node"),
    ("locked memory is limited to 8 MiB, expected unlimited", "gpu006", "blocks-job", "site"),
    ("GPU6: 0 of 18 NVLinks are up", "gpu005", "slows-job", "node"),
    ("mlx5_5:1 is DOWN/Polling, expected ACTIVE/LinkUp: no light, bad cable or peer off", "gpu002", "slows-job",
     "network"),
    ("mlx5_10:1 runs at 200 Gb/s, its peers at 400 Gb/s", "gpu005", "slows-job", "network"),
    ("mlx5_11: /dev/infiniband/uverbs11 is missing", "gpu006", "slows-job", "site"),
    ("mlx5_4:1: the interface has MTU 1500, expected 9000", "gpu003", "slows-job", "site"),
    ("mlx5_9:1: PFC is on for no priority, expected 3 only", "gpu004", "slows-job", "site"),
    ("NCCL_P2P_DISABLE=1 in the environment switches GPU peer-to-peer off, expected unset", "gpu004", "slows-job",
     "job"),
    ("NVIDIA driver: 550.90.07; most nodes (6 of 7) have 570.124.06", "gpu006", "slows-job", "site"),
]  # fmt: skip


def test_demo_has_its_ten_causes() -> None:
    report = json.loads(run("demo", "--json", "-", expect=(1,)))
    shown = [
        (entry["title"], ",".join(entry["nodes"]), entry["impact"], entry["owner"]) for entry in report["incidents"]
    ]
    assert shown == DEMO
    grouped = {number for incident in report["incidents"] for number in incident["findings"]}
    loud = {number for number, finding in enumerate(report["findings"]) if finding["status"] in ("fail", "warn")}
    assert loud <= grouped
    assert [entry["cost"] for entry in report["incidents"] if entry["cost"]] == [
        "8 of 55 GPUs; all-reduce between nodes at about 50%",  # two GPUs share a port
        "8 of 55 GPUs; all-reduce between nodes at about 50%",  # a ring waits for its slowest port
    ]


def test_screen_of_the_demo_is_short() -> None:
    text = run("demo", expect=(1,))
    assert len(text.splitlines()) <= 24
    assert text.startswith("FAIL: 6 of 8 nodes have problems")
    assert all(title[:40] in text for title, *_ in DEMO)
    assert text.splitlines()[-1].strip().startswith("more")
    assert run("demo", "-q", expect=(1,)) == text.splitlines()[0] + "\n"


ALL = 150
MTU_NODES, DOWN_NODES = names(ALL)[10:60], names(ALL)[54:86]


@cache
def common_fault() -> Mapping[str, Any]:
    """Judge 150 nodes: MTU 1500 on 50 of them, one port down on 32, six nodes with both."""
    mtu = both(*(nic(f"mlx5_{rail}", netdev_mtu=1500) for rail in (0, 3, 4, 6, 9, 10, 11)))
    down = nic("mlx5_5", state="DOWN", physical="Polling")
    faults: dict[str, Fault] = dict.fromkeys(MTU_NODES, mtu)
    for name in DOWN_NODES:
        faults[name] = both(mtu, down) if name in faults else down
    documents = fleet(hgx_h100("", roce=True), ALL, 7, faults)
    evidences = [from_document(document, document["node"]) for document in documents]
    return judge(evidences, registry().checks, decode(CLUSTER.encode(), "cluster.toml"))


def test_common_fault_is_two_incidents() -> None:
    causes = {entry["findings"][0]: entry for entry in common_fault()["incidents"]}
    by_check = {common_fault()["findings"][number]["check"]: entry for number, entry in causes.items()}
    assert len(causes) == 2, list(causes.values())
    assert by_check["roce.chain"]["nodes"] == MTU_NODES
    assert by_check["roce.chain"]["owner"] == "site"
    assert by_check["roce.chain"]["title"].startswith("7 ports (mlx5_0:1 to mlx5_11:1): the interface has MTU 1500")
    assert by_check["rdma.port-state"]["nodes"] == DOWN_NODES
    assert by_check["rdma.port-state"]["owner"] == "network"
    run_block = {"at": "2026-11-27T00:00:00Z", "version": "0", "command": "judge", "seconds": 1, "cluster_file": "x"}
    text = render({**common_fault(), "run": run_block}, width=80)
    assert len(text.splitlines()) <= 40, text
    assert "gpu[011-060]" in text
    assert "gpu[055-086]" in text


@pytest.mark.parametrize("order", ["as they are", "reversed"])
def test_fingerprints_do_not_depend_on_the_order_of_nodes(order: str) -> None:
    documents = fleet(hgx_h100("", roce=True), 4, 7, {"gpu002": nic("mlx5_5", state="DOWN", physical="Polling"),
                                                      "gpu003": nic("mlx5_4", netdev_mtu=1500)})  # fmt: skip
    evidences = [from_document(document, document["node"]) for document in documents]
    if order == "reversed":
        evidences = evidences[::-1]
    report = judge(evidences, registry().checks, decode(CLUSTER.encode(), "cluster.toml"))
    assert {entry["fingerprint"] for entry in report["incidents"]} == {"488ce382b7e4", "ac85bc5bb7e5"}  # as in the demo


@pytest.mark.parametrize("fault", [every_rail(state="DOWN", physical="Polling"), nic("mlx5_5", state="DOWN")])
def test_results_that_need_an_active_port_belong_to_the_ports_that_are_down(fault: Fault) -> None:
    documents = fleet(hgx_h100("", roce=True), 3, 7, {"gpu002": fault})
    evidences = [from_document(document, document["node"]) for document in documents]
    report = judge(evidences, registry().checks, decode(CLUSTER.encode(), "cluster.toml"))
    (incident,) = report["incidents"]
    assert [finding["check"] for finding in unexplained(report) if finding["nodes"] == ["gpu002"]] == []
    grouped = {report["findings"][number]["check"] for number in incident["findings"]}
    everything_is_down = "roce.chain" in grouped
    assert everything_is_down == ("switch.pfc" in grouped) == (len(incident["subjects"]) > 1)


def test_results_that_the_deadline_prevented_have_its_next_step() -> None:
    (document,) = fleet(hgx_h100("", roce=True), 1, 7)
    late = {"status": "not-run", "why": "the run's deadline of 60 s expired first"}
    records = dict.fromkeys(document["records"], late)
    evidence = from_document({**document, "records": records}, document["node"])
    report = judge([evidence], registry().checks, decode(CLUSTER.encode(), "cluster.toml"))
    assert report["incidents"] == []
    steps = {finding["check"]: finding["fix"] for finding in report["findings"] if finding["status"] == "unknown"}
    assert len(steps) > 50
    assert {check for check, step in steps.items() if "--deadline" not in step} == set()
