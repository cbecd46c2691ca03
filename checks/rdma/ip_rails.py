"""Checks of IP addressing on the compute fabric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from preflight import facts
from preflight.checks.applicability import efa_only, failing, no_rdma
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, all_of, check, counted, failed, passed, skipped, some_of, unknown, verb, warned

SYSCTLS = "https://docs.kernel.org/networking/ip-sysctl.html (arp_ignore, arp_announce, rp_filter)"


def no_rail(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without an active RoCE port that has an interface."""
    compute = site.roles(node).compute
    if absent := efa_only(compute, "they have no network interface"):
        return absent
    if _rails(node, site):
        return None
    roce = [port for port in compute if port.roce]
    if compute and not roce:
        return skipped("the compute ports are InfiniBand", evidence=[compute[0].evidence[0]])
    key = roce[0].evidence[0] if roce else "dir:/sys/class/infiniband"
    idle = bool(roce) and not any(port.active for port in roce)
    message = "no RoCE port is active: see rdma.port-state" if idle else "no active RoCE port has a network interface"
    return unknown(message, evidence=[key])


@check(
    "rails.subnets",
    title="Each RoCE rail answers only for its own address",
    fault="A RoCE rail answers for another rail's address",
    impact="slows-job",
    source=SYSCTLS,
    fix="Give each rail its own subnet, or set arp_ignore=1, arp_announce=2 and rp_filter=2 with `sysctl`, and "
    "add routes per rail.",
    action="fix-site",
    answers=("AN-3", "NT-CTR-4"),
    unless=(no_rdma, no_rail),
)
def subnets(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the IPv4 subnets of the RoCE rails with each other.

    For a shared subnet, the ARP and rp_filter settings are judged.

    ## Why it matters
    With two rails in one subnet, the kernel answers for either address on either port: peers learn the wrong MAC, and
    one port carries the traffic of both rails.

    ## Verdicts
    A shared subnet needs arp_ignore 1 or 2 and arp_announce 2, else it fails; a strict rp_filter (1) drops replies and
    warns. Effective values are the larger of `all` and the interface's. Rails in separate subnets pass with any ARP
    setting. Only the cluster file can declare point-to-point addressing (/30, /31, IPv6); without the declaration,
    point-to-point rails pass.

    ## False alarms
    Policy routing (`ip rule`) or a CNI that answers ARP itself may separate rails of one subnet without these
    settings. If the ports of a job are not known, a failure becomes unknown.
    """
    rails = _rails(node, site)
    for finding in _apart(node, rails, failing(site.roles(node), site)):
        yield finding.about("NT-CTR-4")
    yield from _point_to_point(node, site, rails)


def _apart(node: NodeFacts, rails: list[str], report: Callable[..., Finding]) -> Iterator[Finding]:
    known = node.addresses
    bare = [name for name in rails if not known.routable(name)]
    if len(bare) == len(rails):
        yield skipped("no RoCE rail has an address (see roce.chain)", evidence=[known.evidence])
        return
    shared = [
        (one, other, str(mine.network))
        for one, other in combinations(rails, 2)
        for mine in known.ipv4(one)
        if any(mine.network.overlaps(theirs.network) for theirs in known.ipv4(other))
    ]
    if shared:
        yield from _sharing(node, sorted({name for pair in shared for name in pair[:2]}), shared[0][2], report)
    else:
        # With point-to-point addresses, every node has different networks; this wording lets nodes be grouped.
        found = [address.network for name in rails for address in known.ipv4(name)]
        networks = [str(one) if one.prefixlen < 30 else f"/{one.prefixlen}" for one in found]
        number = len(rails) - len(bare)
        yield passed(f"{some_of(number, len(rails), 'RoCE rail')} "
                     f"{'have separate subnets' if number > 1 else 'has its own subnet'}",
                     found=", ".join(networks) or "IPv6", evidence=[known.evidence])  # fmt: skip


def _rails(node: NodeFacts, site: Site) -> list[str]:
    """Return the interfaces of the active RoCE compute ports."""
    return [port.netdev for port in site.roles(node).compute if port.roce and port.netdev and port.active]


def _sharing(node: NodeFacts, rails: list[str], network: str, report: Callable[..., Finding]) -> Iterator[Finding]:
    keys = [f"file:{facts.addresses.SYSCTL}/{rails[0]}/{name}" for name in ("arp_ignore", "arp_announce", "rp_filter")]
    flux, strict = [], []
    for rail in rails:
        ignore, announce = (
            facts.addresses.effective(node.evidence, rail, name) for name in ("arp_ignore", "arp_announce")
        )
        if ignore not in (1, 2) or announce != 2:
            flux.append(f"{rail} arp_ignore {ignore}, arp_announce {announce}")
        if facts.addresses.effective(node.evidence, rail, "rp_filter") == 1:
            strict.append(rail)
    if flux:
        yield report(
            f"{len(rails)} rails share {network} and answer ARP for each other",
            found="; ".join(flux[:4]),
            expected="arp_ignore 1 or 2, arp_announce 2, or a separate subnet for each rail",
            evidence=[*keys, node.addresses.evidence],
        )
    if strict:
        yield warned(
            f"{len(strict)} rails that share {network} have a strict rp_filter",
            found=", ".join(strict),
            expected="rp_filter 0 or 2",
            evidence=[keys[2], node.addresses.evidence],
        )
    if not flux and not strict:
        yield passed(f"{len(rails)} rails share {network}, and each answers ARP only for itself",
                     found=", ".join(rails), evidence=keys)  # fmt: skip


def _point_to_point(node: NodeFacts, site: Site, rails: list[str]) -> Iterator[Finding]:
    """Compare the prefix length of the rails' addresses with the declaration (AN-3).

    Without a declaration, only rails with point-to-point addresses are reported.
    """
    wanted, keys = site.point_to_point, [node.addresses.evidence]
    rails = [name for name in rails if node.addresses.routable(name)]
    wide = [f"{name} {a}" for name in rails for a in node.addresses.ipv4(name) if a.network.prefixlen < 30]
    if rails and not wide:
        yield passed(
            f"{all_of(len(rails), 'rail')} {verb(len(rails), 'is')} addressed point to point",
            found="/30, /31 or IPv6",
            evidence=keys,
        )
    elif wide and wanted.value:
        yield failed(f"{counted(len(wide), 'rail is', 'rails are')} not addressed point to point",
                     found=", ".join(wide[:4]),
                     expected=f"/30, /31 or IPv6 ({wanted.source})", evidence=keys)  # fmt: skip
    elif wide and wanted.value is False:
        yield passed(f"{counted(len(wide), 'rail is', 'rails are')} in switch subnets, as declared",
                     found=", ".join(wide[:4]),
                     evidence=keys)  # fmt: skip


def no_interface(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without a network interface on its compute ports."""
    ports = site.roles(node).compute
    if absent := efa_only(ports, "they have no network interface"):
        return absent
    if any(port.netdev for port in ports):
        return None
    return unknown("no compute port has a network interface", evidence=["dir:/sys/class/infiniband"])


@check(
    "rails.isolated",
    title="The compute fabric carries no other traffic",
    fault="The compute fabric carries other traffic",
    impact="slows-job",
    source="proc(5), /proc/net/route; common practice: separate backend and frontend networks",
    fix="`ip route`: move the default route to the management interface, and give the rails separate subnets.",
    action="fix-site",
    answers=("AN-2",),
    unless=(no_rdma, no_interface),
)
def isolated(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Find default routes over compute ports, and other interfaces in their subnets.

    ## Why it matters
    Image pulls, storage or logs on the compute fabric collide with bursts of gradient traffic: step times vary, and the
    fabric is rarely suspected.

    ## Verdicts
    Each such route or interface warns. IPoIB interfaces of compute ports are included.

    ## False alarms
    A small site with one network for everything, and clouds that route all traffic over one interface.
    """
    compute = {port.netdev for port in site.roles(node).compute if port.netdev}
    over = [name for name in node.parsed(facts.addresses.ROUTES, facts.addresses.default_routes) if name in compute]
    known = node.addresses
    inside = [
        (other, rail)
        for rail in sorted(compute)
        for mine in known.ipv4(rail)
        for other in sorted(set(known.of) - compute)
        if any(mine.network.overlaps(theirs.network) for theirs in known.ipv4(other))
    ]
    for name in over:
        yield warned(f"the default route uses the compute port {name}", subject=name, found=name,
                     expected="a management interface", evidence=[facts.addresses.ROUTES])  # fmt: skip
    for other, rail in inside[:8]:
        yield warned(f"{other} is in the subnet of the compute rail {rail}", subject=other,
                     found=", ".join(map(str, known.ipv4(other))), expected=f"not in {known.ipv4(rail)[0].network}",
                     evidence=[known.evidence])  # fmt: skip
    if not over and not inside:
        yield passed(
            f"no other traffic is routed over {all_of(len(compute), 'compute interface')}",
            evidence=[facts.addresses.ROUTES, known.evidence],
        )
