"""Counters: ``perfquery``, ``ethtool -S``, sysfs ``counters`` and ``hw_counters``.

Data counters of InfiniBand count words of four bytes; the facts are in bytes.
"""

from __future__ import annotations

import re
from typing import Any

from preflight.reading.blocks import block, number
from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Taken

#: Counted in words of four bytes (InfiniBand specification, PortCounters), by perfquery's names and sysfs's.
_WORDS = frozenset(
    ("PortXmitData", "PortRcvData", "XmtData", "RcvData", "XmitData", "port_xmit_data", "port_rcv_data",
     "PortUnicastXmitData")
)  # fmt: skip

#: What perfquery prints besides counters.
_NO_COUNTER = frozenset(("PortSelect", "CounterSelect", "CounterSelect2"))

_PERF_HEAD = re.compile(
    r"\s*#\s*Port (extended )?(?:counters|performance counters).*?:\s*Lid (\d{1,5}) port (\d{1,3})\b.*", re.IGNORECASE
)
#: The end of the head, where a mail broke it.
_PERF_HEAD_END = re.compile(
    r"\s*(?:\(?CapMask\d?:\s*)?(?:0x[0-9a-fA-F]{4,8}\s*)?(?:CapMask2:\s*0x[0-9a-fA-F]{4,8})?\)\s*"
)
_PERF_ROW = re.compile(r"\s*([A-Z][A-Za-z0-9]{2,60}):\.*(\S.*)?")


#: Names that only perfquery prints this way, two of which tell it where the head is cut off.
_PERF_OWN = re.compile(
    r"\s*(?:(?:SymbolError|LinkErrorRecovery|LinkDowned)Counter|Port(?:Unicast|Multicast)?(?:Rcv|Xmit)[A-Za-z]{3,40}"
    r"|LocalLinkIntegrityErrors|ExcessiveBufferOverrunErrors|VL15Dropped|QP1Dropped|CounterSelect2?):\.{2,}.*"
)


def _begins_perf(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _PERF_HEAD.fullmatch(text) or (text.lstrip().startswith("PortSelect:") and ".." in text):
        return True
    return ":.." in text and at + 1 < len(lines) and all(_PERF_OWN.fullmatch(line.text) for line in lines[at : at + 2])


def _take_perf(lines: Lines, at: int) -> Taken:
    facts: dict[str, Any] = {"lid": None, "port": None, "extended": None, "counters": {}}
    cut = list[Cut]()
    if match := _PERF_HEAD.fullmatch(lines[at].text):
        facts.update(lid=int(match[2]), port=int(match[3]), extended=bool(match[1]))
    elif _PERF_OWN.fullmatch(lines[at].text):
        cut.append(Cut(lines[at].number, "the head of the list is missing: others may have stood before"))

    def belongs(text: str) -> bool:
        if text is lines[at].text or _PERF_HEAD_END.fullmatch(text):
            return True
        return bool((match := _PERF_ROW.fullmatch(text)) and ".." in text and match)

    end, taken = block(lines, at, belongs, blanks=0)
    for line in taken:
        if (match := _PERF_ROW.fullmatch(line.text)) and match[1] not in _NO_COUNTER:
            if (value := number(match[2])) is None and not (match[2] or "").startswith("N/A"):
                cut.append(Cut(line.number, f"{match[1]} has no value"))
            elif value is not None:
                facts["counters"][match[1]] = value * 4 if match[1] in _WORDS else value
    if not facts["counters"]:
        cut.append(Cut(taken[-1].number, "no counter follows"))
    return Taken(end, facts, _summary(facts["counters"], f"LID {facts['lid']} port {facts['port']}"), cut)


_NIC_STATISTICS = re.compile(r"\s*NIC statistics:\s*")
_STATISTIC = re.compile(r"\s*([A-Za-z\[][\w .,:+/()\[\]-]{0,80}?)\s*:\s*(-?\d{1,30})\s*")


#: Names by which a list is known whose head was cut off, as by `| grep pause`.
_NIC_NAME = re.compile(r"\s*(?:rx|tx)\d{0,4}_\w{2,60}:\s*\d{1,30}\s*")


def _begins_ethtool(lines: Lines, at: int) -> bool:
    if _NIC_STATISTICS.fullmatch(lines[at].text):
        return True
    return all(_NIC_NAME.fullmatch(line.text) for line in lines[at : at + 2]) and at + 1 < len(lines)


def _take_ethtool(lines: Lines, at: int) -> Taken:
    end, taken = block(
        lines, at, lambda text: bool(_STATISTIC.fullmatch(text)), blanks=0,
        again=lambda text: bool(_NIC_STATISTICS.fullmatch(text)),
    )  # fmt: skip
    found = [match for line in taken if (match := _STATISTIC.fullmatch(line.text))]
    counters = {match[1].strip(): int(match[2]) for match in found}
    cut = [] if counters else [Cut(taken[-1].number, "no counter follows")]
    if not _NIC_STATISTICS.fullmatch(lines[at].text):
        cut.append(Cut(lines[at].number, "the head of the list is missing: others may have stood before"))
    return Taken(end, {"counters": counters}, _summary(counters, ""), cut)


_SYSFS = re.compile(
    r"\s*(?:/sys/class/infiniband/|\.?/?)?(?:(?P<device>[A-Za-z][\w.-]{0,63})/ports/(?P<port>\d{1,3})/)?"
    r"(?P<kind>hw_counters|counters)/(?P<name>[A-Za-z]\w{2,60})\s*[:=]\s*(?P<value>-?\d{1,30})\s*"
)
#: Names that only hw_counters have, so that a list without paths is told by two of them (mlx5, rdma core).
_OWN_NAMES = frozenset(
    ("duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
     "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "resp_cqe_error", "rnr_nak_retry_err",
     "roce_adp_retrans", "roce_slow_restart", "rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests",
     "rx_dct_connect", "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests", "lifespan",
     "req_remote_access_errors", "resp_local_length_error", "rx_icrc_encapsulated_errors", "resp_cqe_flush_error",
     "req_cqe_flush_error", "roce_slow_restart_cnps", "roce_adp_retrans_to", "resp_remote_access_errors",
     # the port's own counters
     "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait", "port_rcv_errors",
     "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors", "symbol_error", "link_downed",
     "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "link_error_recovery", "VL15_dropped",
     "excessive_buffer_overrun_errors", "local_link_integrity_errors", "unicast_rcv_packets", "unicast_xmit_packets",
     # hfi1, irdma, bnxt_re, EFA
     "DmaWait", "LoopPkts", "OtherNak", "PktDrop", "RcAcks", "RcResend", "RcSeqNak", "RcTimeOut", "TxPkt", "RxPkt",
     "cnpHandled", "cnpIgnored", "cnpSent", "RxECNMrkd", "ip4InOctets", "ip4OutOctets", "oos_drop_count", "rx_cnp_pkts",
     "tx_cnp_pkts", "rx_ecn_marked_pkts", "seq_err_naks_rcvd", "to_retransmits", "rx_roce_discards", "tx_roce_discards",
     "alloc_pd_err", "completed_cmds", "submitted_cmds", "rdma_read_bytes", "rdma_write_bytes", "rx_drops", "recv_wrs")
)  # fmt: skip
_NAMED = re.compile(r"\s*([A-Za-z]\w{2,60})\s*[:=\s]\s*(\d{1,30})\s*")


def _begins_sysfs(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if "counters/" in text:
        return bool(_SYSFS.fullmatch(text))
    match = _NAMED.fullmatch(text)
    if not match or match[1] not in _OWN_NAMES:
        return False
    near = [_NAMED.fullmatch(line.text) for line in lines[at + 1 : at + 4]]
    return any(found and found[1] in _OWN_NAMES for found in near)


def _take_sysfs(lines: Lines, at: int) -> Taken:
    counters: dict[str, int] = {}
    by_port: dict[str, dict[str, int]] = {}

    def belongs(text: str) -> bool:
        return bool(_SYSFS.fullmatch(text) or _NAMED.fullmatch(text))

    end, taken = block(lines, at, belongs, blanks=1)
    for line in taken:
        if match := _SYSFS.fullmatch(line.text):
            value = int(match["value"]) * (4 if match["name"] in _WORDS else 1)
            if match["device"]:
                by_port.setdefault(f"{match['device']}/{match['port']}", {})[match["name"]] = value
            counters.setdefault(match["name"], value)
        elif match := _NAMED.fullmatch(line.text):
            counters.setdefault(match[1], int(match[2]) * (4 if match[1] in _WORDS else 1))
    facts = {"counters": counters, "ports": by_port}
    return Taken(end, facts, _summary(counters, ", ".join(by_port)))


def _summary(counters: dict[str, int], where: str) -> str:
    return f"{len(counters)} counters, {sum(map(bool, counters.values()))} of them not 0{' of ' * bool(where)}{where}"


KINDS = (
    Kind("perfquery", _begins_perf, _take_perf),
    Kind("ethtool -S", _begins_ethtool, _take_ethtool),
    Kind("hw_counters", _begins_sysfs, _take_sysfs),
)
