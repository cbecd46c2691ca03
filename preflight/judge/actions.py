"""The action of a finding: its own, its check's, or the default of its status."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.model import ACTIONS, Check, Finding, Status

#: Default action of a failure.
OF_FAILURE = "isolate"

#: Actions without hardware work, which suit warnings as well as failures.
SETTINGS = ("fix-job", "fix-site")


def action_of(check: Check, finding: Finding) -> str:
    """Return the action of a finding.

    A pass or skip requires no action, and an excused finding is monitored. Otherwise, the finding's own action counts.
    Without one, a failure has the action of its check, or the default; a warning has that of its check if this involves
    no hardware work. Other warnings, and unknown results, are monitored.
    """
    if finding.status in (Status.PASS, Status.SKIP):
        return "none"
    if finding.excused:
        return "monitor"
    if finding.action in ACTIONS:
        return finding.action
    if finding.status is Status.FAIL:
        return check.action or OF_FAILURE
    if finding.status is Status.WARN and check.action in SETTINGS:
        return check.action
    return "monitor"


def strongest(actions: Iterable[str]) -> str:
    """Return the strongest action, or "none" if there is none.

    An unrecognised action counts as ``isolate``.
    """
    return max(actions, key=_rank, default="none")


def _rank(action: str) -> int:
    return ACTIONS.index(action if action in ACTIONS else OF_FAILURE)
