"""Exceptions of a site: waivers with an owner and an end, checks in shadow, disabled checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document, no_answer
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.judge import judge
from preflight.reports.text_report import render
from tests.support.fixture import whole_node

CHECKS = registry().checks
SCHEMA = json.loads((files("preflight.schemas") / "report-1.json").read_text())
IDS = [check.id for check in CHECKS]

RUN = {"at": "2026-11-21T03:00:00Z", "version": "1", "command": "judge", "seconds": 1.0, "cluster_file": None}

#: A complete node with one port down: the compute port mlx5_3 is DOWN and its physical state Disabled.
DOWN = {
    "file:/sys/class/infiniband/mlx5_3/ports/1/state": "1: DOWN\n",
    "file:/sys/class/infiniband/mlx5_3/ports/1/phys_state": "3: Disabled\n",
}
PORT = '[[waiver]]\ncheck = "rdma.port-state"\nowner = "jane"\nreason = "cable on order"\nuntil = 2026-12-31\n'


def node(name: str, changed: Mapping[str, str] | None = None) -> Evidence:
    document = whole_node("hgx-h100")
    records = dict(document["records"])
    for key, text in (changed or {}).items():
        assert key in records, key
        records[key] = {"status": "ok", "out": text}
    return from_document({**document, "node": name, "records": records}, name)


def report(cluster: str, *nodes: Evidence, only: str = "rdma.port-state site.waivers") -> dict[str, Any]:
    checks = [check for check in CHECKS if check.id in only.split()]
    result = judge(nodes, checks, decode(cluster.encode(), "cluster.toml", lambda: IDS))
    jsonschema.validate({**result, "run": RUN}, SCHEMA)
    coverage = result["coverage"]
    parts = ("passed", "warned", "failed", "unknown", "skipped", "no_answer")
    assert coverage["planned"] == sum(coverage[part] for part in parts)
    return result


def finding(result: Mapping[str, Any], check: str, status: str) -> Mapping[str, Any]:
    (found,) = (f for f in result["findings"] if f["check"] == check and f["status"] == status)
    return dict(found)


def test_a_waived_failure_warns_and_holds_no_job_back() -> None:
    plain = report("[class.a]\n", node("n1", DOWN), node("n2"))
    assert plain["exit_status"] == 1
    assert "waivers" not in plain["coverage"]
    result = report(PORT, node("n1", DOWN), node("n2"))
    waived = finding(result, "rdma.port-state", "warn")
    assert waived["message"].endswith("(waived by jane until 2026-12-31: cable on order)")
    assert waived["nodes"] == ["n1"]
    assert waived["gating"] is False
    assert result["exit_status"] == 0
    assert result["coverage"]["waived"] == 1
    (waiver,) = result["coverage"]["waivers"]
    assert waiver["matched"] == 1
    assert not waiver["expired"]
    assert "1 result waived" in render({**result, "run": {}}, colour=False, width=100)


@pytest.mark.parametrize(
    ("narrowed", "status"),
    [
        ('nodes = "n1"', 0),
        ('nodes = "n[2-9]"', 1),
        ('subject = "mlx5_3*"', 0),
        ('subject = "mlx5_4*"', 1),
        ('nodes = "n1"\nsubject = "mlx5_4*"', 1),
    ],
)
def test_a_waiver_covers_what_it_names_and_nothing_else(narrowed: str, status: int) -> None:
    result = report(f"{PORT}{narrowed}\n", node("n1", DOWN))
    assert result["exit_status"] == status
    (waiver,) = result["coverage"]["waivers"]
    assert waiver["matched"] == (status == 0)
    if status:
        assert "the waivers for rdma.port-state are not needed" in render(
            {**result, "run": {}}, colour=False, width=200
        )


def test_a_node_is_found_by_its_full_name() -> None:
    assert report(f'{PORT}nodes = "n1"\n', node("n1.example.org", DOWN))["exit_status"] == 0


def test_an_expired_waiver_covers_nothing_and_fails_loudly() -> None:
    until = PORT.replace("2026-12-31", "2026-11-20")
    result = report(until, replace(node("n1", DOWN), collected_at="2026-11-21T00:00:00Z"))
    assert finding(result, "rdma.port-state", "fail")["gating"]
    assert "expired on 2026-11-20; its owner is jane" in finding(result, "site.waivers", "fail")["message"]
    assert result["exit_status"] == 1
    assert result["coverage"]["waivers"][0]["expired"]
    on_its_last_day = report(until, replace(node("n1", DOWN), collected_at="2026-11-20T23:59:59Z"))
    assert on_its_last_day["exit_status"] == 0


def test_an_unknown_that_is_waived_stays_unknown() -> None:
    vague = node("n1", {"file:/proc/sys/kernel/numa_balancing": "perhaps\n"})
    only = "kernel.numa-balancing rdma.link-layer"
    assert report('[class.a.ports]\nlink_layer = "InfiniBand"\n', vague, only=only)["exit_status"] == 3
    waived = PORT.replace("rdma.port-state", "kernel.numa-balancing")
    result = report('[class.a.ports]\nlink_layer = "InfiniBand"\n' + waived, vague, only=only)
    assert finding(result, "kernel.numa-balancing", "unknown")["gating"] is False
    assert result["exit_status"] == 0


def test_a_waiver_excuses_no_silence() -> None:
    silent = no_answer("n2", "connect", "refused", "2026-11-21T00:00:00Z")
    result = report(PORT.replace("rdma.port-state", "*"), node("n1"), silent)
    assert result["exit_status"] == 3


def test_shadow_is_reported_and_never_gates() -> None:
    result = report('[checks]\nshadow = ["rdma.port-*"]\n', node("n1", DOWN))
    failed = finding(result, "rdma.port-state", "fail")
    assert failed["gating"] is False
    assert result["exit_status"] == 0


def test_shadow_of_a_class_holds_on_its_nodes() -> None:
    cluster = '[class.old]\nnodes = "n1"\n[class.old.checks]\nshadow = ["rdma.port-state"]\n[class.new]\nnodes = "n2"\n'
    result = report(cluster, node("n1", DOWN))
    assert result["exit_status"] == 0
    assert "reported only" in finding(result, "rdma.port-state", "fail")["message"]
    assert report(cluster, node("n1", DOWN), node("n2", DOWN))["exit_status"] == 1


def test_off_is_not_run_and_named() -> None:
    result = report('[checks]\noff = ["rdma.port-state"]\n', node("n1", DOWN), only="rdma.port-state rdma.link-layer")
    assert result["coverage"]["off"] == ["rdma.port-state"]
    assert result["coverage"]["planned"] == 1
    cluster = '[class.old]\nnodes = "n1"\n[class.old.checks]\noff = ["rdma.port-state"]\n[class.new]\nnodes = "n2"\n'
    result = report(cluster, node("n1", DOWN), node("n2"))
    assert result["coverage"]["off_in_class"] == {"old": ["rdma.port-state"]}
    assert result["coverage"]["planned"] == 1
    assert result["exit_status"] == 0
    text = render({**result, "run": {}}, colour=False, width=200)
    assert "off in class old: rdma.port-state" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[checks]\nshadow = ['rdma.port-stat']\n", ':2: checks.shadow: no check is called "rdma.port-stat" - did you'),
        (f"{PORT}{PORT}".replace("port-state", "port", 1), ":2: waiver[1].check: no check is called"),
        ('[class.a.checks]\noff = ["nothing.*"]\n', ":2: class.a.checks.off: no check is called"),
    ],
)
def test_names_of_checks_are_looked_up(text: str, expected: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        decode(text.encode(), "cluster.toml", lambda: IDS)
    assert expected in str(caught.value)
