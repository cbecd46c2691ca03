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
from preflight.checks.fleet.rails import LEAF
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.majority import QUORUM
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned
from preflight.parsers.network.lldp import LLDP, Neighbour

_DCBX = "IEEE 802.1Qaz-2011 (DCBX), 802.1AB (LLDP)"

#: Ethernet header and checksum, which a frame has besides what the MTU counts (IEEE 802.3).
_OVERHEAD = 14 + 4

#: A rail is miscabled, not wired by another plan, if a node shares at least this part of its leaves with its peers.
_SAME_PLAN = 0.5


def no_neighbour(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without an announced switch on its RoCE compute ports."""
    compute = site.roles(node).compute
    if absent := efa_only(compute, "their switches belong to the cloud provider"):
        return absent
    if not _roce(node, site):
        return skipped("no compute port speaks RoCE", evidence=[compute[0].evidence[0]])
    try:
        record = node.evidence.record(LLDP)
        if record.status == "missing" or "unable to connect to socket" in record.err:
            message = "no LLDP daemon runs here (lldpd), so switch announcements are not received"
            return skipped(message, evidence=[LLDP]).about()  # of the switch nothing is known
        if _neighbours(node, site):
            return None
    except EvidenceError as error:
        return unknown(
            f"the neighbours could not be read: {error.why}", evidence=[LLDP], fix="run as root or with --sudo"
        )
    return unknown(
        f"no switch sends LLDP on {len(_roce(node, site))} RoCE ports", evidence=[LLDP],
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
    fix="Set the switch port and the interface alike: `mlnx_qos -i IF --pfc …`, and the switch's PFC profile.",
    action="fix-site",
    answers=("AN-4", "FP-LOSS-2", "PA-14"),
    unless=(no_compute_port, no_neighbour),
)
def pfc(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the PFC priorities of the switch port with those of the interface.

    ## Why it matters
    If only one end pauses, the other ignores it: the buffer overflows, packets are lost, and RDMA sends complete
    messages again. Each end looks healthy by itself.

    ## Verdicts
    Any difference fails. A switch that announces no PFC (802.1Qaz, subtype 11) is unknown: DCBX may be off there
    while PFC is on.

    ## False alarms
    A switch that announces its wish and not its state; look at it with the switch's own command.
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
                f"PFC of {port.netdev} ({port.name}) could not be read here: {error.why}", subject=port.netdev,
                evidence=[error.key, LLDP], fix="install iproute2's `dcb`, or run with --sudo for `mlnx_qos`",
            )  # fmt: skip
            continue
        if here.value == there.pfc:
            same.append(port)
            continue
        yield failed(
            f"{port.netdev} ({port.name}) has PFC on {_listed(here.value)}, {there.switch} port {there.port} on "
            f"{_listed(there.pfc)}",
            subject=port.netdev, found=f"here {_listed(here.value)}, there {_listed(there.pfc)}",
            expected="the same at both ends", evidence=[here.evidence, LLDP],
        )  # fmt: skip
    if silent:
        cee = " (it speaks CEE, the forerunner of 802.1Qaz)" if any(n.cee for n in neighbours.values()) else ""
        yield unknown(
            f"the switch does not announce its PFC setting on {', '.join(silent)}{cee}", evidence=[LLDP],
            fix="switch DCBX on in the switch (IEEE mode), or look there: `show qos interface`",
        )  # fmt: skip
    if same:
        yield passed(f"{len(same)} cables have PFC on the same priorities at both ends", evidence=[LLDP])


def _listed(priorities: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(priorities))) or "none"


@check(
    "switch.mtu",
    title="The switch takes frames as large as the interface sends",
    fault="The switch drops frames as large as the interface sends",
    impact="blocks-job",
    owner="network",
    source="IEEE 802.3 (maximum frame size TLV): MTU + 14 bytes header + 4 checksum + 4 for each VLAN tag",
    fix="Set the switch port to MTU 9216, as is usual on a training fabric, or `ip link set IF mtu N` to what it has.",
    action="fix-site",
    answers=("NT-FAB-4", "PA-14"),
    unless=(no_compute_port, no_neighbour),
)
def mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the switch port's largest frame with the interface's MTU.

    ## Why it matters
    A frame that is too long is dropped without a word: small messages pass, a handshake works, and the first large
    transfer hangs.

    ## Verdicts
    Less than MTU + 18 bytes fails; room for VLAN tags is not required. A switch that announces nothing is not judged.

    ## False alarms
    A switch that announces the payload instead of the frame; it then lacks just 18 bytes, which warns.
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
            f"{netdev.name} sends frames of up to {frame} bytes, {there.switch} port {there.port} takes "
            f"{there.max_frame}",
            subject=netdev.name, found=f"{there.max_frame} bytes", expected=f"at least {frame} bytes",
            evidence=[LLDP, f"file:{facts.interfaces.ROOT}/{netdev.name}/mtu"],
        )  # fmt: skip
    if good:
        yield passed(f"{len(good)} switch ports take the largest frames of their interfaces", evidence=[LLDP])
    if all(there.max_frame is None for there in neighbours.values()):
        yield skipped("the switches do not announce their maximum frame size", evidence=[LLDP]).about()


@check(
    "fleet.rail-leaf",
    title="Rail i of all nodes is on the same leaf",
    fault="A rail's ports are on several leaves",
    impact="slows-job",
    owner="network",
    source="rail-optimised wiring (NVIDIA DGX SuperPOD reference architecture); IEEE 802.1AB",
    fix="`lldpcli show neighbors` on this node and a peer names switch and port; the cabling plan decides which is "
    "right: swapped cables come in pairs.",
    action="fix-site",
    separate=True,
    answers=("PA-16",),
    scope="fleet",
)
def rail_leaf(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the leaf switch of each rail with that of the node's peers.

    ## Why it matters
    Traffic of a rail that should cross one leaf then climbs to the spine and back: more hops, and uplinks that
    were never counted for it.

    ## Verdicts
    Peers are nodes of one class that share at least half of their leaves, so that several pods do not disturb each
    other. A node that differs from most of its peers, at least three that are cabled alike, fails; where no side has
    most, all fail, and none is called right.

    ## False alarms
    A pod that is being recabled, or breakout cables that go to two leaves on purpose.
    """
    for members in kinds(nodes, sites):
        plans: dict[str, tuple[str, ...]] = {}
        apart: dict[str, tuple[str, str]] = {}
        for node in members:
            try:
                plan, other = node.remember_for_fleet("leaves", _plan, node, sites[node.node])
            except EvidenceError as error:
                other, plan = unknown(f"the rails could not be read: {error.why}", evidence=[error.key]), ()
            if other:
                yield other.on([node.node])
            elif plan and (
                wrong := node.remember_for_fleet("leaves that were not expected", _unexpected, node, sites[node.node])
            ):
                apart[node.node] = wrong
            elif plan:
                plans[node.node] = plan
        by = dict.fromkeys(apart, (declared_values.CHECK,))
        yield from missed(LEAF, Electorate(dict.fromkeys(plans, ""), {}, by, {}), apart)
        yield from _leaves_alike(plans)


def _leaves_alike(plans: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    alike = Counter(plans.values())
    good: list[str] = []
    for name, plan in plans.items():
        rivals = {other: wrong for other in alike if (wrong := _elsewhere(plan, other))}
        most = max(rivals, key=lambda other: alike[other], default=plan)
        if most is plan or (alike[most] < alike[plan] and alike[plan] >= QUORUM):
            good.append(name)
            continue
        listed = "; ".join(_sentence(mine, theirs) for mine, theirs in rivals[most])
        if alike[most] > alike[plan] and alike[most] >= QUORUM:
            message = f"cabled otherwise than most of its peers ({alike[most]} nodes): {listed}"
        else:
            message = (
                f"cabled otherwise than {alike[most]} of its peers, and which side is wrong is not known: {listed}"
            )
        finding = failed(message, found=listed, expected="one leaf for each rail", evidence=[LLDP]).on([name])
        yield replace(finding, undecided=alike[most] <= alike[plan] or alike[most] < QUORUM)
    if good:
        yield passed("every rail is on the leaf of its peers", evidence=[LLDP]).on(good)


def _elsewhere(plan: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    """Return the rails that two nodes with one wiring plan have on different leaves.

    None if they are not peers. A port that is down has no neighbour: only rails that both nodes have are compared.
    """
    if len(set(other) & set(plan)) < _SAME_PLAN * max(len(other), len(plan)):
        return []
    theirs = {rail.split("\0")[0]: rail for rail in other}
    return [(mine, theirs[port]) for mine in plan if theirs.get(port := mine.split("\0")[0], mine) != mine]


def _plan(node: NodeFacts, site: Site) -> tuple[tuple[str, ...], Finding | None]:
    """Return the leaf of each rail, or the reason why there is none to compare."""
    if absent := no_compute_port(node, site) or no_neighbour(node, site):
        return (), absent
    return tuple(f"{port.netdev}\0{there.switch}" for port, there in _neighbours(node, site).items()), None


def _unexpected(node: NodeFacts, site: Site) -> tuple[str, str] | None:
    """Return the unexpected leaves of a node and the declared ones; else None."""
    value, _ = standing(LEAF, node, site)
    wrong = declared_values.misses(LEAF, value, site) if value is not None else ()
    mine, theirs = ("; ".join(f"{one.device} {leaf}" for one, leaf in listed) for listed in (
        [(one, one.mine) for one in wrong], [(one, one.wanted) for one in wrong]))  # fmt: skip
    return (mine, theirs) if wrong else None


def _sentence(mine: str, theirs: str) -> str:
    (netdev, switch), (_, usual) = mine.split("\0"), theirs.split("\0")
    return f"{netdev} is on {switch}, theirs on {usual}"
