"""Rounds as shell scripts: their launches, and that no text of theirs reaches the shell unquoted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from preflight.bench.campaign import Campaign, PlannedRound, bench_plan
from preflight.bench.planner import ACROSS, fixed_rounds
from preflight.campaign import folder
from preflight.campaign.scripts import ScriptRounds, script
from tests.support.in_process import run
from tests.support.pair_runs import NODES
from tests.support.simulated_fabric import cluster
from tests.unit.campaign.test_folder import made


def printed(*more: str) -> str:
    return run("bench", "--hosts", "gpu[001-008]", "--gpus", "8", "--print", *more)


@pytest.mark.parametrize(("nodes", "leaf"), [(2, 2), (3, 3), (8, 8), (33, 11), (64, 8), (512, 32)])
def test_each_node_runs_with_other_partners(nodes: int, leaf: int) -> None:
    plan = cluster(nodes, leaf, goal="links")
    rounds = fixed_rounds(plan)
    met: dict[str, set[str]] = {node: set() for node in plan.nodes}
    for made_round in rounds:
        names = [end.node for ends in made_round.runs for end in ends]
        assert len(names) == len(set(names))
        if made_round.purpose != ACROSS:
            for a, b in made_round.runs:
                assert a.leaf == b.leaf
                assert b.node not in met[a.node]
                met[a.node].add(b.node)
                met[b.node].add(a.node)
    assert all(len(partners) >= min(leaf - 1, 2) for partners in met.values())
    across = Counter(made_round.purpose for made_round in rounds)[ACROSS]
    assert across == (0 if nodes == leaf else 3)
    assert rounds == fixed_rounds(plan)


def test_scripts_are_valid_for_the_shell() -> None:
    for form in ("sh", "sbatch"):
        text = printed(form, "--env", "NCCL_DEBUG=$(touch pwned) ' \" `id`", "--at-once", "2")
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
        assert text.count("\nstart ") == 24
        assert text.count("\nawait") == 2 * 6 + 1  # after every two runs, and the function itself
        assert shlex.quote("NCCL_DEBUG=$(touch pwned) ' \" `id`") in text
    assert "#SBATCH --nodes=8 --nodelist=gpu[001-008]\n#SBATCH --exclusive --time=" in text
    assert " srun --overlap --nodes=2 " in text
    assert "--jobid" not in text


def test_a_printed_plan_is_one_that_bench_reads(tmp_path: Path) -> None:
    """The head of the script alone writes the folder; an empty PATH for mpirun disables its launches."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "date", "mkdir", "mktemp", "rm", "timeout", "env"):
        source = next(Path(place, tool) for place in os.environ["PATH"].split(":") if Path(place, tool).exists())
        (tools / tool).symlink_to(source)
    target = tmp_path / "campaign 1"
    ran = subprocess.run(["sh", "-s", str(target)], input=printed("sh"), text=True, env={"PATH": str(tools)},
                         capture_output=True, check=False, timeout=60)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    done = folder.open_folder(target).done
    assert (len(done.rounds), len(done.launches), done.end) == (6, 24, "script")
    assert {(launch.status, launch.exit) for launch in done.launches} == {("failed", 127)}
    report = json.loads(run("judge", str(target), "--json", expect=(3,)))
    assert any("its script has ended" in finding["message"] for finding in report["findings"])


#: Fields of an MPIJob, by pkg/apis/kubeflow/v2beta1/types.go of kubeflow/mpi-operator; others are made by hand here.
_JOB = {"slotsPerWorker", "launcherCreationPolicy", "runPolicy", "mpiReplicaSpecs"}
_POLICY = {"cleanPodPolicy", "backoffLimit", "activeDeadlineSeconds"}


def test_a_manifest_is_valid(tmp_path: Path) -> None:
    text = printed("mpijob", "--image", "example/nccl-tests:2.19.6", "--env", "NCCL_DEBUG=a: {b} 'c'")
    config, job = yaml.safe_load_all(text)
    version = kubernetes_validate.latest_version()
    kubernetes_validate.validate(config, version, strict=True)
    assert (set(job["spec"]), set(job["spec"]["runPolicy"])) == (_JOB, _POLICY)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    replicas = job["spec"]["mpiReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {"Launcher": 1, "Worker": 8}
    for each in replicas.values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": each["template"]["spec"]}
        kubernetes_validate.validate(pod, version, strict=True)
    script_text = config["data"]["rounds.sh"]
    subprocess.run(["sh", "-n"], input=script_text, text=True, check=True)
    assert shlex.quote("NCCL_DEBUG=a: {b} 'c'") in script_text
    assert script_text.count("\nstart ") == 24


def test_what_a_manifest_cannot_hold() -> None:
    usual = ["bench", "--gpus", "8", "--print", "mpijob"]
    for words in (["--hosts", "gpu[1-8]"], ["--hosts", "gpu[1-8]", "--image", "a b"],
                  ["--hosts", "gpu[1-8]", "--image", "a", "--env", "NCCL_DEBUG=\x1b"],
                  ["--hosts", "gpu[001-900]", "--image", "a"]):  # fmt: skip
        run(*usual, *words, expect=(2,))
    run("bench", "--hosts", "gpu[1-8]", "--gpus", "8", "--print", "sh", "--image", "a", expect=(2,))


def test_a_continued_manifest_has_the_journal_so_far(tmp_path: Path) -> None:
    opened = made(tmp_path)
    plan = replace(opened.plan, via="mpirun")
    rounds = [PlannedRound(2, "repeat", "", opened.done.rounds[0].runs, {})]
    lines = [json.dumps(line) for line in opened.lines]
    text = script(plan, "mpijob", ScriptRounds(rounds, 3, 1, [], str(tmp_path), lines), ())
    assert all(f"line {shlex.quote(line)}\n" in text for line in lines)
    assert "\nstart 3 2 0 " in text


def test_a_resumed_script_launches_what_is_open(tmp_path: Path) -> None:
    opened = made(tmp_path)
    plan = replace(opened.plan, via="mpirun")
    rounds = [PlannedRound(1, "screen", "", opened.done.rounds[0].runs, {})]
    text = script(plan, "sh", ScriptRounds(rounds, 7, 1, [1], str(tmp_path)), ())
    assert text.count("\nstart ") == 1
    assert f'\nstart 7 1 1 \'["{NODES[2]}","{NODES[3]}"]\'' in text
    assert "bench.round/1" not in text
    assert bench_plan(Campaign(plan), {}).nodes == plan.nodes
