"""`preflight bench` in jobs of a real Slurm, with PMIx and real Open MPI; the benchmark is a stand-in.

All nodes share one network, so nothing is slow: the tests are about launched processes, their nodes and leftovers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpi import standin
from tests.support.paths import ROOT
from tests.support.slurm import cluster
from tests.support.slurm.cluster import Slurm

_MISSING = cluster.missing() or next((tool for tool in ("mpicc", "mpirun") if not shutil.which(tool)), "")

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(bool(_MISSING), reason=f"MPI in Slurm needs {_MISSING}")]

#: PMIx of slurmstepd uses one path in /tmp for a step, so each node needs a separate /tmp.
_SETUP = "mount -t tmpfs tmpfs /tmp\n"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/var/tmp")
        started = Slurm(5, setup=_SETUP)
    prolog = started.folder / "prolog"
    prolog.write_text(f'#!/bin/sh\necho "$SLURM_JOB_ID $SLURMD_NODENAME" >>{started.folder}/tasks\n')
    prolog.chmod(0o755)
    with (started.folder / "etc/slurm.conf").open("a") as config:
        config.write(f"TaskProlog={prolog}\n")
    with started:
        standin.build(started.folder / "bin")
        yield started


def bench(
    slurm: Slurm, folder: str, *more: str, before: tuple[str, ...] = ("salloc", "-Q", "-N4", "-w", "n[1-4]")
) -> list[str]:
    return [
        *before, sys.executable, "-m", "preflight", "bench", "--gpus", "1", "--size", "64K", "--iterations", "5",
        "--binary", str(slurm.folder / "bin"), "--env", "OMPI_MCA_btl=tcp,self", "--env", "OMPI_MCA_pml=ob1",
        "--env", "OMPI_MCA_btl_tcp_if_include=lo", "--run-limit", "20s", "--allow-root", "--yes",
        "--save", str(slurm.folder / folder), *more,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def findings(stdout: str, check: str, status: str) -> list[str]:
    document: dict[str, Any] = json.loads(stdout)
    return [item["message"] for item in document["findings"] if item["check"] == check and item["status"] == status]


def steps(slurm: Slurm) -> list[str]:
    """Return the names of all running steps."""
    return slurm.run(["squeue", "-s", "-h", "-o", "%j"]).stdout.split()


def no_step_is_left(slurm: Slurm) -> None:
    """Wait until no step is listed: 15 s after any end none is left."""
    for _ in slurm.wait_for("the end of all steps", 15):
        if not steps(slurm):
            return


def test_within_an_allocation(slurm: Slurm) -> None:
    (slurm.folder / "bin/n3.wrong").touch()
    ran = slurm.run(bench(slurm, "sound", "--json"), env=environment())
    (slurm.folder / "bin/n3.wrong").unlink()
    assert ran.returncode == 1, ran.stderr
    wrong = findings(ran.stdout, "bench.pairs", "fail")
    assert wrong
    assert all("n3" in text and "wrong values at 65,536 bytes" in text for text in wrong)
    assert not findings(ran.stdout, "bench.factor", "warn")
    outputs = [path.read_text() for path in sorted((slurm.folder / "sound/out").glob("*.txt"))]
    assert all("STUB" in text for text in outputs)
    assert not any(" n5 " in text for text in outputs)  # not a node of the allocation
    no_step_is_left(slurm)


def test_a_node_of_another_job_is_refused(slurm: Slurm) -> None:
    ran = slurm.run(bench(slurm, "foreign", "--hosts", "n[2-5]", "--json"), env=environment())
    assert ran.returncode == 2
    assert "n5: not a node of job" in ran.stderr
    assert not (slurm.folder / "foreign").exists()


def test_idle_nodes_in_a_job_of_its_own(slurm: Slurm) -> None:
    """Slurm starts no task of it on a drained node, or on one that another job uses; its job ends."""
    slurm.run(["scontrol", "update", "nodename=n4", "state=drain", "reason=cable"], check=True)
    other = slurm.submit("sleep 100", "--nodelist=n5", "--exclusive")
    for _ in slurm.wait_for("the other job"):
        if slurm.job(other)["JobState"] == "RUNNING":
            break
    ran = slurm.run(bench(slurm, "idle", "--idle", "8", "--budget", "3m", "--json", before=()), env=environment())
    listed = slurm.run(["squeue", "-h", "-t", "running", "-o", "%i"]).stdout.split()
    slurm.run(["scancel", other], check=True)
    slurm.run(["scontrol", "update", "nodename=n4", "state=resume"], check=True)
    assert listed == [other], ran.stderr
    assert json.loads((slurm.folder / "idle/plan.json").read_text())["nodes"] == ["n1", "n2", "n3"], ran.stderr
    assert list((slurm.folder / "idle/out").glob("*.txt"))
    tasks = [line.split() for line in (slurm.folder / "tasks").read_text().splitlines()]
    own = json.loads((slurm.folder / "idle/plan.json").read_text())["job"]
    assert {node for job, node in tasks if job == own} == {"n1", "n2", "n3"}
    no_step_is_left(slurm)


def test_ctrl_c_ends_the_steps(slurm: Slurm) -> None:
    (slurm.folder / "bin/n1.deaf").touch()  # never ends, and ignores SIGTERM
    command = [*slurm._enter(), *bench(slurm, "interrupted", "--json")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    journal = slurm.folder / "interrupted/journal.jsonl"
    for _ in slurm.wait_for("launches"):
        if journal.exists() and journal.read_text().count('"started"') == 2 and len(steps(slurm)) >= 1:
            break
    pid = next(int(entry.name) for entry in Path("/proc").glob("[0-9]*")
               if b"preflight\0bench" in _words(entry) and b"interrupted" in _words(entry)
               and b"salloc" not in _words(entry) and b"nsenter" not in _words(entry))  # fmt: skip
    os.kill(pid, signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    (slurm.folder / "bin/n1.deaf").unlink()
    assert "preflight bench --resume" in stderr
    assert any("interrupted" in text for text in findings(stdout, "bench.coverage", "unknown"))
    no_step_is_left(slurm)
    assert not [entry for entry in Path("/proc").glob("[0-9]*") if str(slurm.folder / "bin").encode() in _words(entry)]


def test_a_batch_script_runs_the_rounds_without_preflight(slurm: Slurm) -> None:
    """It is printed on a login node; its folder is judged like a campaign of bench."""
    wanted = bench(slurm, "batch", "--hosts", "n[1-4]", "--print", "sbatch", before=())
    printed = slurm.run([word for word in wanted if word not in ("--yes", "--save", str(slurm.folder / "batch"))],
                        env=environment())  # fmt: skip
    assert printed.returncode == 0, printed.stderr
    (script := slurm.folder / "rounds.sbatch").write_text(printed.stdout)
    (slurm.folder / "bin/n3.wrong").touch()
    folder = slurm.folder / "batch"
    ran = slurm.run(["sbatch", "--parsable", "--wait", "--chdir=/", f"--output={folder}.out", str(script), str(folder)])
    (slurm.folder / "bin/n3.wrong").unlink()
    assert ran.returncode == 0, ran.stderr + Path(f"{folder}.out").read_text()
    judged = slurm.run([sys.executable, "-m", "preflight", "judge", str(folder), "--json"], env=environment())
    assert judged.returncode in (1, 3), judged.stderr
    wrong = findings(judged.stdout, "bench.pairs", "fail")
    assert wrong
    assert all("n3" in text and "wrong values at 65,536 bytes" in text for text in wrong)
    outputs = [path.read_text() for path in sorted((folder / "out").glob("*.txt"))]
    assert len(outputs) == 6  # all pairs of four nodes, in three rounds
    assert all("STUB" in text for text in outputs)
    no_step_is_left(slurm)


def test_a_node_drained_in_an_allocation_is_left_out(slurm: Slurm) -> None:
    """Slurm would still start steps of this job there, although someone suspects the node."""
    update = 'scontrol update nodename=n4 state=drain reason=cable; exec "$@"'
    before = ("salloc", "-Q", "-N4", "-w", "n[1-4]", "sh", "-c", update, "sh")
    ran = slurm.run(bench(slurm, "drained", "--json", before=before), env=environment())
    slurm.run(["scontrol", "update", "nodename=n4", "state=resume"], check=True)
    assert any(text.startswith("n4 was excluded: Slurm: it is draining (cable)")
               for text in findings(ran.stdout, "bench.coverage", "unknown")), ran.stderr  # fmt: skip
    outputs = [path.read_text() for path in sorted((slurm.folder / "drained/out").glob("*.txt"))]
    assert outputs
    assert not any(" n4 " in text for text in outputs)
    no_step_is_left(slurm)


def test_a_second_campaign_is_refused(slurm: Slurm) -> None:
    """Two allocations of one user on one host; the second starts while the first measures."""
    (slurm.folder / "bin/n1.deaf").touch()
    first = [*slurm._enter(), *bench(slurm, "first", before=("salloc", "-Q", "-N2", "-w", "n[1-2]"))]
    running = subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        journal = slurm.folder / "first/journal.jsonl"
        for _ in slurm.wait_for("a launch"):
            if journal.exists() and '"started"' in journal.read_text():
                break
        second = bench(slurm, "second", before=("salloc", "-Q", "-N2", "-w", "n[3-4]"))
        refused = slurm.run(second, env=environment())
    finally:
        (slurm.folder / "bin/n1.deaf").unlink()
    assert refused.returncode == 2
    assert "another campaign is running on this host: process" in refused.stderr
    assert "of user root (0), yours" in refused.stderr
    assert not (slurm.folder / "second").exists()
    running.communicate(timeout=120)
    no_step_is_left(slurm)


def _words(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
