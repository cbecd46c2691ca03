"""Check of how each hop classifies RoCE packets and congestion notifications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight import facts
from preflight.checks.switch.common import each_switch, judged_ports, listed, priority_list
from preflight.evidence.document import EvidenceError
from preflight.expectations.switches_table import EthernetSite
from preflight.facts import congestion, rdma_ports
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import QosMaps, SwitchFacts
from preflight.model import Finding, check, counted, failed, passed, unknown, warned


@check(
    "link.dscp",
    title="Every hop maps RoCE packets to the lossless queue",
    fault="A hop maps RoCE packets to a queue without PFC",
    impact="slows-job",
    owner="network",
    source="RFC 2474; SONiC DSCP_TO_TC_MAP and TC_TO_QUEUE_MAP; Cumulus Linux RoCE (DSCP 26 to priority 3)",
    fix="Bind the same maps to every port: `config qos reload` in SONiC, `mlnx_qos -i IF --dscp2prio` on the host.",
    explains=(
        ("switch.dscp", "cable"),
        ("ethernet.peers-equal", "names"),
        ("switch.ecn", "names", "*, but PFC is on queue *"),  # ECN is judged on that queue
    ),
    action="fix-site",
    answers=("AN-4", "FP-LOSS-2", "PA-14"),
    scope="fleet",
    switches=True,
    reads=(
        "redis:CONFIG_DB DSCP_TO_TC_MAP",
        "redis:CONFIG_DB TC_TO_QUEUE_MAP",
        "redis:CONFIG_DB PORT_QOS_MAP",
        "eos:show qos maps",
    ),
)
def dscp(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the queue of the RoCE packets' DSCP at each hop with the lossless one.

    ## Why it matters
    PFC protects a queue, not a packet. A hop that puts RoCE packets into another queue drops them under load, although
    PFC is on for the same priority everywhere, and RDMA retransmits complete messages.

    ## Verdicts
    A lossless port whose maps put the DSCP into a queue without PFC fails, once for each switch, and so does a host
    port. A port without a map warns if other ports or switches have one: it does not trust the DSCP, so its packets
    have the default traffic class. A fabric without maps, a map that is not shown, and a DSCP that is not declared are
    unknown.
    Congestion notifications that share the queue of RoCE packets warn, as they wait behind the congestion that they
    report; their DSCP is that of the hosts.

    ## False alarms
    Ports that classify by VLAN tag instead of DSCP.
    """
    wanted = site.dscp
    if wanted is None:
        yield unknown("the DSCP of RoCE packets is not declared", evidence=[s.key("dscp") for s in net.switches[:1]],
                      fix="declare it in the cluster file: [switches] roce_dscp = 26")  # fmt: skip
        return
    notices = _notices(net, site) - {wanted}
    good = yield from each_switch(
        net, site, lambda switch: _dscp_of(net, switch, site, wanted, notices), "pfc", "dscp", "tc"
    )
    for host in net.hosts:
        try:
            reading = facts.port_qos.dscp_map(host.node.evidence, host.netdev)
            lossless = facts.port_qos.pfc(host.node.evidence, host.netdev).value
        except EvidenceError:
            continue  # roce.chain reports it
        priority = reading.value.priority(wanted)
        if lossless and priority is not None and priority not in lossless:
            yield failed(
                f"{host.node.node} {host.netdev} maps DSCP {wanted} to priority {priority}, but PFC is on "
                f"{priority_list(lossless)}", subject=f"{host.node.node} {host.netdev}", found=f"priority {priority}",
                expected=f"priority {priority_list(lossless)}", evidence=[f"{host.node.node} {reading.evidence}"],
            )  # fmt: skip
    if good:
        yield passed(
            f"{counted(len(good), 'switch maps', 'switches map')} DSCP {wanted} to the lossless queue",
            evidence=[net.switches[0].key("dscp")],
        )


def _dscp_of(
    net: Ethernet, switch: SwitchFacts, site: EthernetSite, wanted: int, notices: Iterable[int]
) -> Iterator[Finding]:
    keys = [switch.key("dscp"), switch.key("tc"), switch.key("pfc")]
    wrong: dict[str, list[str]] = {}
    shared: dict[tuple[int, int], list[str]] = {}
    blank: list[str] = []
    unbound: list[str] = []
    judged = {port.name: port for port, _ in judged_ports(net, switch, site)}
    for name, port in judged.items():
        maps = switch.maps.get(name)
        queue = _queue(maps, wanted)
        if queue is None:
            (unbound if maps and maps.tc_of_dscp is None else blank).append(name)
            continue
        lossless = {switch.queue(name, priority) for priority in net.priorities(port, site.priority)}
        if queue not in lossless:
            where = f"queue {queue}, but PFC is on queue {', '.join(map(str, sorted(lossless)))}"
            wrong.setdefault(where, []).append(name)
        for notice in notices:
            if _queue(maps, notice) == queue:
                shared.setdefault((notice, queue), []).append(name)
    if unbound and not _bound(switch) and not any(_bound(other) for other in net.switches):
        blank, unbound = list(judged), []
    for where, names in wrong.items():
        yield failed(f"{switch.name} {listed(names)}: DSCP {wanted} is mapped to {where}", subject=switch.name,
                     found=where.partition(",")[0], expected="the lossless queue", evidence=keys)  # fmt: skip
    for (notice, queue), names in shared.items():
        yield warned(
            f"{switch.name} {listed(names)}: congestion notifications (DSCP {notice}) share queue {queue} with RoCE "
            "packets", subject=switch.name, found=f"queue {queue}", expected="a queue of their own", evidence=keys,
            fix=f"map DSCP {notice} to a traffic class whose queue has strict priority",
        )  # fmt: skip
    if unbound:
        elsewhere = "ports of the switch" if _bound(switch) else "switches"
        yield warned(
            f"no DSCP map is bound to {switch.name} {listed(unbound)}, unlike other {elsewhere}",
            subject=switch.name, found="no map", expected=f"DSCP {wanted} in the lossless queue", evidence=keys,
        )  # fmt: skip
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: no map shows the traffic class of DSCP {wanted}",
                      subject=switch.name, evidence=keys, fix=switch.remedy)  # fmt: skip


def _bound(switch: SwitchFacts) -> bool:
    """Return whether a DSCP map is bound to any port."""
    return any(maps.tc_of_dscp for maps in switch.maps.values())


def _queue(maps: QosMaps | None, dscp: int) -> int | None:
    """Return the queue of a DSCP; None if no map shows it."""
    number = maps.tc_of_dscp.get(dscp) if maps and maps.tc_of_dscp else None
    return maps.queue_of(number) if maps and number is not None else None


def _notices(net: Ethernet, site: EthernetSite) -> set[int]:
    """Return the known DSCPs of the hosts' congestion notifications."""
    dscps: set[int] = set()
    for host in net.hosts if site.settings.dcqcn is not False else ():
        evidence = host.node.evidence
        try:
            function = next(reversed(rdma_ports.device_path(evidence, host.port.device)), "")
            dscps.add(congestion.cnp_dscp(evidence, host.netdev, function)[0])
        except EvidenceError:
            continue  # roce.chain reports it
    return dscps
