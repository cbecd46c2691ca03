"""Owner of a failure, by check: the node, the job, or the site.

Draining a node for a setting of the job, or for a switch that all nodes share, takes a healthy node out of service. The
cluster file's lists take precedence. Environments of other jobs never affect a verdict, so they are not collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preflight.probes.probe import Probe

#: Failures that affect many nodes at once: fabric, switch, file server, rack settings. A judgement call.
SITE = ("fabric.*", "fleet.*", "switch.*", "site.*", "rails.isolated", "checkpoint.*", "host.time-sync")

#: Hooks inside a job, where environment, limits, CPU mask and devices belong to the job.
IN_JOB = ("slurm-step", "init-container")
JOB = (
    "nccl.*", "numa.affinity", "numa.memory", "numa.nccl-affinity", "container.*", "host.memlock", "host.shm",
    "host.open-files", "gpu.process-per-gpu", "gpu.memory-headroom", "gpu.left-over-processes",
)  # fmt: skip

#: Hooks outside a job: GPUs or memory still used by another or an earlier job.
JOB_ON_NODE = ("gpu.process-per-gpu", "gpu.memory-headroom", "gpu.left-over-processes")

#: Environments of running ranks belong to other jobs and are not inherited.
_OF_OTHERS = ("env", "ranks")


def relevant_probes(probes: Iterable[Probe]) -> list[Probe]:
    """Return the probes relevant to a job or its node."""
    return [probe for probe in probes if (probe.kind, probe.target) != _OF_OTHERS]


def owner_of(check: str, hook: str, configured: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return "node", "job" or "site" for a check's id.

    ``configured`` maps each of these words to the cluster file's patterns for it.
    """
    usual = {"site": SITE, "job": JOB if hook in IN_JOB else JOB_ON_NODE}
    for table in (configured or {}, usual):
        for owner in ("node", "job", "site"):
            if any(fnmatchcase(check, pattern) for pattern in table.get(owner) or ()):
                return owner
    return "node"
