"""The one table of what follows from a verdict: seat x status -> exit status, action.

Exit statuses are those of the README (0 passed, 1 failed, 2 configuration, 3 could not tell) but where a scheduler
gives them a meaning of its own: slurmd drains a node whose Prolog does not end with 0, so there only what is to
drain or to hold back a job ends otherwise.

In the seats ``slurm-prolog`` and ``slurm-healthcheck``,
``preflight.gate.slurm.apply_verdict`` is called where the rule says
"drain" or "refuse", and for a pass that was judged in the background, where a drain of ours may have to be lifted. It
may choose another exit status: that which then serves the job best.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: What is done: let the job start; hold it back; hold it back and drain the node; let it start, and say NOT JUDGED.
ACTIONS = ("allow", "refuse", "drain", "record")

#: What the cluster file may set for a status. None drains for what could not be told: that is no fault of the node.
OVERRIDES = {
    "fail": ("drain", "refuse", "record", "allow"),
    "unknown": ("refuse", "record", "allow"),
    "error": ("refuse", "record", "allow"),
}


class Rule:
    """What a seat does: the exit status of the process, and the action (one of ``ACTIONS``)."""

    __slots__ = ("action", "exit")

    def __init__(self, exit: int, action: str) -> None:
        if action not in ACTIONS or exit not in (0, 1, 2, 3):
            raise ValueError(f"no such rule: exit {exit!r}, {action!r}")
        self.exit, self.action = exit, action

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and (self.exit, self.action) == (other.exit, other.action)

    def __hash__(self) -> int:
        return hash((self.exit, self.action))

    def __repr__(self) -> str:
        return f"Rule({self.exit}, {self.action!r})"


class Seat:
    """A place from which preflight is called: what it does by default, how long it may take, what it may believe.

    ``deadline_s`` is well under the limit of whoever calls. ``strict`` is what it does when it could not tell and
    was told to be strict. ``expects``: it cannot pass without knowing how many GPUs and HCAs there should be.
    ``cached``: it takes a fresh verdict from the state directory. ``drains``: it has the right to, and may.
    """

    __slots__ = ("about", "cached", "deadline_s", "drains", "expects", "name", "rules", "strict")

    def __init__(
        self, name: str, about: str, deadline_s: float, rules: Mapping[str, Rule], strict: Rule,
        *, cached: bool = False, expects: bool = True, drains: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.about, self.deadline_s, self.rules, self.strict = name, about, deadline_s, rules, strict
        self.cached, self.expects, self.drains = cached, expects, drains


_PASS = Rule(0, "allow")
_STOP = {"pass": _PASS, "fail": Rule(1, "refuse"), "unknown": Rule(3, "refuse"), "error": Rule(2, "refuse")}
_STRICT = Rule(3, "refuse")

#: The seats. Limits of others: PrologEpilogTimeout is the site's (65 s from Slurm 24.05 on), HealthCheckProgram is
#: killed after 60 s (slurm.conf(5)), users wait for a prolog: 10 s.
SEATS = {
    seat.name: seat
    for seat in (
        Seat("slurm-prolog", "Prolog of slurmd, as root, before each job on a node", 10.0,
             {"pass": _PASS, "fail": Rule(1, "drain"), "unknown": Rule(0, "record"), "error": Rule(0, "record")},
             _STRICT, cached=True, drains=True),
        Seat("slurm-healthcheck", "HealthCheckProgram of slurmd, as root, each HealthCheckInterval", 30.0,
             {"pass": _PASS, "fail": Rule(1, "drain"), "unknown": Rule(3, "record"), "error": Rule(2, "record")},
             _STRICT, cached=True, drains=True),
        Seat("slurm-step", "srun at the top of a batch script, as the user, one task on each node", 30.0,
             _STOP, _STRICT),
        Seat("slurm-controller", "PrologSlurmctld, as SlurmUser, before each job: reads its nodes' verdicts", 10.0,
             {"pass": _PASS, "fail": Rule(1, "refuse"), "unknown": Rule(0, "record"), "error": Rule(0, "record")},
             _STRICT),
        Seat("init-container", "init container of a pod, before its containers", 60.0, _STOP, _STRICT),
        Seat("ci", "a pipeline; not asked to know how many GPUs there should be", 60.0, _STOP, _STRICT, expects=False),
    )
}  # fmt: skip


def rule(seat: str, status: str, overrides: Mapping[str, str] | None = None, strict: bool = False) -> Rule:
    """Return what a seat does about a status.

    ``overrides`` are the actions that the cluster file sets for the seat, by status; they win over ``strict``.
    """
    known = SEATS[seat]
    if overrides and status in overrides:
        return _chosen(known, status, overrides[status])
    if strict and status in ("unknown", "error"):
        return known.strict if status == "unknown" else Rule(2, known.strict.action)
    return known.rules[status]


def _chosen(seat: Seat, status: str, action: str) -> Rule:
    if action in ("allow", "record"):
        return Rule(0, action)
    return Rule({"fail": 1, "unknown": 3, "error": 2}[status], action)
