"""A launch's command line: a rank's lease, and the environment on a node."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.bench.campaign import CampaignPlan
from preflight.bench.observation import RunEnd
from preflight.campaign import command_lines

PLAN = CampaignPlan(
    id="0a1b2c3d", seed=1, nodes=("gpu001", "gpu002"), leaves={}, goal="nodes", collective="alltoall", bytes=1 << 30,
    iterations=20, gpus=8, budget_s=900.0, run_limit_s=1.0, at_once=64, via="mpirun", job=None, binary="alltoall_perf",
    mpi="pmix", ssh_config=None, environment={"NCCL_DEBUG": "WARN"},
)  # fmt: skip
ENDS = (RunEnd("gpu001"), RunEnd("gpu002"))

#: A program that ignores SIGTERM, and writes its process id.
_DEAF = 'trap "" TERM; echo $$ >"$1"; while :; do sleep 0.1; done'


def lease(plan: CampaignPlan, path: Path) -> list[str]:
    """Return the command line of a lease around a program that ignores SIGTERM."""
    argv = command_lines.command(plan, ENDS, [], {}).argv
    return [*argv[argv.index("sh") : argv.index(plan.binary)], "sh", "-c", _DEAF, "deaf", str(path)]


def pid_in(path: Path) -> int:
    """Return the process id that a program wrote."""
    until = time.monotonic() + 20
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(path.read_text())


def ends(pid: int, seconds: float = 20.0) -> bool:
    """Return whether a process ends in this time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("with_setpriv", [True, False])
def test_a_lease_alone_ends_a_program_that_ignores_sigterm(tmp_path: Path, with_setpriv: bool) -> None:
    if with_setpriv and not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    environment: Mapping[str, str] = os.environ
    if not with_setpriv:
        for tool in ("sh", "timeout", "sleep", "true"):
            (tmp_path / tool).symlink_to(str(shutil.which(tool)))
        environment = {"PATH": str(tmp_path)}
    began = time.monotonic()
    ran = subprocess.run(lease(PLAN, tmp_path / "pid"), env=environment, capture_output=True, text=True, timeout=60,
                         check=False)  # fmt: skip
    assert time.monotonic() - began >= 2.9  # SIGTERM after 1 s, SIGKILL 2 s later
    assert ran.returncode in (124, 137, -9)
    assert ("this host has no setpriv --pdeathsig" in ran.stderr) is not with_setpriv
    assert ends(pid_in(tmp_path / "pid"))


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_a_lease_ends_with_its_launcher(tmp_path: Path) -> None:
    words = lease(replace(PLAN, run_limit_s=300.0), tmp_path / "pid")
    launcher = subprocess.Popen(["sh", "-c", '"$@"; true', "launcher", *words], start_new_session=True)
    pid = pid_in(tmp_path / "pid")
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    assert ends(pid)


@pytest.mark.parametrize("via", ["mpirun", "srun"])
def test_a_secret_in_the_environment_reaches_no_launch(via: str) -> None:
    own = {
        "PATH": "/usr/bin", "HOME": "/home/u", "WANDB_API_KEY": "planted-4711", "AWS_SECRET_ACCESS_KEY": "planted-4711",
        "NCCL_SECRET": "planted-4711", "SLURM_JWT": "token", "LD_PRELOAD": "planted-4711",
    }  # fmt: skip
    made = command_lines.command(replace(PLAN, via=via, job="7" if via == "srun" else None), ENDS, [], own)
    assert "planted-4711" not in str(made)
    assert made.environment["NCCL_DEBUG"] == "WARN"
    assert ("SLURM_JWT" in made.environment) is (via == "srun")


def test_iterations_of_a_round_replace_those_of_the_plan() -> None:
    made = command_lines.command(PLAN, ENDS, [], {}, 1, 700).argv
    assert made[made.index("-n") + 1] == "700"
