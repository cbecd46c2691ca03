"""Summary of a cluster file in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.expectations import Cluster
from preflight.model import counted
from preflight.nodeset import fold


def summary(cluster: Cluster) -> Iterator[str]:
    """Yield lines on each class, the checks in shadow or off, and each waiver."""
    for name, members in cluster.classes.items():
        nodes = f"{counted(len(members.nodes), 'node')}, {fold(members.nodes)}" if members.nodes else "all other nodes"
        yield f"class {name}: {nodes}"
        if members.checks.shadow:
            yield f"  reported only: {', '.join(members.checks.shadow)}"
        if members.checks.off:
            yield f"  off: {', '.join(members.checks.off)}"
    if cluster.checks.shadow:
        yield f"reported only, everywhere: {', '.join(cluster.checks.shadow)}"
    if cluster.checks.off:
        yield f"off, everywhere: {', '.join(cluster.checks.off)}"
    for waiver in cluster.waivers:
        nodes = fold(waiver.nodes) if waiver.nodes else "all nodes"
        subject = f" {waiver.subject}" if waiver.subject else ""
        yield f"{waiver.check}{subject} on {nodes}: {waiver.words}"
