"""Counters at both ends of a window: sysfs ``counters`` and ``hw_counters``, ``ethtool -S``, /proc/stat, carriers.

The names are mlx5's (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst). Compute ports carry
a collective; the totals before the window are those of an old machine.
"""

from __future__ import annotations

from typing import Any

from tests.support.machines.hcas import verbs
from tests.support.machines.machine import Machine, Nic
from tests.support.machines.records import Records, ran

WINDOW_S = 60.0
BEGAN_S = 421000.5  # on the node's monotonic clock

#: Ticks of USER_HZ in a second.
_HZ = 100

_PORT = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors",
    "port_rcv_data", "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards",
    "port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip

_HARDWARE = (
    "duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "out_of_buffer",
    "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors",
    "req_remote_invalid_request", "req_rnr_retries_exceeded", "req_transport_retries_exceeded", "resp_cqe_error",
    "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err",
    "rx_atomic_requests", "rx_dct_connect", "rx_read_requests", "rx_write_requests",
)  # fmt: skip
_HARDWARE_ROCE = (
    "np_cnp_sent", "np_ecn_marked_roce_packets", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart",
    "roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_handled", "rp_cnp_ignored", "rx_icrc_encapsulated",
)  # fmt: skip

#: The efa driver's; it has no ``counters``, which need management datagrams.
_EFA = (
    "impaired_remote_conn_events", "lifespan", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_read_wr_err",
    "rdma_read_wrs", "rdma_write_bytes", "rdma_write_recv_bytes", "rdma_write_wr_err", "rdma_write_wrs", "recv_bytes",
    "recv_wrs", "retrans_bytes", "retrans_pkts", "retrans_timeout_events", "rx_bytes", "rx_drops", "rx_pkts",
    "send_bytes", "send_wrs", "tx_bytes", "tx_pkts", "unresponsive_remote_events",
)  # fmt: skip

_ETHERNET = (
    "rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_out_of_buffer", "rx_buff_alloc_err",
    "rx_vport_rdma_unicast_bytes", "tx_vport_rdma_unicast_bytes",
)  # fmt: skip
_PHYSICAL = (
    "tx_packets_phy", "rx_packets_phy", "rx_crc_errors_phy", "tx_bytes_phy", "rx_bytes_phy", "rx_symbol_err_phy",
    "tx_discards_phy", "rx_discards_phy", "rx_pcs_symbol_err_phy", "rx_corrected_bits_phy", "link_down_events_phy",
    "tx_pause_storm_warning_events", "tx_pause_storm_error_events", "module_unplug",
)  # fmt: skip
_PRIORITY = ("rx_prio{}_bytes", "rx_prio{}_packets", "rx_prio{}_discards", "tx_prio{}_bytes", "tx_prio{}_packets",
             "rx_prio{}_buf_discard", "rx_prio{}_cong_discard", "rx_prio{}_marked")  # fmt: skip
_PAUSE = ("rx_prio{}_pause", "rx_prio{}_pause_duration", "tx_prio{}_pause", "tx_prio{}_pause_duration",
          "rx_prio{}_pause_transition")  # fmt: skip

#: Width in bits of counters that stop at their maximum.
_WIDTHS = {"port_xmit_wait": 32, "symbol_error": 16, "link_downed": 8, "local_link_integrity_errors": 4}

#: Totals of an old machine; they show nothing about today.
_HISTORY = {
    "link_downed": 3, "port_xmit_wait": 81234567, "lifespan": 10, "req_cqe_flush_error": 812,
    "resp_cqe_flush_error": 812, "port_rcv_switch_relay_errors": 41, "local_ack_timeout_err": 17,
    "out_of_sequence": 2204, "np_cnp_sent": 90412, "np_ecn_marked_roce_packets": 90412, "rp_cnp_handled": 88120,
    "link_down_events_phy": 3, "rx_corrected_bits_phy": 5_120_000_000, "rx_discards_phy": 12,
    "rx_prio3_pause": 5120, "tx_prio3_pause": 96,
}  # fmt: skip


def render(machine: Machine) -> Records:
    records: Records = {"file:/proc/stat": _twice({"status": "ok"}, *({"out": _stat(machine, end)} for end in (0, 1)))}
    for _, nic in verbs(machine):
        base = f"files:/sys/class/infiniband/{nic.device}/ports/1"
        roce = nic.ethernet(machine.roce)
        hardware = (*_HARDWARE, *(_HARDWARE_ROCE if roce else ()))
        for folder, names in (("hw_counters", _EFA),) if nic.efa else (("counters", _PORT), ("hw_counters", hardware)):
            values = [_values(machine, nic, names, end) for end in (0, 1)]
            texts = [{name: str(value) for name, value in one.items()} for one in values]
            if texts[0]:
                records[f"{base}/{folder}"] = _twice({"status": "ok"}, *({"value": one} for one in texts))
        if not nic.here:
            continue
        name = nic.netdev(machine.roce)
        carrier = [2 + 2 * (nic.grows.get("link_downed", 0) if end else 0) for end in (0, 1)]
        records[f"file:/sys/class/net/{name}/carrier_changes"] = _twice(
            {"status": "ok"}, *({"out": f"{changes}\n"} for changes in carrier)
        )
        if roce:
            printed = ["".join(["NIC statistics:\n", *(f"     {one}: {value}\n" for one, value in
                     _values(machine, nic, _of_ethtool(nic), end).items())]) for end in (0, 1)]  # fmt: skip
            records[f"cmd:ethtool -S {name}"] = _twice(
                ran("") | {"omitted": 2064}, *({"out": text} for text in printed)
            )
    return records


def _of_ethtool(nic: Nic) -> tuple[str, ...]:
    """Return the counter names in ``ethtool -S`` of a physical or virtual function."""
    if not nic.qos.shown:
        return _ETHERNET
    by_priority = tuple(name.format(priority) for priority in range(8) for name in _PRIORITY)
    pauses = tuple(name.format(priority) for priority in nic.pfc for name in _PAUSE)
    global_pauses = ("rx_global_pause", "tx_global_pause") if any(nic.qos.pause) else ()
    return (*_ETHERNET, *_PHYSICAL, *by_priority, *pauses, *global_pauses)


def _twice(common: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    begin, end = {"at_s": BEGAN_S}, {"at_s": BEGAN_S + WINDOW_S}
    return {**common, **first, **begin, "again": {**common, **second, **end}}


def _gigabits(nic: Nic) -> float:
    """Return the actual rate of the port; an unknown speed is printed as SDR or QDR by the kernel."""
    return 400.0 if nic.rate in ("10 Gb/sec (4X SDR)", "40 Gb/sec (4X QDR)") else float(nic.rate.split()[0])


def _values(machine: Machine, nic: Nic, names: tuple[str, ...], end: int) -> dict[str, int]:
    growth = {**_traffic(machine, nic), **nic.grows}
    values: dict[str, int] = {}
    for name in names:
        if not name.startswith(nic.lacks or "/"):
            begin = nic.stands.get(name, _HISTORY.get(name, _before(name)))
            values[name] = max(0, min(begin + end * growth.get(name, 0), 2 ** _WIDTHS.get(name, 64) - 1))
    return values


def _before(name: str) -> int:
    """Return the start value of a traffic counter."""
    return 7_300_000_000_000 if name.endswith(("_data", "_bytes", "_packets", "_bytes_phy", "_packets_phy")) else 0


def _traffic(machine: Machine, nic: Nic) -> dict[str, int]:
    """Return the traffic of the window: RDMA, most of it on the compute ports."""
    if nic.state != "ACTIVE":
        return {}
    usual = 0.2 if nic.gpu is None else 300.0
    gbps = min(usual if nic.gbps is None else nic.gbps, 0.75 * _gigabits(nic))
    size = int(gbps * 1e9 / 8 * WINDOW_S)
    packets = size // 4096
    if nic.efa:
        return {"rx_bytes": size, "tx_bytes": size, "rx_pkts": packets, "tx_pkts": packets, "rdma_write_bytes": size,
                "rdma_write_recv_bytes": size, "rdma_write_wrs": packets // 64}  # fmt: skip
    corrected = int(nic.raw_ber * _gigabits(nic) * 1e9 * WINDOW_S)
    priority = nic.traffic_priority
    grown = {"rx_corrected_bits_phy": corrected, "rx_write_requests": packets // 256, "rp_cnp_handled": 412,
             "np_cnp_sent": 388, "np_ecn_marked_roce_packets": 388}  # fmt: skip
    for way in ("xmit", "rcv"):
        grown |= {f"port_{way}_data": size // 4, f"port_{way}_packets": packets, f"unicast_{way}_packets": packets}
    for way in ("rx", "tx"):
        grown |= {f"{way}_vport_rdma_unicast_bytes": size, f"{way}_bytes_phy": size, f"{way}_packets_phy": packets,
                  f"{way}_prio{priority}_bytes": size, f"{way}_prio{priority}_packets": packets,
                  f"{way}_prio0_bytes": 1 << 20, f"{way}_bytes": 1 << 20, f"{way}_packets": 1024}  # fmt: skip
    return grown


def _stat(machine: Machine, end: int) -> str:
    """Write /proc/stat of processors that share the load evenly, apart from planted interrupts."""
    lines, total = [], [0] * 10
    for cpu in sorted(_cpus(machine)):
        ticks = int(WINDOW_S * _HZ) * end
        interrupts = machine.cpu_interrupts.get(cpu, 0.004)
        stolen = machine.cpu_stolen
        system = max(0.0, machine.cpu_busy - stolen - interrupts) / 3
        user = 2 * system
        idle = max(0.0, 1 - user - system - interrupts - stolen)
        shares = (user, 0, system, idle, 0, 0, interrupts, stolen, 0, 0)
        columns = [before + int(share * ticks) for before, share in
                   zip((812004, 12, 204113, 40111207, 1803, 0, 2204, 0, 0, 0), shares, strict=True)]  # fmt: skip
        total = [a + b for a, b in zip(total, columns, strict=True)]
        lines.append(f"cpu{cpu} {' '.join(map(str, columns))}\n")
    return f"cpu  {' '.join(map(str, total))}\n{''.join(lines)}ctxt 812230911\nbtime 1794808999\nprocesses 901223\n"


def _cpus(machine: Machine) -> set[int]:
    found: set[int] = set()
    for ranges in machine.cpus:
        for part in filter(None, ranges.split(",")):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found
