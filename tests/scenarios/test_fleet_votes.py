"""Wrong and right majorities and ties of eight nodes, with and without an expectation, for each comparing check.

Expected values decide: wrong nodes do not pass, and right ones are not blamed. Without an expectation the majority may
be wrong, and neither side of a tie is called right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.facts.nvidia.model import GpuFabric
from preflight.judge import judge
from preflight.model import Check, Scope
from preflight.reports.keep_off import bad_nodes
from tests.scenarios.test_nodes_fleet import qos
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.fleet import machines
from tests.support.machines.gb200 import gb200_tray
from tests.support.whole_nodes import Fault, both, env, every_gpu, every_rail, gpu, nic, node, set_too, setting

FLEET = {check.id: check for check in registry().checks if check.scope is Scope.FLEET}
NAMES = [f"gpu00{number}" for number in range(1, 9)]
WRONG, RIGHT = NAMES[:5], NAMES[5:]

#: Fleet checks that do not compare nodes, and why.
APART = {
    **{id: "a test between two nodes" for id in FLEET if id.startswith("pair.")},
    **{id: "a sweep of the fabric: links vote, in test_fabric_facts" for id in FLEET if id.startswith("fabric.")},
    **{
        id: "compares switches or the two ends of a cable: no node votes"
        for id in FLEET
        if id.startswith(("switch.", "link.", "optics.", "ethernet."))
    },
    "serving.placement": "compares places of two roles: no node votes",
    "fleet.identity": "looks for duplicates, and names every holder: nothing is counted",
}

#: Number of wrong nodes of eight: a wrong majority, a tie, a right majority.
SHARES = (5, 4, 3)

#: Values that no cluster file can expect, and why.
NO_EXPECTATION = {
    ("fleet.rates", 0): "what a port carries depends on the job; its state and rate are expected, in the cases below",
}

ROCE = 'ports.compute = "mlx5_[0,3-6,9-11]"\n'


@dataclass(frozen=True)
class Poll:
    """A value that is wrong on most nodes, and the source of the right one."""

    fault: Fault
    expects: str | None = ""  # of a class in the cluster file; empty: a node check knows it; None: nothing does
    kind: str = "h100"
    subject: str | None = None
    plain: Fault | None = None  # a difference that no node check detects; None: the fault
    before: Fault = lambda machine: machine  # base of all nodes
    only: bool = False  # whether a node check detects it without the cluster file


def _fabric(**changes: Any) -> Fault:
    good = GpuFabric("Completed", "Success", (), 1, "5a9f6c1e-2d43-4b7a-9c58-0e1f2a3b4c5d")
    return every_gpu(fabric=replace(good, **changes))


#: A clock that no single node shows as low, because it is the default.
_CLOCK = {"application_clock_mhz": 1410, "application_clock_default_mhz": 1410}


def _nic_firmware(version: str, every: bool = False) -> Fault:
    def planted(machine: Machine) -> Machine:
        nics = (replace(one, model=replace(one.model, firmware=version)) if every or one.gpu is not None else one
                for one in machine.nics)  # fmt: skip
        return replace(machine, nics=tuple(nics))

    return planted


def _imex(hosts: str) -> Fault:
    return setting("/etc/nvidia-imex/nodes_config.cfg", hosts)


CASES: Mapping[str, Sequence[Poll]] = {
    "fleet.driver-equal": (
        Poll(node(driver="570.86.10", userland_driver="570.124.06"), plain=node(driver="570.86.10")),
        Poll(node(driver="570.86.10"), "versions.driver = '570.124.06'\n"),
    ),
    "fleet.mtu-equal": (
        Poll(every_rail(netdev_mtu=1500), f"{ROCE}ports.netdev_mtu = 9000\n", "roce",
             plain=every_rail(netdev_mtu=4500)),
        Poll(every_rail(netdev_mtu=4500), f"{ROCE}ports.netdev_mtu = 9000\n", "roce"),
        Poll(every_rail(partition_mtu=2048), f"{ROCE}ports.mtu = 4096\n", only=True),
    ),
    "fleet.software": (
        Poll(setting("/sys/module/mlx5_core/version", "23.10-1.1.9"), "versions.mlx5_core = '24.10-2.1.8'\n"),
    ),
    "fleet.nccl-equal": (Poll(node(bundled_nccl="2.21.5"), "versions.nccl = '2.26.2'\n"),),
    "fleet.firmware": (
        Poll(every_gpu(vbios="96.00.61.00.01"), "firmware.vbios = '96.00.74.00.01'\n"),
        Poll(_nic_firmware("28.39.1002"), "firmware.nics.MT_0000000838 = '28.43.2026'\n",
             plain=_nic_firmware("28.39.1002", every=True)),
    ),
    "fleet.host": (
        Poll(node(governor="powersave"), subject="frequency governor",
             plain=setting("/sys/class/dmi/id/bios_version", "1.05.03")),
        Poll(node(memlock="67108864"), subject="locked memory", plain=setting("/proc/sys/vm/nr_hugepages", "512")),
        Poll(setting("/sys/class/dmi/id/bios_version", "1.05.03"), "firmware.bios = '1.06.07'\n"),
        Poll(node(ports="50000\t60999\n"), "thresholds.local_ports = 28000\n", plain=node(boot_options="a=b")),
    ),
    "fleet.gpu-settings": (
        Poll(gpu(7, on_bus=False, answers=False), "gpus = 8\n", subject="number of GPUs",
             plain=every_gpu(**_CLOCK)),
        Poll(every_gpu(application_clock_mhz=1410), "gpu_settings.application_clock_mhz = 1980\n",
             plain=every_gpu(**_CLOCK)),
        Poll(every_gpu(persistence=False), subject="persistence mode", plain=every_gpu(sm_clock_max_mhz=1755)),
        Poll(every_gpu(memory_total_mib=40960), "thresholds.gpu_memory_gib = 70\n", subject="GPU memory",
             plain=every_gpu(**_CLOCK)),
    ),
    "fleet.nvlink-domain": (
        Poll(_fabric(cluster_uuid="11111111-2222-3333-4444-555555555555", faults=("degraded bandwidth",)), "", "gb200",
             plain=_fabric(clique=3), before=_imex("198.51.100.1\n198.51.100.2")),
        Poll(_fabric(clique=3), "nvlink.clique = 32766\n", "gb200", before=_imex("198.51.100.1\n198.51.100.2")),
    ),
    "fleet.nic-settings": (
        Poll(lambda machine: replace(machine, nics=machine.nics[:-1]), f"hcas = 8\n{ROCE}",
             plain=node(peer_modules=("nv_peer_mem",))),
        Poll(node(peer_modules=("nv_peer_mem",)), "ports.peer_memory = 'nvidia_peermem'\n"),
    ),
    "fleet.rails": (
        Poll(every_rail(rate="200 Gb/sec (2X NDR)"), f"{ROCE}ports.rate_gbps = 400\n", "roce",
             plain=every_rail(vlan=7)),
        Poll(every_rail(vlan=7), "rails.mlx5_4.switch_vlan = '1'\n", "roce"),
    ),
    "fleet.outliers": (Poll(every_gpu(temperature_c=91, temperature_margin_c=-2), plain=every_gpu(temperature_c=60)),),
    "fleet.rates": (
        Poll(every_rail(gbps=60.0), None),
        Poll(every_rail(rate="200 Gb/sec (2X NDR)"), f"{ROCE}ports.rate_gbps = 400\n", "roce",
             plain=every_rail(gbps=60.0)),
        Poll(both(*(nic(f"mlx5_{rail}", state="DOWN", physical="Polling") for rail in (3, 4, 5, 6))), ROCE,
             plain=every_rail(gbps=60.0)),
    ),
    "fleet.roce-ports": (
        Poll(every_rail(pfc=()), f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\n", "roce",
             plain=qos(dscp_priority=((12, 5),))),
        Poll(qos(trust="pcp"), f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\nqos.trust = 'dscp'\n", "roce",
             plain=qos(dscp_priority=((12, 5),))),
        Poll(every_rail(ecn=False), f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\nqos.ecn = true\n", "roce",
             plain=qos(dscp_priority=((12, 5),))),
    ),
    "fleet.gid-index": (
        Poll(every_rail(gid_index=4), "", "roce", before=set_too(NCCL_IB_GID_INDEX="3"), only=True),
        Poll(every_rail(gid_index=4), "ports.gid_index = 3\n", "roce"),
    ),
    "fleet.roce-equal": (
        Poll(qos(cnp_dscp=46), f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\nqos.cnp_dscp = 48\n", "roce"),
        Poll(qos(traffic_class=104), f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\nqos.traffic_class = 106\n",
             "roce", plain=qos(cnp_dscp=46)),
        Poll(qos(dcbx="Firmware"), f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\nqos.dcbx = 'os'\n", "roce",
             plain=qos(cnp_dscp=46)),
    ),
    "fleet.ranks-agree": (
        Poll(set_too(NCCL_IB_DISABLE="1"), "", subject="NCCL_IB_DISABLE", plain=set_too(NCCL_BUFFSIZE="8388608")),
        Poll(env(NCCL_IB_SL="3"), f"{ROCE}ports.adaptive_sl = 1\n", subject="NCCL_IB_SL",
             plain=set_too(NCCL_IB_TIMEOUT="22"), before=set_too(NCCL_IB_SL="1")),
        Poll(set_too(NCCL_BUFFSIZE="8388608"), "nccl.NCCL_BUFFSIZE = 4194304\n", subject="NCCL_BUFFSIZE"),
    ),
    "fleet.rail-leaf": (Poll(nic("mlx5_4", leaf="leaf-9"), "rails.mlx5_4.leaf = 'leaf-4'\n", "roce"),),
}  # fmt: skip

#: Nodes of a class that declares its number of HCAs, but not of GPUs.
GPUS = Poll(lambda machine: machine, f'hcas = 8\n{ROCE}ports.link_layer = "InfiniBand"\n')

KINDS: Mapping[str, Callable[[str], Machine]] = {
    "h100": hgx_h100, "roce": lambda name: hgx_h100(name, roce=True), "gb200": gb200_tray,
}  # fmt: skip

LISTED = [(id, place) for id, listed in CASES.items() for place in range(len(listed))]
COUNTED = [(id, place) for id, place in LISTED if not CASES[id][place].only]
EXPECTED = [(id, place) for id, place in LISTED if CASES[id][place].expects is not None]


def test_every_check_that_compares_nodes_has_a_wrong_majority() -> None:
    assert set(FLEET) == set(CASES) | set(APART)
    assert not set(CASES) & set(APART)
    assert {id for id, _ in COUNTED} == set(CASES), "each has a tie and a majority without an expectation"
    assert {id for id, _ in EXPECTED} == set(CASES), "each has them with an expectation"
    without = {(id, place) for id, place in LISTED if CASES[id][place].expects is None}
    assert without == set(NO_EXPECTATION)


@cache
def _machines(kind: str) -> tuple[Machine, ...]:
    return tuple(machines(KINDS[kind](kind), 8, seed=7))


@lru_cache(maxsize=32)  # the nodes of one case, with its fault and without
def _document(kind: str, number: int, *faults: Fault) -> Evidence:
    machine = _machines(kind)[number]
    for fault in faults:
        machine = fault(machine)
    return from_document(evidence(machine), machine.name)


def _documents(case: Poll, fault: Fault, on: Sequence[str]) -> list[Evidence]:
    return [
        _document(case.kind, number, case.before, *([fault] if name in on else []))
        for number, name in enumerate(NAMES)
    ]  # fmt: skip


def _cluster(case: Poll) -> Cluster | None:
    if not case.expects:
        return None
    return decode(f"[class.a]\n{case.expects}".encode(), "cluster.toml")


def _statuses(report: Mapping[str, Any], check: str) -> dict[str, str]:
    return {one["name"]: one["checks"][check] for one in report["nodes"]}


def _blamed(report: Mapping[str, Any], check: str) -> set[str]:
    return {
        name for one in report["findings"] if one["check"] == check and one["status"] in ("fail", "warn")
        for name in one["nodes"]
    }  # fmt: skip


@pytest.mark.parametrize(("id", "place"), EXPECTED, scope="module")
def test_with_an_expectation_the_wrong_majority_has_no_vote(id: str, place: int) -> None:
    case = CASES[id][place]
    documents, cluster = _documents(case, case.fault, WRONG), _cluster(case)
    report = judge(documents, registry().checks, cluster)
    found = _statuses(report, id)
    assert {found[name] for name in RIGHT} <= {"pass", "skip"}, found
    assert "pass" not in {found[name] for name in WRONG}, found
    assert set(WRONG) <= {
        name for one in report["findings"] if one["status"] in ("fail", "warn") for name in one["nodes"]
    }, "some check says so"
    assert not set(_unfolded(bad_nodes(report))) & set(RIGHT)
    assert not {check: _blamed(report, check) for check in FLEET if _blamed(report, check) & set(RIGHT)}
    alone = judge(documents, [FLEET[id]], cluster)
    assert _blamed(alone, id) == set(WRONG), "by itself it blames the wrong ones"
    for one in alone["findings"]:
        if one["status"] in ("fail", "warn"):
            assert "most nodes" not in one["message"]
            assert "not the expected value" in one["message"]


@pytest.mark.parametrize(("id", "place"), EXPECTED, scope="module")
def test_where_all_miss_what_is_expected_none_passes(id: str, place: int) -> None:
    case = CASES[id][place]
    documents, cluster = _documents(case, case.fault, NAMES), _cluster(case)
    alone = judge(documents, [FLEET[id]], cluster)
    assert "pass" not in _statuses(alone, id).values()
    assert alone["exit_status"] != 0 or not FLEET[id].gating


@pytest.mark.parametrize("wrong", SHARES)
@pytest.mark.parametrize(("id", "place"), EXPECTED, scope="module")
def test_with_an_expectation_no_share_of_wrong_nodes_decides(id: str, place: int, wrong: int) -> None:
    case = CASES[id][place]
    alone = judge(_documents(case, case.fault, NAMES[:wrong]), [FLEET[id]], _cluster(case))
    assert _blamed(alone, id) == set(NAMES[:wrong])
    assert not any(one.get("undecided") for one in alone["findings"])


@pytest.mark.parametrize("wrong", [5, 3])
@pytest.mark.parametrize(("id", "place"), COUNTED, scope="module")
def test_without_an_expectation_a_majority_is_no_more_than_that(id: str, place: int, wrong: int) -> None:
    case = CASES[id][place]
    fault = case.plain or case.fault
    report = judge(_documents(case, fault, NAMES[:wrong]), [FLEET[id]])
    assert _blamed(report, id) == set(NAMES[wrong:] if wrong > 4 else NAMES[:wrong])
    for one in report["findings"]:
        if one["status"] in ("fail", "warn"):
            assert "most " in one["message"]


@pytest.mark.parametrize(("id", "place"), COUNTED, scope="module")
def test_without_an_expectation_a_tie_names_both_sides_and_neither_is_right(id: str, place: int) -> None:
    case = CASES[id][place]
    fault = case.plain or case.fault
    tie = judge(_documents(case, fault, NAMES[:4]), [FLEET[id]])
    assert _blamed(tie, id) == set(NAMES)
    assert "pass" not in _statuses(tie, id).values()
    assert all(one["undecided"] for one in tie["findings"] if one["status"] in ("fail", "warn"))
    assert bad_nodes(tie) == ""


def _unfolded(folded: str) -> tuple[str, ...]:
    from preflight.nodeset import unfold

    return unfold(folded) if folded else ()


@pytest.mark.parametrize("check", [FLEET[id] for id in CASES], ids=lambda check: check.id)
def test_no_advice_is_to_do_as_most_nodes_do(check: Check) -> None:
    for words in ("the others", "odd node", "copy the", "other nodes'", "a good one"):
        assert words not in check.fix.lower()


# --- classes, few nodes, what the site excuses -----------------------------------------------------

SLOW = CASES["fleet.rails"][0]


def _rated(nodes: str, gbps: int, name: str = "a") -> str:
    return f'[class.{name}]\nnodes = "{nodes}"\n{ROCE}ports.rate_gbps = {gbps}\n'


def _judged(cluster: str, on: Sequence[str] = WRONG, of: Sequence[str] = NAMES) -> dict[str, Any]:
    documents = [one for one in _documents(SLOW, SLOW.fault, on) if one.node in of]
    return judge(documents, registry().checks, decode(cluster.encode(), "cluster.toml"))


def _rails(report: Mapping[str, Any]) -> dict[str, str]:
    return _statuses(report, "fleet.rails")


def test_classes_with_expectations_of_their_own() -> None:
    report = _judged(_rated("gpu[001-005]", 200) + _rated("gpu[006-008]", 400, "b"))
    assert set(_rails(report).values()) == {"pass"}
    report = _judged(_rated("gpu[001-006]", 400) + _rated("gpu[007-008]", 400, "b"))
    assert _rails(report) == {name: "skip" if name in WRONG else "pass" for name in NAMES}


def test_of_two_nodes_the_one_that_misses_what_is_expected_is_wrong() -> None:
    report = _judged(_rated("gpu[001-008]", 400), of=("gpu001", "gpu008"))
    assert _rails(report) == {"gpu001": "skip", "gpu008": "pass"}
    assert bad_nodes(report) == "gpu001"


def test_what_another_check_reports_is_named_and_passes_nothing() -> None:
    report = _judged(_rated("gpu[001-008]", 400))
    (left,) = [one for one in report["findings"] if one["check"] == "fleet.rails" and one["status"] == "skip"]
    assert left["reported_by"] == ["rdma.port-rate"]
    assert left["nodes"] == WRONG


@pytest.mark.parametrize(
    ("excuse", "status"),
    [
        ('[[waiver]]\ncheck = "rdma.port-rate"\nowner = "a@b"\nreason = "r"\nuntil = 2100-01-01\n', "skip"),
        ('[checks]\nshadow = ["rdma.port-rate"]\n', "skip"),
        ('[checks]\noff = ["rdma.port-rate"]\n', "fail"),
        ('[class.a.checks]\noff = ["rdma.port-rate"]\n', "fail"),
    ],
)
def test_only_a_check_that_counts_reports_for_another(excuse: str, status: str) -> None:
    """A waiver applies to the cause wherever it appears; a disabled check reports nothing."""
    report = _judged(_rated("gpu[001-008]", 400) + excuse)
    assert _rails(report) == {name: status if name in WRONG else "pass" for name in NAMES}
    assert bad_nodes(report) == ("gpu[001-005]" if status == "fail" else "")


@pytest.mark.parametrize("lost", [1, 5, 7])
def test_nodes_without_a_gpu_among_those_that_have_some(lost: int) -> None:
    """The number of GPUs is not declared: nodes without any may have lost them all, so they do not pass."""
    names = NAMES[:lost]
    documents = [_without_gpus(one) if one.node in names else one for one in _documents(GPUS, GPUS.fault, ())]
    silent = judge(documents, registry().checks, decode(f"[class.a]\n{GPUS.expects}".encode(), "cluster.toml"))
    for one in silent["nodes"]:
        assert one["checks"]["fleet.gpu-settings"] == "unknown" if one["name"] in names else one["status"] != "fail"
    assert silent["exit_status"] == 3
    (found,) = [one for one in silent["findings"] if one["message"].startswith("no GPU on the PCI bus")]
    assert found["nodes"] == names
    counted = f"[class.a]\nnodes = '{','.join(names)}'\ngpus = 0\n{GPUS.expects}[class.b]\n{GPUS.expects}"
    declared = judge(documents, registry().checks, decode(counted.encode(), "cluster.toml"))
    assert "no GPU on the PCI bus" not in json.dumps(declared)


def _without_gpus(document: Evidence) -> Evidence:
    """Return the node after its GPUs fell off the bus; its NICs are still there."""
    made = json.loads(json.dumps(evidence(next(one for one in _machines("h100") if one.name == document.node))))
    records, bus = made["records"], made["records"]["dir:/sys/bus/pci/devices"]["entries"]
    for address in list(bus):
        if "PCI_ID=10DE" in records.get(f"file:/sys/bus/pci/devices/{address}/uevent", {}).get("out", ""):
            del bus[address]
    for key in [key for key in records if key.startswith(("nvml:", "cmd:nvidia-smi", "file:/proc/driver/nvidia"))]:
        records[key] = {"status": "missing", "why": "there is no such tool"}
    return from_document(made, document.node)


def test_one_value_from_two_places_is_one_value() -> None:
    """The traffic class set by the driver and that set by jobs, by the cluster file, are the same."""
    expects = f"{ROCE}qos.lossless = true\nqos.pfc_priority = 3\nqos.traffic_class = 106\n"
    case = Poll(qos(traffic_class=None), expects, "roce")
    report = judge(_documents(case, case.fault, WRONG), registry().checks, _cluster(case))
    assert set(_statuses(report, "fleet.roce-equal").values()) == {"pass"}


def test_a_warning_does_not_stand_for_a_failure() -> None:
    """The part's usual rate only warns; rails that differ from others at that rate still fail."""
    documents = [one for one in _documents(SLOW, SLOW.fault, WRONG) if one.node in ("gpu001", "gpu008")]
    report = judge(documents, registry().checks)
    assert report["nodes"][0]["checks"]["rdma.port-rate"] == "warn"
    assert _rails(report) == {"gpu001": "fail", "gpu008": "pass"}


def test_many_nodes_are_judged_as_few_are() -> None:
    """Beyond the cache size, the vote uses the answers from each node's judgement."""
    from preflight.judge.evidence_reload import HELD

    rails, cluster = [FLEET["fleet.rails"]], _cluster(SLOW)
    few = judge(_documents(SLOW, SLOW.fault, WRONG), rails, cluster)
    documents = [
        replace(one, node=f"{one.node}-{copy}") for copy in range(HELD // 8 + 1)
        for one in _documents(SLOW, SLOW.fault, WRONG)
    ]  # fmt: skip
    many = judge(documents, rails, cluster)
    by = {name.split("-")[0]: status for name, status in _rails(many).items()}
    assert by == _rails(few)
