"""Judges of RoCE's quality of service: trust, PFC, buffers."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.facts.congestion import CNP_DSCP
from preflight.facts.roce_chain.flow_control import headroom
from preflight.model import Finding, passed, unknown, warned
from preflight.parsers.qos.port_settings import PortQos
from preflight.recognition.judges import Judges, PastedValue

#: Maximum number of lossless priorities for which a NIC has buffers.
_LOSSLESS_MOST = 2


def _qos(part: PastedValue) -> Iterator[Finding]:
    qos: PortQos = part.value
    name = qos.interface or "the port"
    if qos.pfc is not None:
        yield from _judge_pfc(qos, name, part)
    if qos.trust == "pcp" and qos.pfc is not None:
        yield unknown(f"{name}: trust pcp: untagged RoCE packets use priority 0, regardless of their DSCP",
                      subject=qos.interface, found="pcp", expected="dscp, unless the fabric tags VLANs",
                      evidence=part.evidence, fix="`mlnx_qos -i IF --trust dscp`")  # fmt: skip
    unmapped = qos.lossless - {priority for row in (qos.dscp.of.values() if qos.dscp else ()) for priority in row}
    if qos.trust == "dscp" and qos.dscp and qos.lossless and unmapped == qos.lossless and part.complete:
        names = _numbers(unmapped)
        yield warned(f"{name}: no DSCP is mapped to the lossless priority {names}", subject=qos.interface,
                     found=f"priorities {_numbers({p for row in qos.dscp.of.values() for p in row})}",
                     expected=f"a DSCP of priority {names}", evidence=part.evidence)  # fmt: skip
    yield from _judge_map(qos, name, part)
    buffers = qos.buffers
    if buffers is None or not buffers.complete:
        return
    wrong = [words for priority in sorted(qos.lossless) if (words := headroom(buffers, priority)[2])]
    if wrong:
        more = f" (and {len(wrong) - 1} more priorities)" if len(wrong) > 1 else ""
        yield warned(f"{name}: {wrong[0]}{more}: no headroom for packets in flight when the port pauses",
                     subject=qos.interface, found="; ".join(wrong), expected="a separate buffer with headroom",
                     evidence=part.evidence,
                     fix="`mlnx_qos -i IF --prio2buffer 0,0,0,1,0,0,0,0` gives the lossless priority its own buffer."
                     )  # fmt: skip


def _judge_map(qos: PortQos, name: str, part: PastedValue) -> Iterator[Finding]:
    """Report DSCPs with several priorities, and CNPs in a lossless priority."""
    rows = qos.dscp.of if qos.dscp else {}
    if double := [dscp for dscp, priorities in rows.items() if len(priorities) > 1]:
        listed = ", ".join(f"DSCP {dscp}: priorities {_numbers(rows[dscp])}" for dscp in double[:8])
        yield unknown(f"{name}: {listed}: only one of them applies", subject=qos.interface, found=listed,
                      expected="one priority for each DSCP", evidence=part.evidence)  # fmt: skip
    if rows.get(CNP_DSCP, frozenset()) & qos.lossless:
        yield unknown(
            f"{name}: DSCP {CNP_DSCP}, the default of congestion notifications, shares the lossless "
            f"priority {_numbers(qos.lossless)}",
            subject=qos.interface,
            found=f"DSCP {CNP_DSCP}",
            expected="a separate priority, without PFC",
            evidence=part.evidence,
            fix="Map it to another priority: `mlnx_qos -i IF --dscp2prio set,48,6`.",
        )


def _judge_pfc(qos: PortQos, name: str, part: PastedValue) -> Iterator[Finding]:
    on = _numbers(qos.lossless)
    if len(qos.lossless) > _LOSSLESS_MOST:
        yield warned(f"{name}: PFC is on for {len(qos.lossless)} priorities: {on}", subject=qos.interface, found=on,
                     expected="1 priority; a NIC has buffers for two", evidence=part.evidence,
                     fix="`mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0`, and the same on the switch.")  # fmt: skip
    elif len(qos.lossless) > 1:
        yield unknown(f"{name}: PFC is on for two priorities: {on}; RDMA uses one", subject=qos.interface, found=on,
                      expected="1 priority", evidence=part.evidence)  # fmt: skip
    elif not qos.lossless:
        yield unknown(f"{name}: PFC is off; it is not declared whether this RoCE fabric should be lossless",
                      subject=qos.interface, found="PFC off for all priorities", expected="one priority, if lossless",
                      evidence=part.evidence,
                      fix="For lossless RoCE, run `mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0`, and set the switch, too."
                      )  # fmt: skip
    elif part.complete:
        yield passed(f"{name}: PFC is on for priority {on} only", found=on, evidence=part.evidence)


def _numbers(priorities: frozenset[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(priorities)))


JUDGES: Judges = {"mlnx_qos": (("roce.chain", _qos),), "dcb": (("roce.chain", _qos),)}
