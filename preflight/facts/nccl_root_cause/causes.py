"""The possible causes, ordered by layer."""

from __future__ import annotations

from preflight.facts.nccl_root_cause import device_evidence, network_evidence
from preflight.facts.nccl_root_cause.connection_evidence import at_port
from preflight.facts.nccl_root_cause.model import CauseKind

_CONTAINER = "run `preflight check` where the job runs, also in its container, with the log: --log FILE"
_WINDOW = "`preflight check --window 60` on both nodes"

SWITCHED_OFF = CauseKind(
    "switched-off", "RDMA is switched off", device_evidence.switched_off,
    "look for NCCL_IB_DISABLE and NCCL_NET in the job's environment and in /etc/nccl.conf",
    "Remove NCCL_IB_DISABLE (or NCCL_NET=Socket) where it is set, then run again with NCCL_NET=IB.",
    check="nccl.left-over-disables", proved=True,
)  # fmt: skip
NO_NIC = CauseKind(
    "no-rdma-nic",
    "no RDMA NIC",
    device_evidence.no_nic,
    _CONTAINER,
    "For a node without RDMA, declare hcas = 0 in the cluster file; otherwise look for the NIC in "
    "`lspci` and in the server.",
    check="rdma.device-count",
)
NOT_REGISTERED = CauseKind(
    "not-registered", "no RDMA driver", device_evidence.not_registered, _CONTAINER,
    "`modprobe mlx5_ib`, then read `dmesg | grep -e mlx5 -e infiniband`.",
    check="rdma.registered",
)  # fmt: skip
DEVICE_NODES = CauseKind(
    "no-device-nodes",
    "no usable /dev/infiniband",
    device_evidence.device_nodes,
    _CONTAINER,
    "Pass the devices to the container: docker --device /dev/infiniband, or the pod's RDMA resource; "
    "on a host, run `modprobe ib_uverbs`.",
    check="rdma.device-nodes",
)
NO_VERBS = CauseKind(
    "no-verbs-library", "no verbs library", device_evidence.no_verbs,
    "`ldconfig -p | grep libibverbs` in the job's image",
    "Install libibverbs1 and ibverbs-providers (rdma-core) in the image.",
)  # fmt: skip
HCA_FILTER = CauseKind(
    "hca-filter", "NCCL_IB_HCA selects no device", device_evidence.hca_filter, _CONTAINER,
    "Correct NCCL_IB_HCA: names as in `ibv_devices`, NCCL_IB_HCA==mlx5_0,mlx5_3 for exact names.",
    check="nccl.ib-hca",
)  # fmt: skip
PORTS_DOWN = CauseKind(
    "ports-down", "no active port", device_evidence.ports_down, _CONTAINER,
    "`ibstat`: Polling points to the cable or the peer, Disabled to the interface, Initializing to a missing "
    "subnet manager.",
    check="rdma.port-state",
)  # fmt: skip
PORT_DOWN = CauseKind(
    "port-down", "the port of the connection is down", at_port("port-down"), "`ibstat` on both nodes", PORTS_DOWN.fix,
    check="rdma.port-state", of_port=True,
)  # fmt: skip
PORT_FLAPS = CauseKind(
    "port-flaps", "the port of the connection flaps", at_port("port-flaps"), _WINDOW,
    "Reseat or replace the cable, then check the peer's port.", check="counters.flaps", of_port=True,
)  # fmt: skip
PORT_DAMAGE = CauseKind(
    "port-damage", "the port of the connection damages packets", at_port("port-damage"), _WINDOW,
    "Clean and reseat the cable, then replace it; `mlxlink -d DEVICE -m -c` shows the faulty lane.",
    check="counters.link-quality", of_port=True,
)  # fmt: skip
PORT_LOSS = CauseKind(
    "port-loss", "the port of the connection loses packets", at_port("port-loss"), _WINDOW,
    "`ethtool -S IF | grep discard`, PFC at both ends of the cable, and `ibqueryerrors` on InfiniBand.",
    check="counters.loss", of_port=True,
)  # fmt: skip
NO_PLUGIN = CauseKind(
    "plug-in-missing", "the network plug-in is missing", device_evidence.no_plugin,
    "`ldd` of the plug-in, NCCL_NET_PLUGIN and LD_LIBRARY_PATH in the job's image",
    "Install the plug-in in the image and put its directory into LD_LIBRARY_PATH; name it in NCCL_NET_PLUGIN.",
)  # fmt: skip
MEMLOCK = CauseKind(
    "memlock", "locked memory is limited", network_evidence.memlock, "`cat /proc/PID/limits` of a rank",
    "Set LimitMEMLOCK=infinity for slurmd or containerd, docker --ulimit memlock=-1, or IPC_LOCK in the pod.",
    check="host.memlock",
)  # fmt: skip
GID = CauseKind(
    "gid", "the GID row is not usable", network_evidence.gid, "`show_gids` on both nodes, inside the container",
    "Unset NCCL_IB_GID_INDEX with NCCL 2.21 or newer; otherwise name a RoCE v2 entry with an IP address on all nodes.",
    check="nccl.gid-index", of_port=True,
)  # fmt: skip
NO_ROUTE = CauseKind(
    "no-route", "no route to the peer's address", network_evidence.no_route,
    "`ip route get PEER oif INTERFACE`, and ib_write_bw between the same two HCAs",
    "Route the rails' subnets to each other, or keep traffic on its rail: NCCL_CROSS_NIC=0.",
)  # fmt: skip
GPUDIRECT_OFF = CauseKind(
    "gpudirect-off", "GPUDirect RDMA is disabled", device_evidence.gpudirect_off,
    "look for NCCL_NET_GDR_LEVEL in the job's environment and in /etc/nccl.conf",
    "Remove NCCL_NET_GDR_LEVEL where it is set.", check="nccl.left-over-disables", proved=True,
)  # fmt: skip
NO_PEER_MEMORY = CauseKind(
    "no-peer-memory", "neither nvidia-peermem nor DMA-BUF", network_evidence.no_peer_memory,
    "`lsmod | grep peermem`, `cat /proc/driver/nvidia/version`, `uname -r`",
    "`modprobe nvidia-peermem` and list it in /etc/modules-load.d, or install the driver's open kernel modules.",
    check="gpudirect.peer-memory",
)  # fmt: skip
NEAR_PORT_DOWN = CauseKind(
    "near-port-down", "the port near the GPU is down", network_evidence.near_port_down, "`ibstat` where the job runs",
    PORTS_DOWN.fix,
    check="rdma.port-state",
)  # fmt: skip
DISTANCE = CauseKind(
    "distance", "the NIC is too far from the GPU", network_evidence.distance, "`nvidia-smi topo -m` where the job runs",
    "Compare the slots with the server's manual; in a virtual machine, set NCCL_TOPO_FILE to the provider's file.",
    check="gpudirect.path",
)  # fmt: skip
ACS = CauseKind(
    "acs", "ACS redirects peer-to-peer traffic", network_evidence.acs, "ACSCtl of all bridges: `lspci -vvv` as root",
    "Disable ACS in the firmware, or run `setpci -s BRIDGE ECAP_ACS+6.w=0000` on each bridge after every boot.",
    check="gpudirect.path",
)  # fmt: skip
IOMMU = CauseKind(
    "iommu", "the IOMMU translates", network_evidence.iommu, "`cat /sys/kernel/iommu_groups/*/type`",
    "Boot with `iommu=pt`, or disable the IOMMU in the firmware.",
    check="gpudirect.iommu",
)  # fmt: skip

#: All causes, earliest layer first.
KINDS = (
    SWITCHED_OFF, NO_NIC, NOT_REGISTERED, DEVICE_NODES, NO_VERBS, HCA_FILTER, PORTS_DOWN, PORT_DOWN, PORT_FLAPS,
    PORT_DAMAGE, PORT_LOSS, NO_PLUGIN, MEMLOCK, GID, NO_ROUTE, GPUDIRECT_OFF, NO_PEER_MEMORY, NEAR_PORT_DOWN, DISTANCE,
    ACS, IOMMU,
)  # fmt: skip
