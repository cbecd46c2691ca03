"""Checks of the switch port at the other end of each cable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from preflight import facts, parsers
from preflight._startup.lightclass import replace
from preflight.checks.applicability import efa_only, no_compute_port
from preflight.checks.comparison import declared_values
from preflight.checks.comparison.compare import missed
from preflight.checks.comparison.electorate import Electorate, kinds, standing
from preflight.checks.comparison.wiring import dispute_of
from preflight.checks.fleet.rails import LEAF
from preflight.checks.roce.chain import policy
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.facts.roce_chain import marking
from preflight.facts.roce_chain.model import Place
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, warned
from preflight.parsers.network.lldp import LLDP, SHARED, Neighbour

_DCBX = "IEEE 802.1Qaz-2011 (DCBX), 802.1AB (LLDP)"

#: Bytes of Ethernet header and checksum, which the MTU does not count (IEEE 802.3).
_OVERHEAD = 14 + 4


def no_neighbour(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without an announced switch on its RoCE compute ports."""
    compute = site.roles(node).compute
    if absent := efa_only(compute, "their switches belong to the cloud provider"):
        return absent
    if not _roce(node, site):
        return skipped("no compute port runs RoCE", evidence=[compute[0].evidence[0]])
    try:
        record = node.evidence.record(LLDP)
        if record.status == "missing" or "unable to connect to socket" in record.err:
            message = "lldpd is not installed or does not run, so announcements of switches are not received"
            return skipped(message, evidence=[LLDP]).about()  # nothing is known about the switch
        if _neighbours(node, site):
            return None
    except EvidenceError as error:
        return unknown(f"the neighbours are unknown: {error}", evidence=[LLDP])
    if not any(port.active for port in _roce(node, site)):
        return unknown("no RoCE port is active: see rdma.port-state", evidence=[LLDP], fix="see rdma.port-state")
    return unknown(
        f"no LLDP announcement of a switch was received on "
        f"{counted(len(_roce(node, site)), 'RoCE port')}", evidence=[LLDP],
        fix="enable LLDP in the switch; NIC firmware that handles LLDP hides it from the host (mlxconfig LLDP_NB_*)",
    )  # fmt: skip


def _roce(node: NodeFacts, site: Site) -> list[Port]:
    return [port for port in site.roles(node).compute if port.roce and port.netdev]


def _neighbours(node: NodeFacts, site: Site) -> dict[Port, Neighbour]:
    """Return the neighbours of the RoCE compute ports; raises EvidenceError."""
    heard = node.parsed(LLDP, parsers.network.lldp.parse)
    return {port: heard[port.netdev] for port in _roce(node, site) if port.netdev in heard}


@check(
    "switch.pfc",
    title="PFC is on for the same priorities at both ends of each cable",
    fault="PFC differs between the two ends of a cable",
    impact="slows-job",
    owner="network",
    source=_DCBX,
    fix="Set the same priorities on the interface (`mlnx_qos -i IF --pfc …`) and in the switch's PFC profile.",
    action="fix-site",
    answers=("AN-4", "FP-LOSS-2", "PA-14"),
    unless=(no_compute_port, no_neighbour),
)
def pfc(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the PFC priorities of the switch port with those of the interface.

    ## Why it matters
    If only one end pauses, the other ignores it: the buffer overflows, packets are lost, and RDMA retransmits complete
    messages. Each end looks healthy on its own.

    ## Verdicts
    Any difference fails. A switch that announces no PFC (802.1Qaz, subtype 11) is unknown: DCBX may be off there
    while PFC is on.

    ## False alarms
    A switch that announces its desired state instead of the active one; check it with the switch's own command.
    """
    neighbours = _neighbours(node, site)
    same: list[Port] = []
    silent: list[str] = []
    for port, there in neighbours.items():
        assert port.netdev
        if there.pfc is None:
            silent.append(port.netdev)
            continue
        try:
            here = facts.port_qos.pfc(node.evidence, port.netdev)
        except EvidenceError as error:
            yield unknown(
                f"PFC of {port.netdev} ({port.name}) could not be read here: {error}", subject=port.netdev,
                evidence=[error.key, LLDP], fix="install `dcb` (iproute2), or run with --sudo for `mlnx_qos`",
            )  # fmt: skip
            continue
        if here.value == there.pfc:
            same.append(port)
            continue
        yield failed(
            f"{port.netdev} ({port.name}) has PFC on {_priorities(here.value)}, but {there.switch} port "
            f"{there.port} has it on {_priorities(there.pfc)}",
            subject=port.netdev, found=f"here {_listed(here.value)}, there {_listed(there.pfc)}",
            expected="the same at both ends", evidence=[here.evidence, LLDP],
        )  # fmt: skip
    if silent:
        cee = " (it uses CEE, the predecessor of 802.1Qaz)" if any(n.cee for n in neighbours.values()) else ""
        yield unknown(
            f"the switch does not announce its PFC setting on {', '.join(silent)}{cee}", evidence=[LLDP],
            fix="enable DCBX on the switch (IEEE mode), or check there: `show qos interface`",
        )  # fmt: skip
    if same:
        yield passed(
            f"{counted(len(same), 'cable has', 'cables have')} PFC on the same priorities at both ends", evidence=[LLDP]
        )


def _priorities(priorities: frozenset[int]) -> str:
    word = "" if not priorities else "priority " if len(priorities) == 1 else "priorities "
    return f"{word}{_listed(priorities)}"


def _listed(priorities: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(priorities))) or "no priority"


@check(
    "switch.mtu",
    title="The switch accepts the largest frames of the interface",
    fault="The switch drops the largest frames of the interface",
    impact="blocks-job",
    owner="network",
    source="IEEE 802.3 (maximum frame size TLV): MTU + 14 bytes header + 4 checksum + 4 for each VLAN tag",
    fix="Set the switch port to MTU 9216, as is usual on a training fabric, or set the interface to the "
    "switch's MTU with `ip link set IF mtu N`.",
    action="fix-site",
    answers=("NT-FAB-4", "PA-14"),
    unless=(no_compute_port, no_neighbour),
)
def mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the switch port's largest frame with the interface's MTU.

    ## Why it matters
    Switches drop oversized frames silently: small messages and handshakes work, and the first large transfer hangs.

    ## Verdicts
    A maximum frame size below MTU + 18 bytes fails, but exactly the MTU warns; room for VLAN tags is not required. A
    switch that announces nothing is not judged.

    ## False alarms
    A switch that announces the payload instead of the frame; it is then exactly 18 bytes short, which warns.
    """
    neighbours = _neighbours(node, site)
    good: list[Port] = []
    for port, there in neighbours.items():
        netdev = node.netdevs.get(port.netdev or "")
        if there.max_frame is None or netdev is None:
            continue
        frame = netdev.mtu + _OVERHEAD
        if there.max_frame >= frame:
            good.append(port)
            continue
        report = warned if there.max_frame == netdev.mtu else failed
        yield report(
            f"{netdev.name} sends frames of up to {frame} bytes, but {there.switch} port {there.port} accepts "
            f"{there.max_frame}",
            subject=netdev.name, found=f"{there.max_frame} bytes", expected=f"at least {frame} bytes",
            evidence=[LLDP, f"file:{facts.interfaces.ROOT}/{netdev.name}/mtu"],
        )  # fmt: skip
    if good:
        yield passed(
            f"{counted(len(good), 'switch port accepts', 'switch ports accept')} the largest frames of the interface",
            evidence=[LLDP],
        )
    if all(there.max_frame is None for there in neighbours.values()):
        yield skipped("the switches do not announce their maximum frame size", evidence=[LLDP]).about()


@check(
    "switch.dscp",
    title="The switch maps the job's DSCP to the same priority as the interface",
    fault="The switch and the interface map RoCE packets to different priorities",
    impact="slows-job",
    owner="network",
    source=f"{_DCBX}; RFC 2474; SONiC DSCP_TO_TC_MAP and Cumulus Linux `nv show qos roce` (DSCP 26 to priority 3)",
    fix="Map the DSCP to the same priority in the switch's QoS profile and in `mlnx_qos -i IF --dscp2prio`.",
    action="fix-site",
    answers=("AN-4", "FP-LOSS-2"),
    unless=(no_compute_port, no_neighbour),
)
def dscp(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the priority of each DSCP on the switch port with the interface's.

    ## Why it matters
    The interface pauses on one priority, but the switch queues the packets in another. Under load, the packets are
    dropped although PFC is on for the same priority at both ends, and RDMA retransmits complete messages.

    ## Verdicts
    A DSCP fails if the two ends give it different priorities and one of these is lossless or carries the job's packets;
    other differences concern other traffic. A switch that announces no DSCP, or not the job's, is unknown. Ports that
    trust the VLAN tag are not judged.

    ## False alarms
    A switch that announces a map that it does not apply; check it with the switch's own command.
    """
    wanted = policy(site)
    same: list[str] = []
    by_tag: list[str] = []
    silent: dict[str, list[str]] = {}
    for port, there in _neighbours(node, site).items():
        at = Place(node, port, wanted)
        if at.trusts_pcp:
            by_tag.append(at.netdev)
            continue
        if not there.dscp:
            silent.setdefault("any DSCP", []).append(at.netdev)
            continue
        try:
            here = facts.port_qos.dscp_map(node.evidence, at.netdev)
        except EvidenceError as error:
            yield unknown(
                f"the DSCP map of {at.netdev} ({port.name}) could not be read here: {error}", subject=at.netdev,
                evidence=[error.key, LLDP], fix="install iproute2's `dcb`, or run with --sudo for `mlnx_qos`",
            )  # fmt: skip
            continue
        job = _job_dscp(at)
        lossless = (there.pfc or frozenset()) | ({at.priority} if at.priority is not None else frozenset())
        wrong = [
            f"DSCP {number} to priority {ours}, but {there.switch} port {there.port} maps it to {theirs}"
            for number, theirs in sorted(there.dscp.items())
            if (ours := here.value.priority(number)) not in (None, theirs)
            and ({ours, theirs} & lossless or number == job)
        ]
        if wrong:
            yield failed(
                f"{at.netdev} ({port.name}) maps {'; '.join(wrong)}", subject=at.netdev, found="; ".join(wrong),
                expected="the same priority at both ends", evidence=[here.evidence, LLDP],
            )  # fmt: skip
        elif job is not None and job not in there.dscp:
            silent.setdefault(f"DSCP {job}, which the job's packets carry", []).append(at.netdev)
        else:
            same.append(at.netdev)
    for what, ports in silent.items():
        yield unknown(
            f"the switch announces no priority for {what}, on {', '.join(ports)}", evidence=[LLDP],
            fix="announce it on the switch (DCBX application priority), or check there: `show qos maps`",
        )  # fmt: skip
    if same:
        yield passed(
            f"{counted(len(same), 'switch port maps', 'switch ports map')} DSCPs to the interface's priorities",
            evidence=[LLDP],
        )
    if by_tag:
        yield skipped(f"{len(by_tag)} ports trust the VLAN tag, not DSCP", evidence=[LLDP]).about()


def _job_dscp(at: Place) -> int | None:
    """Return the DSCP of the job's packets; None if nothing on the node shows it."""
    try:
        return marking.mark(at).dscp
    except EvidenceError:
        return None


@check(
    "switch.ets",
    title="The switch leaves the RoCE priority a share of the bandwidth",
    fault="A switch leaves the RoCE priority no share of the bandwidth",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Qaz-2011 (enhanced transmission selection)",
    fix="Give the traffic class of the RoCE priority a share in the switch's scheduler; in Cumulus Linux `nv set qos "
    "egress-scheduler default-global traffic-class 3 mode dwrr bw-percent 50`.",
    action="fix-site",
    unless=(no_compute_port, no_neighbour),
)
def ets(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look up the share of bandwidth of the lossless priority's traffic class.

    ## Why it matters
    A class with a share of 0% gets only the bandwidth that other classes leave: a backup on the same port starves the
    job.

    ## Verdicts
    A share of 0% fails for a class that is scheduled by shares. Strict priority passes. A switch that announces no
    ETS, or a port without a lossless priority, is not judged.

    ## False alarms
    A fabric that carries nothing but RoCE, where the other classes have no traffic.
    """
    wanted = policy(site)
    good: list[str] = []
    for port, there in _neighbours(node, site).items():
        priority = Place(node, port, wanted).priority
        if there.ets is None or priority is None:
            continue
        at = there.ets.class_of[priority]
        if at < len(there.ets.percent) and there.ets.selection[at] == SHARED and not there.ets.percent[at]:
            yield failed(
                f"{there.switch} port {there.port} gives priority {priority} (traffic class {at}) 0% of the bandwidth",
                subject=port.netdev or "", found="0%", expected="a share above 0%", evidence=[LLDP],
            )  # fmt: skip
        else:
            good.append(str(port.netdev))
    if good:
        yield passed(
            f"{counted(len(good), 'switch port guarantees', 'switch ports guarantee')} bandwidth to the lossless "
            "priority",
            evidence=[LLDP],
        )
    elif all(there.ets is None for there in _neighbours(node, site).values()):
        yield skipped("the switches announce no ETS", evidence=[LLDP]).about()
    else:
        yield skipped("no port has one lossless priority", evidence=[LLDP]).about()


@check(
    "fleet.rail-leaf",
    title="Rail i of all nodes is on the same leaf",
    fault="A rail's ports are on several leaves",
    impact="slows-job",
    owner="network",
    source="rail-optimised wiring (NVIDIA DGX SuperPOD reference architecture); IEEE 802.1AB",
    fix="Compare `lldpcli show neighbors` on this node and a peer with the cabling plan; swapped cables come in pairs.",
    action="fix-site",
    separate=True,
    answers=("PA-16",),
    scope="fleet",
)
def rail_leaf(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the leaf switch of each rail with that of the node's peers.

    ## Why it matters
    Traffic that should cross one leaf then goes through the spine: more hops, and load on uplinks that were not sized
    for it.

    ## Verdicts
    Peers are nodes of one class that share at least half of their leaves, so nodes of different pods are not compared.
    A node fails if it differs from most of its peers, of which at least three have the same leaves. Without such a
    majority, all of them fail, and it is unknown which side is right. A leaf declared in the cluster file (`[leaves]`)
    takes precedence over the peers.

    ## False alarms
    A pod that is being recabled, or breakout cables that go to two leaves on purpose.
    """
    for members in kinds(nodes, sites):
        plans: dict[str, tuple[str, ...]] = {}
        ports: dict[str, Mapping[str, str]] = {}
        apart: dict[str, tuple[str, str]] = {}
        for node in members:
            try:
                plan, ports[node.node], other = node.remember_for_fleet("leaves", _plan, node, sites[node.node])
            except EvidenceError as error:
                other, plan = unknown(f"the rails could not be read: {error}", evidence=[error.key]), ()
            if other:
                yield other.on([node.node])
            elif plan and (wrong := node.remember_for_fleet("unexpected leaves", _unexpected, node, sites[node.node])):
                apart[node.node] = wrong
            elif plan:
                plans[node.node] = plan
        by = dict.fromkeys(apart, (declared_values.CHECK,))
        yield from missed(LEAF, Electorate(dict.fromkeys(plans, ""), {}, by, {}), apart)
        yield from _leaves_alike(plans, ports)


def _leaves_alike(plans: Mapping[str, tuple[str, ...]], ports: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    alike = Counter(plans.values())
    disputes = {plan: dispute_of(plan, alike) for plan in alike}
    good: list[str] = []
    for name, plan in plans.items():
        if (dispute := disputes[plan]) is None:
            good.append(name)
            continue
        listed = _moved(dispute.rails, ports[name])
        if dispute.is_lost:
            message = f"{listed} (as on {dispute.theirs} nodes, most of its peers)"
        else:
            message = f"{listed} ({dispute.theirs} of its peers); which side is wrong is not known"
        finding = failed(message, found=listed, expected="one leaf for each rail", evidence=[LLDP]).on([name])
        yield replace(finding, undecided=not dispute.is_lost)
    if good:
        yield passed("every rail is on the leaf of its peers", evidence=[LLDP]).on(good)


def _plan(node: NodeFacts, site: Site) -> tuple[tuple[str, ...], Mapping[str, str], Finding | None]:
    """Return each rail's leaf and the leaf's port, or why they are unknown."""
    if absent := no_compute_port(node, site) or no_neighbour(node, site):
        return (), {}, absent
    heard = {str(port.netdev): there for port, there in _neighbours(node, site).items()}
    plan = tuple(f"{netdev}\0{there.switch}" for netdev, there in heard.items())
    return plan, {netdev: there.port for netdev, there in heard.items()}, None


def _unexpected(node: NodeFacts, site: Site) -> tuple[str, str] | None:
    """Return the unexpected leaves of a node with the declared ones, or None."""
    value, _ = standing(LEAF, node, site)
    wrong = declared_values.misses(LEAF, value, site) if value is not None else ()
    mine, theirs = ("; ".join(f"{one.device} {leaf}" for one, leaf in listed) for listed in (
        [(one, one.mine) for one in wrong], [(one, one.wanted) for one in wrong]))  # fmt: skip
    return (mine, theirs) if wrong else None


def _moved(pairs: Sequence[tuple[str, str]], ports: Mapping[str, str]) -> str:
    """List the rails on another leaf; two rails on each other's leaf are swapped."""
    rails = [(*mine.split("\0", 1), theirs.split("\0")[1]) for mine, theirs in pairs]
    words = "; ".join(
        f"{netdev} is on {leaf} port {ports[netdev]}, its peers' {netdev} on {usual}" for netdev, leaf, usual in rails
    )
    if len(rails) == 2 and rails[0][1:] == rails[1][:0:-1]:
        return f"the cables of {rails[0][0]} and {rails[1][0]} are swapped: {words}"
    return words
