"""Nodes that a job runs on, as found in their evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, fields


@dataclass(frozen=True)
class JobNode:
    """A node with its GPUs and the network of each."""

    name: str
    part: str  # name in the catalogue; empty if not recognised
    gpus: int
    memory_gib: float | None  # of each GPU; None if unknown
    nics: int  # number of NICs on the compute fabric
    nic_gbps: float | None  # rate of each NIC; None if unknown or if they differ
    domain: str  # NVLink domain that spans nodes; empty if none is reported
    switches: tuple[str, ...] = ()  # of each GPU's nearest NIC, by GPU number; empty if unknown
    group: str = ""  # group of leaf switches above the NICs; empty if unknown
    power_w: float | None = None  # lowest enforced power limit of its GPUs; None if unknown


def to_record(nodes: Sequence[JobNode]) -> list[dict[str, Any]]:
    """Return nodes in the form of a record."""
    return [{own.name: getattr(node, own.name) for own in fields(JobNode)} for node in nodes]


def from_record(entries: Sequence[Mapping[str, Any]]) -> tuple[JobNode, ...]:
    """Return the nodes of a record; raises KeyError or TypeError if it is damaged."""
    return tuple(JobNode(**{**entry, "switches": tuple(entry["switches"])}) for entry in entries)
