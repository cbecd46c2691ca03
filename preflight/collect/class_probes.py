"""What is asked of a node beside the usual probes, because its class in the cluster file declares it."""

from __future__ import annotations

from preflight.probes import Probe, checkpoints, processes, space, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from preflight.expectations import NodeClass


def class_probes(members: NodeClass | None, window: bool = False) -> list[Probe]:
    """Return the probes for what a class declares; with a window also for what only two readings show."""
    found: list[Probe] = []
    if members is not None:
        host = members.host
        if members.checkpoint.path:
            found.append(checkpoints(members.checkpoint.path))
        found += [space(place) for place in host.mounts]
        if host.services:
            found.append(units(host.services))
        if host.forbidden_processes or host.forbidden_users:
            return [*found, processes(host.forbidden_processes or (), host.forbidden_users or ())]
    return [*found, processes()] if window else found
