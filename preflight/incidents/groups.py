"""Groups of faults with a common cause: a setting, a place, a node or a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.facts.majority import is_majority
from preflight.incidents.faults import NodeFault
from preflight.incidents.findings import Findings
from preflight.incidents.parts import is_device
from preflight.incidents.places import MANY, Places

#: Maximum number of places that are separate causes of a systemic fault; with more, the cause is the fleet.
_PLACES = 2

#: Minimum number of nodes, if they are also most of the nodes, for faults of different parts to have a common cause;
#: also of nodes on which the same thing does not answer. Fewer may fail independently. A judgement call.
_MOST = 6


@dataclass
class Group:
    """Faults with one cause; ``identity`` stays the same as long as the cause lasts."""

    identity: tuple[str, ...]
    faults: list[NodeFault]
    place: str = ""  # title prefix that names the common leaf or rack of the faults


def groups_of(findings: Findings, faults: Iterable[NodeFault]) -> Iterator[Group]:
    """Yield the groups of faults, each fault in one."""
    settings: dict[tuple[str, ...], list[NodeFault]] = {}
    similar: dict[tuple[str, str], list[NodeFault]] = {}
    for fault in faults:
        check, signature = findings[fault.root]["check"], findings.signature(fault.root)
        if findings.is_setting(fault.root):
            subject = "" if findings.is_part(fault.root) else findings.subject(fault.root)
            settings.setdefault(("setting", check, subject, signature), []).append(fault)
        else:
            similar.setdefault((check, signature), []).append(fault)
    shorter = {identity: _lasting(findings, identity, several[0].root) for identity, several in settings.items()}
    same = Counter(shorter.values())
    for identity, several in settings.items():
        yield Group(shorter[identity] if same[shorter[identity]] == 1 else identity, several)
    places = Places(findings)
    for (check, signature), several in similar.items():
        yield from _Similar(findings, places, check, signature).groups(several)


def _lasting(findings: Findings, identity: tuple[str, ...], root: int) -> tuple[str, ...]:
    """Return the identity of a setting without words that may change while it lasts.

    These are names of logs, and in a comparison of the fleet, the message: it depends on whether there is a majority.
    """
    kind, check, subject, _ = identity
    if subject and findings.is_of_fleet(root):
        return kind, check, subject
    return kind, check, subject, findings.lasting_signature(root)


@dataclass
class _Similar:
    """Hardware faults of one check whose messages differ only in figures and devices."""

    findings: Findings
    places: Places
    check: str
    signature: str

    def groups(self, faults: list[NodeFault]) -> Iterator[Group]:
        """Yield the groups with a common cause, then groups of the other faults by part."""
        left = faults
        for group in self._shared(faults):
            left = _without(left, group.faults)
            yield group
        for (node, what), several in _by(left, lambda fault: (fault.node, self._part(fault))).items():
            yield Group(("part", self.check, node, what), several)

    def _part(self, fault: NodeFault) -> str:
        subject = self._subject(fault)
        if not subject or is_device(subject) or self.findings.is_of_switches(fault.root):
            return subject or self.signature
        return f"{subject} {self.signature}"

    def _shared(self, faults: list[NodeFault]) -> Iterator[Group]:
        """Yield groups of faults with a common cause.

        One or two places, and a few of the leaves, take precedence over the fleet: a leaf with 30% of the nodes is
        reported as a leaf.
        """
        at_places, left = self._at_places(faults, ("value", "end", "leaf", "unit", "rack"))
        count = len(at_places)
        if count > _PLACES and self.places.is_systemic(faults) and not self.places.are_few_leaves(count, faults):
            at_places, left = [], faults
        yield from at_places
        of_pods, others = self._at_places(left, ("pod",))
        lost = [fault for group in of_pods for fault in group.faults]
        few = self.places.pods(lost) <= _PLACES or self.places.are_few_leaves(len(of_pods), lost, are_dead=True)
        if few and not self.places.has_one_pod():  # else the port is down in most pods
            yield from of_pods
            left = others
        of_ports, rest = self._at_places(left, ("port",))
        ports = self.findings.parts(left[0].node).compute if left else 0
        if len(of_ports) > _PLACES or len(of_ports) == ports > 1:
            of_ports, rest = ([], left) if self.places.is_systemic(left) else (of_ports, rest)
        yield from of_ports
        of_pods, others = self._at_places(rest, ("pod",))
        if len(of_pods) <= _PLACES:
            yield from of_pods
            rest = others
        if common := self._common(rest):
            subject = _most_common(map(self._subject, common))
            yield Group(("fleet", self.check, subject, self.signature), common)
            rest = _without(rest, common)
        for several in self._same_ports(rest):
            subjects = " ".join(sorted(set(map(self._subject, several))))
            yield Group(("ports", self.check, subjects, self.signature), several)
            rest = _without(rest, several)
        for node, several in _by(rest, _node).items():
            of_switches = self.findings.is_of_switches(several[0].root)
            if len(set(map(self._subject, several))) >= MANY and not of_switches:
                yield Group(("node", self.check, node, self.signature), several)

    def _same_ports(self, faults: list[NodeFault]) -> Iterator[list[NodeFault]]:
        """Yield the faults of nodes that lost the same ports.

        Their leaves failed, or the network of their rack.
        """
        if not faults or self.findings.owner(faults[0].root) != "network":
            return
        ports = {node: frozenset(map(self._subject, several)) for node, several in _by(faults, _node).items()}
        for several in _by(faults, lambda fault: ports[fault.node]).values():
            if len(ports[several[0].node]) > 1 and len(set(map(_node, several))) >= MANY:
                yield several

    def _common(self, faults: list[NodeFault]) -> list[NodeFault]:
        """Return the faults that have a common cause on at least 30% of the nodes.

        Faults of different parts may be independent, and defects are independent even on the same part. Both have a
        common cause only if they are on most of the nodes. Each network port must be down on 30% of the nodes, because
        rails fail one by one. Unknown results, such as those of a hanging driver, have a common cause if there are at
        least six nodes, even if these are fewer than 30%.
        """
        nodes = len({fault.node for fault in faults})
        if nodes >= _MOST and all(self.findings[fault.root]["status"] == "unknown" for fault in faults):
            return faults
        if not self.places.is_systemic(faults):
            return []
        network = self.findings.owner(faults[0].root) == "network"
        shared = [
            fault
            for several in _by(faults, self._subject).values()
            if len({fault.node for fault in several}) >= MANY and not self.findings.is_defect(several[0].root)
            and (not network or self.places.is_systemic(several))
            for fault in several
        ]  # fmt: skip
        if shared and not network:  # GPUs get hot together
            sharing = {fault.node for fault in shared}
            shared = [fault for fault in faults if fault.node in sharing]
        if self.places.is_systemic(shared):
            return sorted(shared, key=lambda fault: fault.root)
        return faults if nodes >= _MOST and is_majority(nodes, len(self.findings.nodes)) else []

    def _at_places(self, faults: list[NodeFault], kinds: Collection[str]) -> tuple[list[Group], list[NodeFault]]:
        """Return a group for each place that faults share, and the other faults."""
        groups, left = list[Group](), faults
        taken = set[tuple[str, str]]()
        for kind, key in self.places.kinds(faults) if faults else ():
            by_name = _by(left, key) if kind in kinds else {}
            for name, several in sorted(by_name.items(), key=lambda group: -len(group[1])):
                if name and self.places.is_shared(kind, name, several, len(left)):
                    place, where = self.places.identity(kind, name, several)
                    if (place, where) in taken:
                        place, where = kind, name
                    taken.add((place, where))
                    prefix = self.places.prefix(kind, name, several)
                    groups.append(Group((place, self.check, where, self.signature), several, prefix))
                    left = _without(left, several)
        return groups, left

    def _subject(self, fault: NodeFault) -> str:
        return self.findings.subject(fault.root)


def _node(fault: NodeFault) -> str:
    return fault.node


def _by(faults: Iterable[NodeFault], key: Callable[[NodeFault], Any]) -> dict[Any, list[NodeFault]]:
    groups: dict[Any, list[NodeFault]] = {}
    for fault in faults:
        groups.setdefault(key(fault), []).append(fault)
    return groups


def _without(faults: Iterable[NodeFault], taken: Iterable[NodeFault]) -> list[NodeFault]:
    ids = set(map(id, taken))
    return [fault for fault in faults if id(fault) not in ids]


def _most_common(subjects: Iterable[str]) -> str:
    """Return the subject of more than half of the faults; empty if there is none."""
    counts = Counter(subjects)
    subject, count = counts.most_common(1)[0]
    return subject if 2 * count > counts.total() else ""
