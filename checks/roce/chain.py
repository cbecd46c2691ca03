"""Check of the RoCE chain of a port, from interface to congestion control."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_interface

from preflight import facts
from preflight.checks.applicability import efa_only, failing, no_compute_port
from preflight.expectations import Expected, Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.facts.roce_chain.chain import ADDRESSING, SERVICE, Chain, ChainLink, RocePolicy, State, Want
from preflight.model import Finding, all_of, check, passed, skipped, some_of, unknown, verb, warned

#: Checklist items of each link.
ITEMS = {
    "interface": (),
    "address": ("NT-CTR-4",),
    "MTU": ("PA-14", "NT-FAB-4"),
    "active MTU": ("PA-14", "NT-FAB-4"),
    "GID": ("FP-LOSS-1", "NT-FAB-4"),
    **dict.fromkeys(SERVICE, ("FP-LOSS-2", "PA-14")),
    "buffers": ("FP-LOSS-2", "FP-CON-2"),
    **dict.fromkeys(("ECN", "CNP", "DCQCN"), ("FP-LOSS-2", "PA-14", "FP-CON-3")),
}

ALL_ITEMS = tuple(dict.fromkeys(item for items in ITEMS.values() for item in items))
SERVICE_ITEMS = tuple(dict.fromkeys(item for name in SERVICE for item in ITEMS[name]))


def no_roce(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without RoCE, and a fabric declared as InfiniBand."""
    compute = site.roles(node).compute
    if absent := efa_only(compute, "they use SRD, not RoCE"):
        return absent
    key = compute[0].evidence[0].replace("/state", "/link_layer")
    if not any(port.roce for port in compute):
        return skipped("the compute ports are InfiniBand", evidence=[key])
    if site.link_layer.value != "InfiniBand":
        return None
    message = f"the fabric is InfiniBand ({site.link_layer.source}); see rdma.link-layer for other ports"
    return skipped(message, evidence=[key])


@check(
    "roce.chain",
    title="Every link of the RoCE chain is healthy on each port",
    fault="The RoCE chain of a port is broken",
    impact="slows-job",
    explains=(
        ("switch.pfc", "part", "*PFC is *"),
        ("pair.path-mtu", "part", "*interface has MTU*"),
        ("nccl.gid-index", "part", "*no IP address*", "*is empty"),
        ("link.pfc", "cable", "*PFC is *"),
        ("link.mtu", "cable", "*interface has MTU*"),
        ("link.dscp", "cable", "*DSCP*"),
    ),
    source="Linux kernel: iboe_get_mtu; IEEE 802.1Qbb; RFC 2474, RFC 3168; dcb(8), mlnx_qos, ethtool(8); MLNX_OFED "
    "RoCE ECN (roce_np, roce_rp)",
    fix="Repair the first broken link, then judge again: `preflight check`; later links depend on it.",
    action="fix-site",
    answers=ALL_ITEMS,
    unless=(no_compute_port, no_roce),
)
def chain(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Find the first broken link of the RoCE chain on each compute port.

    The chain contains all settings that make RoCE fast.

    ## Why it matters
    One broken link can make transfers several times slower without an error. Under load, packets are dropped and RDMA
    retransmits complete messages, or pauses spread between switches and stall unrelated jobs.

    ## Verdicts
    The links are: interface up, IP address, MTU, active RDMA MTU, RoCE v2 GID; trust in DSCP, traffic class, DSCP, its
    priority, PFC on for exactly that priority, ECN on for it, CNPs in another priority, global pause off, a separate
    receive buffer, DCBX mode, DCQCN parameters.

    A broken link fails. The links from trust on are judged if the cluster file has `lossless = true`. They are compared
    with its keys (`pfc_priority`, `ecn`, `trust`, `traffic_class`, `dscp`, `cnp_dscp`, `dcbx`), or else with the
    priority that the port's map assigns to the traffic class. If `lossless` is not declared and a port has PFC on for
    one priority, settings that contradict it warn. DCBX left to firmware, and DCQCN parameters that differ between the
    ports, warn. The MTU must equal the cluster file's, because larger packets are lost between peers that differ;
    without that key, 4192 bytes (an RDMA MTU of 4096 and its headers) pass. nccl.gid-index judges NCCL_IB_GID_INDEX.

    ## False alarms
    Lossy RoCE (`lossless = false`: the links from trust on do not apply) and RoCE without ECN (`ecn = false`) are
    legitimate designs; declare them. A traffic class that only the job sets is not visible outside the job: it is
    unknown, unless the cluster file declares it. The upstream driver does not show ECN per priority, and a virtual
    function does not show its host's settings: these are unknown, never a failure.
    """
    compute = [port for port in site.roles(node).compute if port.roce]
    ports = [port for port in compute if port.netdev]
    if nameless := [port for port in compute if not port.netdev]:
        yield _nameless(nameless)
    active = [port for port in ports if port.active]
    if ports and not active:
        yield unknown("no RoCE port is active (see rdma.port-state)",
                      evidence=[ports[0].evidence[0]])  # fmt: skip
    if active:
        roles = site.roles(node)
        found = facts.roce_chain.chain.chains(node, active, policy(site))
        yield from _judge_chains(found, len(ports), site, failing(roles, site))


def policy(site: Site) -> RocePolicy:
    """Return the site's declared RoCE policy."""

    def want(expected: Expected) -> Want:
        return Want(expected.value, expected.source)

    names = ("lossless", "pfc_priority", "trust", "traffic_class", "dscp", "ecn", "cnp_dscp", "dcbx")
    wanted = {name: want(site.qos(name)) for name in names}
    return RocePolicy(mtu=want(site.mtu), netdev_mtu=want(site.netdev_mtu), **wanted)


def _nameless(ports: Sequence[Port]) -> Finding:
    """Report ports with an unknown interface.

    The interface is in another network namespace, or there are several.
    """
    return unknown(
        f"{', '.join(port.name for port in ports)}: no single interface in this namespace belongs to "
        f"{'it' if len(ports) == 1 else 'each of them'}",
        subject=ports[0].name if len(ports) == 1 else "",
        evidence=[f"dir:/sys/class/infiniband/{ports[0].device}/device/net"],
        fix="in a pod: see container.networks; on the host: `rdma link`",
    )


def _judge_chains(chains: Sequence[Chain], ports: int, site: Site, report: Callable[..., Finding]) -> Iterator[Finding]:
    """Yield a verdict for each group of ports with the same state."""
    broken: dict[tuple[str, str], list[Chain]] = defaultdict(list)
    unsure: dict[tuple[tuple[str, ...], str], list[Chain]] = defaultdict(list)
    intact = []
    for one in chains:
        links, vague = one.of(State.BROKEN), [link for link in one.of(State.UNKNOWN) if not _left_open(one, link)]
        grave = [link for link in links if not link.minor]
        if links:
            first = (grave or links)[0]
            broken[first.name, first.reason].append(one)
        if vague and not grave:
            unsure[tuple(link.name for link in vague), vague[0].reason].append(one)
        if not links and not vague:
            intact.append(one)
    for (name, _), alike in broken.items():
        yield _broken(name, alike, report)
    for (names, _), alike in unsure.items():
        yield _unsure(names, alike)
    if intact:
        yield _intact(intact, ports)
    sound, items = _sound(chains)
    if items and len(intact) < len(chains):
        yield passed(f"the settings of {all_of(len(chains), 'active RoCE port')} are healthy: {', '.join(sound)}",
                     evidence=chains[0].link(sound[0]).evidence).about(*items)  # fmt: skip
    if site.lossless.value is None:
        yield _lossless_unknown(chains, site)
    elif not site.lossless.value:
        yield skipped(f"the site runs RoCE without PFC by design ({site.lossless.source})",
                      evidence=chains[0].port.evidence[:1]).about(*SERVICE_ITEMS)  # fmt: skip


def _left_open(chain: Chain, link: ChainLink) -> bool:
    """Return whether a link is not required because lossless is not declared."""
    return chain.inferred and link.name in SERVICE


def _broken(name: str, alike: Sequence[Chain], report: Callable[..., Finding]) -> Finding:
    link = alike[0].link(name)
    if link.minor or (alike[0].inferred and name in SERVICE):
        report = warned
    items = tuple(dict.fromkeys(item for one in alike[0].of(State.BROKEN) for item in ITEMS[one.name]))
    return report(
        f"{_named(alike)}: {link.reason}",
        subject=alike[0].port.name if len(alike) == 1 else "",
        found=alike[0].line,
        expected=link.expected,
        evidence=link.evidence,
        fix=_for_all(link.fix, alike),
        quote=alike[0].text,
    ).about(*items)


def _unsure(names: Sequence[str], alike: Sequence[Chain]) -> Finding:
    link = alike[0].link(names[0])
    items = tuple(dict.fromkeys(item for name in names for item in ITEMS[name]))
    return unknown(
        f"{_named(alike)}: {', '.join(names)} {verb(len(names), 'is')} unknown: {link.reason}",
        subject=alike[0].port.name if len(alike) == 1 else "",
        found=alike[0].line,
        evidence=link.evidence,
        fix=_for_all(link.fix, alike),
        quote=alike[0].text,
    ).about(*items)


def _intact(chains: Sequence[Chain], ports: int) -> Finding:
    first = chains[0]
    names = [link.name for link in first.of(State.OK)]
    state = (
        f"{verb(len(chains), 'has')} healthy settings in all {len(names)} applicable steps"
        if set(names) - set(ADDRESSING)
        else f"{verb(len(chains), 'is')} addressed for RoCE v2"
    )
    return passed(
        f"{some_of(len(chains), ports, 'RoCE port')} {state}",
        found="; ".join(f"{link.name} {_of_any_node(link.value)}" for link in first.of(State.OK)),
        evidence=tuple(dict.fromkeys(key for link in first.of(State.OK) for key in link.evidence)),
    ).about(*dict.fromkeys(item for name in names for item in ITEMS[name]))


def _of_any_node(value: str) -> str:
    """Remove this node's own addresses, so that equal values are grouped."""
    words = []
    for word in value.split(" "):
        try:
            interface = ip_interface(word)
        except ValueError:
            words.append(word)
        else:
            words.append(f"IP/{interface.network.prefixlen}" if "/" in word else "IP")
    return " ".join(words)


def _sound(chains: Sequence[Chain]) -> tuple[list[str], tuple[str, ...]]:
    """Return the links that are healthy on every port.

    Also returns the checklist items without a doubtful link.
    """
    states = {name: {one.link(name).state for one in chains} for name in ITEMS}
    shaky = {item for name, found in states.items() if found & {State.BROKEN, State.UNKNOWN} for item in ITEMS[name]}
    sound = [name for name, found in states.items() if found == {State.OK}]
    return sound, tuple(dict.fromkeys(item for name in sound for item in ITEMS[name] if item not in shaky))


def _lossless_unknown(chains: Sequence[Chain], site: Site) -> Finding:
    priorities = sorted({one.link("PFC").value for one in chains if one.inferred})
    there = f"; PFC is {', '.join(priorities)}" if priorities else ""
    return unknown(
        f"the cluster file does not declare whether this RoCE fabric should be lossless{there}",
        evidence=chains[0].port.evidence[:1],
        fix=f"declare it in the cluster file: {site.lossless.key} = true, and pfc_priority",
    ).about(*SERVICE_ITEMS)


def _named(alike: Sequence[Chain]) -> str:
    names = [one.port.name for one in alike]
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} ports ({names[0]} to {names[-1]})"


def _for_all(fix: str, alike: Sequence[Chain]) -> str:
    """Return the fix of a port; for several ports, with IF in place of the interface."""
    return fix if len(alike) == 1 else fix.replace(f"{alike[0].port.netdev}", "IF")
