"""Checks of RDMA ports of the compute fabric: state, rate, link layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from preflight.checks.applicability import failing, no_compute_port
from preflight.checks.rdma.devices import SYSFS
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import EFA_PLACEHOLDER_GBPS, Port, all_efa
from preflight.model import Finding, all_of, check, compare, counted, passed, some_of, unknown

#: Name of a network interface that can be copied into a command.
_INTERFACE = re.compile(r"[A-Za-z0-9][\w.-]{0,14}")


#: Checks of active ports.
_OF_ACTIVE_PORTS = (
    "rdma.*", "counters.*", "optics.*", "rails.subnets", "roce.chain", "switch.*", "fleet.mtu-equal", "fleet.rail-leaf",
    "nccl.load-balancing",
)  # fmt: skip


@check(
    "rdma.port-state",
    title="RDMA ports of the compute fabric are active",
    fault="An RDMA port of the compute fabric is down",
    impact="slows-job",
    owner="network",
    explains=(
        ("fleet.rates", "node"),
        ("rdma.bandwidth-per-gpu", "node"),
        ("optics.*", "part"),
        ("counters.*", "part"),
        ("kernel.events", "part", "*", "the link of *"),
        *((effect, "unknown", "*", "*port is active*") for effect in _OF_ACTIVE_PORTS),
        ("nccl.transport", "log"),
        ("nccl.failures", "log"),
        ("bench.factor", "log"),
    ),
    source=SYSFS,
    fix="Down/Polling: cable or peer; Down/Disabled: `ip link set INTERFACE up`; Initializing: no subnet manager.",
    answers=("NT-FAB-1", "PA-13"),
    reads=("file:/sys/class/infiniband/*/hca_type",),
    unless=(no_compute_port,),
)
def port_state(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each compute port's state with ACTIVE/LinkUp.

    ## Why it matters
    NCCL silently ignores a port that is not active: the rail's traffic moves to its neighbours, and every ring runs at
    the pace of the busiest one.

    ## Verdicts
    Any other state fails. Only ports that jobs use are judged: those in the cluster file, in NCCL_IB_HCA, or closest to
    a GPU. On Grace, where all NICs are equally close, these are all NICs except BlueField. If the roles are unknown, a
    port that is down is unknown.

    The efa driver reports each of its ports as active; rdma.device-count detects missing EFA devices.

    ## False alarms
    A storage, management or spare port that is down by design. Name the job's ports in
    `ports.compute`.
    """
    roles = site.roles(node)
    report, known_from = failing(roles, site), roles.known_from or "unknown"
    up = [port for port in roles.compute if port.active]
    are = "is" if len(roles.compute) == 1 else "are"
    if up:
        yield passed(
            f"{some_of(len(up), len(roles.compute), 'compute port')} {are} active",
            found=", ".join(port.name for port in up),
            evidence=[up[0].evidence[0]],
        )
    yield from judge_port_states(roles.compute, lambda port: report, f"ACTIVE/LinkUp (compute port: {known_from})")


def judge_port_states(
    ports: Sequence[Port], report_for: Callable[[Port], Callable[..., Finding]], expected: str
) -> Iterator[Finding]:
    """Report each port that is not ACTIVE/LinkUp."""
    for port in ports:
        if not port.active:
            yield report_for(port)(
                f"{port.name} is {port.state_shown}, expected ACTIVE/LinkUp{_meaning(port)}",
                subject=port.name,
                found=port.state_shown,
                expected=expected,
                evidence=port.evidence,
                fix=_next_step(port),
            )


def _next_step(port: Port) -> str:
    """Return the fix for the state of a port; empty for the check's own fix."""
    if port.physical_state == "Disabled" and port.netdev and _INTERFACE.fullmatch(port.netdev):
        return f"`ip link set {port.netdev} up`; if it stays down, look for the service or the switch that disables it."
    if port.physical_state in ("Polling", "LinkErrorRecovery") and _INTERFACE.fullmatch(port.device):
        table = "with `iblinkinfo`" if port.infiniband else "in the switch's LLDP table"
        return (
            f"Look for light and errors with `mlxlink -d {port.device} -m`, and for the switch port {table}; reseat or "
            "replace the cable or module, and check that the switch port is enabled."
        )
    if port.state in ("INIT", "ARMED") and port.infiniband:
        return "`sminfo` shows whether a subnet manager answers: start opensm or UFM; else look for its errors."
    return ""


def _meaning(port: Port) -> str:
    if port.state == "INIT":
        return ": the cable is fine, but no subnet manager has configured the port"
    if port.physical_state == "Polling":
        return ": no light, bad cable or peer off"
    if port.physical_state == "Disabled":
        return ": administratively down"
    if port.physical_state == "LinkErrorRecovery":
        return ": the link is being recovered from errors"
    if port.physical_state == "LinkUp":
        return ": the link is trained, but nothing has configured the port"
    return ""


@check(
    "rdma.port-rate",
    title="RDMA ports run at the expected rate",
    fault="An RDMA port runs below the expected rate",
    impact="slows-job",
    owner="network",
    explains=(
        ("rdma.bandwidth-per-gpu", "node"),
        ("pair.write-bw", "part"),
        ("pair.read-bw", "part"),
        ("link.speed-fec", "cable"),
        ("fleet.rates", "node"),
        ("counters.balance", "part", "*", "*less than half*"),
        ("bench.factor", "log"),
    ),
    source=f"{SYSFS}; usual rates: part catalogue",
    fix="Reseat or replace the cable, then compare `ibstat` with the switch port.",
    answers=("FP-BW-1", "NT-FAB-3", "PA-12"),
    unless=(no_compute_port,),
)
def port_rate(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each compute port's rate with its peers and with the expected rate.

    ## Why it matters
    A port that trained with fewer lanes or at a lower speed still reports ACTIVE, and every ring through it runs at its
    rate.

    ## Verdicts
    A port that is slower than its peers fails, even if no rate is expected. The rate is judged, never the width: 2X NDR
    is a full 200 Gb/s port. A rate below the cluster file's fails; one below the usual rate for the part warns. If each
    GPU has several ports (2 x 200 Gb/s, 4 x 100 Gb/s of EFA), their sum is compared.

    ## False alarms
    None known. The kernel prints an unknown speed as SDR or QDR on a healthy port, and an old efa driver prints 100
    Gb/s for faster devices; both are unknown.
    """
    roles = site.roles(node)
    compute, report = roles.compute, failing(roles, site)
    active = [port for port in compute if port.active]
    if not active:
        yield unknown("no compute port is active, so there is no rate", evidence=[compute[0].evidence[0]])
    yield from judge_port_rates(active, report, "the other compute ports of this node")
    best, at_rate = fastest(active)
    if at_rate and best is not None:
        expected = site.rate_of_each(len(compute), len(node.gpus_on_bus))
        if all_efa(compute) and best == EFA_PLACEHOLDER_GBPS < (expected.value or 0):
            yield unknown(
                f"the efa driver reports {best:g} Gb/s for all {len(at_rate)} devices, as old drivers do for "
                f"any device",
                found=f"{best:g} Gb/s",
                expected=f"{expected.value:g} Gb/s ({expected.source})",
                evidence=[at_rate[0].evidence[-1]],
                fix="a newer efa driver reports the device's own rate; or run `fi_info -p efa -v`",
            )
            return
        yield compare(
            best,
            expected,
            what=f"rate of {counted(len(at_rate), 'compute port')}",
            subject=compute[0].name if len(compute) == 1 else "",
            at_least=True,
            unit="Gb/s",
            evidence=[at_rate[0].evidence[-1]],
        )


def fastest(active: Sequence[Port]) -> tuple[float | None, list[Port]]:
    """Return the highest known rate in Gb/s (None if unknown), and the ports with it."""
    best = max((port.rate_gbps for port in active if port.rate_gbps is not None), default=None)
    return best, [port for port in active if best is not None and port.rate_gbps == best]


def judge_port_rates(active: Sequence[Port], report: Callable[..., Finding], peers: str) -> Iterator[Finding]:
    """Report active ports with an unknown rate, and those below the fastest."""
    best, _ = fastest(active)
    for port in active:
        rate = port.rate_gbps
        if rate is None:
            yield unknown(
                f"{port.name} is active at a speed that this kernel does not know",
                subject=port.name,
                evidence=port.evidence,
                fix="read it with `mlxlink -d DEVICE` or `ethtool IF`",
            )
        elif best is not None and rate < best:
            yield report(
                f"{port.name} runs at {rate:g} Gb/s, its peers at {best:g} Gb/s",
                subject=port.name,
                found=f"{rate:g} Gb/s",
                expected=f"{best:g} Gb/s, as {peers}",
                evidence=port.evidence,
            )


@check(
    "rdma.link-layer",
    title="All compute ports have the same link layer",
    fault="The compute ports have different link layers",
    impact="slows-job",
    explains=(("nccl.ib-hca", "node", "*", "*InfiniBand and*"),),
    source=SYSFS,
    fix="Set the port type (`mlxconfig -d DEVICE set LINK_TYPE_P1=1|2`), or exclude the odd port from NCCL_IB_HCA.",
    action="fix-site",
    answers=("FP-LOSS-1",),
    unless=(no_compute_port,),
)
def link_layer(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the compute ports' link layers with each other and the expectation.

    ## Why it matters
    NCCL uses HCAs of only one link layer and ignores all others, and a port of the wrong type joins no fabric.

    ## Verdicts
    A port whose layer differs from the cluster file's `link_layer`, or else from most compute ports of the node, fails.
    AWS EFA is neither InfiniBand nor Ethernet: its link layer is "Unspecified".

    ## False alarms
    A storage port of the other kind. If the compute ports are not declared, those of the usual layer are assumed;
    without a usual layer, the result is unknown.
    """
    roles = site.roles(node)
    compute = roles.compute
    usual = site.link_layer.value or usual_layer(compute)
    odd = [port for port in compute if port.link_layer != usual]
    key = (odd or list(compute))[0].evidence[0].replace("/state", "/link_layer")
    if not odd:
        yield passed(
            f"the link layer of {all_of(len(compute), 'compute port')} is {usual}", found=usual, evidence=[key]
        )
        return
    source = site.link_layer.source or "most compute ports of this node"
    yield judge_link_layers(compute, usual, source, failing(roles, site), key)


def usual_layer(ports: Sequence[Port]) -> str:
    """Return the link layer of most ports."""
    return Counter(port.link_layer for port in ports).most_common(1)[0][0]


def judge_link_layers(
    ports: Sequence[Port], usual: str, source: str, report: Callable[..., Finding], key: str
) -> Finding:
    """Report the ports whose link layer differs from the usual one."""
    odd = [port for port in ports if port.link_layer != usual]
    layers = Counter(port.link_layer for port in ports)
    return report(
        f"the link layer of {', '.join(port.name for port in odd)} is {odd[0].link_layer}, not {usual}",
        subject=odd[0].name if len(odd) == 1 else "",
        found=", ".join(f"{number} {layer}" for layer, number in layers.items()),
        expected=f"{usual} ({source})",
        evidence=[key],
    )
