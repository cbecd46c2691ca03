"""Flow-control links of the RoCE chain: PFC, ECN, CNPs, pause, buffers, DCBX.

The parameters of DCQCN are included.
"""

from __future__ import annotations

from preflight.evidence.document import EvidenceError
from preflight.facts import congestion, port_qos
from preflight.facts.roce_chain.model import ChainLink, Place, State
from preflight.parsers.qos.port_settings import Buffers


def _row(at: Place) -> str:
    """Format the lossless priority for mlnx_qos: ``0,0,0,1,0,0,0,0``."""
    return ",".join("1" if priority == at.priority else "0" for priority in range(8))


def pfc(at: Place, name: str) -> ChainLink:
    """Check that PFC is on only for the lossless priority."""
    found = port_qos.pfc(at.evidence, at.netdev)
    if found.value == {at.priority}:
        return ChainLink(name, State.OK, f"on for {at.priority} only", evidence=(found.evidence,))
    enabled = ", ".join(map(str, sorted(found.value)))
    shown = f"priorit{'y' if len(found.value) == 1 else 'ies'} {enabled}" if enabled else "no priority"
    return ChainLink(
        name, State.BROKEN, f"priority {enabled or 'none'}",
        f"PFC is on for {shown}, expected {at.priority} only",
        f"priority {at.priority} ({at.source})", (found.evidence,),
        fix=f"`mlnx_qos -i {at.netdev} --pfc {_row(at)}` (or `dcb pfc set`), and the same on the switch port",
    )  # fmt: skip


def ecn(at: Place, name: str) -> ChainLink:
    """Check that ECN is on for the lossless priority, as receiver and sender.

    ``np`` answers marked packets with CNPs, and ``rp`` reacts to CNPs.
    """
    if at.policy.ecn.value is False:
        return _without_ecn(at, name)
    assert at.priority is not None
    found = congestion.ecn(at.evidence, at.netdev, at.priority)
    points = (("np", found.notification_point), ("rp", found.reaction_point))
    off = [f"roce_{role}" for role, on in points if not on]
    if not off:
        return ChainLink(name, State.OK, f"np and rp on for {at.priority}", evidence=found.evidence)
    return ChainLink(
        name, State.BROKEN, f"{', '.join(off)} off",
        f"ECN is off on priority {at.priority} ({', '.join(off)})",
        f"on for priority {at.priority} ({at.source})", found.evidence,
        fix=f"`echo 1 > /sys/class/net/{at.netdev}/ecn/{off[0]}/enable/{at.priority}`, and ECN marking on the switch "
        "queue",
    )  # fmt: skip


def cnp(at: Place, name: str) -> ChainLink:
    """Compare the DSCP of CNPs with the site's.

    Their priority must not be the lossless one.
    """
    if at.policy.ecn.value is False:
        return _without_ecn(at, name)
    if at.trusts_pcp:
        return ChainLink(name, State.APART, reason="the port does not trust DSCP")
    found, key = congestion.cnp_dscp(at.evidence, at.netdev, at.function)
    wanted = at.policy.cnp_dscp
    right = congestion.CNP_DSCP if wanted.value is None else wanted.value
    fix = f"`echo {right} > /sys/class/net/{at.netdev}/ecn/roce_np/cnp_dscp`, on all nodes"
    if wanted.value not in (None, found):
        return ChainLink(
            name, State.BROKEN, f"DSCP {found}", f"CNPs are sent with DSCP {found}, expected {wanted.value}",
            f"DSCP {wanted.value} ({wanted.source})", (key,), fix=fix,
        )  # fmt: skip
    table = port_qos.dscp_map(at.evidence, at.netdev)
    priority = table.value.priority(found)
    if priority is None:
        raise EvidenceError(table.evidence, f"does not map DSCP {found}")
    if priority != at.priority:
        return ChainLink(name, State.OK, f"DSCP {found}, priority {priority}", evidence=(key, table.evidence))
    return ChainLink(
        name,
        State.BROKEN,
        f"DSCP {found}, priority {priority}",
        f"CNPs (DSCP {found}) share the lossless priority {priority}, and queue behind the traffic "
        "that they should slow down",
        "a separate priority, without PFC",
        (key, table.evidence),
        fix=fix,
    )


def pause(at: Place, name: str) -> ChainLink:
    """Check that global pause (IEEE 802.3x) is off in both directions.

    A port cannot use both global pause and PFC.
    """
    found = port_qos.pause(at.evidence, at.netdev)
    on = [way for way, is_on in (("RX", found.value.rx), ("TX", found.value.tx)) if is_on]
    if not on:
        return ChainLink(name, State.OK, "off", evidence=(found.evidence,))
    return ChainLink(
        name, State.BROKEN, f"{' and '.join(on)} on",
        f"global pause is on ({', '.join(on)}) together with PFC, so it stops all traffic of the port, and PFC is not "
        "honoured",
        "RX off, TX off", (found.evidence,), fix=f"`ethtool -A {at.netdev} rx off tx off`",
    )  # fmt: skip


def buffers(at: Place, name: str) -> ChainLink:
    """Check that the lossless priority has a separate, non-empty receive buffer."""
    found = port_qos.buffers(at.evidence, at.netdev)
    assert at.priority is not None
    number, size, wrong = headroom(found.value, at.priority)
    if not wrong:
        return ChainLink(name, State.OK, f"buffer {number}, {size} bytes", evidence=(found.evidence,))
    return ChainLink(
        name, State.BROKEN, f"buffer {number}, {size} bytes",
        f"{wrong}, so it has no headroom for packets in flight when the port pauses",
        "a separate buffer with headroom", (found.evidence,),
        fix=f"`mlnx_qos -i {at.netdev} --prio2buffer {_row(at)}` and --buffer_size, or let --pfc set both",
    )  # fmt: skip


def headroom(buffers: Buffers, priority: int) -> tuple[int, int, str]:
    """Return number and size of a priority's buffer, and why it has no headroom.

    The reason is empty if it has headroom.
    """
    number = buffers.of_priority[priority]
    size = buffers.bytes[number]
    if not size:
        return number, size, f"buffer {number} of priority {priority} has no bytes"
    shared = any(owner == number for other, owner in enumerate(buffers.of_priority) if other != priority)
    return number, size, f"priority {priority} shares buffer {number} with lossy priorities" if shared else ""


_NAMES = {"os": "OS"}


def dcbx(at: Place, name: str) -> ChainLink:
    """Compare what controls DCB with the site's declaration.

    Without a declaration, control by the firmware is reported.
    """
    found, wanted = port_qos.dcbx(at.evidence, at.netdev), at.policy.dcbx
    right = wanted.value or "os"
    if found.value == right:
        return ChainLink(name, State.OK, f"{found.value} controlled", evidence=(found.evidence,))
    cost = ", so the switch may overwrite the host's settings" if found.value == "firmware" else ""
    return ChainLink(
        name, State.BROKEN, f"{found.value} controlled",
        f"DCBX is controlled by the {_NAMES.get(found.value, found.value)} instead of the "
        f"{_NAMES.get(right, right)}{cost}",
        f"{right} controlled ({wanted.source or 'PFC is set on the host'})", (found.evidence,),
        fix=f"`mlnx_qos -i {at.netdev} -d {'os' if right == 'os' else 'fw'}`, or declare dcbx = \"{found.value}\" in "
            "the "
        "cluster file",
        minor=wanted.value is None,
    )  # fmt: skip


def dcqcn(at: Place, name: str) -> ChainLink:
    """List the DCQCN parameters that differ from the defaults; none is judged."""
    if at.policy.ecn.value is False:
        return _without_ecn(at, name)
    found = congestion.parameters(at.evidence, at.netdev, at.function)
    changed = ", ".join(f"{parameter} {value}" for parameter, value in found.changed.items())
    return ChainLink(name, State.OK, changed or "the firmware's defaults", evidence=found.evidence[:2])


def _without_ecn(at: Place, name: str) -> ChainLink:
    return ChainLink(name, State.APART, reason=f"without ECN by design ({at.policy.ecn.source})")
