"""The checks that look at all nodes: of a fleet, of pairs, of sweeps of the fabric, of a run's logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.cluster import Cluster, Site
from preflight.evidence import Evidence
from preflight.facts import NodeFacts, RunFacts
from preflight.judge.outcome import Outcome, outcome
from preflight.judge.seen import Seen, not_of_switch
from preflight.lean import dataclass, replace
from preflight.model import Check, Finding, Status, unknown

if TYPE_CHECKING:
    from preflight.facts.fabric import FabricFacts


@dataclass
class Fleet:
    """All nodes of a run, by their number; ``nodes`` lacks those that gave no answer."""

    seen: Sequence[Seen]
    nodes: Mapping[int, NodeFacts]
    sites: Mapping[str, Site]

    def compare(self, number: int, check: Check) -> Iterator[tuple[int, Outcome]]:
        """Run a check of the fleet, or of a pair, and share its findings out to the nodes that they speak of."""
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
            message = f"fewer than two nodes answered ({len(answered)} of {len(meant)}): nothing to compare"
            said = Outcome(number, (Finding(Status.SKIP if alone else Status.UNKNOWN, message),))
            yield from ((place, said) for place in places)
            return
        nodes = [self.nodes[place] for place in answered]
        whole = outcome(number, check, "", nodes, self.sites, lambda: self.nodes[places[0]].evidence)
        yield from self._shared(whole, places)

    def _shared(self, whole: Outcome, places: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        of_node: dict[str, list[int]] = {self.seen[place].node: [] for place in places}
        for number, finding in enumerate(whole.findings):
            for name in finding.nodes or of_node:
                if name in of_node and (not of_node[name] or of_node[name][-1] != number):
                    of_node[name].append(number)
        said = [replace(finding, nodes=()) for finding in whole.findings]
        silence = (unknown("the check said nothing of this node"),)
        made: dict[tuple[int, ...], Outcome] = {}
        for place in places:
            numbers = tuple(of_node[self.seen[place].node])
            if numbers not in made:
                mine = tuple(said[number] for number in numbers) or silence
                made[numbers] = Outcome(whole.check, mine, whole.crashed)
            yield place, made[numbers]


def sweeps(fleet: Fleet) -> list[tuple[str, FabricFacts]]:
    """Return the sweeps of the fabric in the evidence, each with the name that its findings are kept under."""
    if not any(seen.swept for seen in fleet.seen):
        return []
    from preflight.facts.fabric import FABRIC, sweeps

    found = list(sweeps(list(fleet.nodes.values()), lambda node: fleet.sites[node.node].roles(node).compute))
    if len(found) == 1:
        return [(FABRIC, found[0])]
    return [(f"{FABRIC} {swept.net_key[4:]} on {swept.sweeper.node}", swept) for swept in found]


def run_facts(run: Evidence, fleet: Fleet) -> RunFacts:
    """Return the facts of a run's logs, each read once, and of the nodes that they may name."""
    return RunFacts(run, [facts for place, facts in fleet.nodes.items() if fleet.seen[place].pair is None])


def has_logs(check: Check, run: RunFacts | None) -> bool:
    """Tell whether a log of the kind that a check of a run is about was handed over."""
    return run is not None and (not check.needs or bool(run.kinds & set(check.needs)))


def of_sweep(number: int, check: Check, name: str, swept: FabricFacts, cluster: Cluster) -> Outcome:
    """Run a check of a sweep."""
    return outcome(number, check, name, swept, cluster.fabric, lambda: swept.evidence)


def of_run(number: int, check: Check, run: RunFacts, fleet: Fleet, cluster: Cluster) -> Outcome:
    """Run a check of a run's logs, which may ask the nodes that they name."""
    site = cluster.run_site(fleet.sites.values())
    return outcome(number, check, run.evidence.node, run, site, lambda: run.evidence)
