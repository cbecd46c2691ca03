"""What a seat is told by whoever starts it: slurmd, slurmctld, srun, a kubelet. Imported before every job.

Slurm starts a Prolog with neither PATH nor HOME; HealthCheckProgram gets SLURMD_NODENAME and nothing else. Sources:
slurm.conf(5), "Prolog and Epilog Scripts" of Slurm's documentation, and what Slurm 22.05 was seen to set.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where programs are looked for; what the caller has in PATH is not believed in a seat that runs as root.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def settle_in() -> None:
    """Give Python and its children what a bare environment lacks: its own path, and a search path for programs."""
    if not sys.executable:  # started by the name alone, and without a PATH to find it in
        try:
            sys.executable = os.readlink("/proc/self/exe")
        except OSError:
            sys.executable = next(filter(_executable, ("/usr/bin/python3", "/usr/local/bin/python3")), "")
    if os.geteuid() == 0 or not os.environ.get("PATH"):
        os.environ["PATH"] = PATH


def node_name(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return what this node is called: as given, as slurmd calls it, else its host name."""
    return given or environ.get("SLURMD_NODENAME") or os.uname().nodename


def job(environ: Mapping[str, str] = os.environ) -> str:
    """Return the number of the Slurm job, "" outside one."""
    number = environ.get("SLURM_JOB_ID", "") or environ.get("SLURM_JOBID", "")
    return number if number.isascii() and number.isdigit() and len(number) < 20 else ""


def node_list(environ: Mapping[str, str] = os.environ) -> str:
    """Return the job's nodes as Slurm folds them: a Prolog has only SLURM_NODELIST, other seats SLURM_JOB_NODELIST."""
    return environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""


def gpus(environ: Mapping[str, str] = os.environ) -> frozenset[int] | None:
    """Return the indices of the GPUs that the job has on this node; None where Slurm does not say."""
    told = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS") or ""
    found: set[int] = set()
    for part in told.split(","):
        first, _, last = part.partition("-")
        if not all(number.isascii() and number.isdigit() and len(number) < 5 for number in (first, last or first)):
            return None
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def other_task(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this is one of several tasks of a step on this node, and not the first."""
    return environ.get("SLURM_LOCALID", "0") not in ("", "0")


def uncovered(environ: Mapping[str, str] = os.environ) -> str:
    """Say how a step leaves nodes of its job unjudged; "" if it does not, or there is no job."""
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
    if not (job(environ) and nodes.isdigit() and int(nodes) > 1):
        return ""
    here = environ.get("SLURM_STEP_NUM_NODES", "") if environ.get("SLURM_STEP_ID", "").isdigit() else ""
    covered = int(here) if here.isdigit() else 1
    if covered >= int(nodes):
        return ""
    start = f"srun --ntasks-per-node=1 --nodes={nodes}"
    return f"{covered} of the job's {nodes} nodes would be judged: start it with `{start}`"


def _executable(path: str) -> bool:
    return os.access(path, os.X_OK)
