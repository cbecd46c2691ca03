"""Checks of the load on the InfiniBand fabric: fan-in, uplinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from preflight import facts
from preflight.checks.fabric.sweep import listed, not_this_fabric
from preflight.expectations.fabric_table import FabricSite
from preflight.model import Finding, check, counted, each_of, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.fabric.load import FanIn, Uplinks
    from preflight.facts.fabric.sweep import FabricFacts

#: An uplink is hot above this multiple of its share and this fraction of its own rate: a judgement call.
EXCESS, HOT = 1.5, 0.5

#: Load, as a fraction of its rate, that one uplink of a leaf must reach before balance is judged.
IDLE = 0.05


def no_sender(swept: FabricFacts, site: FabricSite) -> Finding | None:
    """Skip a run that collected only one node."""
    return (
        None
        if len(swept.nodes) > 1
        else skipped("only one node was collected, so there is no traffic to judge", evidence=[swept.net_key])
    )


@check(
    "fabric.fan-in",
    title="No receiver of the job is narrower than one of its senders",
    fault="A receiver of the job is narrower than its senders",
    impact="slows-job",
    owner="job",
    source="IBA 7.9 (credits): what cannot be delivered waits in the switch, and then in the switches before it",
    fix="Find the HCA's link with `iblinkinfo -l | grep NAME`; bring it to the rate of its peers, or exclude the node.",
    action="fix-site",
    answers=("FP-CON-1",),
    scope="fleet",
    gating=False,  # never fails
    sweep=True,
    reads=("cmd:ibnetdiscover", "cmd:ibqueryerrors", "file:/sys/class/infiniband/mlx5_0/node_guid"),
    unless=(not_this_fabric, no_sender),
)
def fan_in(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare each compute HCA's link with the combined rate of its senders.

    The senders are the other nodes of its rail.

    ## Why it matters
    When many nodes send to one, packets that exceed the rate of its link wait in the leaf and block the packets behind
    them, even those to other hosts. All-to-all and tree roots always have many senders; NCCL's rings have one.

    ## Verdicts
    A link slower than that of a single sender warns, because even a ring queues there. Wider fan-in is reported but not
    judged: the HCA, the number of senders, their combined rate relative to its link, and, with a window, the ports
    where packets waited most. The check passes if no link is slower than its senders'. An incomplete sweep is unknown.

    ## False alarms
    Nodes of two generations in one job on purpose.
    """
    keys = [swept.net_key]
    points = facts.fabric.load.fan_ins(swept.graph, swept.here())
    if not points:
        yield unknown(
            f"this sweep contains no two of the {len(swept.nodes)} collected nodes on the same rail",
            evidence=keys, fix="collect from the job's nodes as well as from the one that sweeps: --hosts or --job",
        )  # fmt: skip
        return
    narrow = [one for one in points if one.link_gbps < one.fastest_gbps]
    for one in narrow:
        yield warned(f"{_name(one)} receives at most {one.link_gbps:g} Gb/s, but a single node of its rail can send "
                     f"{one.fastest_gbps:g} Gb/s", subject=_name(one), found=f"{one.link_gbps:g} Gb/s",
                     expected=f"at least {one.fastest_gbps:g} Gb/s, like its senders", evidence=keys)  # fmt: skip
    if swept.partial:
        yield unknown(f"{swept.partial}; senders outside the sweep cannot be counted", evidence=keys)
    elif not narrow:
        widest = points[0]
        yield passed(
            f"{each_of(len(points), 'receiver')} is as fast as each of its senders; the widest fan-in is "
            f"{widest.ratio:.3g}:1, from {counted(widest.senders, 'node')} to {_name(widest)} at {widest.leaf}",
            found=_waits(swept) or f"{widest.ratio:.3g}:1",
            evidence=[*keys, swept.errors_key] if _waits(swept) else keys,
        )  # fmt: skip


def _name(one: FanIn) -> str:
    return f"{one.node} {one.rail}"


def _waits(swept: FabricFacts) -> str:
    """Return the ports where packets waited most in the window; empty without one.

    The tick length is not standardised, so ticks are not converted to time.
    """
    if swept.errors_key not in swept.evidence or not (window := swept.window):
        return ""
    before, after, _ = window
    grown = {}
    for port, values in after.counters.items():
        by = values.get("PortXmitWait", 0) - before.counters.get(port, {}).get("PortXmitWait", 0)
        if by > 0:
            grown[port] = by
    if not grown:
        return "no port waited for credits"
    most = sorted(grown, key=lambda port: -grown[port])[:3]
    named = [f"{after.names.get(guid) or swept.device_of(guid)} port {number} (+{grown[guid, number]} ticks)"
             for guid, number in most]  # fmt: skip
    return f"packets waited most to leave {listed(named)}"


def no_shared_uplinks(swept: FabricFacts, site: FabricSite) -> Finding | None:
    """Skip a fabric in which no leaf has several uplinks."""
    if any(leaf.uplinks > 1 for leaf in swept.graph.leaves):
        return None
    return skipped("no leaf has several uplinks to share", evidence=[swept.net_key])


@check(
    "fabric.uplink-balance",
    title="The uplinks of a leaf are balanced",
    fault="The uplinks of a leaf are not balanced",
    impact="slows-job",
    owner="network",
    source="a judgement: 1.5 times an even share, at half of the link's rate; IBA PortXmitData, PortRcvData",
    fix="Route adaptively (`routing_engine ar_updn` of MLNX_OFED's opensm, or UFM; NCCL_IB_ADAPTIVE_ROUTING, "
    "NCCL_IB_SL), or place the job on complete leaves; `ibtracert` shows which flows share the uplink.",
    action="fix-site",
    answers=("FP-CON-5", "AN-7"),
    scope="fleet",
    gating=False,
    sweep=True,
    window=True,
    reads=("cmd:ibnetdiscover", "cmd:ibqueryerrors --counters --switch"),
    unless=(not_this_fabric, no_shared_uplinks),
)
def uplink_balance(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare the traffic of each uplink in the window with an even share.

    Both directions are compared.

    ## Why it matters
    Static routing selects an uplink by the receiver's address. Several heavy flows can share one uplink while others
    are idle, even in a fabric that is non-blocking on paper.

    ## Verdicts
    An uplink that carries more than 1.5 times its share, and at least half of its own rate, warns; traffic no higher
    than one sender's rate never warns. If all uplinks of a leaf stay below 5% of their rate, the leaf is unknown:
    there was too little traffic to compare.

    ## False alarms
    Several jobs on one leaf, only one of which sends across the spine.
    """
    keys = [swept.traffic_key]
    found = facts.fabric.load.uplinks(swept.graph, swept.rates)
    if swept.partial:
        yield unknown(f"{swept.partial}; uplinks outside the sweep cannot be compared", evidence=[swept.net_key])
        return
    if not found:
        yield unknown(
            "no leaf has usable traffic counters for all its ports: they were reset, or are limited to 32 bits",
            evidence=keys,
            fix="check whether a leaf has extended counters: `perfquery -x LID 1`",
        )
        return
    busy = [one for one in found if one.load >= IDLE]
    if not busy:
        yield unknown(f"no uplink carried {100 * IDLE:.0f}% of its rate: too little traffic to compare",
                      evidence=keys, fix="run `preflight check --fabric --window 60` during a job or "
                      "`all_reduce_perf`")  # fmt: skip
        return
    hot = [one for one in busy if one.excess > EXCESS and one.load >= HOT]
    for one in hot:
        yield warned(**_imbalance(swept, one), evidence=keys)
    if not hot:
        worst = max(busy, key=lambda one: one.excess)
        most, leaves = max(one.load for one in busy), len({one.leaf.switch.guid for one in busy})
        yield passed(
            f"the uplinks of {counted(leaves, 'leaf', 'leaves')} are balanced: each carried at most {worst.excess:.2f} "
            f"times an even share, the busiest {100 * most:.0f}% of its rate",
            found=f"{worst.excess:.2f} times", evidence=keys,
        )  # fmt: skip


def _imbalance(swept: FabricFacts, one: Uplinks) -> dict[str, Any]:
    port, way = swept.net.port(one.busiest), "up" if one.away else "down"
    idle = sum(rate < one.share_gbps / 2 for rate in one.carried.values())
    traffic = f"{port} carried {one.carried[one.busiest]:.1f} Gb/s {way}, {one.excess:.1f} times an even share"
    return {
        "message": f"{traffic}, while {idle} of {len(one.carried)} uplinks carried less than half an even share",
        "subject": port,
        "found": f"{100 * one.load:.0f}% of its rate",
        "expected": f"{one.share_gbps:.1f} Gb/s on each of {len(one.carried)} uplinks of {one.leaf.switch.label}",
    }
