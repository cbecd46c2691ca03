"""Leaves from a sweep or the cluster file: `read`, `judge` and the plan of `bench` use them."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.fabric.ibsim import fat_tree
from tests.support.in_process import run
from tests.support.pair_runs import GIB, log

NODES = [f"gpu{number:03d}" for number in range(12)]  # names as in the sweep, four on each leaf
SWEEP = fat_tree(12, down=4)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Return a folder of results in which pairs over the uplinks of leaf01 have a third of the rate."""
    draw, folder = random.Random(3), tmp_path / "pairs"
    folder.mkdir()
    for a, b in combinations(NODES, 2):
        leaf = NODES.index(a) // 4, NODES.index(b) // 4
        rate = 40.0 if leaf[0] == leaf[1] else 13.0 if 1 in leaf else 37.0
        text = log("alltoall", {a: ["0000:1a:00"], b: ["0000:1a:00"]}, {GIB: rate * (1 + draw.gauss(0, 0.004))})
        (folder / f"{a}-{b}.out").write_text(text)
    return folder


def test_read_takes_the_leaves_of_a_sweep(pairs: Path) -> None:
    (sweep := pairs.parent / "sweep.txt").write_text(SWEEP)
    document = json.loads(run("read", "--json", str(pairs), str(sweep), expect=(1,)))
    (cause,) = document["bench"]["factors"]
    assert (cause["kind"], cause["of"]) == ("uplinks", "leaf01")
    assert {end["leaf"] for item in document["bench"]["observations"] for end in item["ends"]} == {
        "leaf00", "leaf01", "leaf02",
    }  # fmt: skip


def test_read_names_no_leaf_without_one(pairs: Path) -> None:
    document = json.loads(run("read", "--json", str(pairs), expect=(0, 1, 3)))
    assert all(cause["kind"] != "uplinks" for cause in document["bench"]["factors"])


def test_judge_takes_the_leaves_of_the_cluster_file(pairs: Path) -> None:
    cluster = pairs.parent / "cluster.toml"
    cluster.write_text('[leaves]\nl1 = "gpu[000-003]"\nl2 = "gpu[004-007]"\nl3 = "gpu[008-011]"\n')
    report = json.loads(run("judge", str(pairs), "--cluster", str(cluster), "--json", expect=(1,)))
    (named,) = [item for item in report["findings"] if item["check"] == "bench.factor" and item["status"] == "fail"]
    assert named["subject"] == "the uplinks of leaf l2"


def test_a_plan_takes_the_leaves_of_a_sweep(tmp_path: Path) -> None:
    (sweep := tmp_path / "sweep.txt").write_text(SWEEP)
    hosts = ("--hosts", "gpu[000-011]", "--gpus", "8", "--print")
    assert "12 nodes on 3 leaves: gpu[000-011]\n" in run("bench", *hosts, "--topology", str(sweep))
    for line in run("bench", *hosts, "--topology", str(sweep)).splitlines():
        if " -H " in line:
            a, b = (int(host[3:6]) for host in line.partition(" -H ")[2].split()[0].split(","))
            assert a // 4 == b // 4
    unknown = run("bench", "--hosts", "gpu[000-012]", *hosts[2:], "--topology", str(sweep))
    assert "13 nodes: gpu[000-012]\n" in unknown
