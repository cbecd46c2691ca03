"""Names that only RDMA counters have, by driver.

Two of them identify a list of counters without paths. Source: Linux, drivers/infiniband.
"""

from __future__ import annotations

#: Counters of every port (core/sysfs.c).
_PORT = (
    "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait", "port_rcv_errors",
    "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors", "symbol_error", "link_downed",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "link_error_recovery", "VL15_dropped",
    "excessive_buffer_overrun_errors", "local_link_integrity_errors", "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip
_MLX5 = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "resp_cqe_error", "rnr_nak_retry_err",
    "roce_adp_retrans", "roce_slow_restart", "rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests",
    "rx_dct_connect", "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests", "lifespan",
    "req_remote_access_errors", "resp_local_length_error", "rx_icrc_encapsulated_errors", "resp_cqe_flush_error",
    "req_cqe_flush_error", "roce_slow_restart_cnps", "roce_adp_retrans_to", "resp_remote_access_errors",
    "req_transport_retries_exceeded", "req_rnr_retries_exceeded", "req_remote_invalid_request",
)  # fmt: skip
_HFI1 = (
    "DmaWait", "LoopPkts", "OtherNak", "PktDrop", "RcAcks", "RcResend", "RcSeqNak", "RcTimeOut", "TxPkt", "RxPkt",
)  # fmt: skip
_IRDMA = (
    "cnpHandled", "cnpIgnored", "cnpSent", "RxECNMrkd", "ip4InOctets", "ip4OutOctets", "ip4InPkts", "ip4OutPkts",
    "tcpRetransSegs", "RetransSegs", "InRdmaReads", "InRdmaWrites", "InRdmaSends", "OutRdmaReads", "OutRdmaWrites",
    "OutRdmaSends", "iwInRdmaReads", "iwInRdmaWrites", "iwOutRdmaReads", "iwOutRdmaWrites",
)  # fmt: skip
_BNXT = (
    "oos_drop_count", "rx_cnp_pkts", "tx_cnp_pkts", "rx_ecn_marked_pkts", "seq_err_naks_rcvd", "to_retransmits",
    "rx_roce_discards", "tx_roce_discards", "max_retry_exceeded", "missing_resp", "unrecoverable_err",
)  # fmt: skip
_EFA = (
    "alloc_pd_err", "completed_cmds", "submitted_cmds", "rdma_read_bytes", "rdma_write_bytes", "rx_drops", "recv_wrs",
    "send_wrs", "rdma_read_wrs", "rdma_write_wrs", "retrans_timeout_events", "impaired_remote_conn_events",
    "unresponsive_remote_events",
)  # fmt: skip
_RXE = (
    "sent_pkts", "rcvd_pkts", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err", "rcvd_seq_err", "ack_deferred",
    "retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "rdma_sends", "rdma_recvs",
)  # fmt: skip
_MANA = (
    "requester_timeout", "requester_oos_nak", "requester_rnr_nak", "responder_rnr_nak", "responder_oos",
    "responder_dup_request", "requester_implicit_nak", "requester_readresp_psn_mismatch",
)  # fmt: skip
_HNS = tuple(
    f"HW_{way}_{what}PKT_CNT" for way in ("RX", "TX") for what in ("", "RC_", "UC_", "UD_", "XRC_", "ERR_", "CNP_")
)

OWN_NAMES = frozenset((*_PORT, *_MLX5, *_HFI1, *_IRDMA, *_BNXT, *_EFA, *_RXE, *_MANA, *_HNS))
