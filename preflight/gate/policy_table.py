"""The policy as a table, printed by ``preflight gate --policy``."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from preflight.gate import policy
from preflight.gate.slurm import drain_settings
from preflight.gate.verdict import STATUSES
from preflight.gate.verdict_cache import INTERVALS, REFRESH_S

if TYPE_CHECKING:
    from preflight.expectations.gate_table import Gate

_ACTIONS = {
    "allow": "the job starts",
    "record": "the job starts, and NOT JUDGED or the error is printed to standard error",
    "refuse": "the job does not start; the node is left as it is",
    "drain": "the node is drained with the reason, and the job does not start",
}


def text(gate: Gate | None = None) -> str:
    """Return the table, with the changes that the cluster file's [gate] makes."""
    return "".join(f"{line}\n" for line in _lines(gate))


def _lines(gate: Gate | None) -> Iterator[str]:
    yield f"{'hook':18} {'pass':12} {'fail':12} {'unknown':12} {'error':12} {'strict':12} {'deadline':>8}"
    for name, hook in policy.HOOKS.items():
        configured = gate.hook(name) if gate is not None else None
        actions = {key: getattr(configured, key) for key in policy.OVERRIDES if getattr(configured, key, None)}
        strict = bool(configured.strict) if configured is not None else False
        rules = [policy.rule(name, status, actions, strict) for status in STATUSES]
        columns = [*rules, policy.rule(name, "unknown", actions, True)]
        deadline_s = (configured.deadline_s if configured is not None else None) or hook.deadline_s
        yield (
            f"{name:18} " + " ".join(f"{f'{rule.exit} {rule.action}':12}" for rule in columns) + f" {deadline_s:>6g} s"
        )
    yield ""
    yield "Exit status and action. unknown: not judged; error: invalid configuration; strict: unknown with --strict"
    for action, about in _ACTIONS.items():
        yield f"  {action:8} {about}"
    if gate is not None and gate.dry_run:
        yield "  dry_run is on: every hook prints what it would do, takes no action, and exits 0"
    yield ""
    for name, hook in policy.HOOKS.items():
        notes = [] if not hook.cached else ["uses a fresh verdict from the state directory"]
        notes += ["cannot pass without gpus and hcas in the cluster file"] if hook.expects else []
        yield f"  {name:18} {hook.about}" + (f"; {', '.join(notes)}" if notes else "")
    refresh_s = (gate.refresh_s if gate is not None else None) or REFRESH_S
    yield f"A verdict is refreshed after {refresh_s:g} s and valid for {INTERVALS * refresh_s:g} s, in the same boot"
    yield "and with the same cluster file, version, checks and plug-ins. Before it stops a job, the node is rejudged."
    yield "A failure caused by the job ([job]) never drains, and no node is ever set to down."
    yield "Without verdicts on the nodes and without --hosts, slurm-controller cannot judge a job."
    yield from _breaker(gate)


def _breaker(gate: Gate | None) -> Iterator[str]:

    settings = drain_settings.of(gate) if gate is not None else drain_settings.Settings()
    least, most, minutes = min(1, settings.most), settings.most, f"{settings.window_s / 60:g} min"
    later = f"{settings.put_back_s / 60:g} min"
    share = f"{100 * settings.share:.3g}%"
    text = (
        f"The breaker drains at most {share} of the eligible nodes within {minutes} (at least {least}, "
        f"at most {most}), "
        "and no node for a check that failed on another node within that time. If it does not drain, or slurm-prolog "
        "refuses the job, the node stays in service and an administrator is alerted (log, comment of the node). The "
        f"job is removed from the node: a batch job starts at least {later} later, a job of srun is notified and ends. "
        "The Prolog exits 0, because slurmd drains a node whose Prolog fails. Only drains set by preflight are lifted, "
        "from nodes that pass. While the cluster file is wrong, no node is drained."
    )
    yield ""
    yield from wrap(text, 110)
