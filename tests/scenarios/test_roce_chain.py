"""The RoCE chain on complete nodes: each broken link is named, and nothing else raises an alarm."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from preflight.evidence.document import from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from preflight.textprep.agreement import verb
from tests.support import machines
from tests.support.fixture import whole_node
from tests.support.machines import Machine, hgx_h100, with_nic
from tests.support.machines.machine import Nic
from tests.support.machines.pod import pod
from tests.support.machines.records import ok, ran
from tests.support.whole_nodes import CHECKS, both, node

NAME = "hgx-h100-roce"
PORT = "mlx5_9:1"

Fault = Callable[[Machine], Machine]


def port(device: str = "mlx5_9", **changes: Any) -> Fault:
    """Change one NIC; fields that it does not have are those of its QoS."""

    def plant(machine: Machine) -> Machine:
        nic = next(nic for nic in machine.nics if nic.device == device)
        return with_nic(machine, device, **_sorted(nic, changes))

    return plant


def _sorted(nic: Nic, changes: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in changes.items() if hasattr(nic, name)}
    rest = {name: value for name, value in changes.items() if name not in own}
    return own | ({"qos": replace(nic.qos, **rest)} if rest else {})


def everywhere(**changes: Any) -> Fault:
    """Change all NICs of the compute fabric."""

    def plant(machine: Machine) -> Machine:
        nics = tuple(nic if nic.gpu is None else replace(nic, **_sorted(nic, changes)) for nic in machine.nics)
        return replace(machine, nics=nics)

    return plant


def every_record(change: Callable[[str, Any], Any]) -> Fault:
    """Change records for which ``change`` returns something other than None."""

    def plant(machine: Machine) -> Machine:
        found = {key: change(key, record) for key, record in machines.evidence(machine)["records"].items()}
        return replace(machine, records={**machine.records, **{k: v for k, v in found.items() if v is not None}})

    return plant


@dataclass(frozen=True)
class Setup:
    """A node, the site's QoS declaration, and the expected report of the chain."""

    fault: Fault
    link: str = ""  # the first broken one; empty: none
    status: str = "fail"
    ports: str = PORT  # as the finding names them
    qos: dict[str, Any] = field(default_factory=dict)
    ports_of_site: dict[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # links that cannot be determined
    why: str = ""  # a word of the message


def site(case: Setup) -> Cluster:
    qos: dict[str, Any] = {"lossless": True, "pfc_priority": 3, "ecn": True, **case.qos}
    ports = {
        "compute": "mlx5_[0,3-6,9-11]", "storage": "mlx5_[1-2,7-8]", "link_layer": "Ethernet", "rate_gbps": 400,
        "mtu": 4096, "netdev_mtu": 9000, "point_to_point": True, **case.ports_of_site,
    }  # fmt: skip
    settings = {key: value for key, value in qos.items() if value is not None}
    body: dict[str, Any] = {"gpus": 8, "hcas": 8, "ports": ports, "qos": settings}
    return from_data({"class": {"h100": body}}, "cluster.toml")


def _active_mtu_1024(key: str, record: Any) -> Any:
    if key != "cmd:ibv_devinfo":
        return None
    head, device, rest = record["out"].partition("hca_id:\tmlx5_9\n")
    return ran(head + device + rest.replace("active_mtu:\t\t4096 (5)", "active_mtu:\t\t1024 (3)", 1))


def _v1_only(key: str, record: Any) -> Any:
    return ok("IB/RoCE v1\n") if key.startswith("file:/sys/class/infiniband/mlx5_9/ports/1/gid_attrs/types/") and (
        record["status"] == "ok"
    ) else None  # fmt: skip


def _vlan(machine: Machine) -> Machine:
    base = "file:/sys/class/infiniband/mlx5_9/ports/1"
    rows = {
        f"{base}/gids/2": ok("0000:0000:0000:0000:0000:ffff:0a05:0001\n"),
        f"{base}/gid_attrs/types/2": ok("RoCE v2\n"),
    }
    return replace(machine, records={**machine.records, **rows})


def _no_root(key: str, record: Any) -> Any:
    """An ordinary user, without dcb(8)."""
    if key.startswith("cmd:dcb "):
        return {"status": "missing", "why": "there is no such tool"}
    if key.startswith("cmd:mlnx_qos "):
        return {"status": "denied", "why": "run as an ordinary user; needs root (--sudo)"}
    return None


def _without(tool: str) -> Callable[[str, Any], Any]:
    gone = {"status": "missing", "why": "there is no such tool"}
    return lambda key, record: gone if key.startswith(f"cmd:{tool} ") else None


def _no_debugfs(key: str, record: Any) -> Any:
    """An ordinary user, who cannot read debugfs."""
    return {"status": "denied", "why": "Permission denied"} if key.startswith("file:/sys/kernel/debug/") else None


def ranks(*classes: str) -> Fault:
    """Run a job whose ranks were each started with their traffic class."""
    found = [
        {"pids": [4711 + index], "count": 1, "name": "python3", "environment": {"NCCL_IB_TC": text}}
        for index, text in enumerate(classes)
    ]
    seen = {"status": "ok", "value": {"environments": found, "denied": 0, "cut": False}}
    return lambda machine: replace(machine, records={**machine.records, "env:ranks": seen})


RANK = {"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "8"}
UPSTREAM = everywhere(vendor_driver=False)
TO_ALL = "8 ports (mlx5_0:1 to mlx5_11:1)"

BROKEN: dict[str, Setup] = {
    # addressing
    "interface down under an active port": Setup(port(link="down"), "interface"),
    "no IP address": Setup(port(ip=""), "address"),
    "interface left at MTU 1500": Setup(port(netdev_mtu=1500), "MTU"),
    "MTU larger than the site's": Setup(port(netdev_mtu=9216), "MTU"),
    "RDMA port kept an MTU of 1024": Setup(every_record(_active_mtu_1024), "active MTU"),
    "RoCE v1 rows only": Setup(every_record(_v1_only), "GID"),
    # marking
    "trust pcp, the default": Setup(port(trust="pcp"), "trust"),
    "traffic class says congested": Setup(port(traffic_class=107), "traffic class", why="every packet as congested"),
    "traffic class of another site": Setup(port(traffic_class=104), "traffic class", qos={"traffic_class": 106}),
    "DSCP of another site": Setup(port(traffic_class=98), "DSCP", qos={"dscp": 26}),
    "traffic class 0 with PFC on 3": Setup(port(traffic_class=0), "priority", why="DSCP 0, priority 0"),
    "NCCL_IB_TC=0 with PFC on 3": Setup(
        both(everywhere(traffic_class=None), node(env={"NCCL_IB_TC": "0"})), "priority", ports=TO_ALL,
        why="NCCL_IB_TC in the environment",
    ),
    "a running job with traffic class 0": Setup(
        both(everywhere(traffic_class=None), ranks("0")), "priority", ports=TO_ALL, why="environment of process 4711",
    ),
    "a job that sets no traffic class": Setup(
        both(UPSTREAM, node(env=RANK, allowed_cpus="56-69")), "priority", ports=TO_ALL,
        why="the job sets no NCCL_IB_TC",
    ),
    "the driver's traffic class overrides NCCL's": Setup(
        both(port(traffic_class=0), node(env={"NCCL_IB_TC": "106"})), "priority",
    ),
    "DSCP mapped to another priority": Setup(port(dscp_priority=((26, 0),)), "priority"),
    "traffic class 52 with the default map": Setup(everywhere(traffic_class=52), "priority", ports=TO_ALL,
                                                  why="DSCP 13, priority 1"),
    "service level 0 at a site that trusts PCP": Setup(
        both(everywhere(trust="pcp"), node(env={"NCCL_IB_SL": "0"})), "priority", ports=TO_ALL, qos={"trust": "pcp"},
    ),
    # flow and congestion control
    "PFC off": Setup(port(pfc=(), switch_pfc=()), "PFC", why="no priority"),
    "two PFC priorities": Setup(port(pfc=(3, 4), switch_pfc=(3, 4)), "PFC", why="priorities 3, 4"),
    "PFC on another priority": Setup(port(pfc=(5,), switch_pfc=(5,)), "PFC"),
    "reaction point off": Setup(port(reaction_point=False), "ECN", why="roce_rp"),
    "ECN on for another priority": Setup(port(ecn_priorities=(5,)), "ECN", why="roce_np, roce_rp"),
    "CNPs in the lossless priority": Setup(port(cnp_dscp=26), "CNP"),
    "CNPs with another DSCP than the site's": Setup(port(cnp_dscp=40), "CNP", qos={"cnp_dscp": 48}),
    "global pause with PFC": Setup(port(pause=(True, True)), "global pause", why="RX, TX"),
    "global pause one way": Setup(port(pause=(False, True)), "global pause", why=r"\(TX\)"),
    "lossless priority in the common buffer": Setup(port(buffers=(0,) * 8), "buffers", why="shares buffer 0"),
    "lossless buffer of no bytes": Setup(port(buffer_bytes=(261888, 0, 0, 0, 0, 0, 0, 0)), "buffers", why="no bytes"),
    "DCBX left to firmware": Setup(port(dcbx="Firmware"), "DCBX", "warn"),
    "DCBX left to firmware where the host should": Setup(port(dcbx="Firmware"), "DCBX", qos={"dcbx": "os"}),
    "DCQCN tuned on one port": Setup(port(dcqcn=(("ai_rate", 50),)), "DCQCN", "warn", why="ai_rate 50"),
    "two faults: the first link is named": Setup(
        port(pfc=(), switch_pfc=(), pause=(True, True), trust="pcp"), "trust",
    ),
    "the same on all ports is said once": Setup(everywhere(pause=(True, True)), "global pause", ports=TO_ALL),
    "nobody says lossless, PFC on 3 and traffic class 0": Setup(
        everywhere(traffic_class=0), "priority", "warn", ports=TO_ALL, qos={"lossless": None, "pfc_priority": None},
    ),
}  # fmt: skip

FINE: dict[str, Setup] = {
    "healthy, with storage ports down and LID 0": Setup(lambda machine: machine),
    "lossy by design, nothing set": Setup(
        everywhere(pfc=(), switch_pfc=(), ecn=False, trust="pcp", traffic_class=None, pause=(True, True),
                   dcbx="Firmware"),
        qos={"lossless": False, "pfc_priority": None, "ecn": None},
    ),
    "lossy by design, PFC left on": Setup(everywhere(), qos={"lossless": False, "pfc_priority": None, "ecn": None}),
    "a site on priority 5": Setup(
        everywhere(pfc=(5,), switch_pfc=(5,), traffic_priority=5, traffic_class=160), qos={"pfc_priority": 5},
    ),
    "a site on priority 5 with DSCP 59": Setup(
        everywhere(pfc=(5,), switch_pfc=(5,), traffic_priority=5, traffic_class=236, dscp_priority=((59, 5),)),
        qos={"pfc_priority": 5},
    ),
    "traffic class 41": Setup(everywhere(traffic_class=41, dscp_priority=((10, 3),))),
    "traffic class 52": Setup(everywhere(traffic_class=52, dscp_priority=((13, 3),))),
    "traffic class 84": Setup(
        everywhere(traffic_class=84, pfc=(2,), switch_pfc=(2,), traffic_priority=2), qos={"pfc_priority": 2},
    ),
    "traffic class without ECN bits": Setup(everywhere(traffic_class=104)),
    "NCCL sets the traffic class": Setup(both(everywhere(traffic_class=None), node(env={"NCCL_IB_TC": "106"}))),
    "a running job sets the traffic class": Setup(both(everywhere(traffic_class=None), ranks("106", "106"))),
    "only jobs set the traffic class, as the site says": Setup(
        everywhere(traffic_class=None), qos={"traffic_class": 106},
    ),
    "DCBX by firmware, as the site says": Setup(everywhere(dcbx="Firmware"), qos={"dcbx": "firmware"}),
    "without ECN by design": Setup(everywhere(ecn=False), qos={"ecn": False}),
    "trust in PCP on tagged rails": Setup(
        both(everywhere(trust="pcp"), node(env={"NCCL_IB_SL": "3"})), qos={"trust": "pcp"},
    ),
    "DCQCN tuned alike on all ports": Setup(everywhere(dcqcn=(("ai_rate", 50), ("hai_rate", 500)))),
    "the address is on a VLAN above the interface": Setup(both(port(ip=""), _vlan)),
    "GID index 5": Setup(everywhere(gid_index=5)),
    "only the vendor's tool answers": Setup(every_record(_without("dcb"))),
    "only dcb(8) answers": Setup(every_record(_without("mlnx_qos"))),
    "an RDMA MTU of 2048 by design": Setup(
        everywhere(netdev_mtu=2200), ports_of_site={"mtu": 2048, "netdev_mtu": 2200},
    ),
}  # fmt: skip

#: The links in an expert's order.
ADDRESSING = ("interface", "address", "MTU", "active MTU", "GID")
SERVICE = ("trust", "traffic class", "DSCP", "priority",
           "PFC", "ECN", "CNP", "global pause", "buffers", "DCBX", "DCQCN")  # fmt: skip

UNSURE: dict[str, Setup] = {
    "a virtual function that may not set QoS": Setup(
        both(port(shown=False), lambda machine: replace(
            machine,
            records={**machine.records, "file:/sys/class/infiniband/mlx5_9/hca_type": ok("MT4126\n")},
        )),
        unknown=tuple(name for name in SERVICE if name not in ("traffic class", "DSCP")),
        qos={"traffic_class": 106}, why="virtual function",
    ),
    "no root and no dcb": Setup(
        every_record(_no_root), unknown=("priority", "PFC", "CNP", "buffers", "DCBX"), ports=TO_ALL, why="--sudo",
    ),
    "upstream's driver, an ordinary user": Setup(
        both(UPSTREAM, every_record(_no_debugfs)), unknown=("ECN", "CNP", "DCQCN"), ports=TO_ALL,
        qos={"traffic_class": 106},
    ),
    "upstream's driver, root": Setup(UPSTREAM, unknown=("ECN",), ports=TO_ALL, qos={"traffic_class": 106}),
    "nothing sets the traffic class": Setup(
        everywhere(traffic_class=None), unknown=("traffic class", "DSCP", "priority"), ports=TO_ALL,
        why="NCCL's default is 0",
    ),
    "ranks with different traffic classes": Setup(
        both(everywhere(traffic_class=None), ranks("106", "0")), unknown=("traffic class", "DSCP", "priority"),
        ports=TO_ALL, why="differ",
    ),
    "ethtool is missing": Setup(every_record(_without("ethtool")), unknown=("global pause",), ports=TO_ALL),
    "a GID table full of other pods' rows": Setup(
        everywhere(gid_index=20), unknown=("GID",), ports=TO_ALL, why="longer",
    ),
    "an HCA that may not be opened": Setup(port(uverbs=False), unknown=("active MTU",)),
}  # fmt: skip

#: Other findings that these faults cause, from other checks.
BESIDES = {
    "an HCA that may not be opened": {("fail", "rdma.device-nodes")},
    "ranks with different traffic classes": {("warn", "nccl.contradictions")},
}


def chain_findings(case: Setup, machine: Machine | None = None) -> tuple[list[dict[str, Any]], set[tuple[str, str]]]:
    """Return the urgent findings of the chain, and all other failures and warnings."""
    sick = case.fault(machine or hgx_h100(NAME, roce=True))
    report = judge([from_document(machines.evidence(sick), NAME)], CHECKS, site(case))
    urgent = [found for found in report["findings"] if found["status"] not in ("pass", "skip")]
    assert not [found for found in urgent if "crashed" in found["message"]]
    others = {(f["status"], f["check"]) for f in urgent if f["check"] != "roce.chain" and f["status"] != "unknown"}
    return [found for found in urgent if found["check"] == "roce.chain"], others


def first_broken(finding: dict[str, Any]) -> str:
    """Return the first broken link in a finding of the chain."""
    line = next(line for line in finding["excerpts"][0]["text"].split("\n") if line.startswith("BROKEN"))
    return next(name for name in (*ADDRESSING, *SERVICE)
                if line[8:].startswith(f"{name} "))  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_the_broken_link_is_named(name: str) -> None:
    case = BROKEN[name]
    found, others = chain_findings(case)
    assert others == set()
    loud = [finding for finding in found if finding["status"] != "unknown"]
    assert [finding["status"] for finding in loud] == [case.status]
    assert first_broken(loud[0]) == case.link
    assert loud[0]["message"].startswith(f"{case.ports}: ")
    assert loud[0]["subject"] == (case.ports if case.ports == PORT else "")
    assert loud[0]["expected"]
    assert loud[0]["evidence"]
    assert loud[0]["fix"]
    if case.why:
        assert re.search(case.why, loud[0]["message"])
    vague = [finding["message"] for finding in found if finding["status"] == "unknown"]
    assert all("does not declare whether" in message for message in vague) == (len(vague) == 0 or "nobody says" in name)


@pytest.mark.parametrize("name", FINE)
def test_no_alarm(name: str) -> None:
    assert chain_findings(FINE[name]) == ([], set())


@pytest.mark.parametrize("name", UNSURE)
def test_a_link_that_cannot_be_determined_is_unknown(name: str) -> None:
    case = UNSURE[name]
    found, others = chain_findings(case)
    assert others == BESIDES.get(name, set())
    assert [finding["status"] for finding in found] == ["unknown"]
    (finding,) = found
    is_unknown = f"{verb(len(case.unknown), 'is')} unknown"
    assert finding["message"].startswith(f"{case.ports}: {', '.join(case.unknown)} {is_unknown}: ")
    assert case.why in finding["message"] + finding["fix"]
    assert finding["fix"]
    assert "BROKEN" not in finding["excerpts"][0]["text"]


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        ("missing", "install `ibv_devinfo`"),
        ("timeout", "find out why `ibv_devinfo` hangs on the node"),
        ("denied", "run with --sudo, or as root"),
        ("ok", "see rdma.device-nodes"),
        ("not-run", "give the run more time: --deadline"),
    ],
)
def test_the_next_step_fits_the_reason(status: str, fix: str) -> None:
    def silent(key: str, record: Any) -> Any:
        return {"status": status, "out": ""} if key == "cmd:ibv_devinfo" else None

    (finding,) = chain_findings(Setup(every_record(silent)))[0]
    assert "active MTU is unknown" in finding["message"]
    assert finding["fix"].startswith(fix)


def test_a_port_that_is_down_is_another_checks_business() -> None:
    case = Setup(port(state="DOWN", physical="Polling"))
    assert chain_findings(case) == ([], {("fail", "rdma.port-state"), ("warn", "rdma.bandwidth-per-gpu")})


def test_a_pod_has_its_own_gid_index() -> None:
    variables = {"NCCL_IB_GID_INDEX": "7", "KUBERNETES_SERVICE_HOST": "192.0.2.1"}
    found, others = chain_findings(Setup(everywhere(gid_index=7)), replace(pod(NAME), env=variables))
    assert found == []
    assert not {check for _, check in others} & {"nccl.gid-index", "rdma.link-layer", "rails.subnets"}


def test_a_gid_index_without_effect_here_is_reported_once() -> None:
    for index, status in (("6", "fail"), ("1", "fail"), ("0", "fail"), ("3", "warn")):  # 3: valid, and not needed
        found, others = chain_findings(Setup(node(env={"NCCL_IB_GID_INDEX": index})))
        assert found == []
        assert others == {(status, "nccl.gid-index")}


def test_soft_roce_is_no_noise() -> None:
    """A recorded guest: software devices on no bus, no v1 rows, no QoS; its actual fault is named."""
    lossy = {"class": {"guest": {"gpus": 0, "hcas": 2, "ports": {"compute": "rxe[0-1]"}, "qos": {"lossless": False}}}}
    for name, wanted in (("soft-roce", []), ("soft-roce-mtu-1500", ["rxe0:1"])):
        report = judge([from_document(whole_node(name), name)], CHECKS, from_data(lossy, "cluster.toml"))
        found = [f for f in report["findings"] if f["check"] == "roce.chain" and f["status"] == "fail"]
        assert [finding["subject"] for finding in found] == wanted


def test_the_chain_is_shown_link_by_link() -> None:
    found, _ = chain_findings(BROKEN["global pause with PFC"])
    lines = found[0]["excerpts"][0]["text"].split("\n")
    assert [line[8:21].strip() for line in lines] == [*ADDRESSING, *SERVICE]
    assert sum(line.startswith("BROKEN") for line in lines) == 1
