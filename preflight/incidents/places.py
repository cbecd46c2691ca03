"""Places that similar faults share: a value, a switch, a leaf, a rack, a port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from preflight.facts.majority import systemic
from preflight.incidents.cabling import Cabling, pods_of
from preflight.incidents.faults import NodeFault
from preflight.incidents.findings import Findings
from preflight.incidents.parts import device_of, session_ends
from preflight.model import Scope

#: Minimum number of similar faults for a common cause: on the same port of this many nodes, on this many parts of a
#: node, on ports of this many nodes at one leaf, or on this many nodes that are at least half of a rack. Two cables may
#: fail independently. A judgement call.
MANY = 3

#: Minimum number of faults of one port that are not chance, if it has three times the average of all ports.
_FAR_FROM_CHANCE = 6

#: Maximum number of leaves that are separate causes of faults on 30% of the nodes; more of them fail together.
_FEW_LEAVES = 5

#: Title prefix that names the common place of similar faults.
_WHERE = {
    "leaf": "all on {}: ",
    "unit": "all on {}: ",
    "rack": "all in rack {}: ",
    "end": "all with {}: ",
    "pod": "pod of {}: ",
}

#: Maximum number of ports of a node whose leaves fail one by one; more of them fail together. A judgement call.
FEW_PORTS = 2

#: Maximum length of a place's name in a title: in a table, the fault must be visible after it.
_LONGEST = 24

#: Title prefix if the leaf of a port is inferred from the cables of peers.
_LIKELY = "all on {}, inferred from the cables of their peers: "


class Places:
    """The places in a report at which similar faults have a common cause."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._cabling: Cabling | None = None
        self._pods: dict[str, str] | None = None  # leaf -> its pod
        self._members = {
            place: Counter(node[key] for node in findings.nodes.values() if key in node)
            for place, key in (("rack", "rack"), ("unit", "leaf"))
        }

    def kinds(self, faults: Sequence[NodeFault]) -> Iterator[tuple[str, Callable[[NodeFault], str]]]:
        """Yield each kind of place that faults may share, and a function for its name."""
        root = faults[0].root
        declared, network = self._findings.check(root), self._findings.owner(root) == "network"
        if declared and declared.scope is Scope.FLEET:
            yield "value", self._value
        if network:
            sessions = Counter(end for fault in faults for end in self._ends(fault) * self._sessions(fault))
            yield "end", lambda fault: max(self._ends(fault), key=lambda end: sessions[end], default="")
            yield "leaf", self._leaf
            down: dict[str, set[str]] = {}
            for fault in faults:
                down.setdefault(fault.node, set()).add(self._subject(fault))
            yield "unit", lambda fault: self._unit(fault, down[fault.node])
        if not self._findings.is_defect(root):
            yield "rack", lambda fault: str(self._findings.nodes.get(fault.node, {}).get("rack", ""))
        if network:
            yield "pod", lambda fault: self._pod(fault, down[fault.node])
            # a port whose leaf still serves other nodes is not part of a dead leaf or rail
            yield "port", lambda fault: "" if self._leaf(fault) else self._subject(fault)

    def is_shared(self, kind: str, name: str, faults: Sequence[NodeFault], alike: int) -> bool:
        """Return whether faults at one place are too many to be a coincidence.

        ``alike`` is the number of similar faults, including those elsewhere.
        """
        if kind == "end":
            return len(faults) > 1 and sum(map(self._sessions, faults)) >= MANY
        of_switches = self._findings.is_of_switches
        nodes = len({self._subject(fault) if of_switches(fault.root) else fault.node for fault in faults})
        if kind == "port" and not self.is_systemic(faults) and self._is_coincidence(faults, alike):
            return False
        if kind in self._members:
            return nodes >= MANY and 2 * nodes >= self._members[kind][name.partition(" ")[0]]
        return nodes >= MANY

    def _is_coincidence(self, faults: Sequence[NodeFault], alike: int) -> bool:
        """Return whether faults of one port may be chance, given those of other ports."""
        ports = self._findings.parts(faults[0].node).compute
        return 2 * len(faults) < alike and (len(faults) < _FAR_FROM_CHANCE or len(faults) * ports < 3 * alike)

    def is_systemic(self, faults: Iterable[NodeFault]) -> bool:
        """Return whether faults are on at least 30% of the nodes, and at least three."""
        return systemic(len({fault.node for fault in faults}), len(self._findings.nodes))

    def are_few_leaves(self, count: int, faults: Iterable[NodeFault], *, are_dead: bool = False) -> bool:
        """Return whether only a few of the leaves have faults.

        ``count`` is the number of leaves with faults, at most five. It must be lower than the number of leaves on which
        such a port is live, or than that of the declared leaves without faults. If the leaves with faults ``are_dead``
        (none of their ports is live), they may be half of all leaves.
        """
        subjects = set(map(self._subject, faults))
        nodes = [self._findings.parts(node) for node in self._findings.nodes]
        live = {leaf for node in nodes for subject in subjects if (leaf := node.leaf(subject))}
        declared = len(subjects) * len(self._members["unit"])
        return count <= _FEW_LEAVES and count < max(len(live), declared - count) + are_dead

    def has_one_pod(self) -> bool:
        """Return whether at most one pod of the fleet is known."""
        return len(set(self._all_pods().values())) <= 1

    def pods(self, faults: Iterable[NodeFault]) -> int:
        """Return the number of pods of faults at pods."""
        return len({self._pod_of(min(self._findings.parts(fault.node).compute_leaves)) for fault in faults})

    def identity(self, kind: str, name: str, faults: Sequence[NodeFault]) -> tuple[str, str]:
        """Return the kind and name that identify the faults at a place.

        A leaf that was inferred from peers is unknown once the last peer has lost the port too. Such faults are
        therefore identified by the port and by a leaf to which these nodes are still connected; faults in several pods,
        by the port alone.
        """
        subject = self._subject(faults[0])
        of_port = kind in ("pod", "port") or not self._is_sure(kind, faults)
        if not of_port or {subject} != set(map(self._subject, faults)):
            return kind, name
        live = {leaf for fault in faults for leaf in self._findings.parts(fault.node).compute_leaves}
        one_pod = len({self._pod_of(leaf) for leaf in live}) == 1
        return ("pod", f"{min(live)} {subject}") if one_pod else ("port", subject)

    def prefix(self, kind: str, name: str, faults: Iterable[NodeFault]) -> str:
        """Return the title prefix that names a place; may be empty."""
        name = name.partition(" ")[0] if kind in ("unit", "pod") else name
        short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        return (_WHERE.get(kind, "") if self._is_sure(kind, faults) else _LIKELY).format(short)

    def _subject(self, fault: NodeFault) -> str:
        return self._findings.subject(fault.root)

    def _value(self, fault: NodeFault) -> str:
        return f"{self._subject(fault)} {self._findings[fault.root]['found'] or ''}".strip()

    def _ends(self, fault: NodeFault) -> list[str]:
        return session_ends(self._findings[fault.root])

    def _sessions(self, fault: NodeFault) -> int:
        """Return the number of sessions of a fault that one of their two switches reports."""
        root = self._findings[fault.root]
        members = (self._findings[number] for number in fault.members)
        return sum(member["check"] == root["check"] and device_of(member) == device_of(root) for member in members)

    def _leaf(self, fault: NodeFault) -> str:
        if self._findings.is_of_switches(fault.root):
            switch, _, port = self._subject(fault).partition(" ")
            return switch if port and not switch.endswith(",") else ""
        if leaf := self._known_leaf(fault):
            return leaf
        if self._cabling is None:
            self._cabling = Cabling.of(map(self._findings.parts, self._findings.nodes))
        return self._cabling.leaf(self._findings.parts(fault.node), self._subject(fault))

    def _unit(self, fault: NodeFault, ports: Collection[str]) -> str:
        """Return the declared leaf and port of a port that shows no leaf; may be empty.

        On a rail-optimised fabric, a declared leaf is a group of leaves: one for each port. If more than two ports of
        the node are down, or all, the group failed together, and all of these ports are named.
        """
        leaf = self._findings.nodes.get(fault.node, {}).get("leaf", "")
        return "" if not leaf or self._leaf(fault) else self._with_ports(leaf, fault, ports)

    def _pod(self, fault: NodeFault, ports: Collection[str]) -> str:
        """Return the pod of a port that shows no leaf, with its port or all that are down."""
        leaves = self._findings.parts(fault.node).compute_leaves
        return self._with_ports(self._pod_of(min(leaves)), fault, ports) if leaves and not self._leaf(fault) else ""

    def _pod_of(self, leaf: str) -> str:
        return self._all_pods()[leaf]

    def _all_pods(self) -> Mapping[str, str]:
        if self._pods is None:
            nodes = [self._findings.parts(node) for node in self._findings.nodes]
            self._pods = pods_of(nodes)
            self._members["pod"] = Counter(
                self._pods[min(node.compute_leaves)] for node in nodes if node.compute_leaves
            )
        return self._pods

    def _with_ports(self, place: str, fault: NodeFault, ports: Collection[str]) -> str:
        few = len(ports) <= FEW_PORTS and len(ports) != self._findings.parts(fault.node).compute
        return " ".join((place, self._subject(fault))) if few else " ".join((place, *sorted(ports)))

    def _known_leaf(self, fault: NodeFault) -> str:
        """Return the leaf that LLDP names for a port, or for all ports of the node."""
        node, subject = self._findings.parts(fault.node), self._subject(fault)
        return node.leaf(subject) if subject else node.leaf_of_all()

    def _is_sure(self, kind: str, faults: Iterable[NodeFault]) -> bool:
        """Return whether the place of faults is known rather than inferred."""
        of_switches = self._findings.is_of_switches
        return kind != "leaf" or all(of_switches(fault.root) or self._known_leaf(fault) for fault in faults)
