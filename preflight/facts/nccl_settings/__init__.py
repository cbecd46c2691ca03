"""Rules for NCCL variables that need only the settings, a scope and a version.

The same rules apply to a node's environment, the ``set by environment`` lines of a log, a pasted list, and the
processes of a running job. A rule that depends on the node or the job (:class:`SettingScope`) yields no violation if
that is unknown. Sources: NCCL user guide, "Environment Variables"; NCCL 2.30 src/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from preflight.facts.nccl_environment import REDACTED, NcclEnvironment
from preflight.facts.nccl_settings.conflicts import contradictions, socket_threads
from preflight.facts.nccl_settings.leftovers import (
    fabric_fit,
    left_over,
    local_interface,
    pinned_choices,
    verbose_log,
)
from preflight.facts.nccl_settings.unknown_names import bad_values, unknown_names, version_names
from preflight.facts.nccl_settings.violation import SettingRule, SettingScope, Violation

__all__ = ["RULES", "SettingRule", "SettingScope", "Violation", "lint"]

#: Maximum number of reported violations of one rule: a hostile list of names must not create a long report.
MOST = 40

#: All rules for one environment, by name.
RULES: Mapping[str, SettingRule] = {
    rule.__name__: rule
    for rule in (
        unknown_names, version_names, bad_values, contradictions, socket_threads, verbose_log, pinned_choices,
        fabric_fit, left_over, local_interface,
    )
}  # fmt: skip


def lint(
    env: NcclEnvironment, here: SettingScope | None = None, rules: Iterable[str] | None = None
) -> Iterator[Violation]:
    """Yield the violations of all rules, or of those named.

    Redacted settings are left out; the caller reports them.
    """
    plain = NcclEnvironment(tuple(one for one in env.settings if one.value != REDACTED), env.unreadable)
    place = here or SettingScope()
    for name in RULES if rules is None else rules:
        for number, violation in enumerate(RULES[name](plain, place)):
            if number >= MOST:
                break
            yield violation
