"""Findings of a report joined into incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.facts.majority import is_majority, systemic
from preflight.incidents.cabling import Cabling
from preflight.incidents.cost import cost_of, gpus_of
from preflight.incidents.order import action_of, impact_of, owner_of, sort_key
from preflight.incidents.parts import (
    Parts,
    device_of,
    ends_of,
    is_device,
    session_ends,
    signature,
)
from preflight.incidents.relations import Relations
from preflight.incidents.titles import title
from preflight.model import IMPACTS, SHADOW, Check, Scope

#: Minimum number of similar faults for a common cause: on the same port of this many nodes, on this many parts of a
#: node, on ports of this many nodes at one leaf, or on this many nodes that are at least half of a rack. Two cables may
#: fail independently. A judgement call.
MANY = 3

#: Maximum number of places that are separate causes of a systemic fault; with more, the cause is the fleet.
_PLACES = 2

#: Minimum number of nodes, if they are also most of the nodes, for faults of different parts to have a common cause.
#: Fewer may fail independently. A judgement call.
_MOST = 6

#: Title prefix that names the common place of similar faults.
_WHERE = {"leaf": "all on {}: ", "rack": "all in rack {}: ", "end": "all with {}: "}

#: The same, if the leaf of a port is inferred from the cables of peers.
_LIKELY = "all on {}, inferred from the cables of their peers: "

#: Actions that correct a setting: the same wrong setting on several nodes comes from one place.
_SETTINGS = ("fix-job", "fix-site")

Document = Mapping[str, Any]


def incidents(report: Mapping[str, Any], checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the incidents of a report, most severe first, without waived causes."""
    findings: list[Document] = report["findings"]
    if not any(finding["status"] in ("fail", "warn") for finding in findings):
        return []
    joined = _Joined(report, checks)
    return sorted(joined.documents(), key=sort_key)


@dataclass
class _Fault:
    """An unexplained finding on one node, with the findings it explains there."""

    root: int
    node: str
    members: frozenset[int]
    far: frozenset[str] = frozenset()  # nodes at the other end of its cable


@dataclass
class _Incident:
    """Faults with one cause; ``identity`` stays the same as long as the cause lasts."""

    identity: tuple[str, ...]
    faults: list[_Fault] = field(default_factory=list)
    place: str = ""  # title prefix that names the common leaf or rack of the faults


class _Joined:
    def __init__(self, report: Mapping[str, Any], checks: Sequence[Check]) -> None:
        self._findings: list[Document] = report["findings"]
        self._checks = {check.id: check for check in checks}
        self._relations = Relations(checks, self._findings)
        self._nodes = {node["name"]: node for node in report["nodes"]}
        self._parts: dict[str, Parts] = {}
        self._alike: dict[int, str] = {}
        self._cabling: Cabling | None = None
        self._gpus = gpus_of(self._nodes)
        self._in_rack = Counter(node["rack"] for node in report["nodes"] if "rack" in node)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the incidents, unsorted."""
        for incident in self._grouped(self._faults()):
            yield self._document(incident)

    def _parts_of(self, node: str) -> Parts:
        if node not in self._parts:
            self._parts[node] = Parts.of(self._nodes.get(node, {}))
        return self._parts[node]

    def _faults(self) -> list[_Fault]:
        """Return the unexplained faults of all nodes, in the order of the findings."""
        on: dict[str, list[int]] = {}
        for number, finding in enumerate(self._findings):
            if finding["status"] in ("fail", "warn", "unknown"):
                for node in finding["nodes"]:
                    on.setdefault(node, []).append(number)
        faults = [
            _Fault(root, node, members)
            for node, numbers in on.items()
            if any(self._findings[number]["status"] != "unknown" for number in numbers)
            for root, members in self._relations.roots(
                {number: self._findings[number] for number in numbers}, self._parts_of(node)
            ).items()
            if not self._accepted(root, members)
        ]
        return self._with_logs(self._with_cables(sorted(faults, key=lambda fault: fault.root)))

    def _with_logs(self, faults: list[_Fault]) -> list[_Fault]:
        """Move log findings to the faults that caused them; return the remaining faults."""
        within: dict[int, list[_Fault]] = {}
        for fault in faults:
            for number in fault.members if not self._of_log(fault) else ():
                within.setdefault(number, []).append(fault)
        causes = {number: self._findings[number] for number in sorted(within)}
        left = []
        for fault in faults:
            findings = self._of_log(fault)
            alone = [number for number in findings if not self._at_cause(fault, number, findings, within, causes)]
            if findings and alone:
                fault.root, fault.members = min(alone), fault.members - (findings - set(alone))
            if alone or not findings:
                left.append(fault)
        return left

    def _of_log(self, fault: _Fault) -> set[int]:
        """Return the root findings of a log's fault; none if they name no cause.

        These have the check and subject of the root. Findings that the root explains are left out.
        """
        root, parts = self._findings[fault.root], self._parts_of(fault.node)
        same = {
            number for number in fault.members
            if (self._findings[number]["check"], self._findings[number]["subject"]) == (root["check"], root["subject"])
            and (number == fault.root or not self._relations.explains(root, self._findings[number], parts))
        }  # fmt: skip
        return same if any("cause" in self._findings[number] for number in same) else set()

    def _at_cause(
        self, fault: _Fault, number: int, same: set[int], within: Mapping[int, list[_Fault]],
        causes: Mapping[int, Document],
    ) -> bool:  # fmt: skip
        """Add a log's finding to the faults that caused it; return whether there are any."""
        finding = self._findings[number]
        homes = [
            home for named in self._relations.of_logs(finding, causes) for home in within[named]
            if not home.far.union((home.node,)).isdisjoint(finding["cause"]["nodes"])
        ]  # fmt: skip
        for home in homes:
            home.members |= fault.members - (same - {number})
        return bool(homes)

    def _with_cables(self, faults: list[_Fault]) -> list[_Fault]:
        """Join faults of switches with those of the hosts cabled to them."""
        of_switches = [fault for fault in faults if self._is_of_switches(fault.root)]
        if not of_switches:
            return faults
        at: dict[str, list[_Fault]] = {}
        for fault in faults:
            if not self._is_of_switches(fault.root):
                for end in self._parts_of(fault.node).ends(fault.node, self._subject(fault)):
                    at.setdefault(end, []).append(fault)
        explained: set[int] = set()
        homes: dict[int, _Fault] = {}  # id of a switch's fault -> the fault that explains it
        facing = [
            (there, here)
            for there in of_switches
            for here in {
                id(here): here for end in ends_of(self._findings[there.root]) for here in at.get(end, ())
            }.values()
        ]
        for there, here in facing:
            effect = self._findings[there.root]
            if any(self._relations.at_cable(self._findings[number], effect) for number in here.members):
                here.members |= there.members
                homes[id(there)] = here
                explained.add(id(there))
        for there, here in facing:
            home = homes.get(id(there), there)
            if home is not here and self._relations.at_cable(self._findings[there.root], self._findings[here.root]):
                home.members |= here.members
                home.far |= {here.node}
                explained.add(id(here))
        return [fault for fault in faults if id(fault) not in explained]

    def _is_of_switches(self, number: int) -> bool:
        """Return whether a finding is about Ethernet switches and their ports."""
        check = self._checks.get(self._findings[number]["check"])
        return bool(check and check.switches)

    def _names_parts(self, number: int) -> bool:
        """Return whether the subject is a switch port, a rank of a job, or a log."""
        finding = self._findings[number]
        check = self._checks.get(finding["check"])
        of_log = self._is_setting(finding) and f"log:{finding['subject']}" in finding["evidence"]
        return bool(check and (check.switches or "trace" in check.needs or of_log))

    def _is_part(self, number: int) -> bool:
        return self._names_parts(number) or is_device(self._findings[number]["subject"])

    def _accepted(self, root: int, members: Iterable[int]) -> bool:
        """Return whether a cause and all failures that it explains are waived."""
        return _waived(self._findings[root]) and all(
            self._findings[number]["status"] != "fail" or _waived(self._findings[number]) for number in members
        )

    # --- the same on many nodes ------------------------------------------------------------------

    def _grouped(self, faults: Iterable[_Fault]) -> Iterator[_Incident]:
        """Group faults into incidents: by setting, common place, node or part."""
        settings: dict[tuple[str, ...], _Incident] = {}
        parts: dict[tuple[str, str], list[_Fault]] = {}
        for fault in faults:
            finding, alike = self._findings[fault.root], self._signature(fault.root)
            if self._is_setting(finding):
                subject = "" if self._is_part(fault.root) else finding["subject"]
                identity = ("setting", finding["check"], subject, alike)
                settings.setdefault(identity, _Incident(identity)).faults.append(fault)
            else:
                parts.setdefault((finding["check"], alike), []).append(fault)
        yield from settings.values()
        for (check, alike), several in parts.items():
            yield from self._of_parts(check, alike, several)

    def _of_parts(self, check: str, alike: str, faults: list[_Fault]) -> Iterator[_Incident]:
        left = faults
        for incident in self._shared(check, alike, faults):
            taken = set(map(id, incident.faults))
            left = [fault for fault in left if id(fault) not in taken]
            yield incident
        single: dict[tuple[str, ...], _Incident] = {}
        for fault in left:
            finding = self._findings[fault.root]
            what = finding["subject"] or alike
            if what and not is_device(what) and not self._is_of_switches(fault.root):
                what = alike if not finding["subject"] else f"{finding['subject']} {alike}"
            identity = ("part", check, fault.node, what)
            single.setdefault(identity, _Incident(identity)).faults.append(fault)
        yield from single.values()

    def _shared(self, check: str, alike: str, faults: list[_Fault]) -> Iterator[_Incident]:
        """Yield groups of faults with a common cause, each fault once.

        One or two places take precedence over the fleet: a leaf with 30 % of the nodes is reported as a leaf.
        """
        at_places, left = self._at_places(check, alike, faults, ("value", "end", "leaf", "rack"))
        if self._is_systemic(faults) and len(at_places) > _PLACES:
            at_places, left = [], faults
        yield from at_places
        of_ports, rest = self._at_places(check, alike, left, ("port",))
        if len(of_ports) > _PLACES or (len(of_ports) > 1 and len(of_ports) == self._parts_of(left[0].node).compute):
            of_ports, rest = ([], left) if self._is_systemic(left) else (of_ports, rest)
        yield from of_ports
        if common := self._common(check, rest):
            yield _Incident(("fleet", check, _most_common(map(self._subject, common)), alike), common)
            taken = set(map(id, common))
            rest = [fault for fault in rest if id(fault) not in taken]
        for node, several in _by(rest, lambda fault: fault.node).items():
            if len({self._subject(fault) for fault in several}) >= MANY and not self._is_of_switches(several[0].root):
                yield _Incident(("node", check, node, alike), several)

    def _common(self, check: str, faults: list[_Fault]) -> list[_Fault]:
        """Return the faults whose cause is the fleet: on 30 % of the nodes.

        Faults of different parts may be independent; they have a common cause only if they are on most of the nodes.
        """
        nodes = {fault.node for fault in faults}
        if not self._is_systemic(faults):
            return []
        shared = [
            fault
            for several in _by(faults, self._subject).values()
            if len({fault.node for fault in several}) >= MANY
            for fault in several
        ]
        if shared and self._owner(check, shared[0]) != "network":  # ports fail one by one, but GPUs get hot together
            sharing = {fault.node for fault in shared}
            shared = [fault for fault in faults if fault.node in sharing]
        if self._is_systemic(shared):
            return sorted(shared, key=lambda fault: fault.root)
        return faults if len(nodes) >= _MOST and is_majority(len(nodes), len(self._nodes)) else []

    def _is_systemic(self, faults: Iterable[_Fault]) -> bool:
        return systemic(len({fault.node for fault in faults}), len(self._nodes))

    def _at_places(
        self, check: str, alike: str, faults: list[_Fault], kinds: Collection[str]
    ) -> tuple[list[_Incident], list[_Fault]]:
        """Return an incident for each place that similar faults share, and the other ones."""
        incidents, left = [], faults
        on = Counter(map(self._subject, faults))
        for kind, key in self._places(check, faults) if faults else ():
            groups = _by(left, key) if kind in kinds else {}
            for name, several in sorted(groups.items(), key=lambda group: -len(group[1])):
                if name and self._is_shared(kind, name, several, len(left)):
                    place = (kind, name) if self._is_sure(kind, several) else self._port_of(name, several, on)
                    identity = (place[0], check, place[1], alike)
                    incidents.append(_Incident(identity, several, self._where(kind, name, several)))
                    taken = set(map(id, several))
                    left = [fault for fault in left if id(fault) not in taken]
        return incidents, left

    def _places(self, check: str, faults: Sequence[_Fault]) -> Iterator[tuple[str, Callable[[_Fault], str]]]:
        """Yield each kind of place that faults may share, and a function for its name."""
        declared = self._checks.get(check)
        if declared and declared.scope is Scope.FLEET:
            yield "value", self._value
        network = self._owner(check, faults[0]) == "network"
        if network:
            sessions = Counter(
                end for fault in faults for end in session_ends(self._findings[fault.root]) * self._sessions(fault)
            )
            yield (
                "end",
                lambda fault: max(session_ends(self._findings[fault.root]), key=lambda end: sessions[end], default=""),
            )
            yield "leaf", self._leaf
        yield "rack", self._rack
        if network:
            yield "port", self._subject

    def _is_shared(self, kind: str, name: str, faults: list[_Fault], alike: int) -> bool:
        """Return whether faults at one place are too many to be a coincidence."""
        nodes = len({self._subject(fault) if self._is_of_switches(fault.root) else fault.node for fault in faults})
        if kind == "port" and 2 * len(faults) <= alike and not self._is_systemic(faults):
            return False
        if kind == "end":
            return len(faults) > 1 and sum(map(self._sessions, faults)) >= MANY
        return nodes >= MANY and (kind != "rack" or 2 * nodes >= self._in_rack[name])

    def _sessions(self, fault: _Fault) -> int:
        """Return the number of sessions of a fault at one of their two switches."""
        root = self._findings[fault.root]
        members = (self._findings[number] for number in fault.members)
        return sum(member["check"] == root["check"] and device_of(member) == device_of(root) for member in members)

    def _signature(self, number: int) -> str:
        if number not in self._alike:
            finding = self._findings[number]
            named = self._names_parts(number)
            self._alike[number] = signature(finding["message"], finding["subject"], named=named)
        return self._alike[number]

    def _is_setting(self, finding: Document) -> bool:
        check = self._checks.get(finding["check"])
        return not (check and check.separate) and action_of(check, finding) in _SETTINGS

    def _owner(self, check: str, fault: _Fault) -> str:
        declared, finding = self._checks.get(check), self._findings[fault.root]
        return owner_of(declared, action_of(declared, finding), finding.get("owner", ""))

    def _value(self, fault: _Fault) -> str:
        finding = self._findings[fault.root]
        return f"{finding['subject']} {finding['found'] or ''}".strip()

    def _rack(self, fault: _Fault) -> str:
        return str(self._nodes.get(fault.node, {}).get("rack", ""))

    def _leaf(self, fault: _Fault) -> str:
        node, subject = self._parts_of(fault.node), self._subject(fault)
        if self._is_of_switches(fault.root):
            switch, _, port = subject.partition(" ")
            return switch if port and not switch.endswith(",") else ""
        return self._known_leaf(fault) or self._likely_leaf(node, subject)

    def _known_leaf(self, fault: _Fault) -> str:
        """Return the leaf that LLDP names for a port, or for all ports of the node."""
        node, subject = self._parts_of(fault.node), self._subject(fault)
        return node.leaf(subject) if subject else node.leaf_of_all()

    def _likely_leaf(self, node: Parts, subject: str) -> str:
        if self._cabling is None:
            self._cabling = Cabling.of(map(self._parts_of, self._nodes))
        return self._cabling.leaf(node, subject)

    def _is_sure(self, kind: str, faults: Iterable[_Fault]) -> bool:
        """Return whether the place of faults is known rather than inferred."""
        return kind != "leaf" or all(self._is_of_switches(fault.root) or self._known_leaf(fault) for fault in faults)

    def _port_of(self, leaf: str, faults: Sequence[_Fault], alike: Mapping[str, int]) -> tuple[str, str]:
        """Return the kind and name that identify the faults at an inferred leaf.

        The leaf is unknown once the last peer has lost the port too. So if this port is down at no other leaf, the port
        identifies them.
        """
        subject = self._subject(faults[0])
        here = sum(self._subject(fault) == subject for fault in faults)
        return ("port", subject) if here == alike[subject] == len(faults) else ("leaf", leaf)

    def _where(self, kind: str, name: str, faults: Iterable[_Fault]) -> str:
        """Return the title prefix that names the place of the faults; may be empty."""
        return (_WHERE.get(kind, "") if self._is_sure(kind, faults) else _LIKELY).format(name)

    def _subject(self, fault: _Fault) -> str:
        return str(self._findings[fault.root]["subject"])

    # --- the document ----------------------------------------------------------------------------

    def _title(self, incident: _Incident, roots: Sequence[int], subjects: Sequence[str]) -> str:
        """Return the message of the cause, with the figures and number of all parts."""
        first, is_part = self._findings[roots[0]], self._is_part(roots[0])
        several = roots if not self._is_setting(first) and not self._names_parts(roots[0]) else roots[:1]
        parts = {(fault.node, self._subject(fault)) for fault in incident.faults}
        others = len(parts) - 1 if is_part and len(subjects) > 1 else 0
        return title(first, [str(self._findings[number]["message"]) for number in several], others)

    def _document(self, incident: _Incident) -> dict[str, Any]:
        roots = sorted({fault.root for fault in incident.faults})
        effects = frozenset().union(*(fault.members for fault in incident.faults)) - set(roots)
        members = [*roots, *sorted(effects)]  # the cause first
        first = self._findings[roots[0]]
        loud = [self._findings[number] for number in members if self._findings[number]["status"] in ("fail", "warn")]
        impacts = [
            impact_of(self._checks.get(finding["check"]), finding["status"], finding.get("impact", ""))
            for finding in loud
        ]
        nodes = {name for fault in incident.faults for name in (fault.node, *fault.far)}
        listed = [name for name in self._nodes if name in nodes] + sorted(nodes - self._nodes.keys())
        subjects = [name for name in dict.fromkeys(self._findings[number]["subject"] for number in roots) if name]
        return {
            "fingerprint": sha256("\0".join(incident.identity).encode("utf-8", "surrogatepass")).hexdigest()[:12],
            "title": incident.place + self._title(incident, roots, subjects),
            "status": "fail" if any(finding["status"] == "fail" for finding in loud) else "warn",
            "impact": min(impacts, key=IMPACTS.index),
            "cost": cost_of(loud, listed, self._nodes, self._gpus),
            "owner": self._owner(first["check"], incident.faults[0]),
            "nodes": listed,
            "subjects": subjects,
            "findings": members,
            "first_seen": None,
            "next": first["fix"],
        }  # fmt: skip


def _waived(finding: Document) -> bool:
    """Return whether a waiver covers a finding; shadow is not a waiver."""
    return finding["status"] == "warn" and finding.get("excused", "") not in ("", SHADOW)


def _by(faults: Iterable[_Fault], key: Any) -> dict[str, list[_Fault]]:
    groups: dict[str, list[_Fault]] = {}
    for fault in faults:
        groups.setdefault(key(fault), []).append(fault)
    return groups


def _most_common(subjects: Iterable[str]) -> str:
    """Return the subject of more than half of the faults; empty if there is none."""
    counts = Counter(subjects)
    subject, count = counts.most_common(1)[0]
    return subject if 2 * count > counts.total() else ""
