"""What is wrong with a set of NCCL variables: rules that need nothing but the settings, where they act, and a version.

One set of rules for a node's environment, the ``set by environment`` lines of a log, a pasted list, and the processes
of a running job. A rule that depends on what is here (:class:`Here`) is silent where nobody knows. Sources: NCCL user
guide, "Environment Variables"; NCCL 2.30 src/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from preflight.facts.nccl_environment import REDACTED, NcclEnvironment
from preflight.facts.nccl_settings.conflicts import contradictions, socket_threads
from preflight.facts.nccl_settings.leftovers import fabric_fit, left_over, pinned_choices, verbose_log
from preflight.facts.nccl_settings.unknown_names import bad_values, unknown_names, version_names
from preflight.facts.nccl_settings.violation import Complaint, Here, Rule

__all__ = ["RULES", "Complaint", "Here", "Rule", "lint"]

#: Complaints of one rule that are told; a hostile list of names is no reason for a long report.
MOST = 40

#: All rules that look at one environment, by name.
RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        unknown_names, version_names, bad_values, contradictions, socket_threads, verbose_log, pinned_choices,
        fabric_fit, left_over,
    )
}  # fmt: skip


def lint(env: NcclEnvironment, here: Here | None = None, rules: Iterable[str] | None = None) -> Iterator[Complaint]:
    """Yield all that is wrong; a setting whose value was kept back is left out, and its reader must say so."""
    plain = NcclEnvironment(tuple(one for one in env.settings if one.value != REDACTED), env.unreadable)
    place = here or Here()
    for name in RULES if rules is None else rules:
        for number, complaint in enumerate(RULES[name](plain, place)):
            if number >= MOST:
                break
            yield complaint
