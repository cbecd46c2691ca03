"""A fabric sweep as data for a picture: tiers, leaf hosts, grouped links."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from preflight.facts.fabric.compare import difference
from preflight.facts.fabric.reference import Reference
from preflight.facts.fabric.sweep import FabricFacts
from preflight.parsers.infiniband.ibnetdiscover import FabricLink, Net


def picture(name: str, swept: FabricFacts, reference: Reference | None = None) -> dict[str, Any]:
    """Return ``{name, swept_from, hcas, partial, tiers, links}``.

    Raises EvidenceError without a sweep.
    """
    net, graph = swept.net, swept.graph
    slow = {one.link.ends for one in swept.slow_links}
    lost = _lost(reference.net, net) if reference and not swept.partial else ()
    leaves = {leaf.switch.guid: leaf for leaf in graph.leaves}
    tiers = []
    for tier in graph.tiers:
        drawn = []
        for switch in tier:
            leaf = leaves.get(switch.guid)
            drawn.append(
                {
                    "guid": switch.guid,
                    "name": switch.label,
                    "hosts": leaf.hosts if leaf else 0,
                    "down_gbps": leaf.down_gbps if leaf else 0,
                    "up_gbps": leaf.up_gbps if leaf else 0,
                    "slow_hosts": _hosts(net, [link for link in graph.links_of(switch.guid) if link.ends in slow]),
                    "missing_hosts": _hosts(
                        reference.net, [link for link in lost if switch.guid in dict(link.ends)]
                    ) if reference else [],
                }
            )  # fmt: skip
        tiers.append(drawn)
    return {
        "name": name,
        "swept_from": swept.sweeper.node,
        "hcas": len(net.hcas),
        "partial": swept.partial,
        "tiers": tiers,
        "links": _between(net, slow, lost, reference),
    }


def _lost(before: Net, now: Net) -> tuple[FabricLink, ...]:
    """Return the links of the reference that the sweep lacks and that were not moved."""
    ends = {link.ends for link in now.links}
    rewired = {old.ends for old, _ in difference(before, now).moved}
    return tuple(link for link in before.links if link.ends not in ends and link.ends not in rewired)


def _hosts(net: Net, links: list[FabricLink]) -> list[str]:
    """Return the sorted labels of the HCAs at the ends of links."""
    found = {net.devices[guid].label for link in links for guid, _ in link.ends if net.devices[guid].kind == "hca"}
    return sorted(found)


def _between(
    net: Net, slow: set[Any], lost: tuple[FabricLink, ...], reference: Reference | None
) -> list[dict[str, Any]]:
    """Count the links between each pair of switches: all, slow and missing ones."""
    bundles: dict[tuple[str, str], dict[str, Any]] = defaultdict(
        lambda: {"count": 0, "gbps": 0.0, "slow": 0, "missing": 0}
    )
    for link in net.links:
        (a, _), (b, _) = link.ends
        if net.devices[a].is_switch and net.devices[b].is_switch:
            bundle = bundles[a, b]
            bundle["count"] += 1
            bundle["gbps"] += link.gbps or 0.0
            bundle["slow"] += link.ends in slow
    for link in lost:
        (a, _), (b, _) = link.ends
        if reference and all(reference.net.devices[g].is_switch and g in net.devices for g in (a, b)):
            bundles[a, b]["missing"] += 1
    return [{"a": a, "b": b, **bundle} for (a, b), bundle in sorted(bundles.items())]
