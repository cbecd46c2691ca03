"""Rendered files: nodes, their cluster files, the demo cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.machines import COLLECTED_AT, ORIGIN, a100, b200, cloud_vm, evidence, gb200, l40s, p5, pod, unusual
from tests.support.machines.inventory import host_of, host_table
from tests.support.machines.machine import Machine, hgx_h100, one_pair, with_gpu, with_nic
from tests.support.paths import ROOT

COMPUTE = "mlx5_[0,3-6,9-11]"

#: Node types besides the DGX H100: modules with ``NODES``, name -> its description function and cluster file.
FAMILIES = (a100, b200, cloud_vm, gb200, l40s, p5, pod, unusual)


def cluster_toml(nodes: str, roce: bool) -> str:
    """Return the cluster file of a site with such nodes."""
    return f"""# A site of DGX H100 nodes on {"lossless RoCE" if roce else "InfiniBand"}; made by hand.
[cluster]
name = "{"roce" if roce else "infiniband"}-example"

[class.h100]
nodes = "{nodes}"
gpus = 8
hcas = 8

[class.h100.ports]
compute = "{COMPUTE}"
storage = "mlx5_[1-2,7-8]"
link_layer = "{"Ethernet" if roce else "InfiniBand"}"
rate_gbps = 400
mtu = 4096
""" + ("""netdev_mtu = 9000
point_to_point = true
load_balancing = "spray"

[class.h100.qos]
lossless = true
pfc_priority = 3
ecn = true
""" if roce else "") + """
[class.h100.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
""" + host_table("h100")  # fmt: skip


Fault = Callable[[Machine], Machine]

DEMO: tuple[tuple[str, Fault], ...] = (
    ("gpu001", lambda m: m),
    ("gpu002", lambda m: with_nic(m, "mlx5_5", state="DOWN", physical="Polling", rate="40 Gb/sec (4X QDR)")),
    ("gpu003", lambda m: with_nic(m, "mlx5_4", netdev_mtu=1500)),
    ("gpu004", lambda m: with_nic(replace(m, env={"NCCL_P2P_DISABLE": "1"}), "mlx5_9", pfc=())),
    ("gpu005", lambda m: with_nic(with_gpu(m, 6, nvlink=False), "mlx5_10", rate="200 Gb/sec (2X NDR)")),
    ("gpu006", lambda m: with_nic(replace(m, memlock="8388608", driver="550.90.07"), "mlx5_11", uverbs=False)),
    ("gpu007", lambda m: with_gpu(m, 3, on_bus=False)),
)

DEMO_SILENT = ("gpu008", "connect", "connection refused on port 22: is sshd running?")

JOB_LOG = """gpu001:41210:41210 [0] NCCL INFO Bootstrap: Using eno1:192.0.2.1<0>
gpu001:41210:41210 [0] NCCL INFO NCCL version 2.26.2+cuda12.8
gpu001:41210:41305 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
gpu001:41210:41305 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [2]mlx5_4:1/RoCE \
[3]mlx5_5:1/RoCE [4]mlx5_6:1/RoCE [5]mlx5_9:1/RoCE [6]mlx5_10:1/RoCE [7]mlx5_11:1/RoCE [RO]; OOB eno1:192.0.2.1<0>
gpu001:41210:41305 [0] NCCL INFO Using network IB
gpu006:38122:38214 [0] NCCL INFO NCCL_IB_HCA set to mlx5_11
gpu006:38122:38214 [0] NCCL INFO NET/IB : No device found.
gpu006:38122:38214 [0] NCCL INFO NET/IB : Using [RO]; OOB eno1:192.0.2.6<0>
gpu006:38122:38214 [0] NCCL INFO NET/Socket : Using [0]eno1:192.0.2.6<0>
gpu006:38122:38214 [0] NCCL INFO Using network Socket
gpu001:41210:41305 [0] NCCL INFO comm 0x55d0c8a0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
gpu006:38122:38214 [0] NCCL INFO comm 0x55e1a2b0 rank 8 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
gpu006:38122:38230 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0
gpu006:38122:38230 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yield every rendered file with its text."""
    nodes, demo = ROOT / "fixtures" / "nodes", ROOT / "preflight" / "demo"
    for name, roce in (("hgx-h100", False), ("hgx-h100-roce", True)):
        yield nodes / f"{name}.json", _dump(evidence(hgx_h100(name, roce)))
        yield nodes / f"{name}.toml", cluster_toml(name, roce)
    for family in FAMILIES:
        for name, (describe, text) in family.NODES.items():
            yield nodes / f"{name}.json", _dump(evidence(describe(name)))
            yield nodes / f"{name}.toml", text + host_of(text, describe(name))
    yield nodes / "one-pair.json", _dump(evidence(one_pair("one-pair")))
    for number, (name, fault) in enumerate(DEMO):
        yield demo / f"{name}.json", _dump(evidence(fault(replace(hgx_h100(name, roce=True), number=number))))
    node, phase, reason = DEMO_SILENT
    silent = {
        "schema": "preflight.evidence/1", "node": node, "collected_at": COLLECTED_AT, "origin": ORIGIN,
        "collector": {}, "records": {}, "no_answer": {"phase": phase, "reason": reason},
    }  # fmt: skip
    yield demo / f"{node}.json", _dump(silent)
    yield demo / "cluster.toml", cluster_toml("gpu[001-008]", roce=True)
    yield demo / "job.log", JOB_LOG


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
