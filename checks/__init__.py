"""What good looks like: one module per subject, one function per check.

To add a check, write a function with ``@check`` in one of these modules and its fixture files in
``fixtures/<check-id>/``. Nothing registers itself on import; ``python -m tests.declared`` notes it in the table by
which a check's module is imported only when it runs (``deferred``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from preflight.checks import plugins
from preflight.errors import PreflightError
from preflight.probes import PROBES, Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from preflight.model import Check

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
    "gpudirect_path",
    "rdma",
    "rdma_port",
    "nic_share",
    "rdma_verbs",
    "pcie",
    "roce",
    "counters",
    "traffic",
    "congestion",
    "traffic_share",
    "cpu_window",
    "optics",
    "rails",
    "storage",
    "switch",
    "nccl_env",
    "nccl_hca",
    "nccl_lint",
    "nccl_habits",
    "nccl_fit",
    "nccl_balance",
    "nccl_features",
    "sharp_plugin",
    "nccl_software",
    "numa",
    "host",
    "kernel",
    "versions",
    "node_expected",
    "compatibility",
    "checkpoint",
    "container",
    "waivers",
    "trends",
    "record",
    "container_devices",
    "fleet",
    "fleet_software",
    "fleet_host",
    "fleet_gpu",
    "fleet_nic",
    "fleet_identity",
    "fleet_rails",
    "fleet_outliers",
    "roce_fleet",
    "nccl_ranks",
    "nccl_log_env",
    "fabric",
    "fabric_shape",
    "fabric_links",
    "fabric_load",
    "nccl_run",
    "nccl_gpudirect",
    "nccl_failures",
    "nccl_rails",
    "nccl_roles",
    "nccl_tests",
    "nccl_built",
    "nccl_busbw",
    "nccl_curve",
    "nccl_use",
    "nccl_layout",
    "torch_gpu",
    "torch_trace",
    "torch_hang",
    "scale",
    "pair",
)


class DuplicateCheck(PreflightError):
    """Two checks have the same id."""


class Registry:
    """All checks and probes of this installation, and the plug-ins that could not be loaded."""

    def __init__(self, added: plugins.Plugins) -> None:
        self._added = added
        self.broken = added.broken
        self.probes: tuple[Probe, ...] = tuple(dict.fromkeys((*PROBES, *added.probes)))

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Our own checks, whose modules are imported when they run, then those of plug-ins."""
        from preflight.checks.deferred import checks_of

        checks = [check for name in MODULES for check in checks_of(name)]
        checks += [check for module in self._added.modules for check in in_module(module)]
        _unique(checks)
        if self.broken:
            checks.append(plugins.unloaded(self.broken))
        return tuple(checks)

    def ids(self) -> list[str]:
        """Return the ids of all checks; none where a plug-in cannot be loaded, since its own are not known."""
        return [] if self.broken else [check.id for check in self.checks]


def registry() -> Registry:
    """Load the installed plug-ins; raises DuplicateCheck if one of them has a check with an id of ours.

    A plug-in that cannot be imported is reported and does not end the run.
    """
    made = Registry(plugins.load())
    if made._added.modules:
        _ = made.checks
    return made


def in_module(module: ModuleType | Any) -> list[Check]:
    """Return a module's checks in the order in which they are written."""
    from preflight.model import Check

    return [value for value in vars(module).values() if isinstance(value, Check)]


def _unique(checks: Iterable[Check]) -> None:
    seen: dict[str, Check] = {}
    for check in checks:
        if other := seen.get(check.id):
            raise DuplicateCheck(f"{check.id} is defined twice: {_where(other)} and {_where(check)}")
        seen[check.id] = check


def _where(check: Check) -> str:
    return str(getattr(check.run, "__module__", "?"))
