"""CPUs and NUMA nodes of a host, from ``lscpu`` and ``numactl -H``."""

from __future__ import annotations

from collections.abc import Mapping

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class PrintedNumaNode:
    """One NUMA node; None if the text lacks the value."""

    cpus: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True)
class HostCpus:
    """A host's processors."""

    nodes: Mapping[str, PrintedNumaNode]  # by number
    cpus: int | None = None
    model: str | None = None
    sockets: int | None = None
    threads_per_core: int | None = None
    architecture: str | None = None
    online: str | None = None  # CPU list
    offline: str | None = None
