"""Result of one check on one subject.

If a record is missing, or the check crashes or yields nothing, it is *unknown*.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.collection_hint import collection_hint
from preflight.model import Check, Finding, Status, unknown, worst


@dataclass(frozen=True)
class Outcome:
    """Result of one check on one subject, a node or the run.

    Compared by value: nodes with the same result have equal outcomes.
    """

    check: int  # index in the list of planned checks: a Check cannot be pickled
    findings: tuple[Finding, ...]
    crashed: bool = False

    @cached_property
    def binding(self) -> Status:
        """The worst status of the findings, where excused ones count as warnings."""
        return worst(finding.status if not finding.excused else Status.WARN for finding in self.findings)

    @property
    def failing(self) -> frozenset[str]:
        """The subjects that failed or warned."""
        return frozenset(finding.subject for finding in self.findings if finding.status in (Status.FAIL, Status.WARN))

    @cached_property
    def status(self) -> Status:
        """The worst status of the findings."""
        return worst(finding.status for finding in self.findings)


def outcome(
    number: int, check: Check, name: str, facts: object, site: object, evidence: Callable[[], Evidence]
) -> Outcome:
    """Run one check on the subject with this name.

    ``evidence`` is called only if a record is missing.
    """
    return concluded(number, check, name, *attempt(check, facts, site), evidence)


def attempt(check: Check, facts: object, site: object) -> tuple[list[Finding], BaseException | None]:
    """Run one check; return its findings, and the error that ended it."""
    findings: list[Finding] = []
    try:
        for finding in check.findings(facts, site):
            if not isinstance(finding, Finding):
                raise TypeError(f"it yielded {type(finding).__name__}, not a finding")
            findings.append(finding)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a check that calls sys.exit() must not set the status of the run
        return findings, error
    return findings, None


def concluded(
    number: int, check: Check, name: str, findings: list[Finding], error: BaseException | None,
    evidence: Callable[[], Evidence],
) -> Outcome:  # fmt: skip
    """Return the outcome of a check with these findings and the error, if any."""
    crashed = error is not None and not isinstance(error, EvidenceError)
    if isinstance(error, EvidenceError):
        findings.append(unknown(str(error), evidence=[error.key], fix=collection_hint(error.key, evidence())))
    elif error is not None:
        import logging

        logging.getLogger(__name__).error("check %s crashed on %s", check.id, name, exc_info=error)
        findings.append(
            unknown(
                f"the check itself crashed: {type(error).__name__}: {error}",
                fix="this is a fault of preflight, not of the node: report it with the traceback in the log",
            )
        )
    if not findings:
        findings.append(unknown("the check returned no finding", fix="this is a bug in the check: report it"))
    return Outcome(number, tuple(findings), crashed)
