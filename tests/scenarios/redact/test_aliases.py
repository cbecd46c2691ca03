"""Evidence after redaction: every verdict is unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document, to_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load as load_cluster
from preflight.judge import judge
from preflight.model import Scope
from preflight.redact import Redactor
from tests.support.fixture import FIXTURES, Case, cases
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.planted_fleet import DIFFERENCES
from tests.support.redact_command import KEY

CHECKS = registry().checks


def verdicts(report: Mapping[str, Any]) -> list[tuple[str, str, tuple[str, ...], str]]:
    return sorted(
        (one["check"], one["status"], tuple(sorted(one["nodes"])), str(one["subject"])) for one in report["findings"]
    )


def same_verdicts(
    documents: Sequence[Mapping[str, Any]], cluster: Cluster | None = None, redacted_cluster: Cluster | None = None,
    run: Mapping[str, Any] | None = None,
) -> Redactor:  # fmt: skip
    """Judge documents before and after; the results must be equal except for names."""
    redactor = Redactor(KEY)
    both = [*documents, *([run] if run else [])]
    for one in both:
        redactor.learn_value(one)
    before = _judged(both, cluster)
    after = _judged([redactor.value(one) for one in both], redacted_cluster or cluster)
    assert verdicts(redactor.value(before)) == verdicts(after)
    assert before["coverage"] == after["coverage"]
    assert before["exit_status"] == after["exit_status"]
    return redactor


def _judged(documents: Sequence[Mapping[str, Any]], cluster: Cluster | None) -> dict[str, Any]:
    read = sorted((from_document(one, "here") for one in documents), key=lambda one: one.node)
    nodes = [one for one in read if one.node != "@run"]
    return judge(nodes, CHECKS, cluster, run=next((one for one in read if one.node == "@run"), None))


@pytest.mark.parametrize("path", sorted((FIXTURES / "nodes").glob("*.json")), ids=lambda path: path.stem)
def test_evidence_of_complete_nodes_is_judged_alike(path: Path, tmp_path: Path) -> None:
    document = json.loads(path.read_text())
    file = path.with_suffix(".toml")
    if not file.exists():
        same_verdicts([document])
        return
    redactor = Redactor(KEY)
    redactor.learn_value(document)
    (tmp_path / file.name).write_text(redactor.text(file.read_text()))
    same_verdicts([document], load_cluster(file), load_cluster(tmp_path / file.name))


@pytest.mark.parametrize("roce", [True, False], ids=["RoCE", "InfiniBand"])
def test_a_fleet_with_planted_faults_is_judged_alike(roce: bool) -> None:
    chosen = list(DIFFERENCES.values())[:: 9 if roce else 24]
    faults = {f"gpu{number:03d}": fault for number, (fault, _) in enumerate(chosen, start=2)}
    documents = list(fleet(hgx_h100("", roce=roce), len(faults) + 3, seed=5, faults=faults if roce else None))
    redactor = same_verdicts(documents)
    left = json.dumps([redactor.value(one) for one in documents])
    assert "gpu0" not in left.replace("enp", "")
    assert redactor.counts_by_kind()["host"] == len(documents)


_RELATIONS = ("fleet.identity", "rails.isolated", "fabric.link-speed", "nccl.communicators")


@pytest.mark.parametrize(
    "case", [case for check in _RELATIONS for case in cases(check)], ids=lambda case: str(case.name)
)
def test_checks_of_relations_are_judged_alike(case: Case) -> None:
    check = next(one for one in CHECKS if one.id == case.check)
    run, nodes = case.run() if check.scope is Scope.RUN else (None, case.evidences())
    same_verdicts([to_document(one) for one in nodes], case.cluster(), run=to_document(run) if run else None)
