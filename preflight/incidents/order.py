"""The order of incidents: by impact, blocking ones first, then by reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.model import IMPACTS, Check

#: Owner by action, if the check names none.
_OF_ACTION = {"fix-job": "job", "fix-site": "site"}


def impact_of(check: Check | None, status: str, stated: str = "") -> str:
    """Return the impact of a finding: its own, else that of its check.

    A warning drifts if a failure would block.
    """
    declared = stated or (check.impact if check else "")
    impact = declared or ("blocks-job" if check is None or check.gating else "drifts")
    return "drifts" if status != "fail" and impact == "blocks-job" else impact


def owner_of(check: Check | None, action: str, stated: str = "") -> str:
    """Return the owner of a finding: stated, declared by its check, or by action."""
    declared = stated or (check.owner if check else "")
    return declared or _OF_ACTION.get(action, "node")


def action_of(check: Check | None, finding: Mapping[str, Any]) -> str:
    """Return the action of a finding, even if it is in shadow or waived."""
    return check.action if check and finding.get("excused") else str(finding["action"])


def sort_key(incident: Mapping[str, Any]) -> tuple[int, bool, int, int]:
    """Return the rank of an incident: impact, failures first, reach, first finding."""
    return (
        IMPACTS.index(incident["impact"]), incident["status"] != "fail", -len(incident["nodes"]),
        incident["findings"][0],
    )  # fmt: skip
