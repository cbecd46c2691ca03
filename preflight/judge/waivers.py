"""Waivers, shadow settings, and checks that are off for a class of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import replace
from preflight.expectations import Cluster
from preflight.expectations.waivers import Chosen, Waiver
from preflight.judge.check_result import Outcome
from preflight.model import SHADOW, Check, Finding, Status

if TYPE_CHECKING:
    from datetime import date

#: Statuses that can be waived: those that block a job.
_WAIVED = (Status.FAIL, Status.UNKNOWN)

#: The check of the waivers themselves.
WAIVERS = "site.waivers"


def chosen(checks: Sequence[Check], off: Sequence[str], cluster: Cluster) -> tuple[Sequence[Check], Sequence[str]]:
    """Apply ``[checks]`` of the cluster file.

    Return the checks to run, and the ids of those that are off. The check of waivers is planned only if there are
    waivers; otherwise its pass would be meaningless.
    """
    table = cluster.checks
    if not cluster.waivers:
        checks = [check for check in checks if check.id != WAIVERS]
    if not table.shadow and not table.off:
        return checks, off
    remaining = [check for check in checks if not _named(check.id, table.off)]
    remaining = [replace(check, gating=False) if _named(check.id, table.shadow) else check for check in remaining]
    return remaining, [*off, *(check.id for check in checks if _named(check.id, table.off))]


class Excuses:
    """Waivers and class settings, applied to outcomes, with counts of their effect."""

    def __init__(self, cluster: Cluster, checks: Sequence[Check]) -> None:
        self._cluster = cluster
        self._ids = [check.id for check in checks]
        self._of_class = {name: members.checks for name, members in cluster.classes.items()}
        self._idle = not cluster.waivers and not any(c.shadow or c.off for c in self._of_class.values())
        self._nodes: list[tuple[str, date | None]] = []
        self._matched = [0] * len(cluster.waivers)
        self.waived = 0
        self.off: dict[str, set[str]] = {}  # class -> ids
        self.not_run = 0

    def is_shadow(self, id: str) -> bool:
        """Return whether a check is only reported, on all nodes."""
        return _named(id, self._cluster.checks.shadow)

    def add_node(self, node: str, collected_at: str) -> None:
        """Add the next node, with the date of its evidence."""
        self._nodes.append((node, None if self._idle else _day(collected_at)))

    def __call__(self, subject: int, outcome: Outcome) -> Outcome | None:
        """Return an outcome after waivers; None if the check is off."""
        if self._idle:
            return outcome
        node, today = self._nodes[subject] if subject < len(self._nodes) else ("", self._newest())
        name = self._cluster.class_of(node) if node else None
        table = self._of_class[name] if name is not None else Chosen()
        id = self._ids[outcome.check]
        if name is not None and _named(id, table.off):
            self.off.setdefault(name, set()).add(id)
            self.not_run += 1
            return None
        if _named(id, table.shadow):
            outcome = replace(outcome, findings=tuple(_excused(f, SHADOW) for f in outcome.findings))
        if not any(finding.status in _WAIVED for finding in outcome.findings):
            return outcome
        holding = [
            (number, waiver)
            for number, waiver in enumerate(self._cluster.waivers)
            if (waiver.nodes is None or (node and waiver.speaks_of(node))) and not (today and waiver.expired(today))
        ]
        if not holding:
            return outcome
        findings = tuple(self._waive(id, finding, holding) for finding in outcome.findings)
        self.waived += findings != outcome.findings
        return replace(outcome, findings=findings)

    def _waive(self, id: str, finding: Finding, holding: Sequence[tuple[int, Waiver]]) -> Finding:
        if finding.status not in _WAIVED:
            return finding
        for number, waiver in holding:
            if waiver.covers(id, finding.subject):
                self._matched[number] += 1
                status = Status.WARN if finding.status is Status.FAIL else finding.status
                return replace(_excused(finding, waiver.words), status=status)
        return finding

    def _newest(self) -> date | None:
        return max((day for _, day in self._nodes if day), default=None)

    def coverage(self) -> dict[str, Any]:
        """Return the coverage block of waivers and class settings; empty without any."""
        if self._idle:
            return {}
        return {
            "waived": self.waived,
            "waivers": list(self._waiver_documents()),
            "off_in_class": {name: sorted(ids) for name, ids in sorted(self.off.items())},
        }

    def _waiver_documents(self) -> Iterator[Mapping[str, Any]]:
        newest = self._newest()
        for waiver, matched in zip(self._cluster.waivers, self._matched, strict=True):
            yield {
                "check": waiver.check,
                "subject": waiver.subject,
                "owner": waiver.owner,
                "reason": waiver.reason,
                "until": str(waiver.until),
                "expired": bool(newest and waiver.expired(newest)),
                "matched": matched,
            }


def _named(id: str, globs: Sequence[str] | None) -> bool:
    return any(fnmatchcase(id, glob) for glob in globs or ())


def _excused(finding: Finding, why: str) -> Finding:
    return replace(finding, excused=why)


def _day(at: str) -> date | None:
    from datetime import date

    try:
        return date.fromisoformat(at[:10])
    except ValueError:
        return None
