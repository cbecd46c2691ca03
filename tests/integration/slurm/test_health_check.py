"""HealthCheckProgram in a real Slurm cluster, with the unchanged script of ``deploy/slurm``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.slurm.cluster import missing
from tests.support.slurm.gpu_cluster import CLUSTER, Gpus

RATE = "preflight: rdma.port-rate: mlx5_0:1: found 200 Gb/s, expected "

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no {missing()} here")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Gpus]:
    """Three nodes, checked every two seconds and judged again every five."""
    with Gpus(3, conf="HealthCheckInterval=2\n", without=("Prolog", "HealthCheckInterval")) as cluster:
        (cluster.folder / "verdicts").mkdir()
        cluster.write_cluster(f'{CLUSTER}refresh_s = 5\npublish = "{cluster.folder}/verdicts"\n')
        yield cluster


def judged(slurm: Gpus, name: str, status: str) -> None:
    """Wait until a node has a current verdict with this status."""
    path, now = slurm.folder / "verdicts" / f"{name}.json", int(time.time())
    for _ in slurm.wait_for(f"a verdict on {name}: {status}"):
        if path.exists() and (verdict := json.loads(path.read_text()))["status"] == status and verdict["at"] >= now:
            return


def test_a_sick_node_is_drained_and_lifted_while_its_job_goes_on_and_a_drain_by_hand_stays(slurm: Gpus) -> None:
    by_hand = {"n3": "bob: new PSU"}
    assert slurm.run(["scontrol", "update", "nodename=n3", "state=drain", "reason=bob: new PSU"]).returncode == 0
    number = slurm.submit("sleep 60", "--nodes=1", "--nodelist=n2")
    for _ in slurm.wait_for("the job"):
        if slurm.job(number)["JobState"] == "RUNNING":
            break
    slurm.sicken("n2", "n3")
    judged(slurm, "n3", "fail")
    for _ in slurm.wait_for("the drain"):
        if "n2" in slurm.drained():
            break
    why = slurm.drained()["n2"]
    assert why.startswith(RATE)
    assert slurm.drained() == {"n2": why, **by_hand}
    assert slurm.node("n2")[0] == "draining"
    assert slurm.job(number)["JobState"] == "RUNNING"
    slurm.logged("drained the node (jobs on 1 of its CPUs continue)")
    slurm.well("n2", "n3")
    judged(slurm, "n3", "pass")
    for _ in slurm.wait_for("the lifting"):
        if slurm.drained() == by_hand:
            break
    assert slurm.job(number)["JobState"] == "RUNNING"
    slurm.run(["scancel", number])


def logged_by(slurm: Gpus, words: str) -> set[str]:
    """Return the processes that wrote these words to the nodes' system logs."""
    return {line.split("preflight[")[1].split("]")[0] for line in tuple(slurm._logged) if f"]: {words}" in line}


def test_a_broken_cluster_file_drains_no_node(slurm: Gpus) -> None:
    before = slurm.drained()
    slurm.write_cluster("gpus = ")
    for _ in slurm.wait_for("n1 judged by the last valid cluster file"):  # one that reads the valid one still runs
        if logged_by(slurm, "n1: pass") & logged_by(
            slurm, "CONFIGURATION ERROR: judged by the last valid cluster file"
        ):
            break
    slurm.sicken("n1", unnoticed=True)
    slurm.logged("n1: FAIL: rdma.port-rate")
    slurm.logged("the node is not drained: [node] preflight: rdma.port-rate")
    assert "n1" not in slurm.drained()
    assert slurm.drained() == before
