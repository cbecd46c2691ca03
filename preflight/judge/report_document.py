"""The report document, without its ``run`` block."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.checklist.answers import answer
from preflight.evidence.document import Evidence
from preflight.facts.collection_hint import collection_hint
from preflight.judge.actions import action_of
from preflight.judge.excerpts import Search, excerpts
from preflight.judge.node_result import NodeResult
from preflight.judge.result_table import ResultTable
from preflight.judge.shared_failures import shared_faults
from preflight.model import Check, Finding, Scope, Status, worst

SCHEMA = "preflight.report/1"

#: Maximum number of nodes to search for the record of a finding.
_LOOKED_AT = 64


class Subjects:
    """Subjects of findings: nodes by number, then the run and the sweeps."""

    def __init__(self, nodes: Sequence[str], others: Mapping[str, Evidence], read: Mapping[int, Any]) -> None:
        """Set the names of nodes, other evidence by name, and facts of the nodes."""
        self.names = [*nodes, *others]
        self._read = read
        self._others = {len(nodes) + place: evidence for place, evidence in enumerate(others.values())}

    def number(self, other: str) -> int:
        """Return the number of a subject that is not a node."""
        return len(self.names) - 1 - self.names[::-1].index(other)

    def evidence(self, number: int) -> Evidence | None:
        """Return the evidence of a subject; None if a node did not answer."""
        if number in self._others:
            return self._others[number]
        return self._read[number].quoted if number in self._read else None


@dataclass
class Planned:
    """The planned checks, and those without input."""

    checks: Sequence[Check]
    off: Sequence[str]
    windowed: bool
    unlogged: Sequence[Check]
    sweeps: int
    paired: frozenset[str]
    switches: bool = False  # whether there are switches
    switches_windowed: bool = False  # whether the counters of any were read twice

    def coverage(self, seen: Sequence[NodeResult], counts: Mapping[Status, int], not_run: int) -> dict[str, Any]:
        """Return the ``coverage`` block; its parts add up to the total.

        ``not_run`` is the number of results that are missing because checks are off for classes of nodes.
        """
        unread = [] if self.windowed else [check for check in self.checks if check.window and not check.switches]
        of_switches = [check for check in self.checks if check.switches]
        if self.switches and not self.switches_windowed:
            unread += [check for check in of_switches if check.window]
            of_switches = [check for check in of_switches if not check.window]
        per_node = sum(
            check.scope is not Scope.RUN
            and not (check.sweep or check.switches or check.pair or (check.window and not self.windowed))
            for check in self.checks
        )
        of_pair = [check for check in self.checks if check.pair]
        of_sweep = [check for check in self.checks if check.sweep and (self.windowed or not check.window)]
        of_run = [check for check in self.checks if check.scope is Scope.RUN]
        planned = [
            sum(check.pair in one.pair_tests for check in of_pair) + (per_node if one.pair is None else 0)
            for one in seen
        ]
        silent = [number for one, number in zip(seen, planned, strict=True) if one.no_answer is not None]
        return {
            "planned": sum(planned)
            + (len(of_run) - len(self.unlogged))
            + len(of_sweep) * self.sweeps
            + (len(of_switches) if self.switches else 0)
            - not_run,
            "ran": sum(counts[s] for s in (Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN)),
            "passed": counts[Status.PASS],
            "warned": counts[Status.WARN],
            "failed": counts[Status.FAIL],
            "unknown": counts[Status.UNKNOWN],
            "skipped": counts[Status.SKIP],
            "no_answer": sum(silent),
            "nodes": {"planned": len(seen), "answered": len(seen) - len(silent), "no_answer": len(silent)},
            "off": list(self.off),
            "without_logs": [check.id for check in self.unlogged],
            "without_window": [check.id for check in unread],
            "without_sweep": [] if self.sweeps else [check.id for check in of_sweep],
            "without_switches": [] if self.switches else [check.id for check in of_switches],
            "without_pair": [check.id for check in of_pair if check.pair not in self.paired],
        }


def document(planned: Planned, seen: Sequence[NodeResult], folded: ResultTable, subjects: Subjects) -> dict[str, Any]:
    """Return the report."""
    silent = any(one.no_answer is not None for one in seen)
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "coverage": {**planned.coverage(seen, folded.counts, folded.excuses.not_run), **folded.excuses.coverage()},
        "nodes": list(_nodes(seen, folded)),
        "findings": list(finding_documents(folded, subjects)),
        "checklists": answer(planned.checks, folded.by_item()),
        "exit_status": folded.exit_status(silent),
    }
    if metadata := _record(made["nodes"]):
        made["record"] = metadata
    others = [subjects.evidence(number) for number in range(len(seen), len(subjects.names))]
    if origins := {one.origin for one in (*seen, *others) if one and one.origin}:
        made["origins"] = sorted(origins)
    if alike := shared_faults(made["findings"], made["nodes"]):
        made["systemic"] = alike
    return made


def _record(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the setup to record with a benchmark: each value and its number of nodes."""
    counts: dict[str, Counter[str]] = {}
    for node in nodes:
        for name, value in node.get("record", {}).items():
            counts.setdefault(name, Counter())[value] += 1
    if not counts:
        return {}
    return {"nodes": len(nodes), **{name: dict(counted.most_common()) for name, counted in counts.items()}}


def _nodes(seen: Sequence[NodeResult], folded: ResultTable) -> Iterator[dict[str, Any]]:
    statuses, actions = folded.statuses(), folded.actions()
    shared: dict[str, Any] = {}  # equal values of many nodes are stored once

    def once(value: Any) -> Any:
        return shared.setdefault(json.dumps(value), value)

    for number, one in enumerate(seen):
        if one.no_answer is not None:
            silence = {key: str(value) for key, value in one.no_answer.items()}
            yield {"name": one.node, "status": str(Status.UNKNOWN), "action": "monitor", "no_answer": silence,
                   "checks": {}}  # fmt: skip
            continue
        mine = statuses.get(number, {})
        yield {
            "name": one.node,
            "status": str(worst(mine.values()) if mine else Status.SKIP),
            "action": actions.get(number, "none"),
            **one.about,
            "checks": once({folded.checks[check].id: str(status) for check, status in mine.items()}),
            **one.more,
        }


# --- findings --------------------------------------------------------------------------------------


def finding_documents(folded: ResultTable, subjects: Subjects) -> Iterator[dict[str, Any]]:
    """Yield the findings as documents of the report."""
    search = Search()
    for check, finding, numbers in folded.findings():
        urgent = finding.status not in (Status.PASS, Status.SKIP)
        document: dict[str, Any] = {
            "check": check.id,
            "title": check.title,
            "status": str(finding.status),
            "gating": folded.decides(check, finding.status) and not finding.excused,
            "nodes": [subjects.names[number] for number in numbers],
            "subject": finding.subject,
            "message": f"{finding.message} ({finding.excused})" if finding.excused else finding.message,
            "found": finding.found,
            "expected": finding.expected,
            "evidence": list(finding.evidence),
            "why": "",
            "fix": "",
            "action": action_of(check, finding),
        }
        if finding.impact and urgent:
            document["impact"] = finding.impact
        if finding.owner and urgent:
            document["owner"] = finding.owner
        if finding.cause:
            document["cause"] = {"check": finding.cause[0], "nodes": list(finding.cause[1:])}
        if finding.parts and finding.status in (Status.FAIL, Status.WARN):
            document["parts"] = list(finding.parts)
        if finding.reported_by:
            document["reported_by"] = list(finding.reported_by)
        if check.fault and finding.status in (Status.FAIL, Status.WARN):
            document["fault"] = check.fault
        if urgent:
            shown = _holder(finding, numbers, subjects)
            evidence = subjects.evidence(shown)
            if finding.excused:
                document["excused"] = finding.excused
            if finding.undecided:
                document["undecided"] = True
            document["why"] = finding.why or check.why
            document["fix"] = _next(check, finding, evidence)
            document["excerpts"] = list(excerpts(finding, subjects.names[shown], evidence, search))
        yield document


def _holder(finding: Finding, numbers: Sequence[int], subjects: Subjects) -> int:
    """Return the number of the first subject with the main record of a finding.

    Only one node of a pair has the record.
    """
    key = finding.evidence[0] if finding.evidence else ""
    for number in numbers[:_LOOKED_AT] if key else ():
        evidence = subjects.evidence(number)
        if evidence is not None and key in evidence:
            return number
    return numbers[0]


def _next(check: Check, finding: Finding, evidence: Evidence | None) -> str:
    """Return the next step: the finding's, the check's, or how to collect a record."""
    if finding.fix or finding.status is not Status.UNKNOWN:
        return finding.fix or check.fix
    return collection_hint(finding.evidence[0], evidence) if finding.evidence and evidence else ""
