"""Check of the traffic that leaves the leaf of a rail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from preflight.checks.switch.common import listed, unusable
from preflight.checks.switch.congestion import no_leaf, uplinks_of_leaves
from preflight.checks.switch.links import no_cable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import SwitchFacts, growth
from preflight.model import Finding, check, counted, passed, skipped, unknown, warned

#: Share of the hosts' traffic that may leave the leaf of a rail (a judgement call): bootstrap and other small traffic.
_MOST = 0.05

#: Share of a leaf's ports to hosts that are of its rail (a judgement call); others may be swapped cables.
_ONE_RAIL = 0.75

#: Load of the hosts' ports, as a share of their rate, below which a leaf is idle.
_IDLE = 0.01


def _hosts(net: Ethernet) -> dict[str, dict[str, str]]:
    """Return leaf -> port -> interface of its host."""
    ports: dict[str, dict[str, str]] = {}
    for cable in net.cables:
        if not cable.other.is_switch:
            ports.setdefault(cable.near.device, {})[cable.near.port] = cable.other.port
    return ports


def _rails(net: Ethernet) -> dict[str, str]:
    """Return the rail of each leaf; empty for a leaf with several.

    The rail is the interface name of the hosts at most of the leaf's ports.
    """
    rails = {}
    for leaf, ports in _hosts(net).items():
        (rail, number), *_ = Counter(ports.values()).most_common()
        rails[leaf] = rail if number >= _ONE_RAIL * len(ports) else ""
    return rails


def no_rails(net: Ethernet, site: EthernetSite) -> Finding | None:
    """Skip fabrics in which a leaf does not belong to one of several rails."""
    rails = _rails(net)
    mixed = [leaf for leaf, rail in rails.items() if not rail]
    if len(set(rails.values())) > 1 and not mixed:
        return None
    why = f"{listed(sorted(mixed))} connects several rails" if mixed else "the hosts have a single rail"
    return skipped(f"{why}, so no leaf belongs to one of several rails", evidence=[net.switches[0].key("lldp")])


@check(
    "switch.rail-traffic",
    title="Traffic stays on the leaf of its rail",
    fault="Traffic leaves the leaf of its rail",
    impact="slows-job",
    owner="job",
    source="NVIDIA DGX SuperPOD reference architecture (rail-optimised leaves); SONiC COUNTERS_DB (SAI_PORT_STAT_IF_*)",
    fix="List the NICs in the same order on every node (NCCL_IB_HCA), keep NCCL_CROSS_NIC=0 and NCCL_PXN_DISABLE=0; "
    "nccl.rails shows the connections of a job.",
    action="fix-job",
    separate=True,
    answers=("PA-17",),
    scope="fleet",
    gating=False,
    switches=True,
    window=True,
    reads=(
        "redis:COUNTERS_DB ports",
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show interfaces",
        "nxos:show interface",
        "linux:ip -j -s link",
    ),
    unless=(no_cable, no_leaf, no_rails),
)
def rail_traffic(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the bytes that each leaf sends to spines with those of its hosts.

    ## Why it matters
    If each rail has its own leaf, traffic within a rail does not use the spine. Traffic between rails does: it takes
    two more hops, and shares uplinks that are often fewer than the ports of the hosts.

    ## Verdicts
    More than 5% of the hosts' bytes on the uplinks of a leaf warns. If a rail has several leaves, such a share is
    unknown, as it may be traffic between these leaves. A leaf belongs to a rail if three quarters of its ports or more
    do, so a swapped cable (`fleet.rail-leaf`) does not change it. The check does not apply if a leaf connects several
    rails, or hosts have a single one. Leaves whose hosts send less than 1% of their rate are not judged; if the rate of
    a port is not known, the result is unknown.

    ## False alarms
    Storage, or nodes without evidence, that are reached over the same leaves.
    """
    ports, rails = _hosts(net), _rails(net)
    uplinks, shares, judged = uplinks_of_leaves(net), dict[str, float](), True
    for switch in (switch for switch in net.switches if switch.name in ports):
        if results := [*unusable(switch, "port counters")]:
            yield from results
            judged = False
            continue
        sent, received = _octets(switch, uplinks[switch.name], "out"), _octets(switch, list(ports[switch.name]), "in")
        speeds = {name: port.speed_gbps for name, port in switch.ports.items() if name in ports[switch.name]}
        what, key = "the bytes of some ports are not counted", "port counters"
        if without := [port for port, speed in speeds.items() if not speed]:
            what, key = f"the speed of {listed(without)} is missing, so it is unknown whether the leaf is idle", "ports"
        if without or sent is None or received is None or not switch.window_s:
            yield unknown(f"{switch.name}: {what}", subject=switch.name, evidence=[switch.key(key)], fix=switch.remedy)
            judged = False
        elif received * 8 / switch.window_s >= _IDLE * sum(filter(None, speeds.values())) * 1e9:
            shares[switch.name] = sent / received if received else 0.0
    keys = [net.switches[0].key("port counters")]
    for leaf, share in shares.items():
        rail, others = rails[leaf], list(rails.values()).count(rails[leaf]) - 1
        part = f"{share:.0%} of the bytes from hosts"
        message = f"{leaf} sends {part} of rail {rail} to the spines"
        if share > _MOST and others:
            yield unknown(f"{message}; they may be for "
                          f"{'another leaf' if others == 1 else f'{others} other leaves'} of this rail",
                          subject=leaf, found=part, evidence=keys,
                          fix="compare the connections in the NCCL logs of the jobs: nccl.rails")  # fmt: skip
        elif share > _MOST:
            yield warned(message, subject=leaf, found=part, expected=f"at most {_MOST:.0%}", evidence=keys)
    if not shares and judged:
        yield unknown("no leaf carries traffic from its hosts", evidence=keys, fix="read the switches during a job")
    elif shares and all(share <= _MOST for share in shares.values()):
        yield passed(f"{counted(len(shares), 'leaf sends', 'leaves send')} at most {max(shares.values()):.0%} of "
                     "the bytes from "
                     "hosts to the spines", evidence=keys)  # fmt: skip


def _octets(switch: SwitchFacts, ports: Sequence[str], way: str) -> int | None:
    """Return the bytes that ports sent or received in the window; None if unknown."""
    total = 0
    for name in ports:
        before, after = switch.first.ports.get(name), switch.second.ports.get(name) if switch.second else None
        if before is None or after is None:
            return None
        pair = (before.out_octets, after.out_octets) if way == "out" else (before.in_octets, after.in_octets)
        if (grown := growth(*pair)) is None:
            return None
        total += grown
    return total
