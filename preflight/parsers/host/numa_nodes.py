"""A host's CPUs and NUMA nodes, from ``lscpu`` and ``numactl -H``."""

from __future__ import annotations

from collections.abc import Mapping

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class PrintedNumaNode:
    """One NUMA node; a value that the text lacks is None."""

    cpus: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True)
class HostCpus:
    """A host's processors; a value that the text lacks is None."""

    nodes: Mapping[str, PrintedNumaNode]  # by number
    cpus: int | None = None
    model: str | None = None
    sockets: int | None = None
    threads_per_core: int | None = None
    architecture: str | None = None
    online: str | None = None  # CPU list
    offline: str | None = None
