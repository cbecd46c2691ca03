"""Probes for values that a node's class declares in the cluster file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.probes.declared import checkpoints, processes, space, units
from preflight.probes.probe import Probe

if TYPE_CHECKING:
    from preflight.expectations import NodeClass


def class_probes(members: NodeClass | None, window: bool = False) -> list[Probe]:
    """Return the probes for a class's declarations, and for the readings of a window."""
    wanted: list[Probe] = []
    if members is not None:
        host = members.host
        if members.checkpoint.path:
            wanted.append(checkpoints(members.checkpoint.path))
        wanted += [space(place) for place in host.mounts]
        if host.services:
            wanted.append(units(host.services))
        if host.forbidden_processes or host.forbidden_users:
            return [*wanted, processes(host.forbidden_processes or (), host.forbidden_users or ())]
    return [*wanted, processes()] if window else wanted
