"""``preflight learn``: a cluster file from a fleet, which a sick fleet does not teach to be the norm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from preflight.checks import registry
from preflight.cli import app
from preflight.evidence.document import Evidence, from_document, no_answer
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.expectations.node_class import NodeClass
from preflight.judge import judge
from preflight.learn import LearnError, Learnt, learn
from preflight.model import Scope
from tests.scenarios.test_nodes_fleet import firmware, qos
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.fleet import fleet, machines, names
from tests.support.machines.l40s import l40s_pcie
from tests.support.machines.unusual import h100_two_ports
from tests.support.whole_nodes import Fault, env, every_gpu, every_rail, gpu, nic


def made(machine: Machine, count: int, faults: Mapping[str, Fault] | None = None, seed: int = 3) -> list[Evidence]:
    return [from_document(one, one["node"]) for one in fleet(machine, count, seed, faults)]


def sick(share: float, fault: Fault, count: int = 10, roce: bool = True) -> list[Evidence]:
    """Return a fleet of which the first nodes have the same fault."""
    odd = names(count)[: round(share * count)]
    return made(hgx_h100("x", roce=roce), count, dict.fromkeys(odd, fault))


def read(found: Learnt) -> Cluster:
    return decode(found.text.encode(), "cluster.toml")


def only_class(found: Learnt) -> NodeClass:
    (members,) = read(found).classes.values()
    return members


#: Checks that speak of what is learnt; to run all would take the tests a minute.
SOME = [
    check for check in registry().checks
    if check.id in ("gpu.count", "roce.chain", "nccl.left-over-disables") or check.id.startswith(("rdma.", "fleet.m"))
]  # fmt: skip

HEALTHY = made(hgx_h100("x", roce=True), 8)


def test_the_file_contains_what_the_nodes_have_and_where_it_came_from() -> None:
    found = learn(HEALTHY)
    members = only_class(found)
    assert members.nodes == tuple(names(8))
    assert (members.part, members.gpus, members.hcas) == ("HGX H100", 8, 8)
    ports, wanted = members.ports, {"mlx5_0", *(f"mlx5_{number}" for number in (3, 4, 5, 6, 9, 10, 11))}
    assert set(ports.compute or ()) == wanted
    assert (ports.link_layer, ports.rate_gbps, ports.mtu, ports.netdev_mtu) == ("Ethernet", 400, 4096, 9000)
    assert ports.point_to_point is True
    assert (members.qos.lossless, members.qos.pfc_priority, members.qos.ecn) == (True, 3, True)
    assert (members.checkpoint.path, members.checkpoint.interval_min) == ("/shared/checkpoints", 30)
    assert "rate_gbps = 400  # 8 of 8 nodes; /sys/class/infiniband/*/ports/*/rate" in found.text
    assert (found.refused, found.systemic, found.odd) == ((), (), ())


def test_the_same_evidence_gives_the_same_bytes_in_any_order() -> None:
    again = learn(made(hgx_h100("x", roce=True), 8), SOME)
    assert learn(HEALTHY, SOME).text == learn(HEALTHY[::-1], SOME).text == again.text


def test_sixty_four_nodes_with_a_few_sick_ones_teach_what_the_rest_has() -> None:
    faults = {
        "gpu007": nic("mlx5_4", rate="200 Gb/sec (2X NDR)"), "gpu020": every_gpu(application_clock_mhz=1410),
        "gpu033": firmware("28.39.1002"), "gpu051": gpu(2, on_bus=False), "gpu064": nic("mlx5_9", sm_lid=9),
    }  # fmt: skip
    nodes = made(hgx_h100("x"), 64, faults)
    checks = [*SOME, *(one for one in registry().checks if one.scope is Scope.FLEET and one not in SOME)]
    found = learn(nodes, checks)
    assert found.odd == tuple(sorted(faults))
    assert (found.refused, found.systemic) == ((), ())
    assert only_class(found).ports.rate_gbps == 400
    report = judge(nodes, checks, read(found))
    reported = {(one["check"], *one["nodes"]) for one in report["findings"] if one["status"] not in ("pass", "skip")}
    assert reported == {
        ("rdma.port-rate", "gpu007"), ("rdma.bandwidth-per-gpu", "gpu007"),
        ("fleet.gpu-settings", "gpu020"), ("fleet.firmware", "gpu033"),
        ("gpu.count", "gpu051"), ("fleet.rails", "gpu064"),
    }  # fmt: skip
    unwrapped = " ".join(found.text.replace("\n#", " ").split())
    for node in faults:
        assert f": {node}" in unwrapped, "it is named as an exception"


SLOW = every_rail(rate="200 Gb/sec (2X NDR)")

#: Fault of two fifths of the nodes -> words of the file, and what the class must not have learnt: table, key, value.
SICK: dict[str, tuple[Fault, str, tuple[str, str, object]]] = {
    "slow rails": (SLOW, "rdma.port-rate fails on 4 of 10", ("ports", "rate_gbps", 200)),
    "interfaces at 1500": (every_rail(netdev_mtu=1500), "roce.chain fails on 4 of 10", ("ports", "netdev_mtu", 1500)),
    "no PFC": (every_rail(pfc=()), "roce.chain fails on 4 of 10", ("qos", "lossless", False)),
    "ECN off": (every_rail(ecn=False), "roce.chain fails on 4 of 10", ("qos", "ecn", False)),
    "PCP trusted": (qos(trust="pcp"), "roce.chain fails on 4 of 10", ("qos", "trust", "pcp")),
    "seven GPUs": (gpu(5, on_bus=False), "gpu.count fails on 4 of 10", ("", "gpus", 7)),
    "a rail down": (
        nic("mlx5_5", state="DOWN", physical="Polling"), "rdma.port-state fails on 4 of 10", ("", "hcas", 7),
    ),
    "P2P switched off": (env(NCCL_P2P_DISABLE="1"), "nccl.left-over-disables fails on 4 of 10", ("", "gpus", 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", SICK)
def test_what_two_fifths_of_a_fleet_lack_is_reported_and_not_learnt(name: str) -> None:
    fault, words, (table, key, value) = SICK[name]
    found = learn(sick(0.4, fault), SOME)
    plain = " ".join(line.lstrip("# ") for line in found.text.splitlines())
    assert f"SYSTEMIC: {words} nodes of class hgx-h100" in plain
    assert "looks like the site's problem" in plain
    assert found.systemic
    members = only_class(found)
    assert getattr(getattr(members, table) if table else members, key) != value


@pytest.mark.parametrize(
    ("name", "fault", "table", "key", "words"),
    [
        ("slow rails", SLOW, "ports", "rate_gbps", "below the 400 Gb/s that a HGX H100 customarily has"),
        ("seven GPUs", gpu(5, on_bus=False), "", "gpus", "below the 8 that a HGX H100 has"),
        ("small frames", every_rail(netdev_mtu=1500), "ports", "netdev_mtu", "below 4200"),
        ("no PFC", every_rail(pfc=()), "qos", "lossless", "say false if it is lossy by design"),
        ("PFC on all", every_rail(pfc=tuple(range(8))), "qos", "lossless", "a lossless fabric has it on one priority"),
        ("no ECN", every_rail(ecn=False), "qos", "ecn", "without ECN only PFC is left"),
    ],
)
def test_what_all_nodes_of_a_fleet_lack_does_not_become_the_norm(
    name: str, fault: Fault, table: str, key: str, words: str
) -> None:
    found = learn(sick(1.0, fault, 5), SOME)
    members = only_class(found)
    assert getattr(getattr(members, table) if table else members, key) is None
    assert any(words in reason for reason in found.refused)
    assert "NOT LEARNT" in found.text


def test_two_ports_for_each_gpu_are_no_slow_ones() -> None:
    """2 x 200 Gb/s are the 400 Gb/s that are customary for one GPU."""
    members = only_class(learn(made(h100_two_ports(), 3)))
    assert (members.ports.rate_gbps, members.hcas) == (200, 16)


def test_half_and_half_teaches_nothing() -> None:
    found = learn(sick(0.5, every_rail(netdev_mtu=4500)), SOME)
    assert only_class(found).ports.netdev_mtu is None
    assert "NOT LEARNT: netdev_mtu: no majority: 4500 on 5; 9000 on 5" in found.text


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_nodes_that_fail_a_check_of_the_value_do_not_vote_on_it(share: float) -> None:
    """Below the rate that the part customarily has, they are not what the others are measured by."""
    found = learn(sick(share, SLOW), SOME)
    assert only_class(found).ports.rate_gbps == 400
    least, slow = round(10 - 10 * share), round(10 * share)
    assert f"rate_gbps = 400  # {least} of 10 nodes, {slow} without a vote" in found.text
    assert "# otherwise on gpu[001-00" in found.text
    alone = learn(sick(1.0, SLOW), SOME)
    assert only_class(alone).ports.rate_gbps is None
    assert "NOT LEARNT: rate_gbps = 200: 10 of 10 nodes have it: below the 400" in alone.text


LOGIN = from_document({
    "schema": "preflight.evidence/1", "node": "login1", "collected_at": "2026-11-21T03:00:00Z", "collector": {},
    "records": {"dir:/sys/bus/pci/devices": {"status": "ok", "entries": {}}},
}, "login1")  # fmt: skip


def test_nodes_of_several_kinds_become_classes() -> None:
    one, other = list(machines(hgx_h100("x"), 4, stem="h")), list(machines(l40s_pcie("y"), 3, stem="l"))
    other = [replace(machine, number=machine.number + 50) for machine in other]
    nodes = [from_document(evidence(machine), machine.name) for machine in (*one, *other)]
    found = learn([*nodes, LOGIN, no_answer("h005", "connect", "refused", "2026-11-21T03:00:00Z")])
    classes = read(found).classes
    assert {name: members.nodes for name, members in classes.items()} == {
        "hgx-h100": ("h001", "h002", "h003", "h004"), "l40s-pcie": ("l001", "l002", "l003"),
    }  # fmt: skip
    assert "In no class, since they have no GPU: login1" in found.text
    assert "No answer: h005" in found.text


def test_cards_sold_singly_are_of_a_kind_by_their_number_unless_few_lost_one() -> None:
    complete = list(machines(l40s_pcie("y"), 6, stem="l"))
    few = [
        *complete[:5],
        replace(complete[5], gpus=(*complete[5].gpus[:-1], replace(complete[5].gpus[-1], on_bus=False))),
    ]
    found = learn([from_document(evidence(machine), machine.name) for machine in few])
    assert len(read(found).classes) == 1
    assert only_class(found).gpus == 8
    assert found.odd == ("l006",)


def test_nothing_to_learn_from() -> None:
    with pytest.raises(LearnError):
        learn([no_answer("gpu001", "connect", "refused", "2026-11-21T03:00:00Z")])


@pytest.mark.parametrize("name", ["gpu\n[class.evil]", 'gpu"] = 1', "gpu]001", "\x1b[31mred", "a" * 300, "gpu[1-3"])
def test_a_hostile_name_stays_a_name(name: str) -> None:
    nodes = [*HEALTHY[:3], replace(HEALTHY[3], node=name)]
    found = learn(nodes, SOME)
    assert set(read(found).classes) == {"hgx-h100"}
    assert all(line.isprintable() for line in found.text.splitlines())


# --- the command -----------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "evidence"
    folder.mkdir()
    for document in fleet(hgx_h100("x", roce=True), 4):
        (folder / f"{document['node']}.json").write_text(json.dumps(document))
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(app.main, list(words), catch_exceptions=False)


def test_learn_then_judge_finds_nothing_that_gates(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    done = run("learn", str(saved), "-o", str(file))
    assert (done.exit_code, done.output) == (0, f"{file}: 1 classes from 4 nodes\n".replace("1 classes", "1 class"))
    judged = run("judge", str(saved), "--cluster", str(file), "--json", "-")
    report = json.loads(judged.stdout)
    assert judged.exit_code == 0
    assert {one["status"] for one in report["findings"] if one["gating"]} <= {"pass", "skip"}
    assert run("lint", str(file), str(saved)).exit_code == 0


def test_an_existing_file_is_not_overwritten_unless_forced(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("# mine\n")
    done = run("learn", str(saved), "-o", str(file))
    assert done.exit_code == 2
    assert "--force" in done.output
    assert file.read_text() == "# mine\n"
    assert run("learn", str(saved), "-o", str(file), "--force").exit_code == 0
    assert "[class.hgx-h100]" in file.read_text()


def test_what_was_not_learnt_is_reported_and_gives_status_1(tmp_path: Path) -> None:
    for document in fleet(hgx_h100("x"), 5, faults=dict.fromkeys(names(5), SLOW)):
        (tmp_path / f"{document['node']}.json").write_text(json.dumps(document))
    done = run("learn", str(tmp_path), "-o", str(tmp_path / "cluster.toml"))
    assert done.exit_code == 1
    assert "not learnt: class.hgx-h100.ports.rate_gbps: 5 of 5 nodes have it: below the 400 Gb/s" in done.output
    assert "SYSTEMIC: rdma.port-rate" in done.output


def test_a_source_to_learn_from_is_required(tmp_path: Path) -> None:
    done = run("learn", "-o", str(tmp_path / "cluster.toml"))
    assert done.exit_code == 2
    assert "--hosts" in done.output
