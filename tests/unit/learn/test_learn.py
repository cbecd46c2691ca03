"""``preflight learn``: a cluster file from a few nodes, and values that are not learnt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from preflight.evidence.document import from_document, no_answer
from preflight.learn import LearnError, learn
from tests.support.learnt import SOME, made, only_class, read, run
from tests.support.machines import evidence, hgx_h100
from tests.support.machines.fleet import machines, names
from tests.support.machines.l40s import l40s_pcie
from tests.support.machines.unusual import h100_two_ports

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


def test_two_ports_for_each_gpu_are_no_slow_ones() -> None:
    """2 x 200 Gb/s are the 400 Gb/s that are usual for one GPU."""
    members = only_class(learn(made(h100_two_ports(), 3)))
    assert (members.ports.rate_gbps, members.hcas) == (200, 16)


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


def test_a_source_to_learn_from_is_required(tmp_path: Path) -> None:
    done = run("learn", "-o", str(tmp_path / "cluster.toml"))
    assert done.exit_code == 2
    assert "--hosts" in done.output
