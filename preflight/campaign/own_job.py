"""A Slurm job that a campaign creates for itself, on idle nodes only."""

from __future__ import annotations

import math
import os
import random
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from preflight.nodeset import fold_for_slurm
from preflight.terminal import UsageError
from preflight.transport.slurm.srun import PASSED_VARIABLES

#: Seconds in which Slurm must start the job, and for each of its commands.
_START_S, _COMMAND_S = 30, 60

#: Seconds beyond those of the campaign, for the inspection of the nodes and the cleanup.
_MARGIN_S = 180

_GRANTED = re.compile(r"Granted job allocation (\d{1,12})")


@contextmanager
def on_idle_nodes(most: int, seconds: float, partition: str | None) -> Iterator[str]:
    """Hold a job on at most ``most`` idle nodes; yield its ID.

    Only idle nodes are requested, so no job is preempted or delayed. The job ends with the campaign, and after its time
    limit in any case. Raises UsageError if fewer than two nodes are idle, or Slurm starts no job.
    """
    free = _idle(partition)
    if len(free) < 2:
        raise UsageError(f"{len(free)} nodes of {_place(partition)} are idle: a pair needs two")
    nodes = random.sample(free, min(most, len(free)))
    name = f"preflight-{secrets.token_hex(4)}"
    try:
        yield _granted(nodes, name, seconds, partition)
    finally:
        _run("scancel", f"--name={name}")


def _idle(partition: str | None) -> list[str]:
    """Return the idle nodes of a partition; without a name, of the default one."""
    ran = _run("sinfo", "--noheader", "--Node", "--format=%N|%T|%P")
    if ran.returncode:
        raise UsageError(f"--idle: sinfo failed: {_reason(ran)}")
    rows = [line.strip().split("|") for line in ran.stdout.splitlines()]
    return [row[0] for row in rows if len(row) == 3 and row[1] == "idle"
            and (row[2].rstrip("*") == partition if partition else row[2].endswith("*"))]  # fmt: skip


def _granted(nodes: Sequence[str], name: str, seconds: float, partition: str | None) -> str:
    """Create the job, and return its ID; raises UsageError."""
    ran = _run(
        "salloc", "--no-shell", "--exclusive", "--mem=0", f"--immediate={_START_S}", f"--nodes={len(nodes)}",
        f"--nodelist={fold_for_slurm(nodes)}", f"--time={math.ceil((seconds + _MARGIN_S) / 60)}",
        f"--job-name={name}", *([f"--partition={partition}"] if partition else []),
    )  # fmt: skip
    if ran.returncode or not (granted := _GRANTED.search(ran.stderr)):
        raise UsageError(f"--idle: Slurm gives no job on {len(nodes)} idle nodes: {_reason(ran)}")
    return granted[1]


def _run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command outside any surrounding job; raises UsageError."""
    if not (path := shutil.which(tool)):
        raise UsageError(f"--idle: no `{tool}` in PATH; run on a login node of the Slurm cluster")
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SLURM_", "SINFO_")) or name in PASSED_VARIABLES}  # fmt: skip
    try:
        return subprocess.run([path, *arguments], capture_output=True, text=True, errors="backslashreplace",
                              stdin=subprocess.DEVNULL, timeout=_COMMAND_S, check=False, env=environment)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--idle: `{tool}` failed: {error}") from None


def _reason(ran: subprocess.CompletedProcess[str]) -> str:
    return " ".join(ran.stderr.split())[:300] or f"exit status {ran.returncode}"


def _place(partition: str | None) -> str:
    return f"partition {partition}" if partition else "the default partition"
