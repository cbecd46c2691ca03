"""The checks: one module per subject, one function per check.

To add a check, write a function with ``@check`` in one of these modules and its fixture files in
``fixtures/<check-id>/``. Nothing registers itself on import. A generated table lists all checks, so that a check's
module is imported only when the check runs (``_registry.lazy``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from preflight.checks._registry import plugins
from preflight.errors import PreflightError
from preflight.probes.node import PROBES
from preflight.probes.probe import Probe

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from preflight.model import Check

MODULES = (
    "gpu.presence",
    "gpu.part",
    "gpu.memory",
    "gpu.state",
    "gpu.clocks",
    "gpu.processes",
    "gpu.nvlink",
    "gpu.nvlink_fabric",
    "gpu.link_errors",
    "gpu.xid",
    "gpu.topology",
    "gpu.gpudirect_host",
    "gpu.gpudirect_path",
    "rdma.devices",
    "rdma.firmware",
    "rdma.ports",
    "rdma.bandwidth_per_gpu",
    "rdma.verbs",
    "rdma.pcie",
    "roce.chain",
    "rdma.error_counters",
    "rdma.traffic",
    "rdma.congestion",
    "rdma.rail_balance",
    "host.cpu_usage",
    "rdma.optics",
    "rdma.ip_rails",
    "host.storage",
    "host.inventory",
    "host.mounts",
    "host.units",
    "host.processes",
    "fleet.switch_peer",
    "nccl.environment",
    "nccl.ib_hca",
    "nccl.settings",
    "nccl.leftover_settings",
    "nccl.fabric_fit",
    "nccl.load_balancing",
    "nccl.features",
    "nccl.sharp_plugin",
    "nccl.software",
    "host.numa",
    "host.limits",
    "host.registration",
    "host.kernel",
    "host.kernel_events",
    "host.versions",
    "fleet.node_expected",
    "host.compatibility",
    "host.checkpoint",
    "kubernetes.container",
    "site.waivers",
    "fleet.trends",
    "fleet.congestion_trend",
    "job.benchmark_metadata",
    "kubernetes.device_plugin",
    "kubernetes.container_state",
    "fleet.core",
    "fleet.software",
    "fleet.host",
    "fleet.gpu",
    "fleet.nic",
    "fleet.serving_placement",
    "fleet.unique_ids",
    "fleet.rails",
    "fleet.outliers",
    "roce.fleet",
    "job.rank_agreement",
    "job.log_settings",
    "fabric.sweep",
    "fabric.shape",
    "fabric.links",
    "fabric.load",
    "fabric.waits",
    "switch.settings",
    "switch.links",
    "switch.dscp",
    "switch.traffic",
    "switch.pauses",
    "switch.buffers",
    "switch.congestion",
    "switch.rail_traffic",
    "switch.optics",
    "switch.shape",
    "switch.both_ends",
    "switch.cable_errors",
    "switch.routing",
    "switch.peers",
    "job.transport",
    "job.gpudirect",
    "job.failures",
    "job.program_errors",
    "job.serving",
    "job.serving_cache",
    "job.serving_hardware",
    "job.within_node",
    "job.rails",
    "job.hca_roles",
    "job.hca_count",
    "job.nccl_tests",
    "job.built_for",
    "job.bus_bandwidth",
    "job.bandwidth_curve",
    "job.pairwise",
    "job.slow_parts",
    "job.campaign_coverage",
    "job.communicators",
    "job.benchmark_layout",
    "job.benchmark_sizes",
    "job.benchmark_tail",
    "job.pair_times",
    "job.shared_uplinks",
    "job.port_errors",
    "job.torch_gpu",
    "job.torch_rates",
    "job.torch_collectives",
    "job.torch_exchange",
    "job.torch_pipeline",
    "job.torch_exposure",
    "job.torch_placement",
    "job.torch_host",
    "job.torch_trace",
    "job.training_log",
    "job.congested_steps",
    "job.torch_hang",
    "job.gpu_activity",
    "job.ras",
    "job.stacks",
    "job.roofline",
    "job.layout",
    "job.layout_costs",
    "job.layout_measured",
    "job.layout_network",
    "job.layout_placement",
    "pair.bandwidth",
)


class DuplicateCheck(PreflightError):
    """Two checks have the same id."""


class Registry:
    """Checks and probes of this installation, and the plug-ins that failed to load."""

    def __init__(self, added: plugins.Plugins) -> None:
        self._added = added
        self.broken = added.broken
        self.probes: tuple[Probe, ...] = tuple(dict.fromkeys((*PROBES, *added.probes)))

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """The checks of preflight, then those of plug-ins.

        The modules of preflight's own checks are imported when they run.
        """
        from preflight.checks._registry.lazy import checks_of

        checks = [check for name in MODULES for check in checks_of(name)]
        checks += [check for module in self._added.modules for check in in_module(module)]
        _unique(checks)
        if self.broken:
            checks.append(plugins.unloaded(self.broken))
        return tuple(checks)

    @property
    def has_plugins(self) -> bool:
        """Whether any plug-in is installed, even if it failed to load."""
        return bool(self._added.modules or self.broken)

    def ids(self) -> list[str]:
        """Return the ids of all checks; empty if a plug-in failed to load.

        The ids of a plug-in's checks are unknown until it loads.
        """
        return [] if self.broken else [check.id for check in self.checks]


def registry() -> Registry:
    """Return the registry of all checks, with the installed plug-ins loaded.

    A plug-in that cannot be imported is reported and does not end the run. Raises DuplicateCheck if a plug-in reuses
    the id of another check.
    """
    made = Registry(plugins.load())
    if made._added.modules:
        _ = made.checks
    return made


def in_module(module: ModuleType | Any) -> list[Check]:
    """Return a module's checks in source order."""
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
