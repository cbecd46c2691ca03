"""Statuses and findings, and the functions that make them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.expectations import Expected


class Status(str, enum.Enum):
    """Status of a finding."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"

    def __str__(self) -> str:
        return self.value


#: Roll-up order: a group is as bad as its worst member; skip only if there is nothing else.
ROLL_UP = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP)


def worst(statuses: Iterable[Status]) -> Status:
    """Return the roll-up of statuses: fail > unknown > warn > pass > skip.

    Returns UNKNOWN if there are none.
    """
    found = set(statuses)
    return next((status for status in ROLL_UP if status in found), Status.UNKNOWN)


#: Machine-readable actions of findings, the weakest first; ``docs/actions.md`` explains each.
ACTIONS = ("none", "monitor", "fix-job", "fix-site", "reset", "reboot", "isolate", "replace")


#: Reason why a finding in shadow does not block a job; unlike a waiver, it has no owner.
SHADOW = "reported only: in shadow by the cluster file"

#: Impacts of failures, the most severe first; ``docs/incidents.md`` explains each.
IMPACTS = ("blocks-job", "slows-job", "loses-redundancy", "drifts")

#: Owners of failures.
OWNERS = ("node", "network", "site", "job")


@dataclass(frozen=True)
class Finding:
    """One result of a check, with its evidence.

    ``evidence`` holds record keys. ``nodes`` is filled in by a fleet check for some nodes only; for a node check the
    judge knows the node. ``quote`` is the relevant passage of the evidence, if the head of the record does not show it.
    ``answers`` restricts the check's checklist items to those of this finding (None: all). ``excused`` is the cluster
    file's reason why it does not block a job. ``reported_by`` names node checks: if one of them fails or warns, the
    same cause is not reported twice. ``undecided`` marks a difference without a known right side. ``action`` is one of
    ``ACTIONS``, ``impact`` one of ``IMPACTS`` and ``owner`` one of ``OWNERS``, if they differ from the check's. In a
    log's finding, ``cause`` is the check that reports its cause, followed by its nodes. ``parts`` is what else a
    finding concerns, for the relations ``parts`` and ``log``: of switches, ports with a priority, or both ends of a
    session; of a node, processes and mount points; of a log, lines, GPUs and processes.
    """

    status: Status
    message: str
    subject: str = ""
    found: str | None = None
    expected: str | None = None
    evidence: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""
    nodes: tuple[str, ...] = ()
    quote: str = ""
    answers: tuple[str, ...] | None = None
    excused: str = ""
    reported_by: tuple[str, ...] = ()
    undecided: bool = False
    action: str = ""
    impact: str = ""
    owner: str = ""
    cause: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def on(self, nodes: Iterable[str]) -> Finding:
        """Return the finding for these nodes only (fleet checks)."""
        return replace(self, nodes=tuple(nodes))

    def unless_reported(self, by: Iterable[str]) -> Finding:
        """Return the finding, to be dropped if one of these node checks reports it."""
        return replace(self, reported_by=tuple(by))

    def from_cause(self, cause: tuple[str, ...]) -> Finding:
        """Return a log's finding with the check and nodes that report its cause."""
        return replace(self, cause=cause) if cause else self

    def with_parts(self, *parts: str) -> Finding:
        """Return the finding with the parts that it concerns."""
        return replace(self, parts=parts)

    def about(self, *items: str) -> Finding:
        """Return the finding for these checklist items only."""
        return replace(self, answers=items)


#: Beginning of the name of a process as a part of a finding; its PID follows.
PROCESS = "process "


def processes(pids: Iterable[object]) -> tuple[str, ...]:
    """Return processes as parts of a finding."""
    return tuple(f"{PROCESS}{pid}" for pid in dict.fromkeys(pids))


def passed(message: str, *, subject: str = "", found: object = None, evidence: Iterable[str] = ()) -> Finding:
    """Return the finding for a good value."""
    return Finding(Status.PASS, message, subject, _text(found), None, tuple(evidence))


def failed(
    message: str,
    *,
    subject: str = "",
    found: object = None,
    expected: object = None,
    evidence: Iterable[str] = (),
    why: str = "",
    fix: str = "",
    quote: str = "",
    action: str = "",
    impact: str = "",
    owner: str = "",
) -> Finding:
    """Return the finding for a wrong value."""
    return Finding(Status.FAIL, message, subject, _text(found), _text(expected), tuple(evidence), why, fix,
                   quote=quote, action=action, impact=impact, owner=owner)  # fmt: skip


def warned(message: str, **details: Any) -> Finding:
    """Return the finding for a suspicious or costly value that does not block a job."""
    return replace(failed(message, **details), status=Status.WARN)


def unknown(message: str, **details: Any) -> Finding:
    """Return the finding for a check that applies but has no answer.

    ``fix`` states how to get one.
    """
    return replace(failed(message, **details), status=Status.UNKNOWN)


def skipped(message: str, *, subject: str = "", evidence: Iterable[str]) -> Finding:
    """Return the finding for a check that does not apply; ``evidence`` proves it."""
    return Finding(Status.SKIP, message, subject, evidence=tuple(evidence))


def compare(
    found: float | str,
    expected: Expected,
    *,
    what: str,
    at_least: bool = False,
    unit: str = "",
    subject: str = "",
    evidence: Iterable[str] = (),
    fix: str = "",
    why: str = "",
) -> Finding:
    """Compare a measured value with an expectation.

    Without an expectation the result is *unknown*. A deviation from a value that is only usual for the recognised part
    is a warning: a datasheet does not describe this site.
    """
    keys = tuple(evidence)
    measured = f"{_text(found)} {unit}".strip()
    if expected.value is None:
        return unknown(
            f"{what}: found {measured}, but no expected value is declared",
            subject=subject,
            found=measured,
            evidence=keys,
            fix=f"declare it in the cluster file: {expected.key} = ...",
        )
    wanted = f"{_text(expected.value)} {unit}".strip()
    good = found >= expected.value if at_least else found == expected.value
    bound = f"at least {wanted}" if at_least else wanted
    if good:
        return Finding(Status.PASS, f"{what}: {measured}", subject, measured, f"{bound} ({expected.source})", keys)
    return Finding(
        Status.FAIL if expected.binding else Status.WARN,
        f"{what}: found {measured}, expected {bound}",
        subject,
        measured,
        f"{bound} ({expected.source})",
        keys,
        why,
        fix,
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
