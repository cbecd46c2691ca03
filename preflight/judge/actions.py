"""What a finding requires, in one word: the finding's, its check's or its status'."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.model import ACTIONS, Check, Finding, Status

#: What a failure of a check that declares nothing requires.
OF_FAILURE = "isolate"

#: What leaves the hardware alone, and is as right for a warning as for a failure.
_SETTINGS = ("fix-job", "fix-site")


def action_of(check: Check, finding: Finding) -> str:
    """Return the action of a finding.

    A pass and a skip require nothing; unknown and excused findings are monitored; a warning requires what a failure
    does only where that leaves the hardware alone.
    """
    if finding.status in (Status.PASS, Status.SKIP):
        return "none"
    if finding.excused:
        return "monitor"
    if finding.action in ACTIONS:
        return finding.action
    if finding.status is Status.FAIL:
        return check.action or OF_FAILURE
    if finding.status is Status.WARN and check.action in _SETTINGS:
        return check.action
    return "monitor"


def strongest(actions: Iterable[str]) -> str:
    """Return the strongest of some actions, or "none" without any.

    An unknown action counts as isolate.
    """
    return max(actions, key=_rank, default="none")


def _rank(action: str) -> int:
    return ACTIONS.index(action if action in ACTIONS else OF_FAILURE)
