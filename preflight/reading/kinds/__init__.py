"""The kinds of output that are recognised, in the order in which they are asked: the surest first."""

from __future__ import annotations

import functools
from importlib import import_module

from preflight.reading.parts import Kind

#: Modules of this package; each has its kinds in ``KINDS``.
MODULES = (
    "pytorch",
    "smi_xml",
    "smi_query",
    "topo",
    "smi_nvlink",
    "ibstat",
    "verbs",
    "rdma_tool",
    "gids",
    "hw_counters",
    "counters",
    "ethtool",
    "qos",
    "dcb",
    "lspci",
    "host",
    "lscpu",
    "kernel",
    "settings",
)


@functools.cache
def kinds() -> tuple[Kind, ...]:
    """Return all kinds."""
    return tuple(kind for name in MODULES for kind in import_module(f"{__name__}.{name}").KINDS)
