"""Texts from outside with their facts, and `preflight read` as a process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.support import paths

OUTSIDE = paths.DATA / "outside"


#: Text from outside -> kind, whether it is complete, and visible facts (path in the facts: value).
TRUTH: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "topo_h100_4gpu_nv6.txt": ("nvidia-smi topo -m", False, {
        "gpus": ["GPU0", "GPU1", "GPU2", "GPU3"], "links.GPU0.GPU1": "NV6", "cut_rows": [],
    }),
    "topo_h100_hgx_cut.txt": ("nvidia-smi topo -m", False, {
        "links.GPU0.GPU7": "NV18", "complete_rows": ["GPU0", "GPU1", "GPU2", "GPU3", "GPU4", "GPU5"],
    }),
    "topo_2x1080ti.txt": ("nvidia-smi topo -m", True, {"links.GPU0.GPU1": "PHB", "nics": [], "nearest_nics": {}}),
    "nvlink_a100.txt": ("nvidia-smi nvlink -s", True, {"links.GPU0": [25.0] * 12, "links.GPU1": [25.0] * 12}),
    "nvidia_smi_a100_mig.xml": ("nvidia-smi -q -x", False, {
        "driver": "535.54.03", "attached_gpus": 4, "gpus.0.mig": "Enabled", "gpus.0.pcie.generation_max": 4,
        "gpus.0.persistence": "Disabled", "gpus.0.bus_id": "00000000:41:00.0",
    }),
    "ibstat_mt4125.txt": ("ibstat", True, {
        "ports.0.state": "Active", "ports.0.link_layer": "Ethernet", "ports.1.rate_gbps": 100.0,
    }),
    "ibstat_mlx4_down.txt": ("ibstat", False, {"ports.0.physical_state": "Disabled"}),
    "ibstat_partial.txt": ("ibstat", False, {"ports.0.rate_gbps": 200.0}),
    "ibstat_ibsim.txt": ("ibstat", True, {"ports.0.state": "Active"}),
    "ibv_devinfo_ndr.txt": ("ibv_devinfo", True, {"ports.0.link_layer": "InfiniBand", "ports.0.active_mtu": 4096}),
    "ibv_devinfo_down.txt": ("ibv_devinfo", True, {"ports.0.state": "DOWN"}),
    "ibv_devinfo_softroce.txt": ("ibv_devinfo", True, {"ports.1.state": "ACTIVE"}),
    "mlnx_qos_four_priorities.txt": ("mlnx_qos", False, {"trust": "dscp", "pfc.5": True, "pfc.3": False}),
    "dcb_pfc_prio3.json": ("dcb", True, {"pfc.3": True, "pfc.4": False}),
    "dmesg_ctime_xid.txt": ("kernel log", True, {"xids.0.xid": 13}),
    "dmesg_fallen_at_load.txt": ("kernel log", True, {"events.0.event": "gpu-fallen-off-bus"}),
    "network_status_rdma.json": ("network-status", True, {}),
    "lspci_a100.txt": ("lspci", True, {"devices.0.address": "68:00.0"}),
}  # fmt: skip


def outside(name: str) -> str:
    return (OUTSIDE / name).read_text(encoding="utf-8")


IBSTAT = (
    "CA '{0}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {1}\n\t\tPhysical state: {2}\n"
    "\t\tRate: {3}\n\t\tBase lid: 1\n\t\tLink layer: {4}\n"
)


def ibstat(*odd: tuple[str, str, int], layer: str = "InfiniBand") -> str:
    """Return `ibstat` of eight ports; the last ones are ``odd``."""
    ports = [*[("Active", "LinkUp", 400)] * (8 - len(odd)), *odd]
    return "".join(IBSTAT.format(f"mlx5_{at}", *port, layer) for at, port in enumerate(ports))


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflight", "read", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
