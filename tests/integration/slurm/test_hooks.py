"""The hooks in a real Slurm cluster, on healthy and sick nodes, with the unchanged scripts of ``deploy/slurm``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import pytest

from tests.support.slurm.cluster import missing
from tests.support.slurm.gpu_cluster import CLUSTER, DEPLOY, Gpus
from tests.support.stopwatch import Stopwatch

RATE = "preflight: rdma.port-rate: mlx5_0:1: found 200 Gb/s, expected "

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no {missing()} here")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Gpus]:
    with Gpus(6, conf="PrologSlurmctld=/etc/slurm/preflight/prolog\n", without=("HealthCheck",)) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Gpus) -> Gpus:
    cluster.heal()
    return cluster


def ended(slurm: Gpus, number: str) -> str:
    """Wait until a job has ended; return its state. A requeued or held job fails the test.

    A waiting job is allowed: the scheduler may delay it while it still completes an earlier one.
    """
    for _ in slurm.wait_for(f"the end of job {number}", 180):
        job = slurm.job(number)
        if job["JobState"] in ("COMPLETED", "FAILED", "CANCELLED"):
            return job["JobState"]
        if job["JobState"] == "PENDING" and (job["Restarts"] != "0" or job["Priority"] == "0"):
            pytest.fail(f"job {number} was put back: {job['Reason']}\n{slurm.logs()}")
    raise AssertionError


def back_in_the_queue(slurm: Gpus, number: str) -> Mapping[str, str]:
    for _ in slurm.wait_for(f"job {number} in the queue again", 180):
        job = slurm.job(number)
        # the scheduler gives the reason of a job that is requeued only after its nodes have cleaned up
        waits = job["JobState"] == "PENDING" and job["Reason"] not in ("None", "Prolog", "Cleaning")
        if waits and job["Restarts"] != "0":
            return job
    raise AssertionError


def output(slurm: Gpus, number: str) -> str:
    return "".join(path.read_text() for path in [*slurm.folder.glob(f"*.{number}.out")])


def started(slurm: Gpus, *options: str) -> str:
    """Submit a job that prints its nodes."""
    return slurm.submit("srun --mpi=none uname -n", f"--output={slurm.folder}/job.%j.out", *options)


def test_a_job_runs_on_healthy_nodes_and_the_next_one_at_once(slurm: Gpus) -> None:
    number = started(slurm, "--nodes=2", "--ntasks-per-node=1", "--nodelist=n1,n2")
    assert ended(slurm, number) == "COMPLETED"
    assert sorted(output(slurm, number).split()) == ["n1", "n2"]
    assert not slurm.drained()
    cached = slurm.within("n1", "/bin/cat", "/var/lib/preflight/verdict.json").stdout
    assert '"status": "pass"' in cached
    first = slurm.within("n1", "/etc/slurm/preflight/prolog")
    assert first.returncode == 0


def test_a_sick_node_is_drained_and_its_job_starts_elsewhere(slurm: Gpus) -> None:
    slurm.sicken("n2")
    number = started(slurm, "--nodes=2", "--ntasks-per-node=1", "--nodelist=n1,n2")
    for _ in slurm.wait_for("the drain"):
        if slurm.drained():
            break
    job = back_in_the_queue(slurm, number)
    assert slurm.drained()["n2"].startswith(RATE)
    assert "[node] #" in slurm.drained()["n2"]
    assert list(slurm.drained()) == ["n2"]
    assert job["Restarts"] == "1"
    assert job["Priority"] != "0"  # not held: it will start by itself
    assert "n2" not in output(slurm, number)


def test_an_srun_ends_where_a_node_is_sick(slurm: Gpus) -> None:
    slurm.sicken("n2")
    ran = slurm.run(["srun", "--nodes=2", "--nodelist=n1,n2", "--mpi=none", "uname", "-n"])
    assert ran.returncode != 0
    assert "n2" not in ran.stdout
    for _ in slurm.wait_for("the drain"):
        if slurm.drained():
            break
    assert slurm.drained()["n2"].startswith(RATE)


def test_a_tool_that_hangs_ends_at_our_deadline_and_drains_no_node(slurm: Gpus) -> None:
    slurm.write_cluster(CLUSTER.replace("deadline_s = 40", "deadline_s = 6"))
    slurm.hang("n2")
    number = started(slurm, "--nodes=1", "--nodelist=n2")
    watch = Stopwatch()
    assert ended(slurm, number) == "COMPLETED"
    assert watch.elapsed > 2
    assert watch.seconds < 20  # PrologEpilogTimeout is 60 s
    assert output(slurm, number).split() == ["n2"]
    assert not slurm.drained()
    cached = slurm.within("n2", "/bin/cat", "/var/lib/preflight/verdict.json").stdout
    assert '"status": "unknown"' in cached


def test_a_strict_site_gets_its_job_back_and_no_drain(slurm: Gpus) -> None:
    """Slurm drains a node if its Prolog fails; a node that could not be judged is not drained: the job is requeued."""
    slurm.write_cluster(CLUSTER.replace("deadline_s = 40", "deadline_s = 6\nslurm-prolog.strict = true"))
    slurm.hang("n2")
    number = started(slurm, "--nodes=1", "--nodelist=n2")
    job = back_in_the_queue(slurm, number)
    assert job["Reason"] == "BeginTime"
    assert not slurm.drained()
    assert output(slurm, number) == ""
    slurm.logged("NOT JUDGED", f"job {number}")
    slurm.logged(f"job {number} was requeued and starts in 10 min")


@pytest.mark.parametrize("text", ["gpus = ", "[class.h100]\nnodes = 'n1'\ngpus = 'eight'\n"])
def test_a_broken_cluster_file_drains_no_node_and_is_logged(slurm: Gpus, text: str) -> None:
    slurm.sicken("n2")
    slurm.write_cluster(text)
    number = started(slurm, "--nodes=1", "--nodelist=n2")
    assert ended(slurm, number) == "COMPLETED"
    assert not slurm.drained()
    logged = slurm.logged("CONFIGURATION ERROR: gate.configuration: /etc/slurm/preflight/cluster.toml", f"job {number}")
    assert logged.startswith("<27>")  # daemon.err


def test_a_broken_cluster_file_leaves_the_last_valid_one_in_force(slurm: Gpus) -> None:
    assert slurm.within("n2", "/etc/slurm/preflight/prolog").returncode == 0
    slurm.sicken("n2", unnoticed=True)
    slurm.write_cluster("gpus = ")
    number = started(slurm, "--nodes=1", "--nodelist=n2")
    job = back_in_the_queue(slurm, number)
    assert job["Restarts"] == "1"
    assert not slurm.drained()
    slurm.logged("judged by the last valid cluster file")
    slurm.logged("FAIL: rdma.port-rate", f"job {number}")


@pytest.mark.parametrize("how", ["missing", "no-interpreter", "no-module"])
def test_a_broken_gate_drains_no_node_and_is_logged(slurm: Gpus, how: str) -> None:
    script = {
        "missing": "",
        "no-interpreter": "#!/opt/python3.9/bin/python3\n",
        "no-module": "#!/usr/bin/python3\nimport no_such_module_after_the_upgrade\n",
    }[how]
    true = slurm.within("n2", "/bin/readlink", "/opt/preflight/bin/python3").stdout.strip()
    slurm.within("n2", "/bin/rm", "/opt/preflight/bin/python3", check=True)
    if script:
        write = "cat >/opt/preflight/bin/python3 && chmod 755 /opt/preflight/bin/python3"
        slurm.within("n2", "/bin/sh", "-c", write, input=script, check=True)
    try:
        number = started(slurm, "--nodes=1", "--nodelist=n2")
        assert ended(slurm, number) == "COMPLETED"
    finally:
        slurm.within("n2", "/bin/ln", "-sf", true, "/opt/preflight/bin/python3", check=True)
    assert not slurm.drained()
    slurm.logged("NOT JUDGED, the job starts")


def test_six_failing_at_once_leave_five_in_service(slurm: Gpus) -> None:
    slurm.sicken(*slurm.names)
    number = started(slurm, "--nodes=6", "--ntasks-per-node=1")
    for _ in slurm.wait_for("all gates", 60):
        held = [name for name in slurm.names if "Comment=preflight: not drained" in show(slurm, name)]
        if len(held) == 5:
            break
    back_in_the_queue(slurm, number)
    assert len(slurm.drained()) == 1
    assert all(why.startswith(RATE) for why in slurm.drained().values())
    assert output(slurm, number) == ""
    for name in held:
        assert "rdma.port-rate: mlx5_0:1: found 200 Gb/s" in show(slurm, name)


def test_while_the_breaker_holds_no_node_is_drained_and_no_job_starts(slurm: Gpus) -> None:
    """A batch job waits; jobs of srun and those that cannot be requeued end; their owners get the reason."""
    slurm.sicken("n1", "n2", "n3", "n4")
    assert slurm.within("n1", "/etc/slurm/preflight/prolog").returncode == 1
    assert list(slurm.drained()) == ["n1"]
    batch = started(slurm, "--nodes=1", "--nodelist=n2")
    single = started(slurm, "--nodes=1", "--nodelist=n3", "--no-requeue")
    ran = slurm.run(["srun", "--nodes=1", "--nodelist=n4", "--mpi=none", "uname", "-n"])
    assert ran.returncode != 0
    assert "preflight: n4: rdma.port-rate: mlx5_0:1: found 200 Gb/s" in ran.stderr
    assert ran.stdout == ""
    assert ended(slurm, single) == "CANCELLED"
    assert "n3" not in output(slurm, single).splitlines()
    job = back_in_the_queue(slurm, batch)
    assert 500 < (datetime.fromisoformat(job["EligibleTime"]) - datetime.now()).total_seconds() <= 600
    assert job["Priority"] != "0"  # not held: it will start by itself
    assert "AdminComment=preflight:" in slurm.run(["scontrol", "show", "job", "-o", batch]).stdout
    assert list(slurm.drained()) == ["n1"]
    logged = slurm.logged("NOT DRAINED, alert an administrator", f"job {batch} was requeued")
    assert "failed rdma.port-rate too within 10 min: look for a common cause" in logged


def test_a_problem_of_the_job_holds_the_job(slurm: Gpus) -> None:
    slurm.write_cluster(CLUSTER + 'job = ["rdma.port-rate"]\n')
    slurm.sicken("n2")
    number = started(slurm, "--nodes=1", "--nodelist=n2")
    # the second is the scheduler's name for the first when it next reads the queue
    assert back_in_the_queue(slurm, number)["Reason"] in ("job_requeued_in_held_state", "JobHeldAdmin")
    assert not slurm.drained()


def test_only_the_requeued_job_is_changed_for_any_job_name(slurm: Gpus) -> None:
    """Scontrol prints names unquoted, and an array's last task has the number of the array itself."""
    slurm.write_cluster(CLUSTER + 'job = ["rdma.port-rate"]\n')
    other = slurm.submit("exec sleep 600", "--nodes=1", "--nodelist=n1")
    slurm.sicken("n2")
    named = started(slurm, "--nodelist=n2", "--array=1-2%1", f"--job-name=x HetJobId={other} JobState=PENDING")
    mixed = slurm.submit("exec sleep 600", "--nodelist=n3", ":", "--nodelist=n2")  # Slurm may start the part on n3
    for number in (f"{named}_1", f"{named}_2", mixed):
        slurm.logged(f"job {number} was requeued and is held; release it with: scontrol release {number}")
    job = slurm.job(other)
    assert (job["JobState"], job["Restarts"]) == ("RUNNING", "0")
    assert [slurm.job(f"{named}_{task}")["Restarts"] for task in (1, 2)] == ["1", "1"]


def test_the_environment_of_another_job_drains_no_node(slurm: Gpus) -> None:
    other = slurm.submit(
        "export NCCL_IB_DISABLE=1\nsrun --mpi=none sleep 600", "--nodes=1", "--nodelist=n2", "--ntasks=1"
    )
    for _ in slurm.wait_for("the step"):
        if f"{other}.0" in slurm.run(["squeue", "--steps", "--noheader", "--format=%i"]).stdout.split():
            break
    slurm.forget("n2")
    ran = slurm.within("n2", "/etc/slurm/preflight/prolog")
    assert (ran.returncode, "n2: pass" in ran.stderr + ran.stdout) == (0, True), ran.stderr
    assert not slurm.drained()


def test_a_dry_run_drains_no_node_and_the_job_starts(slurm: Gpus) -> None:
    slurm.write_cluster(CLUSTER + "dry_run = true\n")
    slurm.sicken("n2")
    number = started(slurm, "--nodes=1", "--nodelist=n2")
    assert ended(slurm, number) == "COMPLETED"
    assert not slurm.drained()
    slurm.logged("dry run: would drain the node")


def test_a_drain_by_hand_survives(slurm: Gpus) -> None:
    slurm.sicken("n2")
    assert slurm.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=bob: new PSU"]).returncode == 0
    slurm.within("n2", "/etc/slurm/preflight/prolog")
    assert slurm.drained() == {"n2": "bob: new PSU"}


def show(slurm: Gpus, name: str) -> str:
    return slurm.run(["scontrol", "show", "node", "--oneliner", name]).stdout


def test_the_step_keeps_a_job_from_starting_on_three_good_nodes(slurm: Gpus) -> None:
    script = (DEPLOY / "job.sh").read_text()
    options = ("--nodes=4", "--nodelist=n[1-4]", f"--output={slurm.folder}/job.%j.out")
    good = slurm.submit(f"{script}\necho TRAINING", *options)
    assert ended(slurm, good) == "COMPLETED"
    assert "TRAINING" in output(slurm, good)
    slurm.sicken("n3", unnoticed=True)  # its prolog uses the earlier verdict
    bad = slurm.submit(f"{script}\necho TRAINING", *options)
    assert ended(slurm, bad) == "FAILED"
    assert "TRAINING" not in output(slurm, bad)
    assert "n3: FAIL: rdma.port-rate" in output(slurm, bad)
    assert not slurm.drained()


def test_the_step_covers_all_parts_of_a_heterogeneous_job(slurm: Gpus) -> None:
    parts = ("--nodelist=n1", f"--output={slurm.folder}/job.%j.out", ":", "--nodelist=n3")
    slurm.sicken("n3", unnoticed=True)
    number = slurm.submit(f"{(DEPLOY / 'job.sh').read_text()}\necho TRAINING", *parts)
    assert ended(slurm, number) == "FAILED"
    assert "TRAINING" not in output(slurm, number)
    assert "n3: FAIL: rdma.port-rate" in output(slurm, number)


def test_the_controller_starts_no_job_on_a_node_with_a_failed_verdict(slurm: Gpus) -> None:
    published = slurm.folder / "verdicts"
    published.mkdir()
    slurm.write_cluster(f'{CLUSTER}publish = "{published}"\nslurm-prolog.fail = "record"\n')
    slurm.sicken("n2")
    for line in ("n1: pass", "n2: FAIL"):
        ran = slurm.within(line[:2], "/etc/slurm/preflight/prolog")
        assert (ran.returncode, line in ran.stderr) == (0, True), ran.stderr
    good = started(slurm, "--nodes=1", "--nodelist=n1")
    assert ended(slurm, good) == "COMPLETED"
    bad = started(slurm, "--nodes=2", "--ntasks-per-node=1", "--nodelist=n1,n2")
    for _ in slurm.wait_for("the job in the queue again"):
        job = slurm.job(bad)
        if job["JobState"] == "PENDING" and job["Restarts"] == "1":
            break
    assert output(slurm, bad) == ""
    assert not slurm.drained()


TRAINING = """srun --mpi=none uname -n
: srun --ntasks-per-node=8 python pretrain_gpt.py --tensor-model-parallel-size {tensor} --num-layers 24 \\
    --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 \\
    --vocab-size 50304
"""


def test_a_job_with_tensor_groups_across_nodes_is_held(slurm: Gpus) -> None:
    text = CLUSTER.replace("[class.h100]\n", '[class.h100]\npart = "HGX H100"\n')
    slurm.write_cluster(f'{text}layout = ["layout.tensor-domain"]\n')
    nodes = ("--nodes=2", "--nodelist=n1,n2", f"--output={slurm.folder}/job.%j.out")
    bad = slurm.submit(TRAINING.format(tensor=16), *nodes)
    assert back_in_the_queue(slurm, bad)["Reason"] in ("job_requeued_in_held_state", "JobHeldAdmin", "JobHeldUser")
    shown = slurm.run(["scontrol", "show", "job", "-o", bad]).stdout
    assert "AdminComment=preflight: layout.tensor-domain: 1 of the tensor-parallel groups of 16 spans" in shown
    good = slurm.submit(TRAINING.format(tensor=8), *nodes)
    assert ended(slurm, good) == "COMPLETED"
    assert output(slurm, bad) == ""
    slurm.write_cluster(f'{text}layout = ["layout.tensor-domain"]\nslurm-controller.fail = "record"\n')
    job = (DEPLOY / "job.sh").read_text().replace("--nodes=4", "--nodes=2")
    step = slurm.submit(f"{job}\necho TRAINING\n{TRAINING.format(tensor=16)}", *nodes)
    assert ended(slurm, step) == "FAILED"
    assert "TRAINING" not in output(slurm, step)
    assert "FAIL: layout.tensor-domain: 1 of the tensor-parallel groups" in output(slurm, step)
    assert not slurm.drained()
