"""Impact, owner and action of a finding, and the order of incidents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.model import IMPACTS, Check

#: Action -> owner, for checks that declare none.
_OF_ACTION = {"fix-job": "job", "fix-site": "site"}


def is_loud(finding: Mapping[str, Any]) -> bool:
    """Return whether a finding may be the cause of an incident.

    An unknown result has its own impact only if its subject does not answer at all.
    """
    return finding["status"] in ("fail", "warn") or (finding["status"] == "unknown" and "impact" in finding)


def impact_of(check: Check | None, status: str, stated: str = "") -> str:
    """Return the impact of a finding: its own, else that of its check.

    Without either, it is ``blocks-job`` for a gating check, and ``drifts`` for any other. A finding that is not a
    failure has ``drifts`` instead of ``blocks-job``, unless it states the latter itself.
    """
    if stated:
        return stated
    impact = (check.impact if check else "") or ("blocks-job" if check is None or check.gating else "drifts")
    return "drifts" if status != "fail" and impact == "blocks-job" else impact


def owner_of(check: Check | None, action: str, stated: str = "") -> str:
    """Return the stated owner, else the check's, else the owner of the action."""
    declared = stated or (check.owner if check else "")
    return declared or _OF_ACTION.get(action, "node")


def action_of(check: Check | None, finding: Mapping[str, Any]) -> str:
    """Return the action of a finding, even if the finding is in shadow or waived."""
    return check.action if check and finding.get("excused") else str(finding["action"])


def sort_key(incident: Mapping[str, Any]) -> tuple[int, bool, int, int]:
    """Return the sort key of an incident: impact, failures first, most nodes first."""
    return (
        IMPACTS.index(incident["impact"]), incident["status"] != "fail", -len(incident["nodes"]),
        incident["findings"][0],
    )  # fmt: skip
