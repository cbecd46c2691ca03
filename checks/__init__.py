"""What good looks like: one module per subject, one function per check.

To add a check, write a function with ``@check`` in one of these modules and its fixture files in
``fixtures/<check-id>/``. Nothing registers itself on import.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from preflight.model import Check
from preflight.probes import PROBES, Probe

MODULES = (
    "gpu",
    "gpu_part",
    "gpu_memory",
    "gpu_state",
    "gpu_use",
    "nvlink",
    "xid",
    "topology",
    "gpudirect",
    "rdma",
    "pcie",
    "roce",
    "rails",
    "nccl_env",
    "numa",
    "host",
    "kernel",
    "versions",
    "checkpoint",
    "container",
    "fleet",
    "nccl_run",
)

#: Third parties' checks: an entry point names a module that holds checks and, if it wants, ``PROBES``.
GROUP = "preflight.checks"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Registry:
    """All checks and probes of this installation, and the plug-ins that could not be loaded."""

    checks: tuple[Check, ...]
    probes: tuple[Probe, ...]
    broken: tuple[str, ...] = ()


class DuplicateCheck(Exception):
    """Two checks have the same id."""


def registry() -> Registry:
    """Load our own checks, then those of installed plug-ins; raises DuplicateCheck.

    A plug-in that cannot be imported is reported and does not end the run.
    """
    checks: list[Check] = []
    for name in MODULES:
        checks += in_module(importlib.import_module(f"{__name__}.{name}"))
    probes = list(PROBES)
    broken: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            module = point.load()
            found = in_module(module)
            extra = _probes(module)
        except Exception as error:
            _log.exception("the plug-in %s cannot be loaded", point.name)
            broken.append(f"{_origin(point)}: {type(error).__name__}: {error}")
            continue
        checks += found
        probes += [probe for probe in extra if probe not in probes]
    _unique(checks)
    return Registry(tuple(checks), tuple(probes), tuple(broken))


def in_module(module: ModuleType | Any) -> list[Check]:
    """Return a module's checks in the order in which they are written."""
    return [value for value in vars(module).values() if isinstance(value, Check)]


def _probes(module: ModuleType | Any) -> list[Probe]:
    probes = list(getattr(module, "PROBES", ()))
    if wrong := [probe for probe in probes if not isinstance(probe, Probe)]:
        raise TypeError(f"PROBES holds a {type(wrong[0]).__name__}, not a Probe")
    return probes


def _origin(point: EntryPoint) -> str:
    return f"{point.name} ({point.dist.name} {point.dist.version})" if point.dist else point.name


def _unique(checks: Iterable[Check]) -> None:
    seen: dict[str, Check] = {}
    for check in checks:
        if other := seen.get(check.id):
            raise DuplicateCheck(f"{check.id} is defined twice: {_where(other)} and {_where(check)}")
        seen[check.id] = check


def _where(check: Check) -> str:
    return str(getattr(check.run, "__module__", "?"))
