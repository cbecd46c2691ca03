"""Explanations between findings of a node, as declared by the checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from preflight.incidents.order import is_loud
from preflight.incidents.parts import CABLE, Parts, device_of, is_device, ports_of
from preflight.model import Check, Relation

Document = Mapping[str, Any]


class Relations:
    """The relations declared by all checks, applied to a report's findings."""

    def __init__(self, checks: Iterable[Check], findings: Iterable[Document] = ()) -> None:
        checks = list(checks)
        self._logs: dict[str, set[str]] = {}  # check -> the logs that it judged
        for finding in findings:
            if logs := _logs(finding):
                self._logs.setdefault(finding["check"], set()).update(logs)
        self._of = {check.id: check.relations for check in checks if check.explains}
        self._ids = {check.id for check in checks}
        self._separate = {check.id for check in checks if check.separate}

    def roots(self, findings: Mapping[int, Document], parts: Parts) -> dict[int, frozenset[int]]:
        """Return the unexplained findings of a node, each with all findings it explains.

        A finding that is unknown explains nothing and is never a root, unless it states an impact.
        """
        loud = [number for number, finding in findings.items() if is_loud(finding)]
        if len(findings) == 1:
            return {number: frozenset((number,)) for number in loud}
        of_check: dict[str, list[int]] = {}
        for number, finding in findings.items():
            of_check.setdefault(finding["check"], []).append(number)
        effects = {number: set(self._effects(number, of_check, findings, parts)) for number in loud}
        explained = set().union(*effects.values()) if effects else set()
        roots = [number for number in loud if number not in explained]
        joined = {root: frozenset(_reached(root, effects)) for root in roots}
        for number in loud:  # the first finding of a cycle represents all
            if not any(number in members for members in joined.values()):
                joined[number] = frozenset(_reached(number, effects))
        return self._one_per_setting(joined, findings)

    def of_logs(self, finding: Document, causes: Mapping[int, Document]) -> list[int]:
        """Return the node findings that a log's finding names as its cause.

        The log's finding states the possible causes as the id of a check or a pattern of ids. If it names the subject
        or mount point of some of these causes, only those are returned. If it names none, all but those with a mount
        point are returned for an id or for ``*``, and none for another pattern.
        """
        blamed = finding.get("cause")
        if not blamed:
            return []
        named = [
            number
            for number, cause in causes.items()
            if not set(blamed["nodes"]).isdisjoint(cause["nodes"]) and self._in_log(cause, finding, blamed["check"])
        ]
        stated = [number for number in named if _is_stated(causes[number], finding)]
        if stated or blamed["check"] not in ("*", *self._ids):
            return stated
        return [number for number in named if not _mounts(causes[number])]

    def _in_log(self, cause: Document, finding: Document, blamed: str) -> bool:
        """Return whether a declared relation lets a node's finding explain that of a log.

        ``blamed`` is the check that the log's finding names as its cause. A cause of another check counts only if its
        relation states words of the log (``about``).
        """
        same = fnmatchcase(cause["check"], blamed)
        return any(
            relation.on == "log" and (same or relation.about != "*")
            and (_is_about(cause, relation.cause) or any(fnmatchcase(at, relation.cause) for at in _mounts(cause)))
            and _is_of(relation, finding)
            for relation in self._of.get(cause["check"], ())
        )  # fmt: skip

    def _one_per_setting(
        self, roots: Mapping[int, frozenset[int]], findings: Mapping[int, Document]
    ) -> dict[int, frozenset[int]]:
        """Join the findings of a check about one setting, but not those about devices.

        Checks declared ``separate`` are left out.
        """
        first: dict[tuple[str, str], int] = {}
        joined: dict[int, frozenset[int]] = {}
        for number in sorted(roots):  # the most urgent first, as in the report
            check, subject = findings[number]["check"], findings[number]["subject"]
            root = number
            if subject and not is_device(subject) and check not in self._separate:
                root = first.setdefault((check, subject), number)
            joined[root] = joined.get(root, frozenset()) | roots[number]
        return joined

    def at_cable(self, cause: Document, effect: Document) -> bool:
        """Return whether a finding explains one at the other end of its cable."""
        return any(
            relation.on == "cable" and _is_about(cause, relation.cause) and _is_of(relation, effect)
            for relation in self._of.get(cause["check"], ())
        )

    def explains(self, cause: Document, effect: Document, parts: Parts) -> bool:
        """Return whether one finding of a node explains another."""
        return 1 in set(self._effects(0, {effect["check"]: [1]}, {0: cause, 1: effect}, parts))

    def _effects(
        self, number: int, of_check: Mapping[str, Sequence[int]], findings: Mapping[int, Document], parts: Parts
    ) -> Iterator[int]:
        cause = findings[number]
        for relation in self._of.get(cause["check"], ()):
            if not _is_about(cause, relation.cause):
                continue
            for other in (n for check, of in of_check.items() if fnmatchcase(check, relation.effect) for n in of):
                effect = findings[other]
                related = (
                    other != number
                    and _is_about(effect, relation.about)
                    and _related(relation.on, cause, effect, parts)
                )
                if related and not (relation.on == "node" and self._of_another_log(cause, effect)):
                    yield other

    def _of_another_log(self, cause: Document, effect: Document) -> bool:
        """Return whether the cause's check judged the effect's log and found no cause.

        The output and the debug log of a job may be separate logs, and a check may judge only one of them.
        """
        mine, theirs = _logs(cause), _logs(effect)
        return bool(mine) and mine.isdisjoint(theirs) and not theirs.isdisjoint(self._logs[cause["check"]])


def _logs(finding: Document) -> set[str]:
    return {key for key in finding["evidence"] if key.startswith("log:")} if "@run" in finding["nodes"] else set()


def _is_stated(cause: Document, logged: Document) -> bool:
    """Return whether a log names the mount point or the subject of a cause."""
    mounts, parts = _mounts(cause), [part.partition(": ")[0] for part in logged.get("parts", ())]
    shown = {part.removeprefix(f"{node} ") for node in cause["nodes"] for part in parts if part.startswith(f"{node} /")}
    if mounts and shown:
        return not shown.isdisjoint(mounts)
    return any(_names(logged["message"], name) for name in (cause["subject"], *mounts))


def _mounts(finding: Document) -> list[str]:
    return [name for name in (finding["subject"], *finding.get("parts", ())) if name.startswith("/")]


def _is_of(relation: Relation, effect: Document) -> bool:
    return fnmatchcase(effect["check"], relation.effect) and _is_about(effect, relation.about)


def _is_about(finding: Document, pattern: str) -> bool:
    return pattern == "*" or fnmatchcase(finding["subject"], pattern) or fnmatchcase(finding["message"], pattern)


def _related(on: str, cause: Document, effect: Document, parts: Parts) -> bool:
    if on == "part":
        return parts.same(cause["subject"], effect["subject"])
    if on == "missing":
        return parts.lacks(effect["subject"])
    if on == "cable":  # between two switches; ``at_cable`` is for hosts
        return not set(cause["subject"].split(CABLE)).isdisjoint(ports_of(effect))
    if on == "ended":
        return cause["status"] == "fail" and not _logs(cause).isdisjoint(_logs(effect))
    if on == "switch":
        return device_of(cause) == device_of(effect)
    if on == "parts":
        return not set(cause.get("parts", ())).isdisjoint(effect.get("parts", ()))
    if on == "names":
        return _names(cause["message"], effect["subject"]) or _names(effect["message"], cause["subject"])
    return on == "node" or (on == "unknown" and effect["status"] == "unknown")


def _names(message: str, subject: str) -> bool:
    return bool(subject) and re.search(rf"(?<![\w-]){re.escape(subject)}(?![\w-])", message) is not None


def _reached(root: int, effects: Mapping[int, set[int]]) -> set[int]:
    reached, waiting = {root}, [root]
    while waiting:
        for effect in effects.get(waiting.pop(), ()):
            if effect not in reached:
                reached.add(effect)
                waiting.append(effect)
    return reached


def acyclic(checks: Sequence[Check]) -> bool:
    """Return whether the relations between checks have no cycle.

    The relations ``unknown`` and ``ended``, and those of a check to itself, do not count.
    """
    ids = [check.id for check in checks]
    after: dict[str, set[str]] = {}
    for check in checks:
        patterns = [relation.effect for relation in check.relations if relation.on not in ("unknown", "ended")]
        after[check.id] = {id for id in ids if id != check.id and any(fnmatchcase(id, other) for other in patterns)}
    while after:
        free = [id for id, effects in after.items() if not effects & after.keys()]
        if not free:
            return False
        for id in free:
            del after[id]
    return True
