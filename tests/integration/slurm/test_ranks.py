"""The ranks of a running job, found by the environment of a real Slurm step."""

from __future__ import annotations

import json
import sys

import pytest

from preflight.evidence.document import Evidence
from preflight.facts.nccl_settings.collect import RankEnvironment, ranks
from tests.support import paths
from tests.support.slurm.cluster import Slurm, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"needs a Slurm cluster: no {missing()}")

TOP = paths.ROOT
COLLECT = """
import json
from preflight.collector import process_environments as environments
from preflight.probes.probe import ENVIRONMENT
print(json.dumps(environments.answer("ranks", list(ENVIRONMENT))))
"""


def collected(slurm: Slurm) -> list[RankEnvironment]:
    """Collect the ranks on this machine, and return those of the cluster."""
    ran = slurm.run(["env", f"PYTHONPATH={TOP}", sys.executable, "-c", COLLECT])
    assert ran.returncode == 0, ran.stderr
    everyone = ranks(Evidence("n1", "", {"env:ranks": json.loads(ran.stdout)})).environments
    return [rank for rank in everyone if slurm.has(rank.pids[0])]


def test_the_steps_of_a_job_are_its_ranks_and_the_batch_script_is_none() -> None:
    with Slurm(1) as slurm:
        assert collected(slurm) == []
        script = "export NCCL_MARK=a HF_TOKEN=hf_abcdefghijklmnopqrst\nsrun --ntasks=2 --overlap sleep 60"
        job = slurm.submit(script, "--ntasks=2")
        for _ in slurm.wait_for("two ranks"):
            found = [one for one in collected(slurm) if one.name == "sleep"]
            if found and found[0].count == 2:
                break
        (rank,) = found
        assert dict(rank.variables)["NCCL_MARK"] == "a"
        assert dict(rank.variables)["SLURM_JOB_ID"] == job
        assert not [name for name in rank.variables if name.startswith("HF_") or name.endswith("PROCID")]
        assert rank.who.startswith(f"process {rank.pids[0]} (sleep) and 1 more")
        names = {one.name for one in collected(slurm)}
        assert names == {"sleep"}, "neither the batch script nor srun is a rank"
        assert slurm.run(["scancel", job]).returncode == 0
