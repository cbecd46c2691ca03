"""NCCL settings planted on complete nodes, and settings that look wrong but are not."""

from __future__ import annotations

import pytest

from tests.support.machines import Machine, hgx_h100
from tests.support.machines.records import ok
from tests.support.whole_nodes import Fault, Faults, Table, both, env, loud, node, record, site

ROCE, IB = "hgx-h100-roce", "hgx-h100"


def roce(name: str) -> Machine:
    return hgx_h100(name, roce=True)


def running(**variables: str) -> Fault:
    """Run eight ranks on the node, started with these variables."""
    job = {"pids": [4711, 4712], "count": 8, "name": "python3", "environment": variables}
    return record("env:ranks", {"status": "ok", "value": {"environments": [job], "denied": 0, "cut": False}})


FAULTS: Faults = {
    "misspelt name": (
        env(NCCL_SOCKET_IFNAMES="eno1"), {("warn", "nccl.unknown-variables", "NCCL_SOCKET_IFNAMES")},
    ),
    "name of ten years ago": (
        env(NCCL_TREE_THRESHOLD="0"), {("warn", "nccl.variable-version", "NCCL_TREE_THRESHOLD")},
    ),
    "word for a number": (env(NCCL_IB_MERGE_NICS="no"), {("warn", "nccl.variable-values", "NCCL_IB_MERGE_NICS")}),
    "carriage returns in /etc/nccl.conf": (
        record("file:/etc/nccl.conf", ok("NCCL_SOCKET_IFNAME=eno1\r\n")),
        {("warn", "nccl.variable-values", "NCCL_SOCKET_IFNAME"), ("fail", "nccl.socket-ifname", "NCCL_SOCKET_IFNAME")},
    ),
    "job script against /etc/nccl.conf": (
        both(env(NCCL_MIN_CTAS="16"), record("file:/etc/nccl.conf", ok("NCCL_MAX_CTAS=8\n"))),
        {("warn", "nccl.contradictions", "NCCL_MIN_CTAS"), ("warn", "nccl.pinned-choices", "NCCL_MIN_CTAS"),
         ("warn", "nccl.pinned-choices", "NCCL_MAX_CTAS")},
    ),
    "more sockets than NCCL takes": (
        env(NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="8"),
        {("warn", "nccl.socket-threads", "NCCL_SOCKET_NTHREADS")},
    ),
    "debugging left on": (env(NCCL_DEBUG="TRACE"), {("warn", "nccl.debug-output", "NCCL_DEBUG")}),
    "protocol pinned": (env(NCCL_PROTO="LL"), {("warn", "nccl.pinned-choices", "NCCL_PROTO")}),
    "GID index of the time before a new address": (
        env(NCCL_IB_GID_INDEX="2"),
        {("fail", "nccl.gid-index", "")},
    ),
    "messages cut over queue pairs": (
        env(NCCL_IB_SPLIT_DATA_ON_QPS="1"), {("warn", "nccl.fabric-fit", "NCCL_IB_SPLIT_DATA_ON_QPS")},
    ),
    "NVLink between nodes required on one chassis": (
        env(NCCL_MNNVL_ENABLE="1"), {("fail", "nccl.mnnvl", "NCCL_MNNVL_ENABLE")},
    ),
    "SHARP asked for on RoCE": (env(NCCL_COLLNET_ENABLE="1"), {("warn", "nccl.sharp", "NCCL_COLLNET_ENABLE")}),
    "topology file that is not there": (
        both(env(NCCL_TOPO_FILE="/etc/topo.xml"), record("env:files", {"status": "ok", "value": {
            "NCCL_TOPO_FILE": {"status": "missing", "path": "/etc/topo.xml", "why": "No such file or directory"}}})),
        {("fail", "nccl.named-files", "NCCL_TOPO_FILE")},
    ),
    "PyTorch does not end a job whose rank died": (
        env(TORCH_NCCL_ASYNC_ERROR_HANDLING="0"),
        {("warn", "nccl.pytorch-variables", "TORCH_NCCL_ASYNC_ERROR_HANDLING")},
    ),
    "left-over in the job that runs": (
        running(NCCL_P2P_DISABLE="1"), {("fail", "nccl.left-over-disables", "NCCL_P2P_DISABLE")},
    ),
    "misspelt in the job that runs": (
        running(NCCL_IB_TIMEOUTS="22"), {("warn", "nccl.unknown-variables", "NCCL_IB_TIMEOUTS")},
    ),
}  # fmt: skip

#: Looks wrong, but is right.
SILENT: dict[str, Fault] = {
    "names that are exact": env(NCCL_IB_HCA="=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"),
    "a traffic class without ECN bits": env(NCCL_IB_TC="104"),
    "a GID index of its own in a pod": both(node(where="container"), env(NCCL_IB_GID_INDEX="3")),
    "names of plug-ins": env(NCCL_SHARP_MAX_COMMS="1", NCCL_TESTS_DEVICE="0", NCCL_VERSION="2.26.2"),
    "INFO on a small job": env(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", WORLD_SIZE="64"),
    "several queue pairs on RoCE": env(NCCL_IB_QPS_PER_CONNECTION="4"),
    "SHARP switched off where there is none": env(NCCL_COLLNET_ENABLE="0"),
    "P2P level that is looser than the default": env(NCCL_P2P_LEVEL="SYS"),
    "undocumented tuning of a vendor": env(NCCL_NVLS_CHUNKSIZE="524288"),
    "settings that are the defaults": env(NCCL_IB_RETRY_CNT="7", NCCL_NVLS_ENABLE="2", NCCL_CROSS_NIC="2"),
    "a job with sound settings runs": running(NCCL_DEBUG="WARN", NCCL_SOCKET_IFNAME="net1", NCCL_IB_HCA="mlx5_7"),
}  # fmt: skip

ON_INFINIBAND: Faults = {
    "adaptive routing switched off": (
        env(NCCL_IB_ADAPTIVE_ROUTING="0"), {("warn", "nccl.load-balancing", "NCCL_IB_ADAPTIVE_ROUTING")},
    ),
}  # fmt: skip

TABLES = [Table(ROCE, roce, FAULTS), Table(IB, hgx_h100, ON_INFINIBAND)]


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault(fault: str) -> None:
    plant, expected = FAULTS[fault]
    assert loud(plant(roce(ROCE)), site(ROCE)) == expected


@pytest.mark.parametrize("fault", ON_INFINIBAND)
def test_planted_fault_on_infiniband(fault: str) -> None:
    plant, expected = ON_INFINIBAND[fault]
    assert loud(plant(hgx_h100(IB)), site(IB)) == expected


@pytest.mark.parametrize("name", SILENT)
def test_false_alarm_stays_silent(name: str) -> None:
    findings = loud(SILENT[name](roce(ROCE)), site(ROCE))
    assert not {finding for finding in findings if finding[0] != "unknown" or finding[1].startswith("nccl")}
