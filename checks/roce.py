"""RoCE: the Ethernet side of an RDMA port."""

from __future__ import annotations

from collections.abc import Iterator

from preflight import facts
from preflight.checks.presence import compute_roles, failing
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.rdma import Port
from preflight.model import Finding, check, failed, passed, skipped, unknown


def _roce_ports(node: NodeFacts, site: Site) -> tuple[dict[str, Port], Finding | None]:
    """Return interface -> compute port that speaks RoCE, and what to say of ports without, or where there is none."""
    roles = compute_roles(node, site)
    if isinstance(roles, Finding):
        return {}, roles
    ports = [port for port in roles.compute if port.roce]
    key = roles.compute[0].evidence[0].replace("/state", "/link_layer")
    if not ports:
        return {}, skipped("the compute ports are InfiniBand", evidence=[key])
    if site.link_layer.value == "InfiniBand":
        said = f"the fabric is InfiniBand ({site.link_layer.source}); of ports that are not, rdma.link-layer speaks"
        return {}, skipped(said, evidence=[key])
    return {port.netdev: port for port in ports if port.netdev}, _nameless([port for port in ports if not port.netdev])


def _nameless(ports: list[Port]) -> Finding | None:
    """Say that the interface of ports is not known: in another network namespace, or one of several."""
    if not ports:
        return None
    return unknown(
        f"{', '.join(port.name for port in ports)}: no single interface here belongs to it",
        subject=ports[0].name if len(ports) == 1 else "",
        evidence=[f"dir:/sys/class/infiniband/{ports[0].device}/device/net"],
        fix="in a pod: see container.networks; on the host: `rdma link`",
    )


@check(
    "roce.netdev-mtu",
    title="Interfaces under RoCE ports have a large MTU",
    source="Linux kernel, iboe_get_mtu: active MTU 4096 needs 4096 + 96 bytes",
    fix="`ip link set IF mtu 9000` and the same (or 9216) on the switch port.",
    answers=("PA-14", "NT-FAB-4"),
)
def netdev_mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the Ethernet MTU under each RoCE compute port with the cluster file's, else with 4192 bytes.

    An interface left at 1500 bytes gives an RDMA MTU of 1024: four times the packets for the same
    gradient, and a connection with a peer at 4096 runs at the smaller one.

    Anything but the cluster file's value fails, larger ones too: peers that differ have a black hole between them.
    Without one, less than 4192 bytes (an RDMA MTU of 4096 and its headers) fails.

    A false alarm: a site that runs its fabric at another MTU on purpose; say `netdev_mtu` in the cluster file.
    Where nothing tells which ports a job uses, a small MTU is unknown.
    """
    ports, other = _roce_ports(node, site)
    if other:
        yield other
    wanted = site.netdev_mtu
    good = []
    for name, port in ports.items():
        netdev = node.netdevs.get(name)
        key = f"file:{facts.net.ROOT}/{name}/mtu"
        if netdev is None:
            yield unknown(f"the MTU of {name} ({port.name}) was not recorded", subject=name, evidence=[key])
        elif netdev.mtu == wanted.value or (wanted.value is None and netdev.mtu >= 4192):
            good.append(netdev)
        else:
            bound = f"{wanted.value}" if wanted.value else "at least 4192"
            yield failing(site.roles(node), site)(
                f"{name} ({port.name}) has MTU {netdev.mtu}, expected {bound}",
                subject=name,
                found=f"{netdev.mtu} bytes",
                expected=f"{bound} bytes ({wanted.source or 'room for an RDMA MTU of 4096'})",
                evidence=[key],
            )
    if good:
        yield passed(
            f"{len(good)} of {len(ports)} RoCE interfaces have MTU {good[0].mtu}",
            found=f"{good[0].mtu} bytes",
            evidence=[f"file:{facts.net.ROOT}/{good[0].name}/mtu"],
        )


def _lossless(node: NodeFacts, site: Site) -> tuple[dict[str, Port], Finding | None]:
    """Return the RoCE ports of a site that says it is lossless, and what to say beside or instead."""
    ports, other = _roce_ports(node, site)
    if not ports:
        return {}, other
    first = next(iter(ports.values())).evidence[0]
    if site.lossless.value is None:
        return {}, unknown(
            "nothing says whether this RoCE fabric is meant to be lossless",
            evidence=[first],
            fix=f"say it in the cluster file: {site.lossless.key} = true, and pfc_priority",
        )
    if not site.lossless.value:
        return {}, skipped(f"the site runs RoCE without PFC by design ({site.lossless.source})", evidence=[first])
    return ports, other


@check(
    "roce.pfc",
    title="PFC is on for exactly the lossless priority",
    source="IEEE 802.1Qbb; dcb-pfc(8); mlnx_qos",
    fix="`mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0` (or `dcb pfc set`), and the same on the switch port.",
    answers=("FP-LOSS-2", "PA-14"),
)
def priority_flow_control(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the priorities with PFC on, per RoCE interface, with the one that the cluster file names.

    With PFC off at one end of a cable, the other end's pauses are ignored: packets drop under load,
    RDMA retransmits whole messages, and throughput falls while every link looks healthy.

    Judged only where the cluster file says `lossless = true`; any other set of priorities than `pfc_priority`
    alone fails, a second one too: NICs have buffers for one or two lossless priorities.

    A false alarm: lossy RoCE is a legitimate design; with `lossless = false` the check does not apply.
    """
    ports, other = _lossless(node, site)
    if other:
        yield other
    priority = site.pfc_priority.value
    good, key = [], ""
    for name, port in ports.items():
        try:
            found = facts.net.pfc(node.evidence, name)
        except EvidenceError as error:
            yield unknown(
                f"PFC of {name} ({port.name}) could not be read: {error.why}",
                subject=name,
                evidence=[error.key],
                fix="install iproute2's `dcb`, or run with --sudo for `mlnx_qos`; a VF cannot tell: ask its host",
            )
            continue
        if found.enabled == {priority}:
            good.append(name)
            key = found.evidence
            continue
        enabled = ", ".join(map(str, sorted(found.enabled))) or "none"
        yield failed(
            f"{name} ({port.name}) has PFC on for priority {enabled}, expected {priority} only",
            subject=name,
            found=f"priority {enabled}",
            expected=f"priority {priority} ({site.pfc_priority.source})",
            evidence=[found.evidence],
        )
    if good:
        yield passed(
            f"{len(good)} of {len(ports)} RoCE interfaces have PFC on for priority {priority} only",
            found=f"priority {priority}",
            evidence=[key],
        )


@check(
    "roce.ecn",
    title="ECN is on for the lossless priority",
    source="NVIDIA MLNX_OFED documentation, RoCE ECN (roce_np, roce_rp)",
    fix="`echo 1 > /sys/class/net/IF/ecn/roce_{np,rp}/enable/PRIORITY`, and ECN marking on the switch queue.",
    answers=("FP-LOSS-2", "PA-14"),
)
def congestion_notification(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare ECN's notification and reaction point on the lossless priority with on, per RoCE interface.

    Without ECN nothing slows a sender before PFC has to stop it: pauses spread from switch to switch
    and stall jobs that share nothing but a spine.

    One point that is off fails, where the cluster file says `lossless = true` and does not say `ecn = false`.
    The upstream driver shows no switch per priority.

    A false alarm: the files are missing with the upstream driver, whose firmware has it on by default: unknown,
    never a fail.
    """
    ports, other = _lossless(node, site)
    if ports and site.ecn.value is False:
        first = next(iter(ports.values()))
        yield skipped(f"the site runs without ECN by design ({site.ecn.source})", evidence=[first.evidence[0]])
        return
    if other:
        yield other
    priority = site.pfc_priority.value
    good: list[str] = []
    keys: tuple[str, ...] = ()
    for name, port in ports.items():
        try:
            found = facts.net.ecn(node.evidence, name, priority)
        except EvidenceError as error:
            yield unknown(
                f"ECN of {name} ({port.name}) is not shown by this driver: {error.why}",
                subject=name,
                evidence=[error.key],
                fix="only the vendor's driver (MLNX_OFED, DOCA) shows it; else `mlxconfig query` ROCE_CC_PRIO_MASK",
            )
            continue
        if found.notification_point and found.reaction_point:
            good.append(name)
            keys = found.evidence
            continue
        off = [role for role, on in (("np", found.notification_point), ("rp", found.reaction_point)) if not on]
        yield failed(
            f"{name} ({port.name}) has ECN off on priority {priority} (roce_{', roce_'.join(off)})",
            subject=name,
            found=f"roce_{', roce_'.join(off)} off",
            expected=f"on for priority {priority} ({site.pfc_priority.source})",
            evidence=found.evidence,
        )
    if good:
        yield passed(f"{len(good)} of {len(ports)} RoCE interfaces have ECN on for priority {priority}", evidence=keys)
