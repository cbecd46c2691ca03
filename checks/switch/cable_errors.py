"""Check of damaged and dropped frames at both ends of a cable."""

from __future__ import annotations

import math
from collections.abc import Iterator

from preflight.checks.switch.common import listed
from preflight.checks.switch.links import no_cable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch import cable_ends
from preflight.facts.switch.ethernet import CableEnd, Ethernet, EthernetCable
from preflight.model import Finding, check, clause, counted, failed, passed, unknown, warned

#: Damaged frames per hour above which a cable fails, as for a host's port (rx_crc_errors_phy).
_PER_HOUR = 10


@check(
    "link.errors",
    title="Switch ports receive no damaged frames, and drop none that a host misses",
    fault="A switch port receives damaged frames, or drops frames that a host misses",
    impact="slows-job",
    owner="network",
    source="SONiC SAI_PORT_STAT_IF_IN_ERRORS, EOS totalInErrors, NX-OS eth_inerr; mlx5 hw_counters; 10 an hour as for "
    "rx_crc_errors_phy",
    fix="For damaged frames, clean, reseat or replace the cable, or its module at the sending end. For dropped frames, "
    "compare `show interfaces counters` with the MTU, VLAN and buffers of the port.",
    explains=(("counters.loss", "cable"), ("counters.link-quality", "cable", "* damaged frames *")),
    action="fix-site",
    separate=True,
    answers=("AN-5",),
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB ports", "eos:show interfaces", "nxos:show interface", "linux:ip -j -s link"),
    unless=(no_cable,),
)
def errors(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare errors of each switch port with those of the host at its cable.

    ## Why it matters
    A host counts frames that arrive damaged; only the switch counts those that the host sent. Without its counters,
    retransmissions of RDMA have no visible cause.

    ## Verdicts
    More than 10 damaged frames an hour at a switch port fail, fewer warn; the finding states what the other end counts.
    Drops at a switch port warn if the host at its cable counts lost RDMA packets in the same window, and are unknown if
    the host's counters were not read twice. Other drops are only counted in the message: lossy traffic may be dropped
    by design, and `switch.lossless-drops` judges lossless queues. A switch port without error counters, or with
    counters that were cleared, is unknown.

    ## False alarms
    Frames longer than the MTU of the switch port, which many switches count as errors (`link.mtu`).
    """
    clean = quiet = between = 0
    blank: dict[str, list[str]] = {}  # ports without counters, by switch
    alone: list[str] = []  # drops, where the host's counters are unknown
    for cable in net.cables:
        judged = [*_damage(net, cable), *_drops(net, cable)]
        yield from judged
        counts = {end: cable_ends.traffic(net, end) for end in cable.ends if end.is_switch}
        silent = [end for end, count in counts.items() if count is None or None in (count.damaged, count.dropped)]
        for end in silent:
            blank.setdefault(end.device, []).append(end.port)
        near = counts[cable.near]
        if near and near.dropped and not cable.other.is_switch and not cable_ends.counts_losses(net, cable.other):
            alone.append(f"{cable.near} ({counted(near.dropped, 'packet')} to {cable.other})")
        elif not judged and not silent:
            clean += 1
            dropped = sum(count.dropped or 0 for count in counts.values() if count)
            quiet += 0 if cable.other.is_switch else dropped
            between += dropped if cable.other.is_switch else 0
    for name, ports in blank.items():
        why = "the counters decreased within the window" if name in net.cleared else "no two readings have the counters"
        yield unknown(f"the errors of {name} {listed(ports)} are unknown: {why}", subject=name,
                      evidence=[net.by_name[name].key("port counters")],
                      fix="read the switch twice: `preflight check --switches --window 60`")  # fmt: skip
    if alone:
        yield unknown(f"it is unknown whether hosts lost the packets that switch ports dropped: {listed(alone)}",
                      evidence=[net.switches[0].key("port counters")],
                      fix="read the hosts twice too: `preflight check --hosts … --switches --window 60`")  # fmt: skip
    if clean:
        keys = [net.switches[0].key("port counters")]
        drops = f"; {counted(quiet, 'dropped packet')} caused no loss that a host counts" if quiet else ""
        drops += f"; {clause(between, 'packet', 'was')} dropped between switches" if between else ""
        yield passed(f"no switch port of {counted(clean, 'cable')} received a damaged frame{drops}", evidence=keys)


def _damage(net: Ethernet, cable: EthernetCable) -> Iterator[Finding]:
    """Yield a finding for each end that is a switch port with damaged frames."""
    for end, far in (cable.ends, cable.ends[::-1]):
        own = cable_ends.traffic(net, end) if end.is_switch else None
        if own is None or not own.damaged:
            continue
        sure = (own.damaged - 2 * math.sqrt(own.damaged)) * 3600 / own.seconds
        yield (failed if sure > _PER_HOUR else warned)(
            f"{end} received {counted(own.damaged, 'damaged frame')} from {far}{_beside(net, far)}{cable.note}",
            subject=str(cable), found=f"+{own.damaged} in {own.seconds:.0f} s", expected="+0",
            evidence=[net.by_name[end.device].key("port counters")],
        )  # fmt: skip


def _beside(net: Ethernet, end: CableEnd) -> str:
    """Return what the other end counts, as the end of a message."""
    other = cable_ends.traffic(net, end)
    damaged = "an unknown number" if other is None or other.damaged is None else f"{other.damaged or 'none'}"
    lost = ""
    if not end.is_switch:
        none = " and lost no RDMA packet" if cable_ends.counts_losses(net, end) else (
            "; its lost RDMA packets are not counted"
        )  # fmt: skip
        shown = _shown(cable_ends.rdma_errors(net, end))
        lost = f" and lost RDMA packets ({shown})" if shown else none
    return f", which received {damaged} itself{lost}"


def _drops(net: Ethernet, cable: EthernetCable) -> Iterator[Finding]:
    """Yield a finding if a switch port dropped packets and its host lost some."""
    own = cable_ends.traffic(net, cable.near)
    lost = {} if cable.other.is_switch else cable_ends.rdma_errors(net, cable.other)
    if own is not None and own.dropped and lost:
        yield warned(
            f"{cable.near} dropped {counted(own.dropped, 'packet')} while {cable.other} lost RDMA packets "
            f"({_shown(lost)}){cable.note}", subject=str(cable), found=f"+{own.dropped} in {own.seconds:.0f} s",
            expected="+0", evidence=[net.by_name[cable.near.device].key("port counters")],
        )  # fmt: skip


def _shown(lost: dict[str, int]) -> str:
    return ", ".join(f"{name} +{number}" for name, number in sorted(lost.items()))
