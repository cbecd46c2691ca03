"""Checks of the routing between switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.checks.switch.common import each_switch, listed
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.cable_ends import without_domain
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import BgpSession, SwitchFacts
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, verb, warned

_UP = "established"


@check(
    "switch.bgp",
    title="All BGP sessions of the switches are established",
    fault="A BGP session of a switch is down",
    impact="loses-redundancy",
    owner="network",
    source="RFC 4271 (states of a session); SONiC bgpmon (STATE_DB NEIGH_STATE_TABLE), CONFIG_DB BGP_NEIGHBOR; "
    "FRRouting (`show bgp summary json`)",
    fix="Run `show ip bgp summary` and `show ip bgp neighbors ADDRESS` on both switches.",
    explains=(("switch.bgp", "parts"),),
    action="fix-site",
    separate=True,
    answers=("AN-9",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:STATE_DB NEIGH_STATE_TABLE",
        "redis:CONFIG_DB BGP_NEIGHBOR",
        "eos:show bgp summary vrf all",
        "linux:vtysh -c 'show bgp summary json'",
    ),
)
def bgp(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Look up the state of each configured BGP session.

    ## Why it matters
    Without its session, an uplink carries no traffic, although it is up: the other uplinks take its share, and jobs
    slow down without any error.

    ## Verdicts
    A session that is not established fails if a cable to its neighbour is up, and warns otherwise. It warns in
    either case if its own port seems to be down: a port of the switch is down, and each port to the neighbour that is
    up has an established session. A configured session without a state is unknown. Sessions that the configuration of
    either switch shuts down are not judged. If no switch has a session, the check does not apply: the fabric works at
    layer 2, or with static routes.

    ## False alarms
    A neighbour that is configured in advance; shut it down until it exists.
    """
    good = yield from each_switch(net, site, lambda switch: _down(net, switch), "neighbours", "bgp", lossless=False)
    sessions = [session for switch in good for session in switch.bgp.values()]
    number = sum(session.state.lower() == _UP and not session.off for session in sessions)
    shut = len(sessions) - number
    if number:
        yield passed(
            f"{counted(number, 'BGP session')} of {counted(len(good), 'switch')} {verb(number, 'is')} established"
            + (f"; {shut} {verb(shut, 'is')} shut down" if shut else ""),
            evidence=[good[0].key("bgp")],
        )
    elif good and len(good) == len(net.switches):
        words = "every BGP session is shut down" if shut else "no switch has a BGP session"
        yield skipped(words, evidence=[good[0].key("neighbours"), good[0].key("bgp")])


def _down(net: Ethernet, switch: SwitchFacts) -> Iterator[Finding]:
    keys = [switch.key("bgp"), switch.key("neighbours")]
    blank: list[str] = []
    for address, session in switch.bgp.items():
        if session.off or session.state.lower() == _UP or _shut_there(net, switch, address, session):
            continue
        peer = f"{session.neighbour} ({address})" if session.neighbour else address
        if not session.state:
            blank.append(peer)
            continue
        ports = _ports_to(switch, session.neighbour)
        lost = not ports or _lost_port(switch, address, session, ports)
        why = f"{_up(ports)} for {len(_sessions(switch, address, session))} sessions" if ports else _up(ports)
        yield (warned if lost else failed)(
            f"{switch.name}: the BGP session with {peer} is {session.state}"
            + (f"; {why}" if lost else f", but its cable is up: {listed(ports)}"),
            subject=f"{switch.name} {address}", found=session.state, expected="Established", evidence=keys,
        ).with_parts(*_pair(switch, session, "down" if lost else "up"))  # fmt: skip
    if blank:
        yield unknown(f"{switch.name}: its BGP sessions with {listed(blank)} show no state", subject=switch.name,
                      evidence=keys, fix=switch.remedy)  # fmt: skip


def _up(ports: Sequence[str]) -> str:
    """Return how many ports to a neighbour are up."""
    if not ports:
        return "no port to it is up"
    return f"only {len(ports)} port{'s' * (len(ports) > 1)} to it {'are' if len(ports) > 1 else 'is'} up"


def _pair(switch: SwitchFacts, session: BgpSession, port: str) -> list[str]:
    """Return both ends of a session, sorted, and the state of their port.

    Empty if the neighbour has no name.
    """
    ends = sorted((without_domain(switch.name), without_domain(session.neighbour)))
    return [f"{' - '.join(ends)}, port {port}"] if session.neighbour else []


def _ports_to(switch: SwitchFacts, neighbour: str) -> list[str]:
    """Return the active ports whose LLDP neighbour has this name."""
    name = without_domain(neighbour)
    return [
        port.name
        for port in switch.ports.values()
        if name and port.up and port.heard and without_domain(port.heard.system_name) == name
    ]


def _sessions(switch: SwitchFacts, address: str, session: BgpSession) -> list[BgpSession]:
    """Return the sessions of one address family with the neighbour of a session."""
    return [
        other
        for key, other in switch.bgp.items()
        if not other.off
        and (":" in key) == (":" in address)
        and without_domain(other.neighbour) == without_domain(session.neighbour)
    ]


def _shut_there(net: Ethernet, switch: SwitchFacts, address: str, session: BgpSession) -> bool:
    """Return whether the neighbour shut down all sessions that are down here."""
    far = net.by_name.get(session.neighbour) or next(
        (other for other in net.switches if without_domain(other.name) == without_domain(session.neighbour)), None
    )
    down = sum(other.state.lower() not in ("", _UP) for other in _sessions(switch, address, session))
    off = sum(
        other.off
        and (":" in key) == (":" in address)
        and without_domain(other.neighbour) == without_domain(switch.name)
        for key, other in (far.bgp if far else {}).items()
    )
    return 0 < down <= off


def _lost_port(switch: SwitchFacts, address: str, session: BgpSession, ports: Sequence[str]) -> bool:
    """Return whether the port of a session seems to be down.

    It does if each of the ``ports`` to the neighbour that are up has an established session, and a port that may lead
    to the neighbour is down.
    """
    name = without_domain(session.neighbour)
    down = any(
        port.up is False and port.admin_up is not False
        and (port.heard is None or without_domain(port.heard.system_name) == name)
        for port in switch.ports.values()
    )  # fmt: skip
    up = sum(other.state.lower() == _UP for other in _sessions(switch, address, session))
    return down and up >= len(ports)
