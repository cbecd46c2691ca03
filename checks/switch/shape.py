"""Checks of the shape of the Ethernet fabric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from preflight.checks.fabric.shape import path_lengths
from preflight.checks.switch.common import listed, unread_record
from preflight.checks.switch.links import no_cable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.fabric.graph import Graph, place
from preflight.facts.switch.ether_graph import network, rails
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import SwitchFacts
from preflight.model import Finding, check, counted, failed, passed, unknown, verb, warned

#: Factor up to which two ratios are equal.
_EQUAL = 1.001


@check(
    "ethernet.oversubscription",
    title="No leaf of the Ethernet fabric has more host than uplink bandwidth",
    fault="A leaf of the Ethernet fabric has more host than uplink bandwidth",
    impact="slows-job",
    owner="network",
    source="a non-blocking Clos: as much bandwidth up as down at each leaf; IEEE 802.1AB for the cables",
    fix="Run `show interfaces status` on the leaf; connect missing uplinks and repair slow ones, or declare the "
    "designed ratio in the cluster file: [switches] oversubscription = 2.",
    explains=(
        ("switch.bgp", "names", "*", "*; no port to it is up"),
        ("switch.bgp", "names", "*", "*; only * up for * sessions"),
    ),
    action="fix-site",
    answers=("FP-BW-3", "AN-1"),
    scope="fleet",
    switches=True,
    reads=(
        "redis:APPL_DB PORT_TABLE",
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show interfaces",
        "eos:show lldp neighbors detail",
        "nxos:show interface",
        "junos:show interfaces",
        "nxos:show lldp neighbors detail",
        "junos:show lldp neighbors",
    ),
    unless=(no_cable,),
)
def oversubscription(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the bandwidth to hosts with that of the uplinks at each leaf.

    ## Why it matters
    If hosts can send more than the uplinks carry, jobs that span leaves share them: at 2:1, an all-to-all across leaves
    runs at half of each NIC's rate.

    ## Verdicts
    A ratio above the cluster file's `oversubscription` fails. Without that key, the result is unknown and states the
    ratio: a fabric may be oversubscribed by design. Ports that are down at either end of their cable are ignored, so a
    lost uplink raises the ratio. A leaf is unknown if its uplinks lead to switches without evidence, or if the speed of
    a port or its neighbours are not shown. It is also unknown if the ratio depends on ports without an LLDP neighbour,
    which may lead to switches or to hosts.

    ## False alarms
    A leaf of storage or login nodes, which are not sized for collectives.
    """
    ends: dict[str, dict[str, CableEnd]] = {}
    for end, far in net.far_ends.items():
        if end.is_switch:
            ends.setdefault(end.device, {})[end.port] = far
    leaves = {cable.near.device for cable in net.cables if not cable.other.is_switch}
    limit = site.settings.oversubscription
    good: list[tuple[float, str]] = []
    key = "oversubscription"
    for switch in net.switches:
        if switch.name not in leaves:
            continue
        rates = _rates(net, switch, ends[switch.name])
        down, up, silent = rates.down, rates.up, rates.silent
        keys = [switch.key("ports"), switch.key("lldp")]
        ratio = f"{down / up:.2f}:1" if up else "no uplink"
        shown = f"{down:g} Gb/s to hosts and {up:g} Gb/s up"
        least = down / (up + silent) if up + silent else math.inf
        most = (down + silent) / up if up else math.inf
        if "lldp" in switch.gaps or rates.unrated:
            why = f"the speed of {counted(rates.unrated, 'port')} is unknown"
            if "lldp" in switch.gaps:
                why = unread_record(switch.keys["lldp"], switch.gaps["lldp"])
            yield unknown(f"{switch.name}: {why}; the other ports have {shown}", subject=switch.name, evidence=keys,
                          fix=switch.remedy)  # fmt: skip
        elif len(net.switches) == 1 and not up and not rates.strange and not silent:
            good.append((0.0, "one switch"))
        elif rates.strange:
            yield unknown(f"{switch.name}: no evidence of the neighbours of {counted(rates.strange, 'port')}; the "
                          f"other ports have {shown}",
                          subject=switch.name, found=ratio, evidence=keys,
                          fix="pass the evidence of all switches and hosts")  # fmt: skip
        elif limit is None:
            yield unknown(f"{switch.name} has {shown} ({ratio}); no ratio is declared", subject=switch.name,
                          found=ratio,
                          evidence=keys, fix="declare the designed ratio: [switches] oversubscription = 1")  # fmt: skip
        elif least > limit * _EQUAL:
            yield failed(f"{switch.name} is oversubscribed {ratio}: {shown}", subject=switch.name, found=ratio,
                         expected=f"at most {limit:g}:1 ({site.source(key)})", evidence=keys)  # fmt: skip
        elif most > limit * _EQUAL:
            yield unknown(f"{switch.name}: ports with {silent:g} Gb/s are up without an LLDP neighbour; the other "
                          f"ports have {shown}", subject=switch.name, found=ratio, evidence=keys,
                          fix="run lldpd at the other end of these ports")  # fmt: skip
        else:
            good.append((down / up, ratio))
    if good:
        highest = max(good)[1]
        about = f"the highest oversubscription of {counted(len(good), 'leaf', 'leaves')} is {highest}"
        yield passed(
            about if max(good)[0] else "all hosts are connected to one switch",
            found=highest,
            evidence=[net.switches[0].key("ports")],
        )
    elif not leaves:
        yield unknown("no cable leads from these switches to a known host", fix="pass the hosts' evidence as well",
                      evidence=[net.switches[0].key("lldp")])  # fmt: skip


@check(
    "ethernet.hops",
    title="The job's hosts are as close to each other as the Ethernet fabric allows",
    fault="The job's hosts are further apart than necessary",
    impact="slows-job",
    owner="job",
    source="Slurm topology.conf(5): fewest leaf switches; IEEE 802.1AB for the cables",
    fix="Place the job on fewer leaves: `sbatch --switches=N`, or exclude the nodes named; Slurm needs topology.conf.",
    action="fix-site",
    answers=("FP-LAT-3",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show lldp neighbors detail",
        "nxos:show lldp neighbors detail",
        "junos:show lldp neighbors",
        "linux:lldpcli -f json0 show neighbors details",
    ),
    unless=(no_cable,),
)
def hops(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the paths between the collected hosts with the shortest possible.

    ## Why it matters
    A collective waits for its longest path. Hosts on another leaf add two switches to the path and share the uplinks
    with every other job; a few such hosts delay all others.

    ## Verdicts
    The length of a path is the number of switches between ports of one rail: 1 within a leaf, 3 over a spine, 5 over a
    core. Paths longer than necessary warn; preflight does not know whether closer hosts are free. A pair of hosts
    without a path is unknown: the evidence lacks switches or cables between them.

    ## False alarms
    A check of all hosts of a cluster, which are not one job; or closer leaves that other jobs occupy.
    """
    placement = place(Graph(network(net)), rails(net))
    keys = [net.switches[0].key("lldp")]
    if placement.nodes < 2:
        yield unknown(f"{'only one' if placement.nodes else 'none'} of the collected hosts has a cable to a known "
                      "switch", evidence=keys,
                      fix="pass the evidence of the job's hosts and their leaves")  # fmt: skip
        return
    counts = path_lengths(placement)
    places = f"{counted(placement.nodes, 'host')} on {counted(placement.leaves, 'leaf', 'leaves')}"
    shown = f"{places}; {counts}"
    longest = max(placement.pairs, default=0)
    if 0 in placement.pairs:
        yield unknown(f"{shown}: the evidence of switches between them is missing", found=counts, evidence=keys,
                      fix="pass the evidence of all switches")  # fmt: skip
    elif longest > placement.needed:
        far = f"; {listed(list(placement.far))} {verb(len(placement.far), 'is')} far from most" if placement.far else ""
        yield warned(f"{shown}{far}", found=f"up to {longest}", evidence=keys,
                     expected=f"at most {placement.needed} for this number of hosts")  # fmt: skip
    else:
        yield passed(shown, found=f"up to {longest}", evidence=keys)


class _Rates(NamedTuple):
    """Gb/s of a leaf's ports that are up, by what is at their other end."""

    down: float  # to hosts
    up: float  # to switches
    silent: float  # to no LLDP neighbour
    strange: int  # number of ports to neighbours without evidence
    unrated: int  # number of ports without a known speed


def _rates(net: Ethernet, switch: SwitchFacts, far_ends: Mapping[str, CableEnd]) -> _Rates:
    down = up = silent = 0.0
    strange = unrated = 0
    for name, port in switch.ports.items():
        far = far_ends.get(name)
        if port.up is False or port.admin_up is False or not (far or port.heard or port.up):
            continue
        if far and (end := net.port(far)) and end.up is False:
            continue
        if not far and port.heard:
            strange += 1
        elif port.speed_gbps is None:
            unrated += 1
        elif far:
            down, up = (down, up + port.speed_gbps) if far.is_switch else (down + port.speed_gbps, up)
        else:
            silent += port.speed_gbps
    return _Rates(down, up, silent, strange, unrated + len(far_ends.keys() - switch.ports.keys()))
