"""A log joined with garbage evidence of its nodes, and a log of ten thousand hosts."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.job import failures, gpudirect, transport
from preflight.evidence.document import Evidence, from_document
from preflight.facts.job import RUN
from preflight.judge import findings
from tests.support.fixture import cases, whole_node
from tests.support.node_documents import GARBAGE

CHECKS = [transport.transport, gpudirect.gpudirect_rdma, failures.failures]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_garbage_in_every_record_of_the_nodes(check: Any, caplog: pytest.LogCaptureFixture) -> None:
    for one in cases(check.id):
        if "nodes" not in one.body:
            continue
        run, nodes = one.run()
        for garbage in GARBAGE:
            broken = [Evidence(node.node, "", dict.fromkeys(node.records, garbage)) for node in nodes]
            judged = findings(broken, [check], one.cluster(), run=run)
            assert not caplog.records, (one.name, garbage)
            assert not [finding for finding in judged if "the node's evidence" in finding["message"]]


def test_ten_thousand_hosts_are_explained_in_one_finding() -> None:
    lines = [f"gpu{n}:1:2 [0] NCCL INFO {text}" for n in range(10_000) for text in (
        "NET/IB : No device found.", "Using network Socket",
        f"comm 0x5 rank {n} nRanks 10000 nNodes 10000 localRanks 1 localRank 0 MNNVL 0")]  # fmt: skip
    run = Evidence(RUN, "", {"log:x": {"status": "ok", "out": "\n".join(lines)}})
    shut = {"dir:/dev/infiniband": {"status": "missing"}}
    nodes = [from_document(dict(whole_node("hgx-h100-roce"), node=f"gpu{n}", records={
        **whole_node("hgx-h100-roce")["records"], **shut}), "x") for n in range(3)]  # fmt: skip
    first, *rest = [f for f in findings(nodes, [transport.transport], run=run) if f["status"] == "fail"]
    assert "gpu0, gpu1, gpu2" in first["message"] or "gpu0 (rank 0), gpu1 (rank 1), gpu2 (rank 2)" in first["message"]
    assert len(rest) == 1
    assert len(rest[0]["message"]) < 600
