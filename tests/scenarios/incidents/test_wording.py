"""The ten most common incidents word for word, reviewed for an operator at night."""

from __future__ import annotations

import pytest

from tests.scenarios.incidents.combinations import NODE, PLANTED
from tests.support import whole_nodes
from tests.support.machines import hgx_h100

#: Planted fault -> title, impact, owner, next step.
WORDING = {
    "GPU fell off the bus": (
        "GPUs on the PCI bus: found 7, expected 8", "blocks-job", "node",
        "`lspci -d 10de:`; power-cycle the node (a reboot is not enough); if the GPU is still "
        "missing, reseat or replace it.",
    ),
    "GPU off the bus in the log": (
        "0000:61:00.0: Xid 79: GPU has fallen off the bus, 3 h ago; also Xid 154, 45; "
        "the driver requires: Node Reboot Required",
        "blocks-job", "node",
        "Drain the node and reboot it; if the error returns, check power, heat and seating, then contact support.",
    ),
    "uncorrectable error": (
        "GPU2: 1 uncorrectable memory error (0 SRAM, 1 DRAM)", "blocks-job", "node",
        "Drain the node, then reset the GPU (`nvidia-smi -r -i N` ends all jobs on it) or reboot.",
    ),
    "one NVLink down": (
        "GPU6: 17 of 18 NVLinks are up", "slows-job", "node",
        "Check gpu.fabric-state and `nvidia-smi nvlink -s`, then reset all GPUs; a link that stays "
        "down is a hardware fault.",
    ),
    "port down": (
        "mlx5_5:1 is DOWN/Polling, expected ACTIVE/LinkUp: no light, bad cable or peer off", "slows-job", "network",
        "Look for light and errors with `mlxlink -d mlx5_5 -m`, and for the switch port in the switch's LLDP table; "
        "reseat or replace the cable or module, and check that the switch port is enabled.",
    ),
    "slow port": (
        "mlx5_9:1 runs at 200 Gb/s, its peers at 400 Gb/s", "slows-job", "network",
        "Reseat or replace the cable, then compare `ibstat` with the switch port.",
    ),
    "interface left at MTU 1500": (
        "mlx5_4:1: the interface has MTU 1500, expected 9000", "slows-job", "site",
        "`ip link set enp79s0 mtu 9000` and the same (or 9216) on the switch port",
    ),
    "PFC off on one port, at both ends": (
        "mlx5_9:1: PFC is on for no priority, expected 3 only", "slows-job", "site",
        "`mlnx_qos -i enp192s0 --pfc 0,0,0,1,0,0,0,0` (or `dcb pfc set`), and the same on the switch port",
    ),
    "low memlock": (
        "locked memory is limited to 8 MiB, expected unlimited", "blocks-job", "site",
        "Set LimitMEMLOCK=infinity for slurmd, containerd, sshd; `* - memlock unlimited` in limits.d; "
        "IPC_LOCK in the pod.",
    ),
    "NCCL_IB_DISABLE left over": (
        "NCCL_IB_DISABLE=1 in the environment disables InfiniBand and RoCE, expected unset", "slows-job", "job",
        "Remove the variable where it is set (environment, /etc/nccl.conf, ~/.nccl.conf); if it works around a "
        "fault, find that fault.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", WORDING)
def test_wording(fault: str) -> None:
    report = whole_nodes.report(PLANTED[fault](hgx_h100(NODE, roce=True)), whole_nodes.site(NODE))
    (incident,) = report["incidents"]
    assert tuple(incident[key] for key in ("title", "impact", "owner", "next")) == WORDING[fault]
