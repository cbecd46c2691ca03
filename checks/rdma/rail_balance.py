"""Checks of traffic over a window: rail balance, lossless priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from preflight.checks.applicability import efa_only, no_compute_port
from preflight.checks.rdma.error_counters import MLX5
from preflight.checks.rdma.per_port import about, judged_ports, keys, no_judged_port, total, unread, windows
from preflight.checks.window_load import IDLE, UNDER_LOAD
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, some_of, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.counter_growth import PortGrowth


@check(
    "counters.balance",
    title="The rails are balanced",
    fault="The rails are not balanced",
    impact="slows-job",
    source="a judgement: half of the median port's traffic; NCCL spreads a collective evenly over its rails",
    fix="Compare NCCL_IB_HCA, the rails in the NCCL log (`preflight check --log job.log`) and `rdma.port-state`; "
    "for one overloaded rail of equal ports, raise NCCL_IB_QPS_PER_CONNECTION, or enable adaptive routing.",
    action="fix-job",
    separate=True,
    answers=("FP-CON-5", "AN-7", "NT-LENS-7"),
    gating=False,
    window=True,
    unless=(no_compute_port, no_judged_port),
)
def balance(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the bytes of each compute port in the window with the median port's.

    ## Why it matters
    NCCL gives every rail the same share, and a collective ends with its slowest rail. A NIC that carries half as much
    as its peers leaves bandwidth unused; a NIC that carries twice as much delays them.

    ## Verdicts
    A port that carries less than half as much as the median port, or more than twice as much, warns; these limits are a
    judgement. If all ports are below 5% of their rate, the result is unknown.

    ## False alarms
    A job that uses only some of the node's GPUs and rails, or that started within the window.
    """
    ports = windows(node, site)
    yield from unread(ports, ("counters",))
    rated = [(port, max(port.gbps)) for port in ports if port.gbps is not None]
    if len(rated) > 1:
        yield from _compare(rated, site, site.roles(node).known_from)
    elif rated:
        yield skipped("only one compute port: nothing to compare", evidence=keys(rated[0][0].growths)[:1])
    elif not any("counters" in port.refused for port in ports):
        evidence = keys(ports[0].growths)[:1]
        yield unknown("no port reports its bytes", evidence=evidence, fix="see counters.visible")


def _compare(rated: Sequence[tuple[PortGrowth, float]], site: Site, known_from: str) -> Iterator[Finding]:
    """Compare the rate of each port with the median."""
    middle = median(rate for _, rate in rated)
    evidence = keys(port.growths[0] for port, _ in rated[:3])
    if max((port.load or 0 for port, _ in rated), default=0) < IDLE:
        message = f"no port carried {100 * IDLE:.0f}% of its rate: too little traffic to compare"
        yield unknown(message, found=f"{middle:.2g} Gb/s median", evidence=evidence, fix=UNDER_LOAD)
        return
    odd = [(port, rate) for port, rate in rated if rate < middle / 2 or rate > 2 * middle]
    if odd and not known_from:
        message = f"{', '.join(port.port.name for port, _ in odd)} carried far less or far more than the other ports"
        fix = f"name the job's HCAs: class.{site.class_name}.ports.compute = [...]"
        yield unknown(f"{message}, and it is not known whether jobs use them", evidence=evidence, fix=fix)
        return
    for port, rate in odd:
        way = "less than half of" if rate < middle else "more than twice"
        yield warned(
            f"{port.port.name} carried {rate:.1f} Gb/s, {way} the median of all ports",
            found=f"{rate:.1f} Gb/s",
            expected=f"{middle / 2:.1f} to {2 * middle:.1f} Gb/s (median of {len(rated)} ports: {middle:.1f})",
            **about(port, port.matching("port_(xmit|rcv)_data")),
        )
    if not odd:
        low, high = min(rate for _, rate in rated), max(rate for _, rate in rated)
        shown = " to ".join(dict.fromkeys((f"{low:.1f}", f"{high:.1f}")))
        yield passed(f"each of {len(rated)} ports carried {shown} Gb/s", found=f"{middle:.1f} Gb/s median",
                     evidence=evidence)  # fmt: skip


def no_lossless_priority(node: NodeFacts, site: Site) -> Finding | None:
    """Skip EFA, InfiniBand, and RoCE without PFC by design."""
    ports = judged_ports(node, site)
    if absent := efa_only(ports, "they have no priorities"):
        return absent
    if site.lossless.value is False:
        reason = f"the site runs RoCE without PFC by design ({site.lossless.source})"
    elif site.link_layer.value == "InfiniBand" or not any(port.roce for port in ports):
        reason = "the fabric is InfiniBand"
    else:
        return None
    return skipped(reason, evidence=ports[0].evidence[:1])


@check(
    "counters.traffic-class",
    title="RDMA runs on the lossless priority",
    fault="RDMA runs outside the lossless priority",
    impact="slows-job",
    source=f"the cluster file (qos.pfc_priority); {MLX5}",
    fix="Set the traffic class of the job (NCCL_IB_TC, UCX_IB_TRAFFIC_CLASS) to the DSCP that maps to the lossless "
    "priority, and `mlnx_qos -i IF --trust dscp`; roce.chain shows the map.",
    action="fix-job",
    window=True,
    unless=(no_compute_port, no_judged_port, no_lossless_priority),
)
def traffic_class(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the bytes on the lossless priority with all RDMA bytes.

    Each RoCE port is judged over the window.

    ## Why it matters
    PFC protects one priority. Unmarked traffic uses priority 0, where every burst drops packets, although each setting
    looks right on its own.

    ## Verdicts
    A port with less than half of its RDMA bytes on the lossless priority fails. If the cluster file does not declare
    the lossless priority, or no port carries at least 5% of its rate, the result is unknown.

    ## False alarms
    Storage traffic over RDMA on the same ports with another priority on purpose.
    """
    ports = windows(node, site)
    roce = [port for port in ports if port.port.roce]
    if site.lossless.value is None or site.pfc_priority.value is None:
        used = sorted({_busiest(port) for port in roce if port.matching(_PRIORITIES)})
        yield unknown(
            "the lossless priority of this fabric is not declared",
            found=f"most bytes on priority {', '.join(map(str, used))}" if used else "no bytes by priority",
            evidence=keys(roce[0].matching("rx_prio0_bytes")) or roce[0].port.evidence[:1],
            fix=f"declare it in the cluster file: {site.lossless.key} = true, and pfc_priority",
        )
        return
    yield from unread(roce, ("counters", "ethtool"))
    read = [port for port in roce if port.gbps is not None and "ethtool" not in port.refused]
    priority = site.pfc_priority.value
    busy = [port for port in read if (port.load or 0) >= IDLE]
    if read and not busy:
        yield unknown(f"no port carried {100 * IDLE:.0f}% of its rate: too little traffic to judge",
                      evidence=keys(read[0].growths)[:3], fix=UNDER_LOAD)  # fmt: skip
    good = []
    for port in busy:
        if wrong := _off_priority(port, priority, site.pfc_priority.source):
            yield wrong
        else:
            good.append(port)
    if good:
        yield passed(f"RDMA traffic of {some_of(len(good), len(roce), 'port')} runs on priority {priority}",
                     evidence=keys(good[0].matching(f"rx_prio{priority}_bytes|port_rcv_data")))  # fmt: skip


_PRIORITIES = "[rt]x_prio[0-7]_bytes"


def _off_priority(port: PortGrowth, priority: int, source: str) -> Finding | None:
    """Return the finding for a port's RDMA priority; None if it is the lossless one."""
    if not port.matching(_PRIORITIES):
        return unknown(f"{port.port.name} does not count bytes by priority", subject=port.port.name,
                       evidence=keys(port.growths)[:3], fix="run preflight on the host, or update the "
                       "driver")  # fmt: skip
    rdma, marked = total(port, "port_(xmit|rcv)_data"), total(port, f"[rt]x_prio{priority}_bytes")
    if marked >= rdma / 2:
        return None
    other = _busiest(port)
    return failed(
        f"RDMA traffic of {port.port.name} runs on priority {other}, not on the lossless priority {priority}",
        found=f"{100 * marked / rdma:.0f}% of its RDMA bytes on priority {priority}",
        expected=f"nearly all ({source})",
        **about(port, port.matching(f"[rt]x_prio[{priority}{other}]_bytes")),
    )


def _busiest(port: PortGrowth) -> int:
    """Return the priority that carried the most bytes."""
    return max(range(8), key=lambda one: total(port, f"[rt]x_prio{one}_bytes"))
