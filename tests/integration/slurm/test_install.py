"""``preflight slurm install`` on a real cluster that knows nothing of preflight, until the scripts are gone again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.slurm.cluster import missing
from tests.support.slurm.gpu_cluster import CLUSTER, Gpus

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no {missing()} here")

PYTHON = ("/opt/preflight/bin/python3", "-I", "-m", "preflight")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Gpus]:
    with Gpus(3, gated=False) as cluster:
        (cluster.folder / "verdicts").mkdir()
        cluster.write_cluster(f'{CLUSTER}publish = "{cluster.folder}/verdicts"\n')
        yield cluster


def preflight(slurm: Gpus, *words: str) -> subprocess.CompletedProcess[str]:
    """Run preflight on the controller, as an administrator does."""
    return slurm.run([*PYTHON, *words])


def edit(slurm: Gpus, lines: list[str]) -> None:
    """Change slurm.conf as the printed lines state, and have Slurm read it."""
    path = slurm.folder / "etc/slurm.conf"
    text = path.read_text().splitlines()
    gone = {line[1:].partition("=")[0] for line in lines}
    remaining = [line for line in text if line.partition("=")[0] not in gone]
    added = [line[1:] for line in lines if line.startswith("+")]
    path.write_text("\n".join([*remaining[:-2], *added, *remaining[-2:], ""]))  # nodes and partition come last
    assert slurm.run(["scontrol", "reconfigure"]).returncode == 0


def changes(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("+", "-"))]


def idle(slurm: Gpus) -> None:
    for _ in slurm.wait_for("an empty queue"):
        if not slurm.run(["squeue", "-h"]).stdout.strip():
            return


def test_installed_gated_drained_held_and_removed(slurm: Gpus) -> None:
    """One course, as on a site: each step depends on the one before."""
    folder = slurm.folder / "etc/preflight"
    before = (slurm.folder / "etc/slurm.conf").read_bytes()
    dry = preflight(slurm, "slurm", "install")
    assert dry.returncode == 0, dry.stderr
    assert "/etc/slurm/preflight/prolog: new" in dry.stdout
    assert [path.name for path in folder.iterdir()] == ["cluster.toml"]
    assert {"+Prolog=/etc/slurm/preflight/prolog", "+PrologFlags=Alloc,Contain", "+HealthCheckInterval=300",
            "+PrologEpilogTimeout=60", "+Epilog=/etc/slurm/preflight/epilog"} <= set(changes(dry.stdout))  # fmt: skip
    assert "SchedulerParameters" not in "".join(changes(dry.stdout)), "it has what is needed"

    done = preflight(slurm, "slurm", "install", "--apply")
    assert done.returncode == 0, done.stderr
    assert changes(done.stdout) == changes(dry.stdout)
    assert (slurm.folder / "etc/slurm.conf").read_bytes() == before, "slurm.conf is the administrator's"
    assert oct((folder / "prolog").stat().st_mode)[-3:] == "755"
    edit(slurm, changes(done.stdout))
    again = preflight(slurm, "slurm", "install", "--apply")
    assert again.returncode == 0, again.stdout
    assert "/etc/slurm/preflight: unchanged" in again.stdout
    assert "nothing to change" in again.stdout
    assert changes(again.stdout) == []

    ran = slurm.run(["srun", "--nodes=1", "--nodelist=n1", "--mpi=none", "uname", "-n"])
    assert (ran.returncode, ran.stdout) == (0, "n1\n"), ran.stderr
    slurm.logged("n1: pass", "slurm-prolog")
    idle(slurm)
    slurm.logged("n1: pass", "slurm-healthcheck")  # of the epilog: the periodic check is due in five minutes

    slurm.sicken("n2", "n3")
    assert slurm.run(["srun", "--nodes=1", "--nodelist=n2", "--mpi=none", "true"]).returncode != 0
    for _ in slurm.wait_for("the drain"):
        if slurm.drained():
            break
    ran = slurm.run(["srun", "--nodes=1", "--nodelist=n3", "--mpi=none", "true"])
    assert ran.returncode != 0
    assert "preflight: n3: rdma.port-rate: mlx5_0:1: found 200 Gb/s" in ran.stderr
    assert list(slurm.drained()) == ["n2"]
    idle(slurm)

    status = preflight(slurm, "gate", "status", "--cluster", "/etc/slurm/preflight/cluster.toml",
                       "--textfile", f"{slurm.folder}/status.prom")  # fmt: skip
    first, *rest = status.stdout.splitlines()
    assert (status.returncode, first) == (
        1, "1 pass, 1 drained by preflight, 1 failed, held in service by the breaker, breaker open"
    ), status  # fmt: skip
    assert rest[0].startswith("  no further node is drained: 1 of 3 eligible nodes were drained within 10 min")
    assert [line.partition(": found")[0] for line in rest[1:]] == [
        "  drained by preflight: n2: rdma.port-rate: mlx5_0:1", *[line.partition(": found")[0] for line in rest[2:]]
    ]  # fmt: skip
    assert 'preflight_gate_nodes{state="held"} 1' in (slurm.folder / "status.prom").read_text()

    early = preflight(slurm, "slurm", "uninstall", "--apply")
    assert early.returncode == 2
    assert "nothing was removed: Slurm still runs these scripts" in early.stderr
    assert "nodename=n2 state=undrain" in early.stdout
    assert (folder / "prolog").exists()
    edit(slurm, changes(early.stdout))
    with (folder / "epilog").open("a") as stream:
        stream.write("# a line of the site\n")
    gone = preflight(slurm, "slurm", "uninstall", "--apply")
    assert gone.returncode == 0, gone.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["cluster.toml", "epilog"]
    refused = preflight(slurm, "slurm", "install", "--apply")
    assert refused.returncode == 2
    assert "/etc/slurm/preflight/epilog: not written by preflight, or edited since" in refused.stderr
    assert not (folder / "prolog").exists()
    slurm.well("n2", "n3")
    assert slurm.run(["srun", "--nodes=1", "--nodelist=n3", "--mpi=none", "true"]).returncode == 0
