"""Scope of a pass: on all nodes to which a check applies, or only on some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

_ORDER = ("fail", "unknown", "warn", "pass", "skip")


class Standings:
    """For each check, the number of nodes and other subjects with each status."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        self._of: dict[str, Counter[str]] = {}
        self._left: dict[str, set[str]] = {}  # check -> nodes for which another check reports the cause
        for node in report["nodes"]:
            for check, status in node["checks"].items():
                self._of.setdefault(check, Counter())[status] += 1
        others: dict[tuple[str, str], str] = {}
        for finding in report["findings"]:
            for name in finding["nodes"]:
                if name.startswith("@"):
                    key = finding["check"], name
                    others[key] = min(others.get(key, "skip"), finding["status"], key=_ORDER.index)
            if finding.get("reported_by"):
                self._left.setdefault(finding["check"], set()).update(finding["nodes"])
        for (check, _), status in others.items():
            self._of.setdefault(check, Counter())[status] += 1
        for check, names in self._left.items():
            self._of[check]["skip"] -= len(names)
            self._of[check]["left"] += len(names)

    def everywhere(self, check: str, status: str) -> bool:
        """Return whether a check passed, or was skipped, wherever it applies.

        A mixture of passes and skips counts as passed.
        """
        found = {one for one, number in self._of.get(check, {status: 1}).items() if number}
        return found <= ({"pass", "skip"} if status == "pass" else {status})

    def share(self, check: str, status: str) -> str:
        """Return a status's share of the applicable nodes: ``7 of 8``."""
        found = self._of.get(check, Counter())
        return f"{found[status]} of {found.total() - (found['skip'] if status == 'pass' else 0)}"

    def has(self, check: str, status: str) -> bool:
        """Return whether a check has the status on any node; True for an unknown check.

        A finding with the status is not enough: another finding of the check may be worse on the same node.
        """
        return check not in self._of or self._of[check][status] > 0
