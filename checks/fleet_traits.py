"""Comparing many values across nodes: one finding for each value that differs, the rest folded into one pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.fleet import Vote, near, vote
from preflight.lean import dataclass, field
from preflight.model import Check, Finding, Status, failed, passed, skipped, unknown, warned

#: What a value is read by; None: there is none on this node.
Read = Callable[[NodeFacts, Site], "str | float | None"]

#: Characters of a value that a sentence shows.
_SHOWN = 90


@dataclass(frozen=True)
class Trait:
    """One value that nodes of a kind should have alike."""

    what: str
    key: str  # the record that shows it
    read: Read
    breaks: bool = False  # whether a job breaks, hangs or computes on less where it differs: fails instead of warns
    told_by: tuple[Check, ...] = ()  # checks of a node: where one of them tells of the node, no word is said again
    told: Callable[[NodeFacts, Site], bool] | None = None  # whether a check of the node speaks of it, for sure
    each: bool = False  # its items are of devices: each is compared by itself, and a node may lack some
    items: str = ""  # what separates the parts of a long value: only those that differ are shown
    alone: bool = True  # read of a node by itself; else what the other nodes have decides, too
    tolerance: float = 0.0  # share within which numbers count as equal
    unit: str = ""


@dataclass(frozen=True)
class _Told:
    """What the nodes of one kind told of one value."""

    values: Mapping[str, str]  # node -> value
    unread: Mapping[str, EvidenceError] = field(default_factory=dict)


def compare(nodes: Sequence[NodeFacts], sites: Mapping[str, Site], traits: Sequence[Trait]) -> Iterator[Finding]:
    """Compare the traits across the nodes of each class and part.

    A node on which a value could not be read does not vote, and is unknown. A value that no node of a kind shows is
    named in the pass; it is unknown where a difference would break a job.
    """
    kinds: dict[tuple[str, str], list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        site = sites[node.node]
        kinds[site.class_name, site.part.name if site.part else ""].append(node)
    for members in kinds.values():
        yield from _of_kind(members, sites, traits)


def _of_kind(members: Sequence[NodeFacts], sites: Mapping[str, Site], traits: Sequence[Trait]) -> Iterator[Finding]:
    names = [node.node for node in members]
    told = {trait.what: _read(trait, members, sites) for trait in traits}
    applies = [trait for trait in traits if told[trait.what].values or told[trait.what].unread]
    if not applies:
        what = ", ".join(trait.what for trait in traits[:3])
        yield skipped(f"these nodes have none of it: {what}, …", evidence=[traits[0].key]).on(names)
        return
    if len(members) < 2:
        yield unknown("the only node of its kind, nothing to compare with", evidence=[applies[0].key]).on(names)
        return
    by_name = {node.node: node for node in members}
    dark = [trait for trait in applies if not told[trait.what].values]
    odd: set[str] = set()
    elsewhere: dict[str, list[str]] = defaultdict(list)  # node -> values that a check of its own speaks of
    for trait in applies:
        differences = _of_devices if trait.each else _differences
        for finding in differences(trait, told[trait.what], by_name, sites, elsewhere):
            odd.update(finding.nodes)
            yield finding
    gaps = list(_gaps([trait for trait in applies if trait not in dark or trait.breaks], told))
    for finding in gaps:
        odd.update(finding.nodes)
        yield finding
    yield from _the_rest([name for name in names if name not in odd], applies, told, elsewhere)


def _the_rest(
    fine: Sequence[str], traits: Sequence[Trait], told: Mapping[str, _Told], elsewhere: Mapping[str, list[str]]
) -> Iterator[Finding]:
    """Yield what holds for the nodes that no difference was told of: the values that are alike, and what is not."""
    if not fine:
        return
    seen = [trait for trait in traits if told[trait.what].values]
    unseen = [trait.what for trait in traits if trait not in seen and not trait.breaks]
    keys = list(dict.fromkeys(trait.key for trait in seen))[:8]
    if not seen:
        yield unknown(f"no node of this kind shows any of it: {', '.join(unseen)}",
                      evidence=[trait.key for trait in traits[:3]]).on(fine)  # fmt: skip
        return
    beside = f"; no node shows: {', '.join(unseen)}" if unseen else ""
    listed = ", ".join(trait.what for trait in seen)
    if alike := [name for name in fine if name not in elsewhere]:
        yield passed(f"{len(seen)} values are as on the other nodes of this kind{beside}", found=listed,
                     evidence=keys).on(alike)  # fmt: skip
    for name in fine:
        if name in elsewhere:
            said = f"another check reports {', '.join(elsewhere[name])}"
            yield passed(f"{len(seen) - len(elsewhere[name])} values are as on the other nodes of this kind; {said}",
                         evidence=keys).on([name])  # fmt: skip


def _read(trait: Trait, members: Sequence[NodeFacts], sites: Mapping[str, Site]) -> _Told:
    values: dict[str, str] = {}
    numbers: dict[str, float] = {}
    unread: dict[str, EvidenceError] = {}
    for node in members:
        try:
            value = _value(trait, node, sites[node.node])
        except EvidenceError as error:
            unread[node.node] = error
            continue
        if isinstance(value, str):
            values[node.node] = value
        elif value is not None:
            numbers[node.node] = value
    for name, number in near(numbers, trait.tolerance).items():
        values[name] = f"{number:.5g} {trait.unit}".strip()
    return _Told({node.node: values[node.node] for node in members if node.node in values}, unread)


def _value(trait: Trait, node: NodeFacts, site: Site) -> str | float | None:
    if not trait.alone:
        return trait.read(node, site)
    return node.ballot(f"trait {trait.what}", trait.read, node, site)


def _differences(
    trait: Trait, told: _Told, nodes: Mapping[str, NodeFacts], sites: Mapping[str, Site],
    elsewhere: dict[str, list[str]],
) -> Iterator[Finding]:  # fmt: skip
    found = vote(told.values.items())
    if len(found.values) < 2:
        return
    say = failed if trait.breaks else warned
    if found.usual is None:
        yield _mismatch(trait, found)
        return
    for value, holders in sorted(found.odd.items()):
        new = [name for name in holders if not _speaks(trait, nodes[name], sites[name])]
        for name in set(holders) - set(new):
            by = " or ".join(check.id for check in trait.told_by) or "its own check"
            elsewhere[name].append(f"{trait.what} ({by})")
        if not new:
            continue
        mine, theirs = _parts(trait, value, found.usual)
        yield say(
            f"{trait.what}: {_cut(mine)}, on {len(found.holders)} of {found.total} nodes {_cut(theirs)}",
            subject=trait.what, found=mine,
            expected=f"{theirs} ({len(found.holders)} of {found.total} nodes of the same kind)", evidence=[trait.key],
        ).on(new)  # fmt: skip


def _of_devices(
    trait: Trait, told: _Told, nodes: Mapping[str, NodeFacts], sites: Mapping[str, Site],
    elsewhere: dict[str, list[str]],
) -> Iterator[Finding]:  # fmt: skip
    """Compare device by device, of nodes that have it up; tell all that differs on a node in one finding."""
    by_device: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, value in told.values.items():
        for item in value.split(trait.items):
            device, _, said = item.partition(" ")
            by_device[device].append((name, said))
    wrong: dict[str, list[tuple[str, str, str]]] = defaultdict(list)  # node -> device, its value, the usual one
    for device, values in by_device.items():
        found = vote(values)
        if found.usual is None:
            yield _mismatch(trait, found, f"{trait.what}, {device}")
            continue
        for value, holders in found.odd.items():
            for name in holders:
                wrong[name].append((device, value, f"{found.usual} ({len(found.holders)} of {found.total} nodes)"))
    alike: dict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for name in told.values:
        if name in wrong and _speaks(trait, nodes[name], sites[name]):
            by = " or ".join(check.id for check in trait.told_by) or "its own check"
            elsewhere[name].append(f"{trait.what} ({by})")
        elif name in wrong:
            alike[tuple(wrong[name])].append(name)
    say = failed if trait.breaks else warned
    for differing, names in alike.items():
        mine = trait.items.join(f"{device} {value}" for device, value, _ in differing)
        theirs = trait.items.join(f"{device} {usual}" for device, _, usual in differing)
        yield say(
            f"{trait.what}: {_cut(mine)}, on the others {_cut(theirs)}", subject=trait.what, found=mine,
            expected=theirs, evidence=[trait.key],
        ).on(names)  # fmt: skip


def _mismatch(trait: Trait, found: Vote, what: str = "") -> Finding:
    say = failed if trait.breaks else warned
    if found.total == 2:
        (one, on_one), (other, on_other) = sorted(found.values.items())
        mine, theirs = _parts(trait, one, other)
        listed = f"{_cut(mine)} on {on_one[0]}, {_cut(theirs)} on {on_other[0]}"
        sentence = f"{what or trait.what} differs between two nodes; which one is wrong is not known: {listed}"
    else:
        listed = "; ".join(f"{_cut(value)} on {len(nodes)}" for value, nodes in sorted(found.values.items())[:8])
        sentence = f"{what or trait.what} differs, and no value has a majority: {listed}"
    expected = "one value on all nodes of the same kind; which side is wrong is not known"
    names = sorted(name for nodes in found.values.values() for name in nodes)
    return say(sentence, subject=trait.what, found=listed, expected=expected, evidence=[trait.key]).on(names)


def _gaps(traits: Sequence[Trait], told: Mapping[str, _Told]) -> Iterator[Finding]:
    """Yield what single nodes did not show, the values of one reason and the same nodes together."""
    folded: dict[tuple[tuple[str, ...], str], list[tuple[Trait, EvidenceError]]] = defaultdict(list)
    for trait in traits:
        reasons: dict[str, list[str]] = defaultdict(list)
        first: dict[str, EvidenceError] = {}
        for name, error in told[trait.what].unread.items():
            reasons[error.why].append(name)
            first.setdefault(error.why, error)
        for why, names in reasons.items():
            folded[tuple(names), why].append((trait, first[why]))
    for (holders, why), found in folded.items():
        what = ", ".join(trait.what for trait, _ in found)
        keys = list(dict.fromkeys(error.key for _, error in found))
        yield unknown(f"{what} could not be read: {keys[0].partition(':')[2]} {why}",
                      subject=found[0][0].what if len(found) == 1 else "", evidence=keys[:8]).on(holders)  # fmt: skip


def _speaks(trait: Trait, node: NodeFacts, site: Site) -> bool:
    return is_told(trait.told_by, node, site) or bool(trait.told and trait.told(node, site))


def is_told(checks: Sequence[Check], node: NodeFacts, site: Site) -> bool:
    """Whether a check of the node says itself that something is wrong with this value."""
    for check in checks:
        try:
            if any(finding.status in (Status.FAIL, Status.WARN) for finding in check.findings(node, site)):
                return True
        except EvidenceError:
            continue
    return False


def _parts(trait: Trait, value: str, usual: str) -> tuple[str, str]:
    """Return both values, of long ones only the parts that the other does not have."""
    if not trait.items:
        return value, usual
    mine, theirs = value.split(trait.items), usual.split(trait.items)
    only = [part for part in mine if part not in theirs]
    lacks = [part for part in theirs if part not in mine]
    if not only and not lacks:
        return f"in another order: {value}", usual
    return trait.items.join(only) or "nothing", trait.items.join(lacks) or "nothing"


def _cut(value: str) -> str:
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
