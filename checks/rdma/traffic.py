"""Check that ports count traffic, losses, ECN marks and pauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.applicability import efa_only, no_compute_port
from preflight.checks.rdma.error_counters import MLX5
from preflight.checks.rdma.per_port import is_complete, keys, no_judged_port, report_gaps, some, total
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.model import Finding, check, counted, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.counter_catalogue import CounterKind
    from preflight.facts.counter_growth import PortGrowth


@check(
    "counters.visible",
    title="The ports count throughput, errors, ECN and pauses",
    fault="A port lacks counters",
    impact="drifts",
    source=MLX5,
    fix="In a virtual machine or pod, run preflight on the host, which has the physical function; otherwise update the "
    "driver, and read `ethtool -S IF` and /sys/class/infiniband/DEVICE/ports/1/hw_counters manually.",
    action="fix-site",
    answers=("FP-OBS-3", "FP-OBS-4", "FP-OBS-5", "FP-OBS-6", "NT-CNT-1", "FP-LOSS-3"),
    gating=False,
    window=True,
    reads=("file:/sys/class/infiniband/*/hca_type",),
    unless=(no_compute_port, no_judged_port),
)
def visible(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Check that each compute port counts traffic, losses, marks and pauses.

    Both readings of the window are compared.

    ## Why it matters
    Without these counters no alarm is possible: the port silently loses packets, and the cause of a slow job stays
    hidden.

    ## Verdicts
    A driver without byte counters, loss counters or, on RoCE, ECN counters warns. So does a lossless site without a
    pause counter for its PFC priority, unless PFC is known to be off: the kernel then shows no such counter, and
    roce.chain reports PFC. In a virtual machine, in a container and on a virtual function, a missing pause counter is
    unknown, and so is a source that did not answer.

    ## False alarms
    A virtual function, which never has the counters of the physical port.
    """
    ports = yield from report_gaps(node, site)
    read = [port for port in ports if is_complete(port, facts.counter_growth.SOURCES)]
    if not read:
        return
    dark = [
        port for port in read if port.gbps is None and not _vague(port, facts.counter_catalogue.CounterKind.TRAFFIC)
    ]
    rates = [port.gbps for port in read if port.gbps is not None]
    evidence = keys(read[0].growths)[:3]
    if dark:
        yield _lacking(dark, "bytes sent and received", evidence).about("FP-OBS-3")
    if rates:
        sent, received = (sum(way) for way in zip(*rates, strict=True))
        yield passed(
            f"bytes sent and received are counted on {counted(len(rates), 'port')}",
            found=f"sent {sent:.1f} Gb/s, received {received:.1f} Gb/s",
            evidence=evidence,
        ).about("FP-OBS-3")
    errors = ("FP-OBS-4", "NT-CNT-1", "FP-LOSS-3")
    blind = [port for port in read if not _counts_losses(port)]
    if blind:
        yield _lacking(blind, "retransmissions and time-outs", evidence).about(*errors)
    else:
        number = len([one for one in read[0].growths if one.counter.kind is facts.counter_catalogue.CounterKind.LOSS])
        yield passed(
            f"{number} loss counters can be read on each of {counted(len(read), 'port')}", evidence=evidence
        ).about(*errors)
    yield _ecn_seen(read, evidence).about("FP-OBS-5")
    yield _pauses_seen(node, site, read, evidence).about("FP-OBS-6")


def _counts_losses(port: PortGrowth) -> bool:
    counters = [(one.counter, one.key) for one in port.growths] + [(one.counter, one.key) for one in port.unclear]
    return any(
        known.kind is facts.counter_catalogue.CounterKind.LOSS and key.endswith("hw_counters")
        for known, key in counters
    )


def _vague(port: PortGrowth, kind: CounterKind) -> bool:
    return any(one.counter.kind is kind for one in port.unclear)


def _lacking(ports: Sequence[PortGrowth], what: str, evidence: Sequence[str]) -> Finding:
    names = [port.port.name for port in ports]
    return warned(
        f"the driver does not count {what} on {some(names)}",
        subject=names[0] if len(names) == 1 else "",
        found="no such counters",
        expected="the counters of mlx5's physical function",
        evidence=evidence,
    )


def _ecn_seen(ports: Sequence[PortGrowth], evidence: Sequence[str]) -> Finding:
    roce = [port for port in ports if port.port.roce]
    if skip := efa_only([port.port for port in ports], "their driver counts no ECN marks"):
        return skip
    if not roce:
        return skipped("the compute ports are InfiniBand, which does not use IP ECN", evidence=evidence[:1])
    without = [port for port in roce if not port.matching("np_ecn_marked_roce_packets|rp_cnp_handled")]
    if without:
        return _lacking(without, "ECN marks and CNPs", evidence)
    marked = sum(total(port, "np_ecn_marked_roce_packets") for port in roce)
    sent, obeyed = (sum(total(port, name) for port in roce) for name in ("np_cnp_sent", "rp_cnp_handled"))
    found = f"{marked} packets marked, {sent} CNPs sent, {obeyed} handled"
    return passed(f"ECN marks and CNPs are counted on {counted(len(roce), 'port')}", found=found, evidence=evidence)


def _pauses_seen(node: NodeFacts, site: Site, ports: Sequence[PortGrowth], evidence: Sequence[str]) -> Finding:
    roce = [port for port in ports if port.port.roce]
    if skip := efa_only([port.port for port in ports], "they have no pauses"):
        return skip
    if not roce:
        return skipped("the compute ports are InfiniBand, which uses credits instead of pauses", evidence=evidence[:1])
    priority = site.pfc_priority.value if site.lossless.value else None
    wanted = f"rx_prio{priority}_pause" if priority is not None else "rx_prio[0-7]_pause"
    without = [port.port.name for port in roce if not port.matching(wanted)]
    pauses = f"{sum(total(p, 'rx_prio[0-7]_pause') for p in roce)} pauses received, "
    pauses += f"{sum(total(p, 'tx_prio[0-7]_pause') for p in roce)} sent"
    if not without:
        return passed(f"pauses are counted on {counted(len(roce), 'port')}", found=pauses, evidence=evidence)
    if priority is None:
        return skipped(
            "no port has a pause counter of any priority: PFC is off, and not required", evidence=evidence[:3]
        )
    if all(_pfc_is_off(node, port.port, priority) for port in roce if port.port.name in without):
        message = f"PFC is off for priority {priority} on {some(without)}, so its pauses are not counted"
        return skipped(message, evidence=evidence[:3])
    virtual = any(
        facts.rdma_ports.is_virtual_function(node.evidence, p.port.device) for p in roce if p.port.name in without
    )
    report = unknown if node.in_virtual_machine or node.in_container or virtual else warned
    return report(
        f"pauses of priority {priority} are not counted on {some(without)}: PFC is off there, or this function does "
        "not show them",
        evidence=evidence,
        fix="see roce.chain; in a virtual machine or pod, run preflight on the host",
        found=f"no {wanted}",
        expected=f"pause counters of priority {priority} ({site.pfc_priority.source})",
    )


def _pfc_is_off(node: NodeFacts, port: Port, priority: int) -> bool:
    """Return whether a port is known to have PFC off for a priority.

    False if unknown.
    """
    try:
        return priority not in facts.port_qos.pfc(node.evidence, port.netdev or "").value
    except EvidenceError:
        return False
