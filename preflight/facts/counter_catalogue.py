"""Catalogue of RDMA port counters: meaning, width, and growth limits."""

from __future__ import annotations

import enum
import re
from functools import cache

from preflight._startup.lightclass import dataclass


class CounterKind(str, enum.Enum):
    """Meaning of a counter's growth."""

    LOSS = "loss"  # packets were lost, or queue pairs died
    LINK = "link quality"  # the cable or the optics of this link
    ELSEWHERE = "another link"  # damaged on an earlier link
    FLAP = "link down"
    CONGESTION = "congestion"  # waits, marks and pauses: an explanation, not a fault
    RECEIVER = "slow receiver"  # the host or the application was too slow
    TRAFFIC = "traffic"
    NEUTRAL = "neutral"  # sampling periods, teardown, multicast: no information


@dataclass(frozen=True)
class Counter:
    """Catalogue entry of one counter: its meaning, unit, width and limit.

    ``fail_per_h`` is the growth per hour above which a check fails; None: it only warns.
    """

    name: str
    kind: CounterKind
    meaning: str
    unit: str = ""  # empty: events or packets
    bits: int = 64
    stops: bool = False  # stays at its maximum; otherwise it wraps
    scale: int = 1  # units in one count
    fail_per_h: float | None = None
    rare: bool = False  # judged as a share of the received packets, together with similar counters


def _row(name: str, kind: CounterKind, meaning: str, **more: object) -> Counter:
    return Counter(name, kind, meaning, **more)  # type: ignore[arg-type]


_L, _Q, _C, _R, _T, _N = (
    CounterKind.LOSS,
    CounterKind.LINK,
    CounterKind.CONGESTION,
    CounterKind.RECEIVER,
    CounterKind.TRAFFIC,
    CounterKind.NEUTRAL,
)
_WORDS = {"unit": "bytes", "scale": 4}


def _stopping(bits: int) -> dict[str, object]:
    return {"bits": bits, "stops": True}


#: ``/sys/class/infiniband/*/ports/*/counters``
_PORT = (
    _row("symbol_error", _Q, "invalid symbols", **_stopping(16), fail_per_h=120),
    _row("link_error_recovery", _Q, "times the link retrained", **_stopping(8), fail_per_h=300),
    _row("link_downed", CounterKind.FLAP, "link downs", **_stopping(8), fail_per_h=0),
    _row("port_rcv_errors", _Q, "damaged packets", **_stopping(16), fail_per_h=10),
    _row(
        "port_rcv_remote_physical_errors",
        CounterKind.ELSEWHERE,
        "packets marked bad on an earlier link",
        **_stopping(16),
    ),
    _row("port_rcv_switch_relay_errors", _N, "loops of multicast", **_stopping(16)),
    _row("port_xmit_discards", _L, "packets dropped on transmit", **_stopping(16)),
    _row("port_xmit_constraint_errors", _L, "packets sent against the partition's rules", **_stopping(8)),
    _row("port_rcv_constraint_errors", _L, "packets received against the partition's rules", **_stopping(8)),
    _row("local_link_integrity_errors", _Q, "local errors above the port's own limit", **_stopping(4), fail_per_h=0),
    _row("excessive_buffer_overrun_errors", _L, "overruns of the receive buffer", **_stopping(4), fail_per_h=0),
    _row("VL15_dropped", _N, "management packets dropped", **_stopping(16)),
    _row("port_xmit_wait", _C, "ticks with data and no credit", unit="ticks", **_stopping(32)),
    _row("port_xmit_data", _T, "bytes sent", **_WORDS),
    _row("port_rcv_data", _T, "bytes received", **_WORDS),
    _row("port_xmit_packets", _T, "packets sent"),
    _row("port_rcv_packets", _T, "packets received"),
)

#: ``hw_counters`` of efa (drivers/infiniband/hw/efa/efa_verbs.c). SRD retransmits by design, so retransmissions alone
#: are not a fault.
_EFA = (
    _row("tx_bytes", _T, "bytes sent", unit="bytes"),
    _row("rx_bytes", _T, "bytes received", unit="bytes"),
    _row("tx_pkts", _T, "packets sent"),
    _row("rx_pkts", _T, "packets received"),
    _row("rx_drops", _R, "packets that were received and dropped", rare=True),
    _row("rdma_read_wr_err", _L, "RDMA reads that ended in an error"),
    _row("rdma_write_wr_err", _L, "RDMA writes that ended in an error"),
    _row("unresponsive_remote_events", _L, "number of times that a peer did not answer"),
    _row("impaired_remote_conn_events", _C, "number of times that a connection to a peer was throttled"),
    _row("retrans_pkts", _C, "packets sent again"),
    _row("retrans_timeout_events", _C, "time-outs that changed the path"),
)

#: ``/sys/class/infiniband/*/ports/*/hw_counters``, of mlx5 and efa; other names are neutral.
_HARDWARE = (
    _row("local_ack_timeout_err", _L, "acknowledgement timeouts", bits=32, fail_per_h=3600),
    _row(
        "req_transport_retries_exceeded", _L, "queue pairs that failed because of lost packets", bits=32, fail_per_h=0
    ),
    _row("out_of_sequence", _L, "packets out of sequence", bits=32, rare=True),
    _row("packet_seq_err", _L, "negative acknowledgements for a sequence gap", bits=32, rare=True),
    _row("implied_nak_seq_err", _L, "sequence gaps seen by the requester", bits=32, rare=True),
    _row("duplicate_request", _L, "duplicate requests", bits=32, rare=True),
    _row("roce_adp_retrans", _L, "adaptive retransmissions", bits=32, rare=True),
    _row("roce_adp_retrans_to", _L, "time-outs of adaptive retransmission", bits=32),
    _row("rx_icrc_encapsulated", _L, "RoCE packets with a damaged ICRC"),
    _row(
        "req_rnr_retries_exceeded",
        _R,
        "queue pairs that failed because the receiver had no buffers",
        bits=32,
        fail_per_h=0,
    ),
    _row("rnr_nak_retry_err", _R, "number of times that a receiver had no buffer ready", bits=32),
    _row("out_of_buffer", _R, "packets dropped for lack of a receive buffer", bits=32, rare=True),
    _row("roce_slow_restart", _C, "slow restarts", bits=32),
    _row("roce_slow_restart_cnps", _C, "CNPs of slow restart", bits=32),
    _row("roce_slow_restart_trans", _C, "transitions to slow restart", bits=32),
    _row("np_ecn_marked_roce_packets", _C, "ECN-marked packets received"),
    _row("np_cnp_sent", _C, "CNPs sent"),
    _row("rp_cnp_handled", _C, "CNPs obeyed"),
    _row("rp_cnp_ignored", _C, "CNPs ignored"),
    *_EFA,
)

#: ``ethtool -S`` of mlx5; N is a priority, 0 to 7.
_ETHTOOL = (
    _row("rx_discards_phy", _L, "packets dropped by the NIC's port for lack of buffers"),
    _row("tx_discards_phy", _L, "packets dropped by the NIC's port on transmit"),
    _row("rx_prioN_discards", _L, "packets of the priority dropped for lack of buffers"),
    _row("rx_prioN_buf_discard", _L, "packets of the priority dropped: buffer full"),
    _row("rx_prioN_cong_discard", _L, "packets of the priority dropped: congestion"),
    _row("tx_pause_storm_error_events", _L, "pause switched off after a storm"),
    _row("rx_out_of_buffer", _R, "packets dropped for lack of a receive buffer", rare=True),
    _row("rx_buff_alloc_err", _R, "receive buffers that could not be allocated", rare=True),
    _row("rx_crc_errors_phy", _Q, "frames with a bad checksum", fail_per_h=10),
    _row("rx_symbol_err_phy", _Q, "invalid symbols", fail_per_h=120),
    _row("rx_pcs_symbol_err_phy", _Q, "symbol errors that FEC did not correct", fail_per_h=120),
    _row("rx_corrected_bits_phy", _N, "bits that FEC corrected", unit="bits"),
    _row("rx_bits_phy", _T, "bits received, including idle ones", unit="bits"),
    _row("link_down_events_phy", CounterKind.FLAP, "link downs", fail_per_h=0),
    _row("rx_prioN_marked", _C, "ECN-marked packets of the priority"),
    _row("rx_prioN_pause", _C, "pauses received"),
    _row("tx_prioN_pause", _C, "pauses sent"),
    _row("rx_prioN_pause_duration", _C, "time that the switch paused this port", unit="us"),
    _row("tx_prioN_pause_duration", _C, "time that this port paused the switch", unit="us"),
    _row("rx_global_pause", _C, "global pauses received"),
    _row("tx_global_pause", _C, "global pauses sent"),
    _row("rx_global_pause_duration", _C, "time that global pauses stopped this port", unit="us"),
    _row("tx_global_pause_duration", _C, "time that this port paused all of the switch's traffic", unit="us"),
    _row("tx_pause_storm_warning_events", _C, "pause storms"),
    _row("rx_prioN_bytes", _T, "bytes of the priority received", unit="bytes"),
    _row("tx_prioN_bytes", _T, "bytes of the priority sent", unit="bytes"),
)

#: Counters in the tables that switches print, with the names of their columns (EOS, NX-OS, SONiC).
_SWITCH = tuple(
    _row(name, kind, meaning)
    for kind, meaning, names in (
        (_Q, "damaged frames", "FCS|FCS-Err|CRC|FCS error|FCS errors|Align|Align-Err|alignment|Rcv-Err|input errors"
         "|RX_ERR|IntMacRx-Er|in-errors|Runts|runts|UnderSize|Stomped-CRC"),
        (_Q, "invalid symbols", "Symbol|Symbol-Err|symbol"),
        (_Q, "codewords that FEC did not correct", "FEC_UNCORR"),
        (_Q, "frames above the MTU of the port", "Giants|giants"),
        (_L, "errors on transmit", "Xmit-Err|output errors|TX_ERR|out-errors"),
        (_L, "packets dropped on transmit", "OutDiscards|output discards|output discard|TX_DRP|TX_DROPS|TX_OVR"
         "|Drop/pkts|DropPkts|out-drops"),
        (_L, "packets dropped on receipt", "InDiscards|input discards|input discard|RX_DRP|RX_DROPS|RX_OVR|no buffer"
         "|overrun|in-drops"),
        (CounterKind.FLAP, "link ups and downs", "link status changes|carrier-transitions"),
        (_N, "symbols that FEC corrected", "FEC_SYMBOL_ERR"),
        (_N, "bytes of dropped packets", "Drop/bytes|DropBytes"),
    )
    for name in names.split("|")
)  # fmt: skip

#: ``/sys/class/net/*/carrier_changes``: each up and each down counts once.
CARRIER = _row("carrier_changes", CounterKind.FLAP, "carrier changes", bits=32, fail_per_h=0)

_BY_SOURCE = {
    source: {counter.name: counter for counter in rows}
    for source, rows in (("counters", _PORT), ("hw_counters", _HARDWARE), ("ethtool", _ETHTOOL), ("switch", _SWITCH))
}


@cache
def counter(source: str, name: str) -> Counter:
    """Return the catalogue entry of a counter; a neutral one if there is none.

    The source is ``counters``, ``hw_counters``, ``ethtool`` or ``switch``.
    """
    row = _BY_SOURCE[source].get(re.sub(r"(?<=x_prio)[0-7](?=_)", "N", name))
    if row is None:
        return Counter(name, CounterKind.NEUTRAL, "")
    if row.name == name:
        return row
    return Counter(name, row.kind, row.meaning, row.unit, row.bits, row.stops, row.scale, row.fail_per_h, row.rare)
