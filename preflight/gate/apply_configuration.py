"""The cluster file's table [gate], applied to one run of the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.gate import announce, policy, scheduler_env
from preflight.gate.verdict import PREFIX

if TYPE_CHECKING:
    from typing import Any

    from preflight.gate.configuration import Configuration
    from preflight.gate.gate_run import GateRun

#: Fraction of slurmd's prolog timeout used for judging, and its minimum; the rest covers start-up and output.
_TIMEOUT_SHARE, _MINIMUM_S = 0.6, 1.0


def apply_configuration(gate_run: GateRun, config: Configuration) -> None:
    """Apply the cluster file's table [gate] from here on."""
    options, gate = gate_run.options, config.gate
    settings = gate.hook(options.hook)
    gate_run.actions = actions(settings)
    gate_run.strict = options.strict or bool(settings.strict)
    gate_run.dry_run = options.dry_run or bool(gate.dry_run)
    gate_run.publish = gate.publish
    if config.error and config.usable:
        gate_run.error = announce.plain(f"{PREFIX}CONFIGURATION ERROR: {config.error}")
    if options.deadline is None and settings.deadline_s is not None:
        gate_run.watch.limit_to(settings.deadline_s)
    if limit_s := scheduler_env.time_limit():
        gate_run.watch.limit_to(min(gate_run.watch.deadline_s, max(_MINIMUM_S, _TIMEOUT_SHARE * limit_s)))


def actions(settings: Any) -> dict[str, str]:
    """Return the actions that a hook's table sets, by status."""
    return {status: getattr(settings, status) for status in policy.OVERRIDES if getattr(settings, status)}
