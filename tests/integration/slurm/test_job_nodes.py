"""The nodes of a job, from a real Slurm cluster and over real SSH."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.support import paths
from tests.support.slurm.cluster import Slurm, missing
from tests.support.sshfarm import SSHD, keygen, public

pytestmark = pytest.mark.skipif(bool(missing() or not SSHD), reason=f"needs a Slurm cluster: no {missing() or 'sshd'}")

_SSHD = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
"""
_SSH = """\
Host n*
 User root
 IdentityFile {folder}/user
 IdentitiesOnly yes
 UserKnownHostsFile {folder}/known_hosts
 StrictHostKeyChecking yes
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with Slurm(4) as cluster:
        folder = cluster.folder
        keygen(folder / "user")
        host = public(keygen(folder / "host"))
        (folder / "known_hosts").write_text("".join(f"{name} {host}\n" for name in cluster.names))
        (folder / "ssh_config").write_text(_SSH.format(folder=folder))
        (folder / "sshd_config").write_text(_SSHD.format(folder=folder))
        cluster.run(["sh", "-c", f"mkdir -p /run/sshd && exec {SSHD} -f {folder}/sshd_config"], check=True)
        yield cluster


def check(slurm: Slurm, *options: str) -> tuple[int, str, str]:
    """Run ``preflight check`` on the cluster's login node."""
    top = paths.ROOT
    command = [sys.executable, "-m", "preflight", "check", "--ssh-config", str(slurm.folder / "ssh_config"), *options]
    ran = slurm.run(["env", f"PYTHONPATH={top}", *command])
    return ran.returncode, ran.stdout, ran.stderr


def test_the_nodes_of_a_running_job_are_collected(slurm: Slurm) -> None:
    job = slurm.submit("sleep 60", "--nodes=3", "--job-name=x NodeList=elsewhere.example.org")
    for _ in slurm.wait_for("the job"):
        if slurm.job(job)["JobState"] == "RUNNING":
            break
    status, out, err = check(slurm, "--job", job, "--json", "-")
    slurm.run(["scancel", job])
    report = json.loads(out)
    assert [node["name"] for node in report["nodes"]] == ["n1", "n2", "n3"], err
    assert not any(node.get("no_answer") for node in report["nodes"])
    assert status in (0, 3)


def test_an_array_job_has_the_nodes_of_its_task_alone(slurm: Slurm) -> None:
    job = slurm.submit("sleep 60", "--nodes=1", "--exclusive", "--array=1-2")
    for _ in slurm.wait_for("both tasks"):
        if slurm.job(f"{job}_1")["JobState"] == slurm.job(f"{job}_2")["JobState"] == "RUNNING":
            break
    _, out, err = check(slurm, "--job", f"{job}_2", "--json", "-")
    expected = slurm.job(f"{job}_2")["NodeList"]
    slurm.run(["scancel", job])
    assert [node["name"] for node in json.loads(out)["nodes"]] == [expected], err


def test_a_job_that_waits_has_no_nodes(slurm: Slurm) -> None:
    job = slurm.submit("true", "--begin=now+1hour")
    status, out, err = check(slurm, "--job", job)
    slurm.run(["scancel", job])
    assert (status, out) == (2, "")
    assert f"--job {job}: the job has no nodes (state PENDING)" in err


def test_a_job_that_does_not_exist_is_reported_in_the_words_of_slurm(slurm: Slurm) -> None:
    status, out, err = check(slurm, "--job", "424242")
    assert (status, out) == (2, "")
    assert "Invalid job id specified" in err
