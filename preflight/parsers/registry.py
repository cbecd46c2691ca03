"""Registry of format parsers.

A format's module has ``begins(lines, at)``, ``parse_lines(lines, at)``, which returns ``Parsed``, and ``HINTS``. The
first line of an output contains one of the hints; without hints, any line may start an output. Families and their
formats are in detection order, unambiguous formats first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Lines

NVIDIA: Mapping[str, str] = {
    "nvidia-smi -q -x": "nvidia.query_xml",
    "nvidia-smi -q": "nvidia.query_text",
    "nvidia-smi topo -p2p": "nvidia.topo_p2p",
    "nvidia-smi topo -m": "nvidia.topo_matrix",
    "nvidia-smi nvlink -s": "nvidia.nvlink_status",
    "nvidia-smi nvlink -e": "nvidia.nvlink_error_text",
    "nvidia-smi --query-gpu": "nvidia.query_rows",
    "nvidia-smi": "nvidia.smi_table",
    "dcgmi diag": "nvidia.dcgmi_diag",
    "dcgmi health": "nvidia.dcgmi_health",
    "dcgmi discovery": "nvidia.dcgmi_discovery",
    "dcgmi nvlink": "nvidia.dcgmi_nvlink",
    "fabricmanager status": "host.fabric_service",
    "nvbandwidth": "nvidia.nvbandwidth",
}

HOST: Mapping[str, str] = {
    "numactl": "host.numactl",
    "lscpu": "host.lscpu",
    "kernel log": "host.kernel_text",
    "ulimit": "host.ulimit",
    "systemctl status": "host.service_status",
}

#: RDMA ports, NICs, PCIe and the network.
NETWORK: Mapping[str, str] = {
    "ibstat": "rdma.ibstat",
    "ibstatus": "rdma.ibstatus",
    "ibv_devinfo": "rdma.ibv_devinfo",
    "rdma link": "rdma.rdma_link",
    "ibdev2netdev": "rdma.ibdev2netdev",
    "rdma ports": "rdma.port_files",
    "show_gids": "rdma.show_gids",
    "hw_counters": "rdma.port_counters",
    "perfquery": "rdma.perfquery",
    "ethtool -S": "network.ethtool_statistics",
    "ethtool -a": "network.ethtool_pause",
    "ethtool -i": "network.ethtool_driver",
    "ethtool -m": "network.ethtool_module",
    "ethtool": "network.ethtool_link",
    "mlnx_qos": "qos.mlnx_qos",
    "dcb": "qos.dcb",
    "lspci": "pci.lspci",
    "network-status": "network.network_status",
    "perftest": "network.perftest_text",
    "ip addr": "network.ip_addr",
    "ip link": "network.ip_link",
    "bonding": "network.bonding",
    "iblinkinfo": "infiniband.iblinkinfo",
    "ibqueryerrors": "infiniband.ibqueryerrors",
    "mlxlink": "network.mlxlink",
    "devlink health": "network.devlink_health",
    "mst status": "rdma.mst_status",
    "cma_roce": "rdma.cma_mode",
    "switch show": "switch.printed_answer",
    "ucx": "network.transport_errors",
}

#: Tools for settings, resources and fabrics; the values of several are only judged against a site's expectations.
TOOLS: Mapping[str, str] = {
    "nvidia-smi mig": "nvidia.mig_tables",
    "nvidia-smi --query-compute-apps": "nvidia.process_rows",
    "nvidia-smi dmon": "nvidia.monitor_rows",
    "fabricmanager log": "nvidia.fabric_manager_log",
    "ethtool settings": "network.ethtool_settings",
    "rdma resource": "rdma.resources",
    "mlxconfig": "rdma.nic_configuration",
    "flint": "rdma.firmware_image",
    "sminfo": "infiniband.sminfo_text",
    "ibnetdiscover": "infiniband.ibnetdiscover_text",
    "ibdiagnet": "infiniband.ibdiagnet",
    "lldp": "network.lldp_text",
    "ping": "network.ping_text",
    "ip route": "network.ip_route",
    "sysctl": "host.sysctl",
    "sysfs": "host.sysfs_files",
    "lsmod": "host.module_list",
    "dcgmi stats": "nvidia.dcgm_stats",
    "ibcheckerrors": "infiniband.ibcheckerrors",
    "saquery": "infiniband.saquery_records",
    "modinfo": "host.module_info",
    "kernel command line": "host.command_line",
    "clock": "host.clock_status",
    "df": "host.disk_space",
    "ifconfig": "network.ifconfig",
    "ip -br": "network.ip_brief",
    "free": "host.memory_use",
    "tc qdisc": "network.queue_disciplines",
    "nvidia driver files": "nvidia.proc_files",
    "smartctl": "host.disk_health",
    "ipmitool sel": "host.system_events",
    "ipmitool sdr": "host.sensor_rows",
    "sensors": "host.hwmon_sensors",
    "mdstat": "host.raid_arrays",
    "fio": "host.fio_report",
    "systemctl list-units": "host.unit_list",
    "nvme smart-log": "host.nvme_log",
    "clock sources": "host.clock_sources",
    "mount": "host.mount_table",
    "cpupower": "host.frequency_policy",
    "memory errors": "host.memory_error_counts",
    "iperf3": "network.iperf_report",
    "lfs": "host.lustre_space",
    "ps": "host.process_table",
    "system load": "host.system_load",
    "storage status": "host.storage_status",
    "amd-smi": "amd.amd_smi",
    "rocm-smi": "amd.rocm_smi",
    "ray status": "training.ray_status",
    "opensm log": "infiniband.opensm_log",
    "ip neigh": "network.neighbours",
    "last": "host.boot_history",
    "dcgm-exporter": "nvidia.dcgm_metrics",
    "docker inspect": "cluster.container_inspect",
}

CLUSTER: Mapping[str, str] = {
    "kubernetes object": "cluster.kubernetes_object",
    "kubernetes describe": "cluster.kubernetes_pod",
    "kubernetes events": "cluster.kubernetes_events",
    "kubernetes node": "cluster.kubernetes_node",
    "kubernetes get": "cluster.kubernetes_list",
    "kubernetes quota": "cluster.kubernetes_quota",
    "sinfo": "cluster.sinfo",
    "scontrol node": "cluster.scontrol_nodes",
    "sacct": "cluster.sacct",
    "squeue": "cluster.squeue",
    "scontrol job": "cluster.scontrol_jobs",
    "scontrol": "cluster.slurm_control",
    "seff": "cluster.seff",
}

JOB: Mapping[str, str] = {
    "training log": "training.iteration_log",
    "ncclras": "training.nccl_ras",
    "python stacks": "training.python_stacks",
    "serving log": "training.serving_log",
    "serving metrics": "training.serving_metrics",
    "nvidia-smi error": "messages.nvidia_smi_errors",
    "slurm error": "messages.slurm_errors",
    "network error": "messages.network_errors",
    "framework error": "messages.framework_errors",
}

#: Formats that are tried if nothing else in a text was recognised.
LAST: Mapping[str, str] = {"program log": "messages.program_log"}

FAMILIES: tuple[Mapping[str, str], ...] = (NVIDIA, HOST, NETWORK, TOOLS, CLUSTER, JOB, LAST)


class FormatParser(NamedTuple):
    """The parser of one format."""

    name: str
    begins: Callable[[Lines, int], bool]
    parse_lines: Callable[[Lines, int], Parsed[Any]]
    hints: tuple[str, ...]


def parser(name: str) -> FormatParser:
    """Return the parser of a format; raise KeyError for an unknown name."""
    path = next((family[name] for family in FAMILIES if name in family), None)
    if path is None:
        raise KeyError(name)
    module = import_module(f"preflight.parsers.{path}")
    return FormatParser(name, module.begins, module.parse_lines, module.HINTS)
