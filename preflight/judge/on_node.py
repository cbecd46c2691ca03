"""Judgement of a node on the node itself: the main program of the archive.

Standard input is JSON with the evidence of the node and its part of the cluster file; standard output is the document
of a node that judged itself, or nothing, if the node must be judged with its peers.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.checks import registry
from preflight.evidence import json_limits, node_result
from preflight.evidence.document import Evidence, EvidenceError, dump, from_document
from preflight.expectations.own_class import cluster_of, digest_of
from preflight.facts.node import NodeFacts
from preflight.judge.excerpts import RECORDS
from preflight.judge.node_result import NodeResult, of_fleet
from preflight.judge.node_verdict import encoded, judged
from preflight.judge.typed_json import changed, plain
from preflight.model import Check, Status

#: Maximum bytes of memory; judging a complete node takes 60 MB.
_MEMORY = 2 << 30

#: Names of copies of the node, with which fleet checks compare it: an equal one, and one that differs. They sort last,
#: so that an example is that of the node itself.
_TWIN, _OTHER = "~twin", "~other"


def main() -> None:
    """Judge the node on standard input; write its document to standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    wanted = json_limits.decoded(sys.stdin.buffer.read())
    made = document(wanted["evidence"], wanted["judge"])
    if made is not None:
        sys.stdout.write(made)


def document(evidence_document: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Judge a node; return its document.

    ``wanted`` has the node's part of the cluster file, whether all evidence is wanted, and whether counters were to be
    read twice. Otherwise, the evidence of a healthy node is reduced to the records that a report may quote.
    """
    evidence = from_document(evidence_document, "the evidence")
    checks = registry().checks
    judgement = judged(evidence, checks, cluster_of(wanted["expectations"]))
    if judgement is None:
        return None
    verdict, result, facts = judgement
    verdict["cluster"] = digest_of(wanted["expectations"])
    complete = wanted["complete"] or _is_sick(result) or (wanted["windowed"] and not result.windowed)
    if not complete:
        quoted = set(_quoted(result, facts, checks))
        verdict["values"] = encoded(facts.fleet_answers)  # again: ``_quoted`` adds values
        records = {key: record for key, record in evidence.records.items() if key in quoted}
        evidence = Evidence(evidence.node, evidence.collected_at, records, evidence.collector)
    return node_result.dump(evidence.node, verdict, dump(evidence), complete)


def _is_sick(result: NodeResult) -> bool:
    return any(outcome.failing for outcome in result.outcomes)


def _quoted(result: NodeResult, facts: NodeFacts, checks: Sequence[Check]) -> Iterator[str]:
    """Yield the keys of the records that a report may quote.

    They belong to this node's own findings, and to those of fleet checks, which are known from a comparison of the node
    with a copy of itself, and with one that differs in every value.
    """
    for outcome in result.outcomes:
        for finding in outcome.findings:
            if finding.status not in (Status.PASS, Status.SKIP):
                yield from finding.evidence[:RECORDS]
    assert result.site
    twin, other = NodeFacts(facts.evidence), NodeFacts(facts.evidence)
    twin.node, twin.fleet_answers = _TWIN, facts.fleet_answers
    other.node = _OTHER
    other.fleet_answers = {name: (changed(value), why) for name, (value, why) in facts.fleet_answers.items()}
    sites = dict.fromkeys((facts.node, _TWIN, _OTHER), result.site)
    for check in checks:
        for nodes in ([facts], [facts, twin], [facts, twin, other]) if of_fleet(check) else ():
            try:
                for finding in check.findings(nodes, sites):
                    yield from finding.evidence
            except EvidenceError as error:
                yield error.key
            except Exception:  # reported when the check runs on the fleet
                continue
    yield from _texts(plain(list(facts.fleet_answers.values())))  # some values name records, and some lack one


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
