"""Draining nodes of a real Slurm cluster: drains set by others stay, and the limit holds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from preflight.gate.slurm import drain_reason, scontrol_nodes
from preflight.gate.verdict import Verdict, to_document
from tests.support.paths import ROOT
from tests.support.slurm.cluster import Slurm, missing
from tests.support.stopwatch import Stopwatch

NODES = 6
FOUND = "preflight: gpu.xid: found Xid 79 on GPU 3, expected none"

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no {missing()} here")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with Slurm(NODES) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm) -> Slurm:
    """The cluster with every node in service and without comments."""
    for name in cluster.names:
        cluster.run(["scontrol", "update", f"nodename={name}", "state=resume"])
        cluster.run(["scontrol", "update", f"nodename={name}", "comment="])
    for _ in cluster.wait_for("nodes in service"):
        if cluster.run(["sinfo", "-h", "-t", "idle", "-o", "%D"]).stdout.strip() == str(NODES):
            break
    return cluster


def verdict(
    node: str, status: str = "fail", cause: str = "gpu.xid", *, owner: str = "node", found: str = ""
) -> Verdict:
    fails = status == "fail"
    return Verdict(
        node, status, int(time.time()), cause=cause if fails else "", causes=(cause,) if fails else (), owner=owner,
        reason="" if status == "pass" else found or FOUND.replace("gpu.xid", cause),
        unknowns=("gpu.xid",) if status == "unknown" else (),
    )  # fmt: skip


def begin(slurm: Slurm, node: str, judged: Verdict, *options: str, named: str = "") -> subprocess.Popen[str]:
    """Let a node apply a verdict; ``named`` is slurmd's name of the node."""
    path = slurm.folder / f"verdict.{node}"
    path.write_text(json.dumps(to_document(judged)))
    environ = {"SLURMD_NODENAME": named or node, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*slurm.on(node), sys.executable, "-m", "tests.support.slurm.apply_verdict", str(path), *options]
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(begun: subprocess.Popen[str]) -> Mapping[str, Any]:
    out, err = begun.communicate(timeout=60)
    assert begun.returncode == 0, err
    outcome: Mapping[str, Any] = json.loads(out)
    return outcome


def applied(slurm: Slurm, node: str, judged: Verdict, *options: str, named: str = "") -> Mapping[str, Any]:
    return end(begin(slurm, node, judged, *options, named=named))


def shown(slurm: Slurm, name: str) -> scontrol_nodes.Node:
    command = ["env", "TZ=UTC0", "scontrol", "show", "node", "--oneliner", name]
    return scontrol_nodes.read(slurm.run(command).stdout)[name]


def written(slurm: Slurm, name: str) -> tuple[object, ...]:
    """Return the reason and comment of a node, without what slurmctld itself changes."""
    node = shown(slurm, name)
    return node.drained, node.reason, node.user, node.at, node.comment


def drained(slurm: Slurm) -> list[str]:
    text = slurm.run(["scontrol", "show", "node", "--oneliner"]).stdout
    return [node.name for node in scontrol_nodes.read(text).values() if node.drained]


def by_hand(slurm: Slurm, name: str, why: str) -> None:
    assert slurm.run(["scontrol", "update", f"nodename={name}", "state=drain", f"reason={why}"]).returncode == 0


def test_a_sick_node_is_drained_with_what_was_found_and_lifted_when_it_is_well(slurm: Slurm) -> None:
    first = applied(slurm, "n1", verdict("n1"))
    node = shown(slurm, "n1")
    assert first["drained"]
    assert first["exit"] == 1
    assert node.drained
    assert node.reason.startswith(f"{FOUND} [node] #")
    assert node.user == "root"
    assert abs(node.at - time.time()) < 60

    again = applied(slurm, "n1", verdict("n1"))
    assert again["drained"]
    assert "already" in again["line"]
    assert shown(slurm, "n1").at == node.at

    unsure = applied(slurm, "n1", verdict("n1", "unknown"))
    assert unsure["line"] == f"the node is not drained: [node] {FOUND}"
    assert shown(slurm, "n1").drained

    time.sleep(max(0.0, node.at + 1 - time.time()))  # a verdict from the same second as the drain is not newer than it
    well = applied(slurm, "n1", verdict("n1", "pass"))
    assert well["line"].startswith("lifted our drain: preflight: gpu.xid")
    assert not shown(slurm, "n1").drained
    assert shown(slurm, "n1").reason == ""


def test_a_verdict_older_than_the_drain_lifts_nothing(slurm: Slurm) -> None:
    old = verdict("n1", "pass")
    applied(slurm, "n1", verdict("n1"))
    assert "after it passed" in applied(slurm, "n1", old)["line"]
    assert drained(slurm) == ["n1"]


@pytest.mark.parametrize(
    "why",
    [
        "bob: replace the PSU",
        "Prolog error",
        "Epilog error",
        "preflight: gpu.xid: found Xid 79 on GPU 3, expected none [node]",
        "preflight: gpu.xid: typed by hand, expected none [node] #123456",
        drain_reason.drained("n2", FOUND, "node"),
        drain_reason.drained("n1", FOUND, "node") + " -- bob: RMA 4711",
        "two\nlines [root@2020-01-01T00:00:00] Comment=",
    ],
    ids=["human", "prolog", "epilog", "no-seal", "wrong-seal", "of-another-node", "edited", "lines"],
)
def test_the_drain_of_another_survives_both_verdicts(slurm: Slurm, why: str) -> None:
    by_hand(slurm, "n1", why)
    before = written(slurm, "n1")
    for status in ("fail", "pass"):
        outcome = applied(slurm, "n1", verdict("n1", status))
        assert "left unchanged" in outcome["line"], outcome
        assert outcome["drained"]
        assert written(slurm, "n1") == before


def test_who_edits_our_reason_takes_the_drain_over(slurm: Slurm) -> None:
    applied(slurm, "n1", verdict("n1"))
    edited = shown(slurm, "n1").reason + " bob: keep it out"
    assert slurm.run(["scontrol", "update", "nodename=n1", f"reason={edited}"]).returncode == 0
    time.sleep(1.1)
    outcome = applied(slurm, "n1", verdict("n1", "pass"))
    assert "left unchanged" in outcome["line"]
    assert shown(slurm, "n1").reason == edited


def test_a_node_that_is_down_is_neither_drained_nor_raised(slurm: Slurm) -> None:
    assert slurm.run(["scontrol", "update", "nodename=n1", "state=down", "reason=power"]).returncode == 0
    for status in ("fail", "pass"):
        applied(slurm, "n1", verdict("n1", status))
        assert shown(slurm, "n1").down
        assert shown(slurm, "n1").reason == "power"


def test_no_other_node_is_ever_touched(slurm: Slurm) -> None:
    outcome = applied(slurm, "n1", verdict("n1"), named="n2")
    assert "other nodes are never changed" in outcome["line"]
    assert not outcome["drained"]
    for named in ("n[1-6]", "ALL", "n1,n2", "-h", "$(reboot)", "n7"):
        outcome = applied(slurm, "n1", verdict("n1"), named=named)
        assert "Slurm was not updated" in outcome["line"]
    assert not drained(slurm)


def test_a_problem_of_the_job_drains_no_node(slurm: Slurm) -> None:
    outcome = applied(slurm, "n1", verdict("n1", owner="job"))
    assert outcome["line"].startswith("the node is not drained: [job] ")
    assert not drained(slurm)


def test_a_dry_run_reports_what_it_would_do(slurm: Slurm) -> None:
    outcome = applied(slurm, "n1", verdict("n1"), "--dry-run")
    assert outcome["line"].startswith(f"dry run: would drain the node: {FOUND} [node] #")
    assert not drained(slurm)
    applied(slurm, "n1", verdict("n1"))
    time.sleep(1.1)
    assert applied(slurm, "n1", verdict("n1", "pass"), "--dry-run")["line"].startswith("dry run: would lift")
    assert drained(slurm) == ["n1"]


def test_another_cause_is_reported_when_the_first_is_gone(slurm: Slurm) -> None:
    applied(slurm, "n1", verdict("n1"))
    outcome = applied(slurm, "n1", verdict("n1", cause="rdma.port-rate"))
    assert outcome["drained"]
    assert shown(slurm, "n1").reason.startswith("preflight: rdma.port-rate: ")


def test_the_second_node_within_ten_minutes_is_held_and_the_first_is_not_forgotten(slurm: Slurm) -> None:
    applied(slurm, "n1", verdict("n1", cause="gpu.count"))
    other = applied(slurm, "n2", verdict("n2", cause="gpu.xid"))
    same = applied(slurm, "n3", verdict("n3", cause="gpu.count"))
    assert "1 of 6 eligible nodes were drained within 10 min; the limit is 1" in other["line"]
    assert "NOT DRAINED, alert an administrator: n1 failed gpu.count too within 10 min" in same["line"]
    assert other["human"]
    assert same["human"]
    assert drained(slurm) == ["n1"]
    assert shown(slurm, "n2").comment.startswith("preflight: not drained 20")
    assert "gpu.xid: found Xid 79" in shown(slurm, "n2").comment
    applied(slurm, "n2", verdict("n2", "pass"))
    assert shown(slurm, "n2").comment in ("", "(null)")


def test_a_comment_of_another_user_stays(slurm: Slurm) -> None:
    assert slurm.run(["scontrol", "update", "nodename=n2", "comment=rack 7, on loan to Ann"]).returncode == 0
    applied(slurm, "n1", verdict("n1"))
    assert applied(slurm, "n2", verdict("n2"))["human"]
    applied(slurm, "n2", verdict("n2", "pass"))
    assert shown(slurm, "n2").comment == "rack 7, on loan to Ann"


@pytest.mark.parametrize("causes", [["gpu.xid"] * NODES, [f"check.{number}" for number in range(NODES)]])
def test_six_at_once_converge_to_one(slurm: Slurm, causes: list[str]) -> None:
    go = slurm.folder / f"go.{causes[1]}"
    begun = [
        begin(slurm, name, verdict(name, cause=cause), "--go", str(go))
        for name, cause in zip(slurm.names, causes, strict=True)
    ]
    ready = [slurm.folder / f"verdict.{name}.ready" for name in slurm.names]
    for _ in slurm.wait_for("six gates"):
        if all(path.exists() for path in ready):
            break
    go.touch()
    outcomes = {name: end(process) for name, process in zip(slurm.names, begun, strict=True)}
    assert drained(slurm) == [name for name in slurm.names if outcomes[name]["drained"]], outcomes
    assert len(drained(slurm)) == 1, outcomes
    held = [name for name in slurm.names if outcomes[name]["human"]]
    assert len(held) == NODES - 1
    assert all(shown(slurm, name).comment.startswith("preflight: not drained") for name in held)
    for path in ready:
        path.unlink()


def test_a_controller_that_hangs_costs_no_more_than_its_deadline(slurm: Slurm) -> None:
    controller = slurm.daemons["slurmctld"]
    begun = begin(slurm, "n1", verdict("n1"))
    controller.send_signal(signal.SIGSTOP)
    try:
        watch = Stopwatch()
        outcome = end(begun)
        assert watch.seconds < 10
    finally:
        controller.send_signal(signal.SIGCONT)
    assert outcome["line"].startswith("Slurm was not updated: scontrol ")
    assert "no answer within 5.0 s" in outcome["line"]
    assert outcome["exit"] == 1
    assert outcome["human"]
    assert not drained(slurm)


def test_hostile_words_are_words(slurm: Slurm) -> None:
    hostile = "preflight: gpu.xid: found '; touch /x' \"$(reboot)\" [root@2001-01-01T00:00:00] Comment=a State=IDLE"
    outcome = applied(slurm, "n1", verdict("n1", found=hostile))
    assert outcome["drained"]
    node = shown(slurm, "n1")
    assert node.drained
    assert "$(reboot)" in node.reason
    assert drain_reason.ours("n1", node.reason)
    assert node.comment == ""
