"""Selection of the nodes that vote on a value.

The node's own checks run first. If one of them fails or warns, or a value is not the declared one, the node does not
vote: of eight nodes, five of which miss the declared MTU, three vote. The value of most voters is the usual value,
which may still be wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.checks.comparison import declared_values
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.majority import Vote, near, vote
from preflight.facts.node import NodeFacts
from preflight.model import Check, Status

#: Reads a value; None if the node has none.
Read = Callable[[NodeFacts, Site], "str | float | None"]

#: Returns the checks that expect another value of the node; empty if there are none.
Misses = Callable[[NodeFacts, Site], "tuple[str, ...]"]

#: Description of the expectation where the cluster file declares no value.
ONE_VALUE = "one value on all nodes of a kind"


@dataclass(frozen=True)
class Trait:
    """One value that should be equal on nodes of a kind."""

    what: str
    key: str  # the record that shows it
    read: Read
    breaks: bool = False  # whether a difference breaks, hangs or slows a job: fails instead of warns
    judged_by: tuple[Check, ...] = ()  # node checks of the value: if one fails or warns, the node does not vote
    misses: Misses | None = None  # like ``judged_by``, for checks that judge more than this value
    each: bool = False  # one item per device; each is compared separately, and a node may lack some
    items: str = ""  # separator of the parts of a long value; only parts that differ are shown
    alone: bool = True  # whether the value depends on this node alone, not also on other nodes
    tolerance: float = 0.0  # relative tolerance of numbers
    unit: str = ""
    expects: str = ""  # class key that declares the value: "versions.driver"; "rails.*.leaf" for each device
    form: Callable[[Any], str] = str  # converts a declared value to the reported form
    required: bool = False  # whether a missed declaration fails although a mere difference warns
    part: bool = False  # whether it is a hardware part, which needs a repair rather than a setting

    @property
    def action(self) -> str:
        """Action for a difference; empty for the check's own action."""
        return "monitor" if self.part and not self.breaks else ""


@dataclass(frozen=True)
class Electorate:
    """Readings of one value on the nodes of one kind."""

    values: Mapping[str, str]  # node -> value, for nodes that vote
    apart: Mapping[str, str]  # node -> value, for nodes without the expected value
    reported_by: Mapping[str, tuple[str, ...]]  # node -> the checks that expected another value
    unread: Mapping[str, EvidenceError]

    @property
    def shown(self) -> bool:
        """Whether any node has a value."""
        return bool(self.values or self.apart)

    @property
    def result(self) -> Vote:
        """The result of the vote."""
        return vote(self.values.items())


def kinds(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> list[list[NodeFacts]]:
    """Group the nodes by class and part; only nodes of one group are compared."""
    found: dict[tuple[str, str], list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        site = sites[node.node]
        found[site.class_name, site.part.name if site.part else ""].append(node)
    return list(found.values())


def poll(trait: Trait, members: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Electorate:
    """Read a value on all nodes of a kind; a node without a reading does not vote."""
    values: dict[str, str] = {}
    numbers: dict[str, float] = {}
    unread: dict[str, EvidenceError] = {}
    missed: dict[str, tuple[str, ...]] = {}
    for node in members:
        try:
            value, by = standing(trait, node, sites[node.node])
        except EvidenceError as error:
            unread[node.node] = error
            continue
        if by:
            missed[node.node] = by
        if isinstance(value, str):
            values[node.node] = declared_values.compared(trait, value, sites[node.node])
        elif value is not None:
            numbers[node.node] = value
    for name, number in near(numbers, trait.tolerance).items():
        values[name] = f"{number:.5g} {trait.unit}".strip()
    order = [node.node for node in members if node.node in values]
    return Electorate(
        {name: values[name] for name in order if name not in missed},
        {name: values[name] for name in order if name in missed}, missed, unread,
    )  # fmt: skip


def standing(trait: Trait, node: NodeFacts, site: Site) -> tuple[str | float | None, tuple[str, ...]]:
    """Return a node's value, and the checks that expected another one.

    Raises EvidenceError.
    """

    def read_standing() -> tuple[str | float | None, tuple[str, ...]]:
        value = trait.read(node, site)
        if value is None:
            return None, ()
        by = failing(trait.judged_by, node, site) + (trait.misses(node, site) if trait.misses else ())
        return value, by + ((declared_values.CHECK,) if declared_values.misses(trait, value, site) else ())

    return node.remember_for_fleet(f"trait {trait.what}", read_standing) if trait.alone else read_standing()


def failing(checks: Sequence[Check], node: NodeFacts, site: Site, subject: str = "") -> tuple[str, ...]:
    """Return the ids of the checks that fail or warn on a node.

    With a subject, only findings on that subject count.
    """
    hit = {check.id: subjects(check, node, site) for check in checks}
    return tuple(id for id, found in hit.items() if found and (not subject or subject in found))


def subjects(check: Check, node: NodeFacts, site: Site) -> frozenset[str]:
    """Return the subjects on which a check fails or warns.

    Results that the judge already has are reused.
    """
    if check.id not in node.failing:
        hit = set()
        try:
            for finding in check.findings(node, site):
                if finding.status in (Status.FAIL, Status.WARN):
                    hit.add(finding.subject)
        except EvidenceError:
            pass
        node.failing[check.id] = frozenset(hit)
    return node.failing[check.id]
