"""The judge: runs the checks on evidence and creates the report document.

The same evidence, cluster file, checks and version give the same document (except ``run``, which the caller adds), for
any number of processes. Nodes are judged one by one; only their results are stored, equal ones once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from preflight import bench
from preflight.evidence.document import COURSE, NODE, SWITCH, Evidence, EvidenceError
from preflight.expectations import Cluster
from preflight.facts.job import RUN, RunFacts
from preflight.facts.node import NodeFacts
from preflight.judge.check_result import Outcome
from preflight.judge.evidence_reload import HELD, EvidenceCache, ReloadedNode
from preflight.judge.evidence_source import EvidenceSource, JudgedSource, of_kind, opened
from preflight.judge.fleet_checks import (
    Fleet,
    Reported,
    ethernet,
    has_logs,
    of_run,
    of_sweep,
    of_switches,
    run_facts,
    sweeps,
)
from preflight.judge.node_result import NodeResult, judge_node, of_every_node, of_fleet, outcomes
from preflight.judge.report_document import SCHEMA, Planned, Subjects, document, finding_documents
from preflight.judge.result_table import DISPLAY, ResultTable
from preflight.judge.waivers import Excuses, chosen
from preflight.model import Check, Scope, unknown

if TYPE_CHECKING:
    from preflight.facts.switch.ethernet import Ethernet


def prepare(checks: Sequence[Check]) -> None:
    """Import the checks and parsers that every node needs, while nodes are queried.

    Other checks are imported when they run.
    """
    from importlib import import_module

    from preflight.facts import clock  # noqa: F401
    from preflight.facts.nccl_settings import collect  # noqa: F401

    for name in dict.fromkeys(check.run.__module__ for check in checks if of_every_node(check)):
        import_module(name)


def judge(
    evidences: Sequence[Evidence],
    checks: Sequence[Check],
    cluster: Cluster | None = None,
    *,
    run: Evidence | None = None,
    off: Sequence[str] = (),
    processes: int = 1,
    refused: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Judge nodes, and the logs of a run; return the report document.

    The ``run`` block is not included. ``off`` lists the ids of disabled checks for the coverage. With several
    ``processes``, documents on disk are judged in parallel; the checks must then be those of the registry. ``refused``
    receives the nodes that judged themselves, but whose verdict could not be used, with the reason.
    """
    cluster = cluster or Cluster()
    judged = _judged(evidences, checks, cluster, run, off, processes)
    if refused is not None:
        refused.update((node.node, node.refused) for node in judged.fleet.seen if node.refused)
    report = document(judged.planned, judged.fleet.seen, judged.folded, judged.subjects)
    report["coverage"]["without_history"] = judged.unremembered
    if outside := _outside(judged.fleet, cluster):
        report["coverage"]["without_class"] = outside
    if drawn := [picture for name, swept in judged.swept_as if (picture := _fabric_picture(name, swept, cluster))]:
        report["fabrics"] = drawn
    if judged.logs is not None and (maps := _pair_maps(judged.logs)):
        report["pairs"] = maps
    if curves := _curves(report, judged):
        report["curves"] = curves
    if judged.logs is not None and (timelines := _timelines(judged.logs)):
        report["timelines"] = timelines
    for node in report["nodes"]:
        if rack := cluster.rack_of(node["name"]):
            node["rack"] = rack
        if leaf := cluster.leaf_of(node["name"]):
            node["leaf"] = leaf
    report["incidents"] = _incidents(report, judged.planned.checks)
    if judged.ethernet is not None and (cables := _cables(judged.ethernet, report["findings"])):
        report["cables"] = cables
    return report


def _curves(report: dict[str, Any], judged: _Judged) -> list[dict[str, Any]]:
    """Return the curves of logs and trends; most runs have none and skip the import."""
    trends = [finding for finding in report["findings"] if finding["check"].startswith("trend.")]
    if not trends and not (judged.logs is not None and judged.logs.logs):
        return []
    from preflight.judge.curves import curves

    results = judged.fleet.seen
    nodes = {results[place].node: facts for place, facts in judged.fleet.nodes.items() if results[place].pair is None}
    return curves(trends, nodes, judged.logs)


def _timelines(logs: RunFacts) -> list[dict[str, Any]]:
    """Return timelines of a job's traces; most runs have none and skip the import."""
    try:
        if not logs.traces:
            return []
        job = logs.job_trace
    except EvidenceError:  # a log whose text is not in the document
        return []
    from preflight.facts.trace.timeline import timelines

    return timelines(job)


def findings(
    evidences: Sequence[Evidence],
    checks: Sequence[Check],
    cluster: Cluster | None = None,
    *,
    run: Evidence | None = None,
) -> list[dict[str, Any]]:
    """Return only the findings of a report, without coverage and checklists."""
    judged = _judged(evidences, checks, cluster or Cluster(), run, (), 1)
    return list(finding_documents(judged.folded, judged.subjects))


class _Judged(NamedTuple):
    """The results from which a report is made."""

    planned: Planned
    fleet: Fleet
    folded: ResultTable
    subjects: Subjects
    swept_as: list[tuple[str, Any]]
    logs: RunFacts | None
    unremembered: list[str]
    ethernet: Ethernet | None


def _judged(
    evidences: Sequence[Evidence],
    checks: Sequence[Check],
    cluster: Cluster,
    run: Evidence | None,
    off: Sequence[str],
    processes: int,
) -> _Judged:
    checks, off = chosen(checks, off, cluster)
    past = _has_history(evidences)
    unremembered = [check.id for check in checks if check.history and not past]
    checks = [check for check in checks if not check.history or past]
    sources: Sequence[Evidence | EvidenceSource] = getattr(evidences, "sources", evidences)
    switches = of_kind(sources, SWITCH)
    large = getattr(evidences, "large", False)
    fleet, folded = _each(of_kind(sources, NODE) if switches else sources, checks, cluster, processes, large)
    windowed = any(seen.windowed for seen in fleet.seen)
    paired = frozenset(test for seen in fleet.seen for test in seen.pair_tests)
    if windowed:
        _add_growth(fleet, folded)
    swept_as = sweeps(fleet) if any(check.sweep for check in checks) else []
    logs = run_facts(run, fleet, cluster) if run is not None else None
    if run is not None and processes > 1 and len(run.records) > 1 and any(check.needs for check in checks):
        from preflight.judge.process_pool import read_traces

        read_traces(run, processes)
    fabric = ethernet(switches, fleet) if switches and any(check.switches for check in checks) else None
    others = ({RUN: run} if run else {}) | {name: swept.evidence for name, swept in swept_as}
    if fabric is not None:
        others[fabric.NAME] = fabric.evidence
    subjects = Subjects([seen.node for seen in fleet.seen], others, fleet.nodes)
    for number, check in enumerate(checks):
        if check.switches:
            if fabric is not None and (fabric.windowed or not check.window):
                folded.add(subjects.number(fabric.NAME), of_switches(number, check, fabric, cluster))
            continue
        if (check.window and not windowed) or (check.pair and check.pair not in paired):
            continue
        if check.sweep:
            for name, swept in swept_as:
                folded.add(subjects.number(name), of_sweep(number, check, name, swept, cluster))
        elif check.pair or of_fleet(check):
            for place, outcome in fleet.compare(number, check):
                folded.add(place, outcome)
        elif check.scope is Scope.RUN and logs is not None and has_logs(check, logs):
            folded.add(subjects.number(RUN), of_run(number, check, logs, fleet, cluster))
    unlogged = [check for check in checks if check.scope is Scope.RUN and not has_logs(check, logs)]
    planned = Planned(checks, off, windowed, unlogged, len(swept_as), paired, fabric is not None,
                      fabric is not None and fabric.windowed)  # fmt: skip
    return _Judged(planned, fleet, folded, subjects, swept_as, logs, unremembered, fabric)


def _each(
    sources: Sequence[Evidence | EvidenceSource], checks: Sequence[Check], cluster: Cluster, processes: int, large: bool
) -> tuple[Fleet, ResultTable]:
    """Judge every node on its own.

    The facts of a few nodes stay in memory; if there are many, only the values that fleet checks compare.
    """
    many = len(sources) > HELD or large
    seen: list[NodeResult] = []
    nodes: dict[int, NodeFacts] = {}
    folded, recall = ResultTable(checks, Excuses(cluster, checks)), EvidenceCache()
    for number, (one, facts) in enumerate(_surveys(sources, checks, cluster, processes, many)):
        folded.excuses.add_node(one.node, str(one.about.get("collected_at", "")))
        for outcome in one.outcomes:
            folded.add(number, outcome)
        one.outcomes = []
        seen.append(one)
        if one.no_answer is None:
            nodes[number] = facts or _reloaded(one, sources[number], recall)
    sites = {one.node: one.site for one in seen if one.site is not None}
    return Fleet(seen, nodes, sites, Reported(folded)), folded


def _surveys(
    sources: Sequence[Evidence | EvidenceSource], checks: Sequence[Check], cluster: Cluster, processes: int, many: bool
) -> Iterator[tuple[NodeResult, NodeFacts | None]]:
    if many and processes > 1 and sources and not isinstance(sources[0], Evidence):
        from preflight.judge.process_pool import surveys

        for seen in surveys(sources, checks, cluster, processes):
            yield seen, None
        return
    for source in sources:
        seen, facts = _survey(source, checks, cluster, many)
        yield seen, None if many else facts


def _survey(
    source: Evidence | EvidenceSource, checks: Sequence[Check], cluster: Cluster, many: bool
) -> tuple[NodeResult, NodeFacts | None]:
    if isinstance(source, Evidence):
        return judge_node(source, checks, cluster, fleet_answers=many)
    from preflight.judge.node_verdict import survey  # start-up: only saved documents have a verdict

    return survey(source, checks, cluster, fleet_answers=many)


def _reloaded(result: NodeResult, source: Evidence | EvidenceSource, recall: EvidenceCache) -> NodeFacts:
    """Return the facts of a judged node whose evidence is not in memory."""
    if result.encoded is None:
        return ReloadedNode(result.node, result.fleet_answers, opened(source), recall)
    from preflight.judge.node_verdict import JudgedNode, SealedNode

    assert isinstance(source, JudgedSource)
    kind = JudgedNode if source.complete else SealedNode
    return kind(result.node, result.encoded, source.quoted, recall)


def _has_history(evidences: Sequence[Evidence]) -> bool:
    """Return whether the documents contain a history of their metrics.

    Documents on disk either all contain one, or none does.
    """
    if hasattr(evidences, "sources"):
        return bool(getattr(evidences, "remembered", False))
    return any(COURSE in evidence for evidence in evidences)


def _add_growth(fleet: Fleet, folded: ResultTable) -> None:
    """Add the growth checks, *unknown* on nodes whose counters were read only once."""
    for number, facts in fleet.nodes.items():
        if not fleet.seen[number].windowed:
            site = fleet.sites[facts.node]
            try:
                growth = outcomes(facts, site, folded.checks, lambda check: check.window)
            except EvidenceError as error:  # it judged itself, and did not send its counters
                growth = [
                    Outcome(place, (unknown(f"the counters were read only once: {error}"),))
                    for place, check in enumerate(folded.checks)
                    if check.scope is Scope.NODE and check.window and not check.pair
                ]
            for outcome in growth:
                folded.add(number, outcome)


def _outside(fleet: Fleet, cluster: Cluster) -> list[str]:
    """Return the nodes without a class in the cluster file."""
    if not cluster.classes:
        return []
    names = (
        node.node
        for node in fleet.seen
        if not (node.switch or (node.site.declared_class if node.site else cluster.class_of(node.node)))
    )
    return list(dict.fromkeys(names))


def _incidents(report: dict[str, Any], checks: Sequence[Check]) -> list[dict[str, Any]]:
    if not any(finding["status"] in ("fail", "warn") or "impact" in finding for finding in report["findings"]):
        return []
    from preflight.incidents import incidents  # start-up: healthy nodes have none

    return incidents(report, checks)


def _cables(net: Ethernet, findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    from preflight.judge.cables import cables  # start-up: most runs have no switches

    return cables(net, findings)


def _pair_maps(logs: RunFacts) -> list[dict[str, Any]]:
    try:
        compared = logs.pairwise
    except EvidenceError:
        return []
    return [picture for comparison in compared if (picture := bench.picture.picture(comparison))]


def _fabric_picture(name: str, swept: Any, cluster: Cluster) -> dict[str, Any] | None:
    from preflight.reports.fabric_data import picture

    try:
        return picture(name, swept, cluster.fabric.reference)
    except EvidenceError:
        return None


__all__ = ["DISPLAY", "SCHEMA", "findings", "judge"]
