"""``preflight learn`` of fleets: the faults of a sick share are reported and do not become the norm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.judge import judge
from preflight.learn import learn
from preflight.model import Scope
from tests.scenarios.test_nodes_fleet import firmware, qos
from tests.support.learnt import SOME, made, only_class, read, run
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet, names
from tests.support.whole_nodes import Fault, env, every_gpu, every_rail, gpu, nic


def sick(share: float, fault: Fault, count: int = 10, roce: bool = True) -> list[Evidence]:
    """Return a fleet whose first nodes have the same fault."""
    odd = names(count)[: round(share * count)]
    return made(hgx_h100("x", roce=roce), count, dict.fromkeys(odd, fault))


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


#: Fault of two fifths of the nodes -> words of the file, and the value that must not be learnt: table, key, value.
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
    assert "probably a site-wide problem" in plain
    assert found.systemic
    members = only_class(found)
    assert getattr(getattr(members, table) if table else members, key) != value


@pytest.mark.parametrize(
    ("name", "fault", "table", "key", "words"),
    [
        ("slow rails", SLOW, "ports", "rate_gbps", "below the usual 400 Gb/s of a HGX H100"),
        ("seven GPUs", gpu(5, on_bus=False), "", "gpus", "below the 8 that a HGX H100 has"),
        ("small frames", every_rail(netdev_mtu=1500), "ports", "netdev_mtu", "below 4200"),
        ("no PFC", every_rail(pfc=()), "qos", "lossless", "set false if the fabric is lossy by design"),
        ("PFC on all", every_rail(pfc=tuple(range(8))), "qos", "lossless", "a lossless fabric uses one priority"),
        ("no ECN", every_rail(ecn=False), "qos", "ecn", "without ECN only PFC remains"),
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


def test_half_and_half_teaches_nothing() -> None:
    found = learn(sick(0.5, every_rail(netdev_mtu=4500)), SOME)
    assert only_class(found).ports.netdev_mtu is None
    assert "NOT LEARNT: netdev_mtu: no majority: 4500 on 5; 9000 on 5" in found.text


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_nodes_that_fail_a_check_of_the_value_do_not_vote_on_it(share: float) -> None:
    """Values below the part's usual rate do not serve as a reference for other nodes."""
    found = learn(sick(share, SLOW), SOME)
    assert only_class(found).ports.rate_gbps == 400
    least, slow = round(10 - 10 * share), round(10 * share)
    assert f"rate_gbps = 400  # {least} of 10 nodes, {slow} without a vote" in found.text
    assert "# otherwise on gpu[001-00" in found.text
    alone = learn(sick(1.0, SLOW), SOME)
    assert only_class(alone).ports.rate_gbps is None
    assert "NOT LEARNT: rate_gbps = 200: 10 of 10 nodes have it: below the usual 400" in alone.text


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "evidence"
    folder.mkdir()
    for document in fleet(hgx_h100("x", roce=True), 4):
        (folder / f"{document['node']}.json").write_text(json.dumps(document))
    return folder


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
    assert "not learnt: class.hgx-h100.ports.rate_gbps: 5 of 5 nodes have it: below the usual 400 Gb/s" in done.output
    assert "SYSTEMIC: rdma.port-rate" in done.output
