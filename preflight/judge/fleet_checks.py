"""Execution of checks on the fleet, pairs, fabric sweeps, switches and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster, Site
from preflight.facts.job import RunFacts
from preflight.facts.node import NodeFacts
from preflight.judge.check_result import Outcome, concluded, outcome
from preflight.judge.comparison import compared
from preflight.judge.evidence_source import EvidenceSource, opened
from preflight.judge.node_result import NodeResult, not_of_switch
from preflight.model import SHADOW, Check, Finding, Status, skipped, unknown

if TYPE_CHECKING:
    from preflight.facts.fabric.sweep import FabricFacts
    from preflight.facts.switch.ethernet import Ethernet
    from preflight.judge.result_table import ResultTable


@dataclass
class Fleet:
    """All nodes of a run, by number; ``nodes`` lacks those that did not answer."""

    seen: Sequence[NodeResult]
    nodes: Mapping[int, NodeFacts]
    sites: Mapping[str, Site]
    reported: Reported

    def compare(self, number: int, check: Check) -> Iterator[tuple[int, Outcome]]:
        """Run a fleet or pair check; yield the number of each node and its outcome."""
        meant = [
            place
            for place, seen in enumerate(self.seen)
            if (check.pair in seen.pair_tests if check.pair else seen.pair is None)
        ]
        least = min(2, len(meant)) if check.pair else 2
        switches = [place for place in meant if self.seen[place].switch]
        yield from ((place, not_of_switch(number, self.seen[place].switch)) for place in switches)
        meant = [place for place in meant if not self.seen[place].switch]
        places = [place for place in meant if place in self.nodes]
        answered = [place for place in places if self.seen[place].answered]
        if len(answered) < least:
            alone = len(meant) == 1 and len(answered) == 1
            message = f"fewer than two nodes answered ({len(answered)} of {len(meant)}), so there is nothing to compare"
            finding = Finding(Status.SKIP if alone else Status.UNKNOWN, message)
            if alone and not self._of_one(meant[0]):
                finding = finding.about()  # a fault common to all nodes is not ruled out
            common = Outcome(number, (finding,))
            yield from ((place, common) for place in places)
            return
        nodes = {place: self.nodes[place] for place in answered}
        findings, error, errors = compared(check, nodes, self.sites)
        for place, wrong in errors.items():
            node = nodes[place]
            yield place, concluded(number, check, node.node, [], wrong, lambda node=node: node.quoted)  # type: ignore[misc]
        fleet_outcome = concluded(number, check, "", findings, error, lambda: self.nodes[places[0]].quoted)
        yield from self._shared(fleet_outcome, [place for place in places if place not in errors])

    def _of_one(self, place: int) -> bool:
        """Return whether the cluster file declares a node to be alone in its class."""
        site = self.sites.get(self.seen[place].node)
        return site is not None and site.members.nodes is not None and len(site.members.nodes) == 1

    def _shared(self, fleet_outcome: Outcome, places: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        of_node: dict[str, list[int]] = {self.seen[place].node: [] for place in places}
        for number, finding in enumerate(fleet_outcome.findings):
            for name in finding.nodes or of_node:
                if name in of_node and (not of_node[name] or of_node[name][-1] != number):
                    of_node[name].append(number)
        findings = [replace(finding, nodes=()) for finding in fleet_outcome.findings]
        silence = (unknown("the check returned no finding for this node"),)
        made: dict[tuple[tuple[int, tuple[str, ...]], ...], Outcome] = {}
        for place in places:
            mine = tuple(
                (number, self.reported.on(place, findings[number])) for number in of_node[self.seen[place].node]
            )  # fmt: skip
            if mine not in made:
                made[mine] = Outcome(
                    fleet_outcome.check, _once([(findings[n], by) for n, by in mine]) or silence, fleet_outcome.crashed
                )
            yield place, made[mine]


#: Severity of findings: a warning does not replace a failure.
_GRAVITY = {Status.WARN: 1, Status.FAIL: 2}


class Reported:
    """The checks that fail or warn on each node, with their severity before waivers."""

    def __init__(self, folded: ResultTable) -> None:
        self._folded = folded
        self._of: dict[str, dict[int, int]] = {}

    def on(self, place: int, finding: Finding) -> tuple[str, ...]:
        """Return the node checks that report a finding's cause, at least as severely."""
        if finding.status is Status.SKIP:
            return finding.reported_by  # there was nothing to compare with
        least = _GRAVITY.get(finding.status, 0)
        return tuple(id for id in finding.reported_by if self._gravity(id).get(place, 0) >= max(least, 1))

    def _gravity(self, id: str) -> Mapping[int, int]:
        """Return the severity of a check's findings by node, before waivers."""
        if id not in self._of:
            found = self._of[id] = {}
            for outcome, members in self._folded.outcomes.items():
                if self._folded.checks[outcome.check].id == id:
                    found.update(dict.fromkeys(members, max(map(_gravity, outcome.findings))))
        return self._of[id]


def _gravity(finding: Finding) -> int:
    """Return a finding's severity before waivers, which turn failures into warnings."""
    waived = finding.status is Status.WARN and finding.excused not in ("", SHADOW)
    return _GRAVITY[Status.FAIL] if waived else _GRAVITY.get(finding.status, 0)


def _once(mine: Sequence[tuple[Finding, tuple[str, ...]]]) -> tuple[Finding, ...]:
    """Replace findings that a node check already reports.

    If such a check reports one of the compared values of a node, the node is skipped instead of passed.
    """
    if not any(by for _, by in mine):
        return tuple(replace(finding, reported_by=()) for finding, _ in mine)
    found = []
    for finding, by in mine:
        if by and finding.status is Status.SKIP:
            found.append(finding)
        elif by:
            what = f"{finding.subject}: " if finding.subject else ""
            message = f"{what}{' and '.join(by)} {'reports' if len(by) == 1 else 'report'} it"
            found.append(skipped(message, subject=finding.subject, evidence=finding.evidence).unless_reported(by))
        elif finding.status is not Status.PASS:
            found.append(replace(finding, reported_by=()))
    return tuple(dict.fromkeys(found))


def sweeps(fleet: Fleet) -> list[tuple[str, FabricFacts]]:
    """Return the fabric sweeps in the evidence, with the names for their findings."""
    if not any(seen.swept for seen in fleet.seen):
        return []
    from preflight.facts.fabric.sweep import FABRIC, sweeps

    found = list(sweeps(list(fleet.nodes.values()), lambda node: fleet.sites[node.node].roles(node).compute))
    if len(found) == 1:
        return [(FABRIC, found[0])]
    return [(f"{FABRIC} {swept.net_key[4:]} on {swept.sweeper.node}", swept) for swept in found]


def ethernet(switches: Sequence[Evidence | EvidenceSource], fleet: Fleet) -> Ethernet:
    """Return the switches in the evidence, and the hosts cabled to them."""
    from preflight.facts.switch.ethernet import Ethernet

    nodes = [facts for place, facts in fleet.nodes.items() if fleet.seen[place].pair is None]
    return Ethernet(list(map(opened, switches)), nodes, lambda node: fleet.sites[node.node].roles(node).compute)


def run_facts(run: Evidence, fleet: Fleet, cluster: Cluster) -> RunFacts:
    """Return the facts of a run's logs, and of the nodes they may name.

    Each log is read once. The cluster file's leaf of a node takes precedence over that in its evidence.
    """
    nodes = [facts for place, facts in fleet.nodes.items() if fleet.seen[place].pair is None]

    def leaves() -> Mapping[str, str]:
        if not nodes:
            return cluster.leaves
        from preflight.facts.fabric.leaves import from_evidence

        shown = from_evidence(nodes, lambda node: fleet.sites[node.node].roles(node).compute)
        return {**shown, **cluster.leaves}

    return RunFacts(run, nodes, leaves)


def has_logs(check: Check, run: RunFacts | None) -> bool:
    """Return whether there is a log of a kind that a check needs."""
    return run is not None and (not check.needs or bool(run.kinds & set(check.needs)))


def of_sweep(number: int, check: Check, name: str, swept: FabricFacts, cluster: Cluster) -> Outcome:
    """Run a check on a fabric sweep."""
    return outcome(number, check, name, swept, cluster.fabric, lambda: swept.evidence)


def of_switches(number: int, check: Check, fabric: Ethernet, cluster: Cluster) -> Outcome:
    """Run a check on the Ethernet switches."""
    return outcome(number, check, fabric.NAME, fabric, cluster.switches, lambda: fabric.evidence)


def of_run(number: int, check: Check, run: RunFacts, fleet: Fleet, cluster: Cluster) -> Outcome:
    """Run a check on a run's logs; it may also use the nodes that they name."""
    site = cluster.run_site(fleet.sites.values())
    result = outcome(number, check, run.evidence.node, run, site, lambda: run.evidence)
    if "trace" not in check.needs or not run.damaged_traces:
        return result
    return replace(result, findings=tuple(_doubted(finding, run.damaged_traces) for finding in result.findings))


def _doubted(finding: Finding, damaged: Mapping[str, str]) -> Finding:
    """Return a finding; *unknown* if it passes or warns based on an incomplete trace."""
    keys = [key for key in finding.evidence if key in damaged]
    if not keys or finding.status not in (Status.PASS, Status.WARN):
        return finding
    why = f"{keys[0].removeprefix('log:')} is incomplete: {damaged[keys[0]]}"
    return unknown(
        f"{finding.message}; but {why}", subject=finding.subject, found=finding.found, expected=finding.expected,
        evidence=finding.evidence, fix="pass the complete trace: copy it again after the job has finished writing",
    )  # fmt: skip
