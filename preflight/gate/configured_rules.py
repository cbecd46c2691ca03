"""Rules and deadline of a run, from the cluster file's table [gate]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.gate import announce, policy, scheduler_env
from preflight.gate.result import GateRules
from preflight.gate.verdict import PREFIX

if TYPE_CHECKING:
    from typing import Any

    from preflight.gate.configuration import Configuration
    from preflight.gate.request import GateRequest

#: Fraction of slurmd's prolog timeout used for judging, and its minimum; the rest covers start-up and output.
_TIMEOUT_SHARE, _MINIMUM_S = 0.6, 1.0


def configured_rules(request: GateRequest, config: Configuration) -> GateRules:
    """Return the rules of a run from the cluster file; options override it."""
    options, gate = request.options, config.gate
    settings = gate.hook(request.hook.name)
    partly = config.error and config.usable
    return GateRules(
        options.strict or bool(settings.strict),
        options.dry_run or bool(gate.dry_run),
        actions(settings),
        announce.plain(f"{PREFIX}CONFIGURATION ERROR: {config.error}") if partly else "",
        gate.publish,
    )


def configured_deadline_s(request: GateRequest, config: Configuration) -> float:
    """Return the cluster file's deadline, within slurmd's limit for a prolog."""
    settings, deadline_s = config.gate.hook(request.hook.name), request.deadline_s
    if request.options.deadline is None and settings.deadline_s is not None:
        deadline_s = settings.deadline_s
    if limit_s := scheduler_env.time_limit():
        deadline_s = min(deadline_s, max(_MINIMUM_S, _TIMEOUT_SHARE * limit_s))
    return deadline_s


def actions(settings: Any) -> dict[str, str]:
    """Return the configured actions of a hook, by status."""
    return {status: getattr(settings, status) for status in policy.OVERRIDES if getattr(settings, status)}
