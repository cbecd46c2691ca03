"""Check that the congestion of InfiniBand switch ports can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.checks.fabric.sweep import DIAGS, listed, not_this_fabric
from preflight.expectations.fabric_table import FabricSite
from preflight.model import Finding, check, counted, passed, unknown, warned
from preflight.parsers.infiniband.ibqueryerrors import FULL

if TYPE_CHECKING:
    from preflight.facts.fabric.sweep import FabricFacts

WAIT = "PortXmitWait"


@check(
    "fabric.waits",
    title="The waits of InfiniBand switch ports are visible",
    fault="The waits of InfiniBand switch ports are not visible",
    impact="drifts",
    owner="network",
    source=f"IBA 16.1.3.5 (PortXmitWait; queue depth has no counter); {DIAGS}: ibqueryerrors(8)",
    fix="Reset saturated counters with `ibclearcounters`, and remove PortXmitWait from the thresholds in "
    "/etc/infiniband-diags.",
    action="fix-site",
    answers=("FP-OBS-7", "PA-19"),
    scope="fleet",
    gating=False,
    sweep=True,
    window=True,
    reads=("cmd:ibnetdiscover", "cmd:ibqueryerrors"),
    unless=(not_this_fabric,),
)
def waits(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Read how long packets waited in each switch for credits of the next device.

    ## Why it matters
    A full queue of a switch delays every flow behind it. InfiniBand has no standard counter of queue depth; the ticks
    in which a port had a packet but no credit show where queues fill.

    ## Verdicts
    The check passes if the counters of all switches were read twice, and names the ports that waited most. The length
    of a tick is not standardised, so the waits are not judged; `fabric.fan-in` and `fabric.uplink-balance` judge the
    causes. A counter at its maximum warns: it hides later waits. The result is unknown if a counter was reset, if
    queries got no answer, if small values are not listed, or if no switch lists the counter, which is optional.

    ## False alarms
    A counter that was never reset since the switch started, long ago.
    """
    keys = [swept.net_key, swept.errors_key]
    window = swept.window
    if window is None:
        yield unknown("the counters of the switches were read only once", evidence=keys,
                      fix="run `preflight check --fabric --window 60` during a job")  # fmt: skip
        return
    before, after, hours = window
    switches = {device.guid for device in swept.net.devices.values() if device.is_switch}
    ports = {port: values[WAIT] for port, values in after.counters.items() if port[0] in switches and WAIT in values}
    earlier = {port: values.get(WAIT, 0) for port, values in before.counters.items() if port[0] in switches}
    if gap := _gap(swept, len(switches)):
        yield unknown(gap, evidence=keys[::-1] if gap != swept.partial else keys)
    elif full := [port for port, ticks in ports.items() if ticks >= FULL[WAIT]]:
        yield warned(
            f"{WAIT} is at its maximum on {counted(len(full), 'switch port')}, so later waits are not counted: "
            f"{_named(swept, full)}", found=f"{FULL[WAIT]} ticks", expected=f"fewer than {FULL[WAIT]} ticks",
            evidence=keys,
        )  # fmt: skip
    elif reset := [port for port, ticks in earlier.items() if ticks > ports.get(port, 0)]:
        yield unknown(f"{WAIT} was reset during the window on {_named(swept, reset)}", evidence=keys)
    elif not ports:
        yield unknown(f"no switch lists {WAIT}: no packet has waited, or it is not counted", evidence=keys,
                      fix="query a switch under load: `perfquery LID PORT | grep XmitWait`")  # fmt: skip
    else:
        grown = {port: ticks - earlier.get(port, 0) for port, ticks in ports.items() if ticks > earlier.get(port, 0)}
        most = sorted(grown, key=lambda port: -grown[port])[:3]
        shown = ", ".join(f"{_named(swept, [port])} (+{grown[port]} ticks)" for port in most) or "none"
        yield passed(
            f"packets waited at {counted(len(grown), 'port')} of {counted(len(switches), 'switch')} in "
            f"{hours * 3600:.0f} s", found=f"longest: {shown}", evidence=keys,
        )  # fmt: skip


def _gap(swept: FabricFacts, switches: int) -> str:
    """Return why the counters of some ports are missing; empty if none are."""
    assert swept.window
    before, after, _ = swept.window
    if lost := max(before.unanswered, after.unanswered):
        return f"{counted(lost, 'counter query', 'counter queries')} got no answer"
    if swept.errors_key in swept.lost or swept.errors_key in swept.crashed:
        return "queries of counters were lost"
    if min(before.nodes, after.nodes) < switches:
        return f"{min(before.nodes, after.nodes)} devices were queried, fewer than the {switches} switches"
    if limit := max(before.thresholds.get(WAIT, 0), after.thresholds.get(WAIT, 0)):
        return f"ibqueryerrors does not list values of {WAIT} up to {limit} (thresholds in /etc/infiniband-diags)"
    return swept.partial


def _named(swept: FabricFacts, ports: list[tuple[str, int]]) -> str:
    return listed([f"{swept.device_of(guid)} port {number}" for guid, number in ports])
