"""Outcomes of all checks on all subjects; equal outcomes are stored once.

A further subject with the same outcome takes only four bytes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from preflight._startup.lightclass import dataclass, field, replace
from preflight.judge.actions import action_of, strongest
from preflight.judge.check_result import Outcome
from preflight.judge.waivers import Excuses
from preflight.model import Check, Finding, Scope, Status, worst

#: Order in which findings are reported, most urgent first.
DISPLAY = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.SKIP, Status.PASS)


@dataclass
class ResultTable:
    """Outcomes, each with the numbers of its subjects, in any order."""

    checks: Sequence[Check]
    excuses: Excuses
    outcomes: dict[Outcome, array[int]] = field(default_factory=dict)

    def add(self, subject: int, outcome: Outcome) -> None:
        """Add the outcome of a check on a subject, after waivers."""
        counted = self.excuses(subject, outcome)
        if counted is None:
            return
        outcome = counted
        members = self.outcomes.get(outcome)
        if members is None:
            members = self.outcomes[outcome] = array("I")
        members.append(subject)

    @property
    def counts(self) -> Counter[Status]:
        """Number of outcomes with each status."""
        counts: Counter[Status] = Counter()
        for outcome, members in self.outcomes.items():
            counts[outcome.status] += len(members)
        return counts

    def statuses(self) -> Mapping[int, Mapping[int, Status]]:
        """Return subject -> check -> status, in the order of the checks."""
        found: dict[int, dict[int, Status]] = {}
        for outcome, members in sorted(self.outcomes.items(), key=lambda item: item[0].check):
            for subject in members:
                found.setdefault(subject, {})[outcome.check] = outcome.status
        return found

    def actions(self) -> Mapping[int, str]:
        """Return the strongest action of each subject that needs one."""
        strongest_of: dict[int, str] = {}
        for outcome, members in self.outcomes.items():
            check = self.checks[outcome.check]
            action = strongest(action_of(check, finding) for finding in outcome.findings)
            for subject in members if action != "none" else ():
                strongest_of[subject] = strongest((action, strongest_of.get(subject, "none")))
        return strongest_of

    def by_item(self) -> dict[tuple[str, str], Status]:
        """Return the worst status by check and checklist item; "" stands for all items."""
        found: dict[tuple[str, str], list[Status]] = {}
        for outcome in self.outcomes:
            check = self.checks[outcome.check]
            found.setdefault((check.id, ""), []).append(outcome.status)
            for item in check.answers:
                statuses = [f.status for f in outcome.findings if f.answers is None or item in f.answers]
                found.setdefault((check.id, item), []).append(worst(statuses))
        return {key: worst(statuses) for key, statuses in found.items()}

    def exit_status(self, silent: bool) -> int:
        """Return 1 if a result that decides failed, 3 if the verdict is unknown, else 0.

        It is unknown if a gating check is unknown, any check crashed, nothing was judged, or a node did not answer
        (``silent``).
        """
        deciding = {o.binding for o in self.outcomes if self.decides(self.checks[o.check], o.binding)}
        if Status.FAIL in deciding:
            return 1
        judged = any(outcome.status in (Status.PASS, Status.WARN, Status.FAIL) for outcome in self.outcomes)
        crashed = any(outcome.crashed for outcome in self.outcomes)
        return 3 if Status.UNKNOWN in deciding or crashed or silent or not judged else 0

    def decides(self, check: Check, status: Status) -> bool:
        """Return whether a result decides the verdict.

        Those of gating checks do, and a failure that the given logs show: the logs are given to be judged.
        """
        in_logs = check.scope is Scope.RUN and status is Status.FAIL and not self.excuses.is_shadow(check.id)
        return check.gating or in_logs

    def findings(self) -> Iterator[tuple[Check, Finding, list[int]]]:
        """Yield equal findings once with all their subjects, most urgent first.

        Findings of equal urgency are in the order of the checks, then of the first subject. Passes that differ only in
        the measured value count as equal: each node has its own temperature and clock.
        """
        groups: dict[tuple[int, Finding], _Group] = {}
        for outcome, members in self.outcomes.items():
            first = min(members)
            for place, finding in enumerate(outcome.findings):
                found = None if finding.status is Status.PASS else finding.found
                key = outcome.check, replace(finding, nodes=(), found=found)
                if (group := groups.get(key)) is None:
                    group = groups[key] = _Group((first, place))
                group.first = min(group.first, (first, place))
                group.members.extend(members)
                group.found[finding.found] = min(group.found.get(finding.found, group.first), (first, place))
        ordered = sorted(groups.items(), key=lambda item: (DISPLAY.index(item[0][1].status), item[0][0], item[1].first))
        for (number, finding), group in ordered:
            yield self.checks[number], replace(finding, found=group.summary), sorted(set(group.members))


#: Maximum number of listed values of a merged finding.
_MAX_VALUES = 3


@dataclass
class _Group:
    first: tuple[int, int]  # the first subject, and the finding's index there
    members: array[int] = field(default_factory=lambda: array("I"))
    found: dict[str | None, tuple[int, int]] = field(default_factory=dict)  # each value, and its first position

    @property
    def summary(self) -> str | None:
        """The measured values, of which at most three are listed; None without any."""
        values = [value for value in sorted(self.found, key=self.found.__getitem__) if value is not None]
        more = f" and {len(values) - _MAX_VALUES} other values" if len(values) > _MAX_VALUES else ""
        return ", ".join(values[:_MAX_VALUES]) + more if values else None
