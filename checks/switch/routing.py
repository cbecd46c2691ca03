"""Checks of the routing between switches."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.switch.common import each_switch, listed
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import SwitchFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

_UP = "established"


@check(
    "switch.bgp",
    title="All BGP sessions of the switches are established",
    fault="A BGP session of a switch is down",
    impact="loses-redundancy",
    owner="network",
    source="RFC 4271 (states of a session); SONiC bgpmon (STATE_DB NEIGH_STATE_TABLE), CONFIG_DB BGP_NEIGHBOR",
    fix="Run `show ip bgp summary` and `show ip bgp neighbors ADDRESS` on both switches.",
    action="fix-site",
    separate=True,
    answers=("AN-9",),
    scope="fleet",
    switches=True,
    reads=("redis:STATE_DB NEIGH_STATE_TABLE", "redis:CONFIG_DB BGP_NEIGHBOR", "eos:show bgp summary vrf all"),
)
def bgp(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Look up the state of each configured BGP session.

    ## Why it matters
    Without its session, an uplink carries no traffic, although it is up: the other uplinks take its share, and jobs
    slow down without any error.

    ## Verdicts
    A session that is not established fails if a cable to its neighbour is up, and warns otherwise. A configured session
    without a state is unknown. Sessions that are shut down in the configuration are not judged. If no switch has a
    session, the check does not apply: the fabric works at layer 2, or with static routes.

    ## False alarms
    A neighbour that is configured in advance; shut it down until it exists.
    """
    good = yield from each_switch(
        net, site, lambda switch: _down(net, switch), "neighbours", "bgp", lossless=False
    )  # fmt: skip
    number = sum(not session.off for switch in good for session in switch.bgp.values())
    if number:
        yield passed(f"{number} BGP sessions of {len(good)} switches are established", evidence=[good[0].key("bgp")])
    elif good and len(good) == len(net.switches):
        yield skipped("no switch has a BGP session", evidence=[good[0].key("neighbours"), good[0].key("bgp")])


def _down(net: Ethernet, switch: SwitchFacts) -> Iterator[Finding]:
    keys = [switch.key("bgp"), switch.key("neighbours")]
    blank: list[str] = []
    for address, session in switch.bgp.items():
        if session.off or session.state.lower() == _UP:
            continue
        peer = f"{session.neighbour} ({address})" if session.neighbour else address
        if not session.state:
            blank.append(peer)
        elif ports := _ports_to(net, switch, session.neighbour):
            yield failed(
                f"{switch.name}: the BGP session with {peer} is {session.state}, but its cable is up: {listed(ports)}",
                subject=f"{switch.name} {address}", found=session.state, expected="Established", evidence=keys,
            )  # fmt: skip
        else:
            yield warned(f"{switch.name}: the BGP session with {peer} is {session.state}; no port to it is up",
                         subject=f"{switch.name} {address}", found=session.state, expected="Established",
                         evidence=keys)  # fmt: skip
    if blank:
        yield unknown(f"{switch.name}: its BGP sessions with {listed(blank)} show no state", subject=switch.name,
                      evidence=keys, fix=switch.remedy)  # fmt: skip


def _ports_to(net: Ethernet, switch: SwitchFacts, neighbour: str) -> list[str]:
    """Return the active ports whose LLDP neighbour has this name."""
    name = neighbour.lower().partition(".")[0]
    return [
        port.name
        for port in switch.ports.values()
        if name and port.up and port.heard and port.heard.system_name.lower().partition(".")[0] == name
    ]
