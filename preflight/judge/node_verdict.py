"""A node's own verdict, saved with its evidence for a judge of many nodes.

``preflight collect --judge`` writes it, and ``check --judge-on-nodes`` receives it. It is used only if the same code
judged the node by the same class of the cluster file and by every check of the run; otherwise, and if anything in it is
malformed, the evidence beside it is judged. Outcomes and compared values are JSON texts: those that many nodes have in
common are stored and decoded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, ParamSpec, TypeVar

from preflight.errors import PreflightError
from preflight.evidence import json_limits
from preflight.evidence.document import Evidence, EvidenceError
from preflight.evidence.node_result import MOST_VERDICT
from preflight.expectations import Cluster, own_class
from preflight.expectations.catalogue import part_by_name
from preflight.facts.node import FleetAnswers, NodeFacts
from preflight.judge.check_result import Outcome, outcome
from preflight.judge.code_files import code_hash
from preflight.judge.evidence_reload import EvidenceCache, ReloadedNode
from preflight.judge.evidence_source import EvidenceSource, JudgedSource, opened
from preflight.judge.node_result import NodeResult, about_node, judge_node
from preflight.judge.typed_json import hints_of, plain, typed
from preflight.judge.waivers import WAIVERS, chosen
from preflight.model import ACTIONS, IMPACTS, OWNERS, Check, Finding, Scope, Status
from preflight.schemas.conform import find_error
from preflight.version import VERSION

P = ParamSpec("P")
T = TypeVar("T")

#: Prefix of the modules of checks that ship with preflight; others may differ between two machines.
_OURS = "preflight.checks."

#: Maximum characters of the outcome of one check on one node, number of findings of a node, and of remembered strings.
_LONGEST, _MOST_FINDINGS, _REMEMBERED = 256 << 10, 1000, 100_000

#: Fields of a finding that only checks of several nodes, logs and the judge set.
_OF_OTHERS = ("nodes", "cause", "excused", "reported_by", "undecided", "parts")


def verdict(evidence: Evidence, checks: Sequence[Check], cluster: Cluster) -> dict[str, Any] | None:
    """Judge a node; return the verdict to save with its evidence.

    None for a node without an answer, and for fabric sweeps and pair tests, which are judged with their peers.
    """
    judgement = judged(evidence, checks, cluster)
    return judgement[0] if judgement else None


def judged(
    evidence: Evidence, checks: Sequence[Check], cluster: Cluster
) -> tuple[dict[str, Any], NodeResult, NodeFacts] | None:
    """Judge a node; return its verdict, and the result and facts behind it.

    None if there is no verdict. Waivers, and the check of waivers, are left to the judge of many nodes.
    """
    checks = [check for check in chosen(checks, (), cluster)[0] if not check.history and check.id != WAIVERS]
    result, facts = judge_node(evidence, checks, cluster, fleet_answers=True)
    if not result.answered or result.site is None or result.swept or result.pair_tests:
        return None
    made = {
        **_origin(cluster, evidence.node),
        "part": result.site.part.name if result.site.part else None,
        "windowed": result.windowed,
        "switch": result.switch,
        "collected_at": evidence.collected_at,
        "where": result.about["where"],
        "more": json.dumps(result.more),
        "outcomes": {checks[outcome.check].id: _outcome_text(outcome) for outcome in result.outcomes},
        "values": encoded(result.fleet_answers),
    }
    return made, result, facts


def encoded(answers: FleetAnswers) -> dict[str, str]:
    """Return values that checks of several nodes compare, as JSON texts by name."""
    return {name: json.dumps(plain(answer)) for name, answer in answers.items()}


def _origin(cluster: Cluster, node: str) -> dict[str, str]:
    return {"version": VERSION, "code": code_hash(), "cluster": own_class.digest(cluster, node)}


def survey(
    source: Evidence | EvidenceSource, checks: Sequence[Check], cluster: Cluster, fleet_answers: bool
) -> tuple[NodeResult, NodeFacts | None]:
    """Return a node's saved verdict; without a usable one, judge its evidence.

    The facts are None for a saved verdict. ``refused`` in the result is the reason why a verdict was not used.
    """
    refused = ""
    if isinstance(source, JudgedSource):
        try:
            return _result(source.node, source.verdict(), checks, cluster), None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            refused = str(error) if isinstance(error, _OtherOrigin) else "its verdict is malformed"
    result, facts = judge_node(opened(source)(), checks, cluster, fleet_answers=fleet_answers)
    result.refused = refused
    return result, facts


class _OtherOrigin(PreflightError, ValueError):
    """The verdict was made by other code, or by another cluster file."""


def _result(node: str, saved: Mapping[str, Any] | None, checks: Sequence[Check], cluster: Cluster) -> NodeResult:
    """Return a node's result from its verdict; raises ValueError if unusable."""
    if not isinstance(saved, dict):
        raise ValueError("it has no verdict")
    if any(saved.get(name) != mine for name, mine in _origin(cluster, node).items()):
        raise _OtherOrigin("its verdict is by other code, or by another cluster file")
    if wrong := find_error(saved, "node-result-1", part="verdict", exact=True):
        raise ValueError(wrong)
    if sum(map(len, (*saved["outcomes"].values(), *saved["values"].values()))) > MOST_VERDICT:
        raise ValueError("it is too long")
    more = _more(saved["more"])
    site = cluster.site_of(node, lambda: part_by_name(saved["part"] or ""))
    made = NodeResult(
        node=node, no_answer=None, pair=None, pair_tests=frozenset(), answered=True, windowed=saved["windowed"],
        swept=False, origin=more.get("origin"), site=site, switch=saved["switch"],
        about=about_node(site, saved["collected_at"], saved["where"]), more=more,
    )  # fmt: skip
    for number, check in enumerate(checks):
        if not check.run.__module__.startswith(_OURS):
            raise ValueError("a check of a plug-in")
        if check.scope is Scope.NODE and not check.pair and (made.windowed or not check.window):
            here = _of_waivers(number, check, made) if check.id == WAIVERS else None
            made.outcomes.append(here or _outcome(number, saved["outcomes"][check.id]))
    if sum(len(outcome.findings) for outcome in made.outcomes) > _MOST_FINDINGS:
        raise ValueError("it has too many findings")
    made.encoded = saved["values"]
    return made


@lru_cache(1000)
def _more(text: str) -> Any:
    """Return further details, which many nodes have in common; raises ValueError.

    They are JSON text because the transport sorts the keys of a document.
    """
    more = json_limits.text(text)
    if wrong := find_error(more, "node-result-1", part="more", exact=True):
        raise ValueError(wrong)
    if (drawn := more.get("topology")) and (wrong := find_error(drawn, "report-1", part="topology", exact=True)):
        raise ValueError(wrong)
    return more


def _of_waivers(number: int, check: Check, made: NodeResult) -> Outcome:
    """Run the check of waivers, which nodes do not run; it needs only the date."""
    evidence = Evidence(made.node, made.about["collected_at"], {})
    return outcome(number, check, made.node, NodeFacts(evidence), made.site, lambda: evidence)


#: Plain values that a field of a finding has by default.
_USUAL = {name: value for name, value in plain(Finding(Status.PASS, "")).items() if name != "message"}


def _outcome_text(outcome: Outcome) -> str:
    """Write the outcome of a check, without fields that have their defaults."""
    findings = [
        {name: value for name, value in plain(finding).items() if name == "status" or value != _USUAL.get(name)}
        for finding in outcome.findings
    ]
    return json.dumps([outcome.crashed, findings])


@lru_cache(_REMEMBERED)
def _outcome(number: int, text: str) -> Outcome:
    """Read the outcome of a check; raises ValueError."""
    if len(text) > _LONGEST:
        raise ValueError("the outcome is too long")
    crashed, findings = typed(json_limits.text(text), tuple[bool, tuple[Finding, ...]])
    for finding in findings:
        if not finding.message.strip() or any(getattr(finding, name) for name in _OF_OTHERS):
            raise ValueError("no check of one node makes such a finding")
        if not ({finding.action, finding.impact, finding.owner} <= {"", *ACTIONS, *IMPACTS, *OWNERS}):
            raise ValueError("an unknown action, impact or owner")
    if not findings:
        raise ValueError("a check without a finding")
    return Outcome(number, findings, crashed)


class JudgedNode(ReloadedNode):
    """Facts of a node with a saved verdict; its values are decoded when they are used.

    A value that does not have the type of its function is read from the evidence.
    """

    def __init__(
        self, node: str, encoded: Mapping[str, str], read: Callable[[], Evidence], recall: EvidenceCache
    ) -> None:
        super().__init__(node, {}, read, recall)
        self.encoded = dict(encoded)

    def remember_for_fleet(self, name: str, query: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Return a compared value, decoded if the node saved it."""
        if name not in self.fleet_answers and name in self.encoded:
            try:
                self.fleet_answers[name] = _answer(self.encoded[name], query.__code__, query)
            except (ValueError, KeyError, TypeError, AttributeError, NameError, RecursionError):
                del self.encoded[name]
        return super().remember_for_fleet(name, query, *args, **more)


class SealedNode(JudgedNode):
    """Facts of a judged node that sent only the records that a report may quote.

    A fact that is neither in its verdict nor quoted is unknown, not absent.
    """

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """Raise EvidenceError: an unsent record is not an absent one."""
        raise EvidenceError("evidence", "was not sent: the node judged itself")

    @property
    def quoted(self) -> Evidence:
        """The records that the node sent."""
        return self._recall.of(self)


_answers: dict[tuple[str, CodeType], Any] = {}


def _answer(text: str, code: CodeType, query: Callable[..., Any]) -> Any:
    """Return (value, None), or (None, (record key, reason)) if the value is unknown."""
    if (text, code) not in _answers:
        value, refused = json_limits.text(text)
        kind = hints_of(query)["return"]
        answer = (None, typed(refused, tuple[str, str])) if refused is not None else (typed(value, kind), None)
        if len(_answers) >= _REMEMBERED:
            _answers.clear()
        _answers[text, code] = answer
    return _answers[text, code]
