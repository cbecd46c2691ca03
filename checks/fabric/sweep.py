"""Checks of an InfiniBand sweep: completeness, subnet managers, SHARP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import parsers
from preflight.expectations.fabric_table import FabricSite
from preflight.model import Finding, check, counted, failed, none_of, passed, skipped, some_of, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.facts.fabric.sweep import FabricFacts
    from preflight.parsers.infiniband.sminfo_saquery import Manager

DIAGS = "https://github.com/linux-rdma/rdma-core (infiniband-diags)"
#: Maximum number of names in one finding.
LISTED = 8


def listed(names: list[str], between: str = ", ") -> str:
    """Return the first names as text, with the number of the remaining ones."""
    return between.join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def not_this_fabric(swept: FabricFacts, site: FabricSite) -> Finding | None:
    """Return a finding for a sweep that is not of the compute fabric, else None."""
    if evidence := swept.not_infiniband:
        return skipped(
            f"every compute port of {swept.sweeper.node} is Ethernet or EFA, not InfiniBand", evidence=evidence
        )
    if foreign := swept.foreign:
        return unknown(
            f"another fabric was swept: none of the compute HCAs of {swept.sweeper.node} is in it",
            evidence=[swept.net_key], fix=f'name the port in the cluster file: [fabric] device = "{foreign[0]}"',
        )  # fmt: skip
    return None


@check(
    "fabric.sweep",
    title="The sweep covers the entire fabric",
    fault="The sweep does not cover the entire fabric",
    impact="drifts",
    owner="network",
    source=f"{DIAGS}: ibnetdiscover(8); a tool that loses queries ends with status 0",
    fix="Query the named device from its neighbour with `ibportstate LID PORT query`; then sweep again.",
    action="fix-site",
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover", "cmd:iblinkinfo -l", "cmd:ibqueryerrors"),
    unless=(not_this_fabric,),
)
def completeness(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Look for lost queries, one-sided links and missing compute HCAs.

    ## Why it matters
    A device that does not answer hides everything behind it. A report on half a fabric would call the other half
    healthy.

    ## Verdicts
    Lost queries make the result unknown, even if the tool exited with 0. An active compute HCA of a checked node that
    the sweep does not contain warns. The check passes if neither occurs.

    A sweep without any of the sweeping node's own compute HCAs covers another fabric: all results are unknown.

    ## False alarms
    A booting switch, or a subnet manager that sweeps at the same time, can drop a few queries; sweep again. If each
    rail of the cluster is a separate fabric, sweep each of them: `device` in the cluster file names the port.
    """
    net = swept.net
    for key, lost in swept.lost.items():
        where = list(swept.silent_places())
        behind = f"; the devices that do not answer are behind {listed(where)}" if where else ""
        yield unknown(
            f"the sweep is incomplete: {counted(lost.count, 'query', 'queries')} of {key[4:]} got no answer{behind}",
            found=f"{len(net.switches)} switches, {len(net.hcas)} HCAs answered",
            evidence=[key], quote=lost.first,
            fix="check the device named, then sweep again; the devices behind it are unknown",
        )  # fmt: skip
    for key, signal in swept.crashed.items():
        yield unknown(f"{key[4:]} crashed (signal {signal}): its remaining queries were not made", evidence=[key],
                      found=f"signal {signal}", fix="sweep again; a newer infiniband-diags may not crash")  # fmt: skip
    if swept.partial and swept.net_key not in swept.lost:
        yield unknown(swept.partial, evidence=[swept.net_key], fix="sweep again")
    for rail, names in swept.elsewhere().items():
        yield warned(
            f"the sweep does not contain {rail} of {listed(list(names))}, though its port is active",
            subject=rail, evidence=[swept.net_key],
            fix=f'if the port is on another subnet, sweep that subnet too: [fabric] device = "{rail}"',
        )  # fmt: skip
    if not swept.lost and not swept.crashed and not swept.partial:
        inventory = (
            f"{counted(len(net.switches), 'switch')}, {counted(len(net.hcas), 'HCA')} and "
            f"{counted(len(net.links), 'link')}; every query was answered"
        )
        yield passed(f"the sweep from {swept.sweeper.node} found {inventory}", found=inventory,
                     evidence=[swept.net_key])  # fmt: skip


@check(
    "fabric.subnet-manager",
    title="Exactly one subnet manager is master",
    fault="There is not exactly one master subnet manager",
    impact="blocks-job",
    owner="network",
    source=f"InfiniBand Architecture Specification 14.4.1; {DIAGS}: sminfo(8), saquery(8)",
    fix="Run `systemctl status opensm` on the named hosts, or check UFM; keep one master and its standbys, all "
    "with the same sm_key.",
    action="fix-site",
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover", "cmd:sminfo", "cmd:saquery -s"),
    unless=(not_this_fabric,),
)
def manager(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Look for exactly one master among the subnet managers.

    ## Why it matters
    Without a master, new ports never become active and broken routes are not repaired. Two masters overwrite each
    other's routes and LIDs, and jobs lose connections at random.

    ## Verdicts
    No answer from any manager fails, and so do two masters. Any number of standbys passes. If the sweep lost queries,
    a missing answer is unknown.

    ## False alarms
    During a failover, both managers or neither may be master for some seconds; collect again.
    """
    master = swept.master
    if master is None:
        yield from _no_manager(swept)
        return
    managers = swept.managers
    others = [one for one in managers.values() if one is not None and one.guid != master.guid]
    masters = [master, *(one for one in others if one.is_master)] if master.is_master else [*others]
    keys = [swept.master_key, swept.managers_key]
    if len({one.guid for one in masters if one.is_master}) > 1:
        claims = "; ".join(f"{swept.device_of(one.guid)} ({one.words})" for one in masters)
        yield failed(
            f"{len(masters)} subnet managers are master: {claims}", found=len(masters), expected=1, evidence=keys
        )
        return
    if silent := sorted(lid for lid, one in managers.items() if one is None):
        yield unknown(
            f"the subnet manager at LID {', '.join(map(str, silent))} does not report its state",
            evidence=[f"{swept.master_key} {silent[0]}"], fix=f"query it again: `sminfo {silent[0]}`",
        )  # fmt: skip
        return
    if not master.is_master:
        state = parsers.infiniband.sminfo_saquery.STATES.get(master.state, f"in state {master.state}")
        yield failed(f"the subnet manager of this port is {state}, not master: {master.words}", found=state,
                     expected="master",
                     evidence=keys)  # fmt: skip
        return
    yield passed(
        f"the fabric has one master subnet manager, {swept.device_of(master.guid)} ({master.words}){_beside(others)}",
        found=1,
        evidence=keys,
    )


def _beside(others: list[Manager]) -> str:
    states = [parsers.infiniband.sminfo_saquery.STATES.get(one.state, "?") for one in others]
    return f", and {counted(len(others), 'other')} ({', '.join(states)})" if others else ""


def _no_manager(swept: FabricFacts) -> Iterator[Finding]:
    keys = [swept.master_key]
    if swept.lost:
        yield unknown(
            "no subnet manager answered, and the sweep also lost queries: the path to the manager may be broken",
            evidence=keys, fix="repair the devices that do not answer (fabric.sweep); then run `sminfo` again",
        )  # fmt: skip
        return
    waiting = sum(device.lid == 0 for device in swept.net.switches)
    never = f"; {waiting} of {len(swept.net.switches)} switches have no LID, so no manager has run since they booted"
    yield failed(
        f"no subnet manager answers{never if waiting else '; ports keep the configuration of the last one'}",
        found="none", expected="one master", evidence=keys,
    )  # fmt: skip


@check(
    "fabric.sharp",
    title="The switches support SHARP, and its manager runs",
    fault="SHARP is not available on the switches",
    impact="slows-job",
    owner="network",
    source="NVIDIA SHARP documentation: aggregation nodes, sharp_am; an aggregation node is an HCA inside the switch",
    fix="On the subnet manager's host, check `systemctl status sharp_am` and set sharp_enabled = 2 in opensm.conf.",
    action="fix-site",
    answers=("NT-SHP-1", "NT-SHP-2"),
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover", "cmd:saquery SR"),
    unless=(not_this_fabric,),
)
def sharp(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Look for an aggregation node in every switch, and for the SHARP manager.

    ## Why it matters
    If either is missing, NCCL silently falls back to rings and trees, and an all-reduce moves twice the bytes.

    ## Verdicts
    Aggregation nodes without a manager warn. With sharp = true in the cluster file, switches without an aggregation
    node, or a missing manager, fail. With sharp = false, or without any aggregation node or declaration, the check is
    skipped. An unreadable list of services is unknown.

    ## False alarms
    SHARP that is off on purpose; declare sharp = false. A manager that does not register with the subnet manager (some
    UFM versions) is not found.
    """
    net, wanted = swept.net, site.settings.sharp
    inside = {link.other(device.guid)[0] for device in net.devices.values() if device.aggregates
              for link in swept.graph.links_of(device.guid)}  # fmt: skip
    switches = net.switches
    without = [switch.label for switch in switches if switch.guid not in inside]
    having = len(switches) - len(without)
    coverage = f"{none_of(len(switches), 'switch')} has an aggregation node"
    if having:
        coverage = f"{some_of(having, len(switches), 'switch')} {verb(having, 'has')} an aggregation node"
    keys = [swept.net_key]
    if wanted is False:
        yield skipped(f"{site.source('sharp')} declares that SHARP is not used; {coverage}", evidence=keys)
    elif swept.partial and without:
        yield unknown(f"{swept.partial}; in the part that was swept, {coverage}", evidence=keys)
    elif not inside and not wanted:
        yield skipped("no switch has an aggregation node: SHARP cannot be used here", evidence=keys)
    else:
        yield _aggregation_nodes(without, coverage, keys, wanted)
        yield _aggregation_manager(swept, wanted)


def _aggregation_nodes(without: list[str], coverage: str, keys: list[str], wanted: bool | None) -> Finding:
    if not without:
        return passed(coverage, found=coverage, evidence=keys).about("NT-SHP-1")
    report = failed if wanted else warned
    message = coverage
    if coverage[:1].isdigit():
        message += f"; {listed(without)} {verb(len(without), 'has')} none"
    return report(message, found=coverage, expected="all", evidence=keys).about("NT-SHP-1")


def _aggregation_manager(swept: FabricFacts, wanted: bool | None) -> Finding:
    services, service = swept.services, parsers.infiniband.sminfo_saquery.AGGREGATION_SERVICE
    keys = [swept.services_key]
    if service in services:
        return passed("the aggregation manager is registered", found=service, evidence=keys).about("NT-SHP-2")
    others = f"lists {counted(len(services), 'other service')}" if services else "lists no service"
    report = failed if wanted else warned
    return report(f"no SHARP aggregation manager is registered; the subnet manager {others}",
                  found=", ".join(services) or "none",
                  expected=service, evidence=keys).about("NT-SHP-2")  # fmt: skip
