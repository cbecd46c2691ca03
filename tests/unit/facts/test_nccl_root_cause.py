"""Why a run does not use RDMA: a log joined with the evidence of its hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.checks.job import failures, gpudirect, transport
from preflight.cli.app import main
from preflight.evidence.document import Evidence, dump
from preflight.facts import nccl_root_cause
from preflight.facts.job import RUN, RunFacts
from preflight.facts.nccl_root_cause import KINDS, Cause, HostStatements, Proof
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from tests.support.fixture import Case, cases, evidence

T, G, F = "nccl.transport", "nccl.gpudirect-rdma", "nccl.failures"

#: Cause -> the fixture that plants it, and its proof.
CAUSES = {
    "switched-off": (T, "cause-switched-off-in-nccl-conf", Proof.AGREED),
    "no-rdma-nic": (T, "cause-no-rdma-nic", Proof.AGREED),
    "not-registered": (T, "cause-not-registered", Proof.AGREED),
    "no-device-nodes": (T, "cause-no-device-nodes", Proof.AGREED),
    "no-verbs-library": (T, "cause-no-verbs-library", Proof.AGREED),
    "hca-filter": (T, "cause-hca-filter", Proof.AGREED),
    "ports-down": (T, "cause-ports-down", Proof.AGREED),
    "port-down": (F, "cause-port-down", Proof.AGREED),
    "port-flaps": (F, "cause-port-flaps", Proof.LIKELY),
    "port-damage": (F, "cause-port-damage", Proof.LIKELY),
    "port-loss": (F, "cause-port-loss", Proof.LIKELY),
    "plug-in-missing": (T, "cause-plug-in-missing", Proof.AGREED),
    "memlock": (F, "cause-memlock", Proof.AGREED),
    "gid": (F, "cause-gid-row-empty", Proof.AGREED),
    "no-route": (F, "cause-no-route-between-rails", Proof.LIKELY),
    "gpudirect-off": (G, "cause-switched-off", Proof.AGREED),
    "no-peer-memory": (G, "cause-no-peer-memory", Proof.AGREED),
    "near-port-down": (G, "cause-near-port-down", Proof.AGREED),
    "distance": (G, "cause-distance", Proof.AGREED),
    "acs": (F, "cause-acs-redirects", Proof.LIKELY),
    "iommu": (F, "cause-iommu-translates", Proof.LIKELY),
}

CHECKS = [transport.transport, gpudirect.gpudirect_rdma, failures.failures]


def case(check: str, name: str) -> Case:
    return next(one for one in cases(check) if one.path.stem == name)


def causes(run: RunFacts) -> Iterator[Cause]:
    """Explain every symptom of every host of a run."""
    for log in run.nccl_logs.values():
        for statements in nccl_root_cause.hosts(log).values():
            node = run.host(statements.host)
            found: list[Cause | None] = []
            if statements.falls_back:
                found.append(nccl_root_cause.of_fallback(statements, node))
            if statements.staged:
                found.append(nccl_root_cause.of_staging(statements, node))
            found += [
                nccl_root_cause.of_failure(one, statements, node)
                for one in log.failures
                if statements.host in one.hosts
            ]
            yield from (cause for cause in found if cause is not None)


def facts_of(check: str, name: str, nodes: list[Evidence] | None = None) -> RunFacts:
    run, own = case(check, name).run()
    return RunFacts(run, [NodeFacts(node) for node in (own if nodes is None else nodes)])


def healthy() -> list[Evidence]:
    return [evidence(name, {"base": "hgx-h100-roce", "records": {}}) for name in ("gpu001", "gpu002")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_each_cause_is_found_in_its_fixture(kind: nccl_root_cause.CauseKind) -> None:
    check, name, proof = CAUSES[kind.id]
    found = list(causes(facts_of(check, name)))
    assert found
    assert {(cause.kind.id, cause.proof) for cause in found} == {(kind.id, proof)}


def test_there_are_at_least_twelve_causes() -> None:
    assert len(KINDS) >= 12
    assert [kind.id for kind in KINDS] == list(CAUSES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_the_log_alone_blames_only_what_it_names(kind: nccl_root_cause.CauseKind) -> None:
    check, name, _ = CAUSES[kind.id]
    for cause in causes(facts_of(check, name, [])):
        assert cause.proof is (Proof.AGREED if kind.proved else Proof.PROBABLE)
        assert kind in (cause.kind, *cause.others)
        assert not cause.summary


#: For these, the log itself has the fault of an otherwise healthy node: a job setting, or a missing plug-in.
BY_THE_LOG = {"switched-off", "gpudirect-off", "hca-filter", "plug-in-missing", "gid", "no-route"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.id not in BY_THE_LOG], ids=lambda kind: kind.id)
def test_a_healthy_node_is_not_blamed(kind: nccl_root_cause.CauseKind) -> None:
    check, name, _ = CAUSES[kind.id]
    assert {cause.proof for cause in causes(facts_of(check, name, healthy()))} <= {Proof.CONTRADICTED}


# --- hosts ---------------------------------------------------------------------------------------------


def named(*names: str, hostname: str = "") -> RunFacts:
    records = {"file:/proc/sys/kernel/hostname": {"status": "ok", "out": f"{hostname}\n"}} if hostname else {}
    return RunFacts(Evidence(RUN, "", {}), [NodeFacts(Evidence(name, "", records)) for name in names])


@pytest.mark.parametrize(
    ("run", "host", "found"),
    [
        (named("gpu001", "gpu002"), "gpu002", "gpu002"),
        (named("gpu001.cluster.example"), "gpu001", "gpu001.cluster.example"),
        (named("GPU001"), "gpu001", "GPU001"),
        (named("gpu001"), "gpu001.cluster.example", "gpu001"),
        (named("gpu0010"), "gpu001", None),
        (named("gpu001.a", "gpu001.b"), "gpu001", None),
        (named("gpu001"), None, None),
        (named("192.0.2.1", hostname="gpu001"), "gpu001", "192.0.2.1"),
        (named("192.0.2.1", "192.0.2.2", hostname="gpu001"), "gpu001", None),
        (named("gpu001", hostname="other"), "gpu001", "gpu001"),
    ],
)
def test_a_host_of_the_log_is_found_among_the_nodes(run: RunFacts, host: str | None, found: str | None) -> None:
    node = run.host(host)
    assert (node.node if node else None) == found


def test_statements_of_each_host_are_separate() -> None:
    run = facts_of(T, "mixed-ranks")
    one, two = nccl_root_cause.hosts(next(iter(run.nccl_logs.values()))).values()
    assert (one.host, one.falls_back, one.tcp, one.ranks, one.has_devices) == ("gpu001", True, 1, (0,), False)
    assert (two.host, two.falls_back, two.direct, two.ranks, two.has_devices) == ("gpu002", False, 1, (1,), True)


def test_a_log_without_host_names_is_explained_alone() -> None:
    text = "[0] NCCL INFO NET/IB : No device found.\n[0] NCCL INFO Using network Socket\n"
    text += "[0] NCCL INFO comm 0x5 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
    run = RunFacts(Evidence(RUN, "", {"log:x": {"status": "ok", "out": text}}), [NodeFacts(node) for node in healthy()])
    (statements,) = nccl_root_cause.hosts(run.nccl_logs["log:x"]).values()
    assert isinstance(statements, HostStatements)
    assert statements.host is None
    assert {cause.proof for cause in causes(run)} <= {Proof.PROBABLE}


# --- reported once, end to end -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if CAUSES[kind.id][0] != F], ids=lambda kind: kind.id)
def test_a_fallback_is_reported_once(kind: nccl_root_cause.CauseKind) -> None:
    check, name, _ = CAUSES[kind.id]
    one = case(check, name)
    run, nodes = one.run()
    findings = judge(nodes, CHECKS, one.cluster(), run=run)["findings"]
    assert [finding["check"] for finding in findings if finding["status"] in ("fail", "warn", "unknown")] == (
        [] if kind.id == "no-rdma-nic" else [check]
    )


def test_saved_evidence_and_a_log_give_the_cause(tmp_path: Path) -> None:
    one = case(T, "cause-no-device-nodes")
    run, nodes = one.run()
    for node in nodes:
        (tmp_path / f"{node.node}.json").write_text(dump(node))
    log = tmp_path / "job.log"
    log.write_text(run.text("log:job.log"))
    arguments = ["judge", *(str(tmp_path / f"{node.node}.json") for node in nodes), "--log", str(log), "--json", "-"]
    done = CliRunner().invoke(main, [*arguments, "--only", "nccl.transport"])
    assert done.exit_code == 1, done.output
    (finding,) = json.loads(done.stdout)["findings"]
    assert (
        ": /dev/infiniband is missing for 12 RDMA devices on gpu001 (rank 0), gpu002 (rank 1); line 2"
        in finding["message"]
    )
