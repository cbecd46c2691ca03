"""Fan-in to fabric ports, and load of leaf uplinks.

Routing, not load, selects the uplink of a flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.facts.fabric.graph import Graph, Leaf
from preflight.parsers.infiniband.ibnetdiscover import End
from preflight.parsers.infiniband.ibqueryerrors_data import Rate


@dataclass(frozen=True)
class FanIn:
    """One HCA of the job as a receiver."""

    node: str
    rail: str
    leaf: str  # name of its leaf
    link_gbps: float  # rate of the link from the leaf to the HCA, Gb/s
    senders: int  # other nodes of the job on its rail
    fastest_gbps: float  # rate of the senders' fastest link, Gb/s
    arriving_gbps: float  # combined rate of the senders, limited by the leaf's uplinks, Gb/s

    @property
    def ratio(self) -> float:
        """Ratio of the senders' combined rate to the link's rate."""
        return self.arriving_gbps / self.link_gbps


def fan_ins(graph: Graph, rails: Mapping[str, Mapping[str, str]]) -> tuple[FanIn, ...]:
    """Return every HCA with possible senders on its rail, widest fan-in first.

    ``rails`` maps each rail to the job's nodes with the GUID of their HCA. HCAs on no switch, on several, or over a
    link of unknown rate are left out.
    """
    leaves = {leaf.switch.guid: leaf for leaf in graph.leaves}
    found = []
    for rail, members in rails.items():
        rates = {node: rate for node, hca in members.items() if (rate := _rate(graph, hca))}
        at = {node: graph.leaf_of(members[node]) or "" for node in rates}
        on: dict[str, float] = {}
        for node, rate in rates.items():
            on[at[node]] = on.get(at[node], 0.0) + rate
        total, fastest = sum(rates.values()), sorted(rates.values())[-2:]
        for node, own in rates.items():
            leaf = leaves.get(at[node])
            if leaf is None or len(rates) < 2:
                continue
            near, far = on[at[node]] - own, total - on[at[node]]
            best = fastest[0] if own == fastest[1] else fastest[1]  # of the other members
            found.append(FanIn(node, rail, leaf.switch.label, own, len(rates) - 1, best,
                               near + min(far, leaf.up_gbps)))  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.ratio, one.rail, one.node)))


def _rate(graph: Graph, hca: str) -> float | None:
    links = graph.links_of(hca)
    return links[0].gbps if len(links) == 1 else None


@dataclass(frozen=True)
class Uplinks:
    """A leaf's uplinks in one direction over a window."""

    leaf: Leaf
    away: bool  # whether towards the spines
    carried: Mapping[End, float]  # by the leaf's own end of each uplink, Gb/s
    load: float  # load of the busiest uplink, as a fraction of its rate
    busiest: End
    share_gbps: float  # an even share, or one flow if that is more, Gb/s

    @property
    def excess(self) -> float:
        """The busiest uplink's traffic relative to its share; 1 is even."""
        return self.carried[self.busiest] / self.share_gbps if self.share_gbps else 1.0


def uplinks(graph: Graph, rates: Mapping[End, Rate]) -> Sequence[Uplinks]:
    """Return the traffic of each leaf's uplinks, in both directions.

    Leaves with an unread port are left out. The fair share is at least one host's rate: few senders cannot fill many
    uplinks.
    """
    found = []
    for leaf in graph.leaves:
        own = leaf.switch.guid
        links = graph.links_of(own)
        ends = {next(end for end in link.ends if end[0] == own): link for link in links if link.gbps}
        up = {end: link for end, link in ends.items() if graph.net.devices[link.other(own)[0]].is_switch}
        hosts = [end for end, link in ends.items() if graph.net.devices[link.other(own)[0]].kind == "hca"]
        if len(up) < 2 or any(end not in rates for end in ends):
            continue
        for away in (True, False):
            carried = {end: rates[end].sent if away else rates[end].received for end in up}
            single = max((rates[end].received if away else rates[end].sent for end in hosts), default=0.0)
            busiest = max(carried, key=lambda end: (carried[end] / (up[end].gbps or 1.0), end))
            share = max(sum(carried.values()) / len(carried), min(single, up[busiest].gbps or 0.0))
            load = carried[busiest] / (up[busiest].gbps or 1.0)
            found.append(Uplinks(leaf, away, carried, load, busiest, share))
    return found
