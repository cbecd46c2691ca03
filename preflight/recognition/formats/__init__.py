"""Recognised kinds of output, in detection order.

Unambiguous formats precede ambiguous ones.
"""

from __future__ import annotations

import functools
from importlib import import_module

from preflight.recognition.detector import OutputFormat

#: Modules of this package; each lists its kinds in ``KINDS``.
MODULES = (
    "pytorch",
    "nvidia_smi",
    "network",
    "host",
    "nccl_settings",
    "dcgmi",
    "cluster",
    "messages",
)


@functools.cache
def kinds() -> tuple[OutputFormat, ...]:
    """Return all kinds of output, in detection order."""
    return tuple(kind for name in MODULES for kind in import_module(f"{__name__}.{name}").KINDS)
