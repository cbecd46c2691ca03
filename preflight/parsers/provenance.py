"""Provenance of each format: whether its parser is tested with real output.

A format is verified if its tests include output of the real tool: recorded, or re-made from published output with
different names, addresses and values (``tests/data/outside/index.toml`` lists these). Any other format is known only
from documentation, so its parser may have unexpected errors; ``preflight explain`` marks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import COURSE


@dataclass(frozen=True)
class Format:
    """A format: its name, its records, and the origins of real output."""

    name: str  # name of the tool or the files
    records: tuple[str, ...]  # record keys; * matches any text
    seen: tuple[str, ...] = ()  # origins, as in tests/data/outside/index.toml, or the file of a recorded node
    documented: tuple[str, ...] = ()  # programs that write it, each with the documentation that the parser follows


_GITHUB = "https://github.com/"
_GUEST = "QEMU guest (TCG), Debian 12, kernel 6.1.0-56, two Soft-RoCE devices; as fixtures/nodes/soft-roce.json"
_IBSIM = "ibsim 0.10 and infiniband-diags 44.0 on Debian 12, a simulated fabric of {} HCAs"
_DCB = "QEMU guest (TCG), Debian 12: dcb of iproute2 6.1; the DCB state behind the netlink answers is a test module's"
_NETDEVSIM = "QEMU guest (TCG), Debian 12: ethtool 6.1 on a netdevsim interface"
_VIRTIO = "QEMU guest (TCG), Debian 12: ethtool 6.1 on a virtio-net interface"
_NAMESPACES = (
    "network namespaces on Debian 12 and kernel 6.18: two hosts at MTU 9000, with a bridge port or a "
    "router at 1500 in between"
)
_RECORDED = "fixtures/nodes/soft-roce.json"
_VM = "a virtual machine with Debian 12 and kernel 6.18"

#: Names of logs passed with --log, which are not records.
NCCL_LOG, NCCL_TESTS = "log: NCCL", "log: nccl-tests"
#: Recorded traces and dumps (tests/data/outside/torch) are from a machine without a GPU.
TRACE, RECORDING = "log: PyTorch trace", "log: flight recorder"
SERVING = "log: metrics of a serving engine"
RAS, STACKS = "log: ncclras", "log: stacks of Python processes"

FORMATS = (
    # GPUs
    Format("NVML", ("nvml:*",)),
    Format("nvidia-smi topo -m", ("cmd:nvidia-smi topo -m",), (
        _GITHUB + "NVIDIA/nccl/issues/1617", _GITHUB + "sgl-project/sglang/issues/13973",
        _GITHUB + "XueSongTap/XueSongTap.github.io (_posts/2024-01-04-nvidia-smi-more.md)",
    )),
    Format("nvidia-smi --query-gpu", ("cmd:nvidia-smi --query-gpu=*",)),
    Format("nvidia-smi -q -x", ("cmd:nvidia-smi -q -x",), (
        _GITHUB + "influxdata/telegraf (plugins/inputs/nvidia_smi/testdata/a100-sxm4-v12.xml)",
    )),
    Format("nvidia-smi nvlink -s", ("cmd:nvidia-smi nvlink -s",), (_GITHUB + "NVIDIA/nccl-tests/issues/228",)),
    Format("nvidia-smi nvlink -e", ("cmd:nvidia-smi nvlink -e",)),
    Format("systemctl show", ("cmd:systemctl show *",)),
    Format("systemctl list-units", ("cmd:systemctl list-units *",)),
    Format("nv-fabricmanager", ("cmd:nv-fabricmanager *",)),
    Format("dmesg", ("cmd:dmesg *",), (
        _GITHUB + "NVIDIA/NVSentinel/issues/155", _GITHUB + "leptonai/gpud/pull/46",
        _GITHUB + "leptonai/gpud/pull/1209", _GUEST,
    )),
    Format("NVRM version", ("file:/proc/driver/nvidia/version",), (
        _GITHUB + "nix-community/nixGL/issues/186", _GITHUB + "nix-community/nixGL/issues/139",
    )),
    # PCI
    Format("PCI functions in sysfs", ("dir:/sys/bus/pci/devices", "file:/sys/bus/pci/devices/*"), (_RECORDED,)),
    Format("PCIe links in sysfs", ("file:/sys/class/infiniband/*/device/*_link_*",)),
    Format("IOMMU groups in sysfs", ("file:*/iommu_group/type",)),
    Format("lspci", ("cmd:lspci *",), (_GITHUB + "open-mpi/hwloc/issues/653", _GUEST)),
    # RDMA
    Format("RDMA devices in sysfs", (
        "dir:/sys/class/infiniband", "dir:/sys/class/infiniband/*", "file:/sys/class/infiniband/*/ports/*",
        "file:/sys/class/infiniband_verbs/*", "file:/sys/class/infiniband/*/node_guid",
        "file:/sys/class/infiniband/*/parent", "file:/sys/class/infiniband/*/fw_ver",
    ), (_RECORDED,)),
    Format("model of an HCA in sysfs", (
        "file:/sys/class/infiniband/*/hca_type", "file:/sys/class/infiniband/*/board_id",
        "file:/sys/class/infiniband/*/sys_image_guid",
    )),
    Format("counters of an RDMA port in sysfs", ("files:/sys/class/infiniband/*",)),
    Format("traffic class in the vendor driver's sysfs", ("file:/sys/class/infiniband/*/tc/*",)),
    Format("ibstat", ("cmd:ibstat",), (
        _GITHUB + "NVIDIA/l2fwd-nv/issues/6", _GITHUB + "linux-rdma/rdma-core/pull/847",
        _GITHUB + "leptonai/gpud/pull/752", _GUEST,
        _IBSIM.format("four"),
    )),
    Format("ibv_devinfo", ("cmd:ibv_devinfo",), (
        _GITHUB + "deepseek-ai/DeepEP/issues/38", _GITHUB + "deepseek-ai/DeepEP/issues/55",
        _GITHUB + "deepseek-ai/DeepEP/issues/60", _GUEST,
    )),
    Format("ibnetdiscover", ("cmd:ibnetdiscover*",), (_IBSIM.format("four"),)),
    Format("iblinkinfo", ("cmd:iblinkinfo*",), (_IBSIM.format("four"),)),
    Format("ibqueryerrors", ("cmd:ibqueryerrors*",), (
        _IBSIM.format("eight"), _GITHUB + "openucx/ucx/issues/9590",
    )),
    Format("sminfo", ("cmd:sminfo*",), (_IBSIM.format("four"),)),
    Format("ibqueryerrors --counters", ("cmd:ibqueryerrors --counters*",), (_IBSIM.format("four"),)),
    Format("saquery -s", ("cmd:saquery -s*",), (_IBSIM.format("four"),)),
    Format("saquery SR", ("cmd:saquery SR*",)),
    # tests of a pair
    Format("perftest", ("cmd:stdbuf -oL ib_*", "pair:*"), (
        _GUEST, _GITHUB + "tensorflow/tensorflow/issues/22077", _GITHUB + "linux-rdma/perftest/issues/132",
    )),  # pair: a pair test's output, with notes of preflight
    Format("ibv_rc_pingpong", ("cmd:stdbuf -oL ibv_rc_pingpong *",), (_GUEST,)),
    Format("ping", ("cmd:ping *",), (_NAMESPACES,)),
    Format("/proc/net/tcp", ("file:/proc/net/tcp*",), (_GUEST,)),
    # Ethernet
    Format("network interfaces in sysfs", (
        "file:/sys/class/net/*/mtu", "file:/sys/class/net/*/operstate", "file:/sys/class/net/*/speed",
        "file:/sys/class/net/*/type",
    ), (_RECORDED,)),
    Format("MAC addresses in sysfs", ("file:/sys/class/net/*/address",), (_VM,)),
    Format("congestion control in the vendor driver's debugfs", ("file:/sys/kernel/debug/mlx5/*",)),
    Format("carrier changes in sysfs", ("file:/sys/class/net/*/carrier_changes",), (_VM,)),
    Format("lldpcli", ("cmd:lldpcli *",), (
        "lldpd 1.0.16 on Debian 12, two virtual interfaces with injected DCBX TLVs",
    )),
    Format("dcb -j pfc show", ("cmd:dcb -j pfc show *",), (_DCB,)),
    Format("dcb -j app show", ("cmd:dcb -j app show *",), (_DCB,)),
    Format("dcb -j buffer show", ("cmd:dcb -j buffer show *",), (_DCB,)),
    Format("dcb -j dcbx show", ("cmd:dcb -j dcbx show *",), (_DCB,)),
    Format("ethtool -a", ("cmd:ethtool -a *",), (_NETDEVSIM,)),
    Format("ethtool --show-fec", ("cmd:ethtool --show-fec *",), (_NETDEVSIM,)),
    Format("ethtool -S", ("cmd:ethtool -S *",), (_VIRTIO, _GITHUB + "isc-projects/ethq/issues/8")),
    Format("ethtool -m", ("cmd:ethtool -m *",), (_GITHUB + "lldpd/lldpd/issues/477",)),
    Format("mlxlink", ("cmd:mlxlink *",), (_GITHUB + "fchamicapereira/sigcomm26-tutorial-bluefield",)),
    Format("mlnx_qos", ("cmd:mlnx_qos *",), (
        "https://community.mellanox.com/docs/DOC-2792",
        _GITHUB + "att/netarbiter (nvmf/OUTPUTSAMPLE.setup-nic-lossless-layer3.sh.md)",
    )),
    Format("trust state in the vendor driver's sysfs", ("file:/sys/class/net/*/qos/*",)),
    Format("ECN in the vendor driver's sysfs", ("file:/sys/class/net/*/ecn/*",)),
    Format("ip -j addr", ("cmd:ip -j addr",), (_GUEST,)),
    Format("interfaces of a bond in sysfs", ("file:/sys/class/net/*/bonding/slaves",)),
    Format("psutil", ("psutil:*",), (_VM,)),
    Format("/proc/self/mountinfo", ("file:/proc/self/mountinfo",)),
    Format("df --output", ("cmd:df -B1 *",)),
    Format("/proc/swaps", ("file:/proc/swaps",)),
    Format("/proc/mdstat", ("file:/proc/mdstat",)),
    Format("CPUs in sysfs", ("file:/sys/devices/system/cpu/online", "file:/sys/devices/system/cpu/smt/control")),
    Format("NVMe controllers in sysfs", ("file:/sys/class/nvme/*",)),
    Format("podman's .containerenv", ("file:/run/.containerenv",)),
    Format("/proc/net/route", ("file:/proc/net/route",), (_GUEST,)),
    # NCCL
    Format("nccl.conf", ("file:/etc/nccl.conf", "file:~/.nccl.conf", "file:*nccl.conf"), (
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    )),
    Format("PyTorch's trace of a GPU", (TRACE,)),
    Format("PyTorch's flight recorder with NCCL", (RECORDING,)),
    Format("metrics of a serving engine", (SERVING,), documented=(
        "metrics of vLLM, as in https://docs.vllm.ai/en/stable/usage/metrics/",
        "metrics of SGLang, as in https://docs.sglang.io/references/production_metrics.html",
        "metrics of TensorRT-LLM, as in https://docs.nvidia.com/dynamo (TensorRT-LLM)",
        "metrics of Dynamo, as in https://docs.nvidia.com/dynamo (metrics catalog)",
        f"metrics of Triton, as in {_GITHUB}triton-inference-server/tensorrtllm_backend",
    )),
    Format("ncclras", (RAS,)),
    Format("py-spy dump and faulthandler", (STACKS,)),
    Format("NCCL log", (NCCL_LOG,), (_GITHUB + "NVIDIA/nccl-tests/issues/131",)),
    Format("nccl-tests", (NCCL_TESTS,), (
        _GITHUB + "aws/aws-k8s-tester/pull/503", _GITHUB + "NVIDIA/nccl-tests/issues/294",
    )),
    # containers
    Format("downward API", ("file:/etc/*/annotations",), (
        "https://jamesdefabia.github.io/docs/user-guide/downward-api/volume",
    )),
    Format("Kubernetes API: the pod", ("kube:pod",)),
    Format("network-status", (), (_GITHUB + "k8snetworkplumbingwg/sriov-network-device-plugin/pull/530",)),
    # host
    Format("/proc/self/limits", ("file:/proc/self/limits",), (_GUEST,)),
    Format("/proc/self/status", ("file:/proc/self/status",), (_GUEST,)),
    Format("/proc/cmdline", ("file:/proc/cmdline",), (_GUEST,)),
    Format("/proc/cpuinfo", ("cmd:head -c 2048 /proc/cpuinfo",), (_VM,)),
    Format("/proc/meminfo", ("file:/proc/meminfo",), (_VM,)),
    Format("/etc/machine-id", ("file:/etc/machine-id",)),
    Format("DMI in sysfs", ("file:/sys/class/dmi/id/*",)),
    Format("CPU topology in sysfs", ("file:/sys/devices/system/cpu/cpu*/topology/*",)),
    Format("transparent huge pages in sysfs", ("file:/sys/kernel/mm/transparent_hugepage/*",), (_VM,)),
    Format("parameters of ib_core in sysfs", ("file:/sys/module/ib_core/parameters/*",)),
    Format("VLANs of the kernel", ("file:/proc/net/vlan/config",)),
    Format("version.json of CUDA", ("file:/usr/local/cuda/version.json",)),
    Format("nvidia-ctk", ("cmd:nvidia-ctk *",)),
    Format("nodes_config.cfg of IMEX", ("file:/etc/nvidia-imex/nodes_config.cfg",)),
    Format("/proc/stat", ("file:/proc/stat",), (_VM,)),
    Format("numbers and names in /proc", ("file:/proc/sys/*", "file:/proc/uptime"), (_RECORDED,)),
    Format("NUMA nodes in sysfs", ("file:/sys/devices/system/node/*",), (_RECORDED,)),
    Format("CPU frequency in sysfs", ("file:/sys/devices/system/cpu/cpufreq/*",)),
    Format("chronyc", ("cmd:chronyc *",), ("https://ag6qr.net/timeserverstatus",)),
    Format("timedatectl", ("cmd:timedatectl *",)),
    Format("find -printf", ("cmd:find *",), (_VM,)),
    Format("versions of kernel modules in sysfs", ("file:/sys/module/*/version",)),
    Format("ofed_info", ("cmd:ofed_info *",)),
    Format("release files of switches", (
        "file:/etc/Eos-release", "file:/etc/sonic/sonic_version.yml", "file:/host/machine.conf",
    )),
    Format("JSON answers of Arista EOS", ("eos:*",)),
    Format("answers of Cisco NX-OS", ("nxos:*",)),
    Format("answers of Juniper Junos", ("junos:*",)),
    Format("answers of Linux and FRRouting on a switch", ("linux:*",), (
        "iproute2 6.1, lldpd 1.0.16 and FRRouting 8.4.4 on Debian 12, virtual interfaces",
    )),
    Format("/etc/os-release", ("file:/etc/os-release",), (_RECORDED,)),
    Format("directories of Python packages", ("file:*.dist-info/INSTALLER",)),
    Format("torch/version.py", ("file:*/torch/version.py",)),
    Format("directory of CUDA's forward compatibility", ("dir:/usr/local/cuda/compat",)),
    Format("directories and variables", (
        "dir:/dev/*", "dir:/sys/kernel/iommu_groups", "dir:/sys/module", "dir:/sys/devices/system/cpu/cpufreq",
        "env:*", "statvfs:*",
    ), (_RECORDED,)),
)  # fmt: skip


@cache
def _pattern(records: str) -> re.Pattern[str]:
    return re.compile(re.escape(records).replace(r"\*", ".*"), re.DOTALL)


@cache
def format_of(key: str) -> Format | None:
    """Return the format with the longest pattern that matches a record, or None."""
    fitting = [(len(one), form) for form in FORMATS for one in form.records if _pattern(one).fullmatch(key)]
    return max(fitting, key=lambda found: found[0])[1] if fitting else None


def unverified(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted names of the unverified formats of these records.

    A format with documentation is named by the programs that write it, and a record without a format by its key,
    without the prefix. The record of the history is preflight's own.
    """
    names: set[str] = set()
    for key in keys:
        form = format_of(key)
        if form is None and key != COURSE:
            names.add(key.partition(":")[2])
        elif form is not None and not form.seen:
            names.update(form.documented or (form.name,))
    return tuple(sorted(names))
