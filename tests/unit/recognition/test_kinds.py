"""Names of kinds: those of the documented contract exist, and the page on pasted text lists all."""

from __future__ import annotations

import re

from preflight.recognition import known
from tests.support.paths import ROOT

#: Names of kinds that programs rely on; more may be added, none renamed.
CONTRACT = (
    "nccl-tests", "nccl-log", "nvidia-smi topo -m", "nvidia-smi topo -p2p", "nvidia-smi -q", "nvidia-smi -q -x",
    "nvidia-smi nvlink -s", "ibstat", "ibstatus", "ibv_devinfo", "rdma link", "ibdev2netdev", "show_gids", "perfquery",
    "ethtool -S", "hw_counters", "ethtool -a", "ethtool -i", "ethtool -m", "mlnx_qos", "dcb", "kernel log", "lspci",
    "numactl", "lscpu", "network-status", "pytorch trace", "flight recorder", "nccl-env", "nvidia-smi",
    "nvidia-smi error", "dcgmi diag", "dcgmi health", "dcgmi nvlink", "fabricmanager status", "nvbandwidth",
    "perftest", "ip addr", "bonding", "ulimit", "iblinkinfo", "ucx", "kubernetes events", "kubernetes describe",
    "sinfo", "scontrol node", "slurm error", "framework error", "training log",
)  # fmt: skip


def test_the_kinds_of_the_contract_exist() -> None:
    assert set(CONTRACT) <= set(known())
    assert len(known()) == len(set(known()))


def test_the_page_lists_every_kind() -> None:
    page = (ROOT / "docs/pasted-text.md").read_text(encoding="utf-8")
    section = page.partition("## What is recognised\n")[2].partition("\nFor error messages")[0]
    listed = [name.replace("\n ", "") for name in re.findall(r"`([^`]+)`", section)][1:]  # the first is `kind`
    assert sorted(" ".join(name.split()) for name in listed) == sorted(known())
