"""Checks of the InfiniBand fabric's shape: oversubscription, path lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.fabric.sweep import listed, not_this_fabric
from preflight.expectations.fabric_table import FabricSite
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.facts.fabric.graph import Placement
    from preflight.facts.fabric.sweep import FabricFacts


@check(
    "fabric.oversubscription",
    title="No leaf switch has more host than uplink bandwidth",
    fault="A leaf switch has more host than uplink bandwidth",
    impact="slows-job",
    owner="network",
    source="NVIDIA DGX SuperPOD reference architecture: full fat tree, as many links up as down at each leaf",
    fix="Run `iblinkinfo -l | grep NAME` for the leaf; connect missing uplinks and repair slow ones, or declare "
    "the designed ratio in the cluster file: [fabric] oversubscription = 2.",
    action="fix-site",
    answers=("FP-BW-3", "AN-1"),
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover",),
    unless=(not_this_fabric,),
)
def oversubscription(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare the rates of host links and uplinks at each leaf.

    ## Why it matters
    If hosts can send more than the uplinks carry, jobs that span leaves share the uplinks: at 2:1 an all-to-all across
    leaves runs at half of each NIC's rate.

    ## Verdicts
    More than 1:1 warns; more than the cluster file's `oversubscription` fails. Links are counted at their present
    rate, so a lost or slow uplink shows. A fabric of one switch passes. An incomplete sweep is unknown.

    ## False alarms
    A fabric that is 2:1 by design; declare it. A leaf of storage or login nodes, which are not sized for collectives,
    is reported too.
    """
    leaves, partial, allowed = swept.graph.leaves, swept.partial, site.settings.oversubscription
    if not leaves:
        yield unknown("no switch of this sweep has hosts", evidence=[swept.net_key], fix="sweep again")
        return
    if len(swept.net.switches) == 1 and not partial:
        yield passed("all hosts are connected to one switch", found="one switch", evidence=[swept.net_key])
        return
    limit = allowed if allowed is not None else 1.0
    wanted = f"at most {limit:g}:1" + (f" ({site.source('oversubscription')})" if allowed is not None else "")
    over = [leaf for leaf in leaves if leaf.ratio > limit * 1.001]
    blank = [leaf for leaf in leaves if leaf.unknown]
    if partial:
        yield unknown(f"{partial}; links outside the sweep cannot be counted", evidence=[swept.net_key])
        return
    for leaf in over:
        ratio = f"{leaf.ratio:.2f}:1" if leaf.up_gbps else "no uplink"
        hosts = f"{counted(leaf.hosts, 'link')} to hosts ({leaf.down_gbps:g} Gb/s)"
        links = f"{hosts}, {counted(leaf.uplinks, 'uplink')} ({leaf.up_gbps:g} Gb/s)"
        report = failed if allowed is not None else warned
        label = f"{leaf.switch.label} is oversubscribed" + (f" {ratio}" if leaf.up_gbps else "")
        yield report(f"{label}: {links}", subject=leaf.switch.label, found=ratio, expected=wanted,
                     evidence=[swept.net_key])  # fmt: skip
    for leaf in blank:
        yield unknown(
            f"{leaf.switch.label} has {counted(leaf.unknown, 'link')} of a speed that this version does not know",
            subject=leaf.switch.label, evidence=[swept.net_key],
        )  # fmt: skip
    if not over and not blank:
        worst = max(leaves, key=lambda leaf: leaf.ratio)
        fullest = f"{worst.ratio:.2f}:1"
        places = counted(len(leaves), "leaf", "leaves")
        yield passed(f"the highest oversubscription of {places} is {fullest}, at {worst.switch.label}",
                     found=fullest, evidence=[swept.net_key])  # fmt: skip


def no_path(swept: FabricFacts, site: FabricSite) -> Finding | None:
    """Skip a run that collected only one node."""
    if len(swept.nodes) > 1:
        return None
    return skipped("only one node was collected, so there is no path to judge", evidence=[swept.net_key])


@check(
    "fabric.hops",
    title="The job's nodes are as close to each other as the fabric allows",
    fault="The job's nodes are further apart than necessary",
    impact="slows-job",
    owner="job",
    source="Slurm topology.conf(5): fewest leaf switches; NVIDIA DGX SuperPOD: scalable units of leaves and spines",
    fix="Place the job on fewer leaves: `sbatch --switches=N`, or exclude the nodes named; Slurm needs topology.conf.",
    action="fix-site",
    answers=("FP-LAT-3",),
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover", "file:/sys/class/infiniband/mlx5_0/node_guid"),
    unless=(not_this_fabric, no_path),
)
def hops(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare the paths between the collected nodes with the shortest possible.

    ## Why it matters
    A collective waits for its longest path. Nodes on another leaf add two switches to the path and share the uplinks
    with every other job; a few such nodes delay all others.

    ## Verdicts
    Path length is the number of switches between HCAs of one rail: 1 within a leaf, 3 over a spine, 5 over a core.
    Paths longer than necessary warn; preflight does not know whether closer nodes are free. Nodes without a path
    between them fail.

    ## False alarms
    A check of all nodes of a cluster, which are not one job; or closer leaves that other jobs occupy.
    """
    placement = facts.fabric.graph.place(swept.graph, swept.here())
    if placement.nodes < 2:
        yield unknown(
            f"{'only one' if placement.nodes else 'none'} of the {len(swept.nodes)} collected nodes is in this sweep",
            evidence=[swept.net_key], fix="collect from the job's nodes as well as from the one that sweeps: --hosts "
                                          "or --job",
        )  # fmt: skip
        return
    hop_counts = path_lengths(placement)
    places = f"{counted(placement.nodes, 'node')} on {counted(placement.leaves, 'leaf', 'leaves')}"
    spread = f"{places}; {hop_counts}"
    longest = max(placement.pairs, default=0)
    if swept.partial:
        yield unknown(f"{swept.partial}; paths outside the sweep cannot be counted", evidence=[swept.net_key])
    elif 0 in placement.pairs:
        yield failed(f"{spread}: not every pair is connected", found=hop_counts, evidence=[swept.net_key])
    elif longest > placement.needed:
        far = f"; {listed(list(placement.far))} {verb(len(placement.far), 'is')} far from most" if placement.far else ""
        yield warned(
            f"{spread}{far}",
            found=f"up to {longest}",
            expected=f"at most {placement.needed} for this number of nodes",
            evidence=[swept.net_key],
        )
    else:
        yield passed(spread, found=f"up to {longest}", evidence=[swept.net_key])


def path_lengths(placement: Placement) -> str:
    """Return the number of pairs for each path length: ``6 pairs cross 1 switch``."""
    return ", ".join(
        f"{counted(pairs, 'pair')} " + (
            f"cross{'es' * (pairs == 1)} {counted(switches, 'switch')}" if switches
            else f"{verb(pairs, 'has')} no known path"
        )
        for switches, pairs in placement.pairs.items()
    )  # fmt: skip
