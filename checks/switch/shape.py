"""Checks of the shape of the Ethernet fabric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.checks.switch.links import no_cable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import SwitchFacts, SwitchPort
from preflight.model import Finding, check, failed, passed, unknown


@check(
    "ethernet.oversubscription",
    title="No leaf of the Ethernet fabric has more host than uplink bandwidth",
    fault="A leaf of the Ethernet fabric has more host than uplink bandwidth",
    impact="slows-job",
    owner="network",
    source="a non-blocking Clos: as much bandwidth up as down at each leaf; IEEE 802.1AB for the cables",
    fix="Run `show interfaces status` on the leaf; connect missing uplinks and repair slow ones, or declare the "
    "designed ratio in the cluster file: [switches] oversubscription = 2.",
    action="fix-site",
    answers=("FP-BW-3", "AN-1"),
    scope="fleet",
    switches=True,
    reads=(
        "redis:APPL_DB PORT_TABLE",
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show interfaces",
        "eos:show lldp neighbors detail",
    ),
    unless=(no_cable,),
)
def oversubscription(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the bandwidth to hosts with that of the uplinks at each leaf.

    ## Why it matters
    If hosts can send more than the uplinks carry, jobs that span leaves share them: at 2:1 an all-to-all across leaves
    runs at half of each NIC's rate.

    ## Verdicts
    More than the cluster file's `oversubscription` fails. Without that key the result is unknown and states the ratio:
    a fabric may be oversubscribed by design. Ports that are down are ignored, so a lost uplink shows. A leaf whose
    uplinks lead to switches without evidence is unknown.

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
        down, up, strange = _rates(switch, ends[switch.name])
        keys = [switch.key("ports"), switch.key("lldp")]
        ratio = f"{down / up:.2f}:1" if up else "no uplink"
        shown = f"{down:g} Gb/s to hosts, {up:g} Gb/s up"
        if len(net.switches) == 1 and not up and not strange:
            good.append((0.0, "one switch"))
        elif strange:
            yield unknown(f"{switch.name}: the neighbours of {strange} ports have no evidence; "
                          f"excluding those ports: {shown}",
                          subject=switch.name, found=ratio, evidence=keys,
                          fix="pass the evidence of all switches and hosts")  # fmt: skip
        elif limit is None:
            yield unknown(f"{switch.name}: {shown}, {ratio}; no ratio is declared", subject=switch.name, found=ratio,
                          evidence=keys, fix="declare it: [switches] oversubscription = 1")  # fmt: skip
        elif not up or down / up > limit * 1.001:
            yield failed(f"{switch.name} is oversubscribed: {shown}, {ratio}", subject=switch.name, found=ratio,
                         expected=f"at most {limit:g}:1 ({site.source(key)})", evidence=keys)  # fmt: skip
        else:
            good.append((down / up, ratio))
    if good:
        most = max(good)[1]
        yield passed(f"{len(good)} leaves, at most {most}", found=most, evidence=[net.switches[0].key("ports")])
    elif not leaves:
        yield unknown("no cable leads from these switches to a known host", fix="pass the hosts' evidence as well",
                      evidence=[net.switches[0].key("lldp")])  # fmt: skip


def _rates(switch: SwitchFacts, far_ends: Mapping[str, CableEnd]) -> tuple[float, float, int]:
    """Return Gb/s to hosts, Gb/s to switches, and the ports to unknown neighbours."""
    down = up = 0.0
    for name, far in far_ends.items():
        if _counts(port := switch.ports[name]):
            rate = port.speed_gbps or 0.0
            down, up = (down, up + rate) if far.is_switch else (down + rate, up)
    others = (port for name, port in switch.ports.items() if name not in far_ends)
    return down, up, sum(_counts(port) and port.heard is not None for port in others)


def _counts(port: SwitchPort) -> bool:
    return port.up is not False and port.admin_up is not False
