"""Owner of a failure, by check: the node, the job, or the site.

Draining a node for a setting that the job brought along, or for a switch that all nodes share, takes a healthy
node out of service. The cluster file's lists come first. Environments of other jobs never
affect a verdict, so they are not collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preflight.probes import Probe

#: Failures that many nodes would have at once: a fabric, a switch, a file server, settings of a rack. A judgement.
SITE = ("fabric.*", "fleet.*", "switch.*", "site.*", "rails.isolated", "checkpoint.*", "host.time-sync")

#: Hooks inside a job, where the environment, limits, CPU mask and devices are what the job was given.
IN_JOB = ("slurm-step", "init-container")
JOB = (
    "nccl.*", "numa.affinity", "numa.memory", "numa.nccl-affinity", "container.*", "host.memlock", "host.shm",
    "host.open-files", "gpu.process-per-gpu", "gpu.memory-headroom", "gpu.left-over-processes",
)  # fmt: skip

#: On the node itself: memory that another job, or a former one, holds.
JOB_ON_NODE = ("gpu.process-per-gpu", "gpu.memory-headroom", "gpu.left-over-processes")

#: The environments of ranks that run here: they are of other jobs, of which this one or the next inherits nothing.
_OF_OTHERS = ("env", "ranks")


def relevant_probes(probes: Iterable[Probe]) -> list[Probe]:
    """Return the probes that matter for a job or its node."""
    return [probe for probe in probes if (probe.kind, probe.target) != _OF_OTHERS]


def owner_of(check: str, hook: str, configured: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return "node", "job" or "site" for a check's id.

    ``configured`` has the cluster file's lists, by that word.
    """
    usual = {"site": SITE, "job": JOB if hook in IN_JOB else JOB_ON_NODE}
    for table in (configured or {}, usual):
        for owner in ("node", "job", "site"):
            if any(fnmatchcase(check, pattern) for pattern in table.get(owner) or ()):
                return owner
    return "node"
