"""The cluster file's table [gate], applied to one run of the gate."""

from __future__ import annotations

from preflight.gate import announce, policy, scheduler_env
from preflight.gate.verdict import PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from preflight.gate.configuration import Configuration
    from preflight.gate.gate_run import Sitting

#: Fraction of slurmd's prolog timeout used for judging, and its minimum; the rest covers start-up and output.
_TIMEOUT_SHARE, _MINIMUM_S = 0.6, 1.0


def apply_configuration(sitting: Sitting, found: Configuration) -> None:
    """Apply the cluster file's table [gate] from here on."""
    asked, gate = sitting.asked, found.gate
    seat = gate.seat(asked.seat)
    sitting.actions = actions(seat)
    sitting.strict = asked.strict or bool(seat.strict)
    sitting.dry_run = asked.dry_run or bool(gate.dry_run)
    sitting.publish = gate.publish
    if found.error and found.usable:
        sitting.error = announce.plain(f"{PREFIX}CONFIGURATION ERROR: {found.error}")
    if asked.deadline is None and seat.deadline_s is not None:
        sitting.watch.within(seat.deadline_s)
    if limit_s := scheduler_env.time_limit():
        sitting.watch.within(min(sitting.watch.deadline_s, max(_MINIMUM_S, _TIMEOUT_SHARE * limit_s)))


def actions(seat: Any) -> dict[str, str]:
    """Return the actions that a hook's table sets, by status."""
    return {status: getattr(seat, status) for status in policy.OVERRIDES if getattr(seat, status)}
