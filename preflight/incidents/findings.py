"""Findings of a report, with their checks and the parts of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.incidents.order import action_of, impact_of, is_loud, owner_of
from preflight.incidents.parts import Parts, is_device, signature
from preflight.incidents.relations import Relations
from preflight.model import Check, Scope

#: Actions that correct a setting: the same wrong setting on several nodes comes from one place.
_SETTINGS = ("fix-job", "fix-site")

Document = Mapping[str, Any]


class Findings:
    """The findings of a report by number, and the nodes by name."""

    def __init__(self, report: Mapping[str, Any], checks: Sequence[Check]) -> None:
        self.all: Sequence[Document] = report["findings"]
        self.nodes: Mapping[str, Document] = {node["name"]: node for node in report["nodes"]}
        self.relations = Relations(checks, self.all)
        self._checks = {check.id: check for check in checks}
        self._parts: dict[str, Parts] = {}
        self._signatures: dict[int, str] = {}
        self._renumbered: frozenset[str] | None = None

    def __getitem__(self, number: int) -> Document:
        return self.all[number]

    def check(self, number: int) -> Check | None:
        """Return the check of a finding; None if it is not among the checks."""
        return self._checks.get(self[number]["check"])

    def subject(self, number: int) -> str:
        """Return the subject of a finding; may be empty."""
        return str(self[number]["subject"])

    def owner(self, number: int) -> str:
        """Return the owner of a finding."""
        check, finding = self.check(number), self[number]
        return owner_of(check, action_of(check, finding), finding.get("owner", ""))

    def impact(self, number: int) -> str:
        """Return the impact of a finding."""
        finding = self[number]
        return impact_of(self.check(number), finding["status"], finding.get("impact", ""))

    def parts(self, node: str) -> Parts:
        """Return the parts of a node."""
        if node not in self._parts:
            self._parts[node] = Parts.of(self.nodes.get(node, {}))
        return self._parts[node]

    def is_renumbered(self, node: str) -> bool:
        """Return whether a GPU of a node is missing, so the numbers of others may change."""
        if self._renumbered is None:
            lost = {
                check.id
                for check in self._checks.values()
                if any(relation.on == "missing" for relation in check.relations)
            }
            self._renumbered = frozenset(
                name
                for finding in self.all
                if finding["status"] == "fail" and finding["check"] in lost
                for name in finding["nodes"]
            )
        return node in self._renumbered

    def signature(self, number: int) -> str:
        """Return the message of a finding without figures and names of devices."""
        if number not in self._signatures:
            message, subject = self[number]["message"], self.subject(number)
            self._signatures[number] = signature(message, subject, named=self.names_parts(number))
        return self._signatures[number]

    def is_loud(self, number: int) -> bool:
        """Return whether a finding may be an incident."""
        return is_loud(self[number])

    def is_setting(self, number: int) -> bool:
        """Return whether a finding requires a corrected setting; port counters do not."""
        check = self.check(number)
        counted = check and check.separate and check.action in _SETTINGS
        return not counted and action_of(check, self[number]) in _SETTINGS

    def is_defect(self, number: int) -> bool:
        """Return whether a fault is a defect of one part, such as its memory."""
        check = self.check(number)
        return bool(check and check.separate) and self.owner(number) == "node"

    def is_of_switches(self, number: int) -> bool:
        """Return whether a finding is about Ethernet switches and their ports."""
        check = self.check(number)
        return bool(check and check.switches)

    def is_of_fleet(self, number: int) -> bool:
        """Return whether the check compares the nodes of the fleet."""
        check = self.check(number)
        return bool(check and check.scope is Scope.FLEET and not check.switches)

    def lasting_signature(self, number: int) -> str:
        """Return the signature of a finding without the name of its log."""
        message = str(self[number]["message"])
        for key in self[number]["evidence"]:
            if key.startswith("log:") and message.startswith(name := key.removeprefix("log:")):
                return signature(f"log{message[len(name) :]}", self.subject(number), named=self.names_parts(number))
        return self.signature(number)

    def names_parts(self, number: int) -> bool:
        """Return whether the subject is a switch port, a rank of a job, or a log."""
        check, of_log = self.check(number), f"log:{self.subject(number)}" in self[number]["evidence"]
        return bool(check and (check.switches or "trace" in check.needs or (of_log and self.is_setting(number))))

    def is_part(self, number: int) -> bool:
        """Return whether the subject is a part, as opposed to a setting."""
        return self.names_parts(number) or is_device(self.subject(number))
