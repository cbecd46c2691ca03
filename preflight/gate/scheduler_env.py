"""Environment set by the scheduler: slurmd, slurmctld, srun, a kubelet.

Imported before every job. Slurm starts a Prolog with neither PATH nor HOME; HealthCheckProgram gets SLURMD_NODENAME
and nothing else. Sources: slurm.conf(5), "Prolog and Epilog Scripts" of Slurm's documentation, and the behaviour of
Slurm 22.05.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Search path for programs; a hook that runs as root ignores the caller's PATH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Maximum number of bytes read from slurm.conf.
_MOST_BYTES = 4 << 20


def sanitize_process() -> None:
    """Set the interpreter's path if it is unknown, and PATH if unset or for root."""
    if not sys.executable:  # started by name, without a PATH
        try:
            sys.executable = os.readlink("/proc/self/exe")
        except OSError:
            sys.executable = next(filter(_executable, ("/usr/bin/python3", "/usr/local/bin/python3")), "")
    if os.geteuid() == 0 or not os.environ.get("PATH"):
        os.environ["PATH"] = PATH


def node_name(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node: as given, else from slurmd, else the host name."""
    return given or environ.get("SLURMD_NODENAME") or os.uname().nodename


def job(environ: Mapping[str, str] = os.environ) -> str:
    """Return the Slurm job id, "" outside a job."""
    number = environ.get("SLURM_JOB_ID", "") or environ.get("SLURM_JOBID", "")
    return number if number.isascii() and number.isdigit() and len(number) < 20 else ""


def node_list(environ: Mapping[str, str] = os.environ) -> str:
    """Return the job's nodes, folded by Slurm.

    A Prolog has only SLURM_NODELIST, other hooks have SLURM_JOB_NODELIST.
    """
    return environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""


def gpus(environ: Mapping[str, str] = os.environ) -> frozenset[int] | None:
    """Return the indices of the job's GPUs on this node; None if not set."""
    listed = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS") or ""
    indices: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if not all(number.isascii() and number.isdigit() and len(number) < 5 for number in (first, last or first)):
            return None
        indices.update(range(int(first), int(last or first) + 1))
    return frozenset(indices)


def time_limit(environ: Mapping[str, str] = os.environ) -> float:
    """Return the time limit of a Prolog in seconds, from slurm.conf.

    After that time, slurmd ends the Prolog and drains the node. Returns 0.0 outside a Prolog, or if the limit is
    not set. Files that slurm.conf includes are not read.
    """
    path = environ.get("SLURM_CONF", "")
    if environ.get("SLURM_SCRIPT_CONTEXT") != "prolog_slurmd" or not path.startswith("/"):
        return 0.0
    import re

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            text = stream.read(_MOST_BYTES)
    except OSError:
        return 0.0
    timeouts = re.findall(rb"(?im)^(?:[^#\n]*\s)?Prolog(?:Epilog)?Timeout\s*=\s*(\d{1,9})(?![^\s#])", text)
    return float(min(map(int, timeouts), default=0))


def other_task(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is a task of a step other than the first on this node."""
    return environ.get("SLURM_LOCALID", "0") not in ("", "0")


def first_task(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is the first task of a step, or not a task."""
    return environ.get("SLURM_PROCID", "0") in ("", "0")


def uncovered(environ: Mapping[str, str] = os.environ) -> str:
    """Return why a step would leave nodes of its job unjudged, or ""."""
    if environ.get("SLURM_HET_SIZE", "").isdigit() and int(environ["SLURM_HET_SIZE"]) > 1:
        return _uncovered_parts(int(environ["SLURM_HET_SIZE"]), environ)
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
    if not (job(environ) and nodes.isdigit() and int(nodes) > 1):
        return ""
    here = environ.get("SLURM_STEP_NUM_NODES", "") if environ.get("SLURM_STEP_ID", "").isdigit() else ""
    covered = int(here) if here.isdigit() else 1
    if covered >= int(nodes):
        return ""
    start = f"srun --ntasks-per-node=1 --nodes={nodes}"
    return f"{covered} of the job's {nodes} nodes would be judged: start it with `{start}`"


def _uncovered_parts(parts: int, environ: Mapping[str, str]) -> str:
    """Return why a step would leave nodes of a heterogeneous job unjudged, or "".

    Its components have separate nodes; srun uses the first one by default.
    """
    from preflight.nodeset import unfold

    lists = [environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{part}", "") for part in range(min(parts, 1000))]
    start = f"start it with `srun --het-group=0-{parts - 1} --ntasks-per-node=1`"
    try:
        nodes = {name for each in lists for name in unfold(each)}
        step = environ.get("SLURM_STEP_NODELIST", "") if environ.get("SLURM_STEP_ID", "").isdigit() else ""
        left = sorted(nodes.difference(unfold(step) if step else ()))
    except ValueError:
        return f"the nodes of the {parts} parts of the job are unknown: {start}"
    if not left:
        return ""
    return f"{len(left)} of the job's {len(nodes)} nodes would not be judged, {left[0]} among them: {start}"


def _executable(path: str) -> bool:
    return os.access(path, os.X_OK)
