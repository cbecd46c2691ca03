"""Policy table: hook x status -> exit status, action.

Exit statuses are those of the README (0 passed, 1 failed, 2 configuration, 3 unknown), except where a scheduler defines
them differently: slurmd drains a node if its Prolog does not exit 0, so a prolog exits non-zero only to drain the node
or hold back the job.

In the hooks ``slurm-prolog`` and ``slurm-healthcheck``, ``preflight.gate.slurm.apply`` is called for the actions
"drain" and "refuse", and for a pass that was judged in the background, which may have to lift a drain set by preflight.
It may return a different exit status.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Actions: start the job; hold it back; hold it back and drain the node; start it and print NOT JUDGED.
ACTIONS = ("allow", "refuse", "drain", "record")

#: Actions that the cluster file may set for a status. No override drains on *unknown*: missing evidence is not a node
#: fault.
OVERRIDES = {
    "fail": ("drain", "refuse", "record", "allow"),
    "unknown": ("refuse", "record", "allow"),
    "error": ("refuse", "record", "allow"),
}


class PolicyRule:
    """A hook's exit status and action (one of ``ACTIONS``)."""

    __slots__ = ("action", "exit")

    def __init__(self, exit: int, action: str) -> None:
        if action not in ACTIONS or exit not in (0, 1, 2, 3):
            raise ValueError(f"no such rule: exit {exit!r}, {action!r}")
        self.exit, self.action = exit, action

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PolicyRule) and (self.exit, self.action) == (other.exit, other.action)

    def __hash__(self) -> int:
        return hash((self.exit, self.action))

    def __repr__(self) -> str:
        return f"Rule({self.exit}, {self.action!r})"


class Hook:
    """A point at which a scheduler or pipeline calls preflight, with its defaults.

    ``deadline_s`` is well below the caller's limit. ``strict`` is the rule for *unknown* with --strict. ``expects``: a
    node cannot pass unless the expected numbers of GPUs and HCAs are known. ``cached``: the hook uses a fresh verdict
    from the state directory. ``drains``: the hook may drain the node.
    """

    __slots__ = ("about", "cached", "deadline_s", "drains", "expects", "name", "rules", "strict")

    def __init__(
        self, name: str, about: str, deadline_s: float, rules: Mapping[str, PolicyRule], strict: PolicyRule,
        *, cached: bool = False, expects: bool = True, drains: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.about, self.deadline_s, self.rules, self.strict = name, about, deadline_s, rules, strict
        self.cached, self.expects, self.drains = cached, expects, drains


_PASS, _RECORD = PolicyRule(0, "allow"), PolicyRule(0, "record")
_REFUSE, _DRAIN = PolicyRule(1, "refuse"), PolicyRule(1, "drain")
_STOP = {
    "pass": _PASS,
    "fail": _REFUSE,
    "unknown": PolicyRule(3, "refuse"),
    "error": PolicyRule(2, "refuse"),
}
_STRICT = PolicyRule(3, "refuse")

#: The hooks. Limits of the callers: PrologEpilogTimeout is set by the site (65 s from Slurm 24.05 on),
#: HealthCheckProgram is killed after 60 s (slurm.conf(5)), users wait for a prolog: 10 s.
HOOKS = {
    hook.name: hook
    for hook in (
        Hook("slurm-prolog", "Prolog of slurmd, as root, before each job on a node", 10.0,
             {"pass": _PASS, "fail": _DRAIN, "unknown": _RECORD, "error": _RECORD},
             _STRICT, cached=True, drains=True),
        Hook("slurm-healthcheck", "HealthCheckProgram of slurmd, as root, each HealthCheckInterval", 30.0,
             {"pass": _PASS, "fail": _DRAIN, "unknown": PolicyRule(3, "record"), "error": PolicyRule(2, "record")},
             _STRICT, cached=True, drains=True),
        Hook("slurm-step", "srun at the top of a batch script, as the user, one task on each node", 30.0,
             _STOP, _STRICT),
        Hook("slurm-controller", "PrologSlurmctld, as SlurmUser, before each job: reads its nodes' verdicts", 10.0,
             {"pass": _PASS, "fail": _REFUSE, "unknown": _RECORD, "error": _RECORD},
             _STRICT),
        Hook("init-container", "init container of a pod, before its containers", 60.0, _STOP, _STRICT),
        Hook("ci", "a pipeline; no expected number of GPUs needed", 60.0, _STOP, _STRICT, expects=False),
    )
}  # fmt: skip


def rule(hook: str, status: str, overrides: Mapping[str, str] | None = None, strict: bool = False) -> PolicyRule:
    """Return a hook's rule for a status.

    ``overrides`` are the hook's actions from the cluster file, by status; they override ``strict``.
    """
    defaults = HOOKS[hook]
    if overrides and status in overrides:
        return _chosen(defaults, status, overrides[status])
    if strict and status in ("unknown", "error"):
        return defaults.strict if status == "unknown" else PolicyRule(2, defaults.strict.action)
    return defaults.rules[status]


def _chosen(hook: Hook, status: str, action: str) -> PolicyRule:
    if action in ("allow", "record"):
        return PolicyRule(0, action)
    return PolicyRule({"fail": 1, "unknown": 3, "error": 2}[status], action)
