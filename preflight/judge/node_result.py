"""Judgement of one node by every node check.

Only the data for the report and the fleet checks is stored: the evidence is a thousand times as large, and ten thousand
nodes must fit in one gibibyte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.evidence.document import Evidence, EvidenceError, PairScope
from preflight.expectations import Cluster, Site
from preflight.facts.node import FleetAnswers, NodeFacts
from preflight.judge.check_result import Outcome, outcome
from preflight.model import Check, Scope, skipped
from preflight.reports.topology_data import picture

#: The check that reports a network switch among the nodes; no other check runs on a switch.
NAMES_SWITCH = "gpu.count"

#: Maximum number of collector notes in a report, and characters of each.
_NOTES, _NOTE = 100, 4000

#: Prefix of the key of a fabric sweep's first record.
SWEPT = "cmd:ibnetdiscover"


@dataclass
class NodeResult:
    """Results of a judged node, without its evidence."""

    node: str
    no_answer: Mapping[str, str] | None
    pair: PairScope | None
    pair_tests: frozenset[str]
    answered: bool
    windowed: bool
    swept: bool
    origin: str | None
    site: Site | None = None
    switch: str = ""  # record that identifies a network switch, which is not judged
    about: Mapping[str, Any] = field(default_factory=dict)  # details of the node on the report's page
    more: Mapping[str, Any] = field(default_factory=dict)  # further details, if any
    outcomes: list[Outcome] = field(default_factory=list)
    fleet_answers: FleetAnswers = field(default_factory=dict)
    encoded: Mapping[str, str] | None = None  # compared values as JSON texts, of a node that judged itself
    refused: str = ""  # why the verdict of a node that judged itself was not used


def inspect(evidence: Evidence) -> NodeResult:
    """Return the basic facts about a node, before any check runs."""
    return NodeResult(
        node=evidence.node,
        no_answer=evidence.no_answer,
        pair=evidence.pair,
        pair_tests=evidence.pair_tests,
        answered=evidence.answered,
        windowed=evidence.windowed,
        swept=any(key.startswith(SWEPT) for key in evidence.records),
        origin=evidence.origin,
    )


def judge_node(
    evidence: Evidence, checks: Sequence[Check], cluster: Cluster, fleet_answers: bool
) -> tuple[NodeResult, NodeFacts]:
    """Judge a node on its own.

    With ``fleet_answers``, the values that fleet checks will compare are collected as well. Growth checks run only if
    counters were read twice. A node without an answer is not judged.
    """
    seen, facts = inspect(evidence), NodeFacts(evidence)
    if seen.no_answer is not None:
        return seen, facts
    seen.site = cluster.site(facts)
    seen.switch = facts.network_switch[1] if facts.network_switch else ""
    seen.outcomes = outcomes(facts, seen.site, checks, lambda check: seen.windowed or not check.window)
    facts.failing.update((checks[one.check].id, one.failing) for one in seen.outcomes)
    seen.about, seen.more = _about(facts, seen.site)
    if fleet_answers and seen.answered and not seen.switch:
        _vote(facts, seen.site, checks)
        seen.fleet_answers = facts.fleet_answers
    return seen, facts


def outcomes(facts: NodeFacts, site: Site, checks: Sequence[Check], which: Callable[[Check], bool]) -> list[Outcome]:
    """Run checks on one node.

    A document with only pair tests is not judged on its own.
    """
    if facts.evidence.pair is not None:
        return []
    wanted = [
        (number, check)
        for number, check in enumerate(checks)
        if check.scope is Scope.NODE and not check.pair and which(check)
    ]
    switch = facts.network_switch
    return [
        not_of_switch(number, switch[1])
        if switch is not None and check.id != NAMES_SWITCH
        else outcome(number, check, facts.node, facts, site, lambda: facts.evidence)
        for number, check in wanted
    ]


def not_of_switch(number: int, key: str) -> Outcome:
    """Return the outcome of a check that does not apply to a network switch.

    ``key`` is the record that identifies the switch.
    """
    return Outcome(number, (skipped(f"a network switch: see {NAMES_SWITCH}", evidence=[key]),))


def of_every_node(check: Check) -> bool:
    """Return whether a check's module is needed on every node."""
    special = check.sweep or check.switches or check.pair or check.window or check.history
    elsewhere = any(absent.__module__ != check.run.__module__ for absent in check.unless)
    return check.scope is Scope.NODE and not special and not elsewhere


def of_fleet(check: Check) -> bool:
    """Return whether a check compares all nodes with each other."""
    return check.scope is Scope.FLEET and not (check.sweep or check.switches or check.pair)


def _vote(facts: NodeFacts, site: Site, checks: Sequence[Check]) -> None:
    """Run fleet checks on this node alone, to cache the values that they compare."""
    for check in checks:
        if of_fleet(check):
            try:
                for _ in check.findings([facts], {facts.node: site}):
                    pass
            except KeyboardInterrupt:
                raise
            except BaseException:  # reported when the check runs on the fleet
                continue


def about_node(site: Site, collected_at: str, where: str | None) -> dict[str, Any]:
    """Return the details that a report shows for every node."""
    return {
        "collected_at": collected_at,
        "class": site.class_name if site.declared_class else None,
        "part": site.part.name if site.part else None,
        "where": where,
    }


def _about(facts: NodeFacts, site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    evidence = facts.evidence
    about = about_node(site, evidence.collected_at, str(evidence.collector.get("where", "")) or None)
    more: dict[str, Any] = {}
    if evidence.origin:
        more["origin"] = evidence.origin
    if notes := evidence.collector.get("notes"):
        shown = notes[:_NOTES] if isinstance(notes, list) else [notes]
        more["notes"] = [str(note)[:_NOTE] for note in shown]
    if drawn := _picture(facts, site):
        more["topology"] = drawn
    if metadata := _record(facts):
        more["record"] = metadata
    return about, more


def _record(facts: NodeFacts) -> dict[str, str]:
    """Return the setup to record with a benchmark result.

    Empty on a node without a GPU.
    """
    try:
        if not facts.gpus_on_bus:
            return {}
    except EvidenceError:
        return {}
    from preflight.facts.benchmark_metadata import record

    return record(facts)


def _picture(facts: NodeFacts, site: Site) -> dict[str, Any] | None:
    try:
        compute = frozenset(port.device for port in site.roles(facts).compute)
    except EvidenceError:
        compute = frozenset()
    return picture(facts, compute)
