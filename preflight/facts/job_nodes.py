"""The nodes that a job runs on, as their evidence shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, fields


@dataclass(frozen=True)
class JobNode:
    """A node with its GPUs and the network of each."""

    name: str
    part: str  # of the catalogue; empty: not recognised
    gpus: int
    memory_gib: float | None  # of a GPU; None: not known
    nics: int  # of the compute fabric
    nic_gbps: float | None  # rate of one; None: not known, or they differ
    domain: str  # NVLink domain that spans nodes; empty: none is reported
    switches: tuple[str, ...] = ()  # of each GPU's nearest NIC, by the number of the GPU; empty: not known
    group: str = ""  # group of leaf switches that the NICs are on; empty: not known


def to_record(nodes: Sequence[JobNode]) -> list[dict[str, Any]]:
    """Return nodes as a record holds them."""
    return [{own.name: getattr(node, own.name) for own in fields(JobNode)} for node in nodes]


def from_record(entries: Sequence[Mapping[str, Any]]) -> tuple[JobNode, ...]:
    """Return the nodes of a record; raises KeyError or TypeError if it is damaged."""
    return tuple(JobNode(**{**entry, "switches": tuple(entry["switches"])}) for entry in entries)
