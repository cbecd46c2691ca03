"""The command line of a launch: Open MPI over SSH, or Slurm's srun with PMIx.

Arguments are passed without a shell. On its node, each rank runs under a lease, which ends the rank at the time limit
or when its launcher ends, even if the network is lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.bench.campaign import CampaignPlan
from preflight.bench.observation import RunEnd

#: The environment variable that marks the processes of a campaign on a node.
MARK = "PREFLIGHT_BENCH"

#: Variables that a user may set for the runs; others are not passed to a node.
ALLOWED = re.compile(r"(NCCL|UCX|FI|OMPI|RCCL)_[A-Z0-9_a-z]+|LD_LIBRARY_PATH|CUDA_VISIBLE_DEVICES")

#: Variables of preflight's environment that a launcher needs.
_OWN = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "SSH_AUTH_SOCK",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "OPAL_PREFIX",
)
_SLURM = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME", "SLURM_JWT")

#: Seconds by which a launcher's daemon may outlive its ranks, and seconds that preflight waits beyond a rank's limit.
DAEMON_S, WATCH_S = 5, 10

#: The script of a rank's lease: $1 is the limit in seconds, and the rest is the command. The script is constant, since
#: values are its arguments.
_LEASE = """\
limit=$1; shift
if setpriv --pdeathsig KILL true 2>/dev/null; then
  exec setpriv --pdeathsig TERM timeout --kill-after=2 "$limit" setpriv --pdeathsig KILL "$@"
fi
echo "preflight: this host has no setpriv --pdeathsig: if its launcher dies, a rank lives until its limit" >&2
exec timeout --kill-after=2 "$limit" "$@"
"""


@dataclass(frozen=True)
class LaunchCommand:
    """The command line of a launch, and its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def command(
    plan: CampaignPlan,
    ends: Sequence[RunEnd],
    rails: Sequence[str],
    own: Mapping[str, str],
    number: int = 1,
    iterations: int | None = None,
) -> LaunchCommand:
    """Return the command line of one run; ``own`` is preflight's environment.

    ``rails`` are the addresses of a node's GPUs in index order. ``iterations`` overrides the number in the plan.
    """
    limit = math.ceil(plan.run_limit_s)
    environment = {name: own[name] for name in _OWN if name in own} | dict(plan.environment) | {MARK: plan.id}
    gpus = [rails.index(gpu) for gpu in ends[0].gpus if gpu in rails]
    if 0 < len(gpus) < plan.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    size, count = str(plan.bytes), str(iterations or plan.iterations)
    measured = [plan.binary, "-b", size, "-e", size, "-g", str(len(gpus) or plan.gpus), "-n", count, "-w", "2", "-c",
                "1"]  # fmt: skip
    rank = ["sh", "-c", _LEASE, "preflight-lease", str(limit), *measured]
    hosts = [end.node for end in ends]
    if plan.via == "srun":
        return _srun(plan, hosts, rank, environment, own, limit, number)
    return _mpirun(plan, hosts, rank, environment, limit, f"{scratch(plan, own)}/{number}")


def _mpirun(
    plan: CampaignPlan, hosts: Sequence[str], rank: Sequence[str], environment: Mapping[str, str], limit: int,
    session: str,
) -> LaunchCommand:  # fmt: skip
    daemon = f"env {MARK}={plan.id} timeout --kill-after=2 {limit + DAEMON_S} orted"
    settings = {
        "orte_launch_agent": daemon, "oob_tcp_keepalive_time": "3",
        "oob_tcp_keepalive_intvl": "1", "oob_tcp_keepalive_probes": "3", "orte_abort_on_non_zero_status": "1",
    }  # fmt: skip
    if plan.ssh_config:
        settings["plm_rsh_agent"] = f"ssh -F {plan.ssh_config}"
    words = ["mpirun", "--allow-run-as-root", "-H", ",".join(f"{host}:1" for host in hosts), "-np", str(len(hosts)),
             "--map-by", "node", "--bind-to", "none"]  # fmt: skip
    for name, value in settings.items():
        words += ["--mca", name, value]
    for name in sorted(environment):
        if (ALLOWED.fullmatch(name) and not name.startswith("OMPI_")) or name == MARK:
            words += ["-x", name]
    return LaunchCommand((*words, *rank), {**environment, "TMPDIR": session})


def _srun(
    plan: CampaignPlan, hosts: Sequence[str], rank: Sequence[str], environment: Mapping[str, str],
    own: Mapping[str, str], limit: int, number: int,
) -> LaunchCommand:  # fmt: skip
    count = str(len(hosts))
    words = [
        "srun", *([f"--jobid={plan.job}"] if plan.job else []), "--overlap",
        f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1",
        f"--nodelist={','.join(hosts)}", f"--mpi={plan.mpi}", "--kill-on-bad-exit=1", "--cpu-bind=none",
        "--input=none", "--chdir=/", f"--time={math.ceil((limit + WATCH_S) / 60) + 1}",
        f"--job-name={step_name(plan, number)}",
    ]  # fmt: skip
    return LaunchCommand((*words, *rank), {**environment, **{name: own[name] for name in _SLURM if name in own}})


def scratch(plan: CampaignPlan, own: Mapping[str, str]) -> str:
    """Return the parent folder of this host's Open MPI session folders.

    Each launch has a separate session folder, because parallel launches would remove a shared one.
    """
    return f"{own.get('TMPDIR') or '/tmp'}/preflight-bench-{plan.id}"


def step_name(plan: CampaignPlan, number: int) -> str:
    """Return the name of a launch's Slurm step."""
    return f"preflight-{plan.id}-{number}"
