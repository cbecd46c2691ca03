"""Comparison of values across nodes.

The comparison yields one finding for each value that differs, and one pass for all others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from preflight._startup.lightclass import replace
from preflight.checks.comparison.electorate import ONE_VALUE, Electorate, Trait, kinds, poll
from preflight.evidence.document import EvidenceError, with_subject
from preflight.expectations import Site
from preflight.facts.majority import Vote, vote
from preflight.facts.node import NodeFacts
from preflight.model import Finding, Status, all_of, clause, failed, passed, skipped, unknown, warned

#: The next step for a node without peers.
COLLECT_MORE = "collect from other nodes of its kind as well: --hosts NODES"
ONLY_NODE = "this node is the only one of its kind, so there is nothing to compare"

#: Maximum length of a value in a message, in characters.
_SHOWN = 90


def equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site], trait: Trait) -> Iterator[Finding]:
    """Compare one value across the nodes of each class and part."""
    for members in kinds(nodes, sites):
        polled = poll(trait, members, sites)
        names = [node.node for node in members]
        differing: set[str] = set()
        for finding in (*differences(trait, polled), *_gaps([trait], {trait.what: polled})):
            differing.update(finding.nodes)
            yield replace(finding, subject="")
        heard = {*polled.values, *polled.apart, *polled.unread}
        if without := [name for name in names if name not in heard]:
            yield skipped(f"{trait.what}: these nodes have none", evidence=[trait.key]).on(without)
        if fine := [name for name in names if name not in differing and name not in without]:
            yield _alike(trait, polled, fine, without)


def _alike(trait: Trait, polled: Electorate, fine: Sequence[str], without: Sequence[str]) -> Finding:
    found = polled.result
    value = found.usual or polled.apart[fine[0]]
    keys = [trait.key]
    if found.total + len(polled.apart) < 2:
        if without and not polled.unread:
            return skipped(f"{trait.what}: {value}; the other nodes of its kind have none", evidence=keys).on(fine)
        return unknown(
            f"{trait.what} is {value} on the only node of its kind, so there is nothing to compare", evidence=keys,
            fix=COLLECT_MORE,
        ).on(fine)  # fmt: skip
    message = f"{trait.what} is {value} on {all_of(found.total, 'node')}"
    if len(found.values) > 1:
        message = f"{trait.what} is {value}, as on most nodes ({len(found.holders)} of {found.total})"
    elif differing := len(polled.values) + len(polled.apart) - len(fine):
        other = "1 node does not have the expected value" if differing == 1 else f"{differing} nodes do not have it"
        message = f"{trait.what} is {value} on {_nodes(len(fine))}; {other}"
    return passed(message, found=value, evidence=keys).on(fine)


def _nodes(number: int, all_of: str = "") -> str:
    return "1 node" if number == 1 else f"{all_of}{number} nodes"


def compare(nodes: Sequence[NodeFacts], sites: Mapping[str, Site], traits: Sequence[Trait]) -> Iterator[Finding]:
    """Compare the traits across the nodes of each class and part.

    A node whose value could not be read does not vote, and is unknown. A value that no node of a kind shows is listed
    in the passing finding; the finding is unknown if a difference in that value would break a job.
    """
    for members in kinds(nodes, sites):
        yield from _of_kind(members, sites, traits)


def _of_kind(members: Sequence[NodeFacts], sites: Mapping[str, Site], traits: Sequence[Trait]) -> Iterator[Finding]:
    names = [node.node for node in members]
    polled = {trait.what: poll(trait, members, sites) for trait in traits}
    applies = [trait for trait in traits if polled[trait.what].shown or polled[trait.what].unread]
    if not applies:
        what = ", ".join(trait.what for trait in traits[:3])
        yield skipped(f"no node of this kind has these values: {what}, …", evidence=[traits[0].key]).on(names)
        return
    if len(members) < 2:
        yield unknown(ONLY_NODE, evidence=[applies[0].key],
                      fix=COLLECT_MORE).on(names)  # fmt: skip
        return
    dark = [trait for trait in applies if not polled[trait.what].shown]
    odd: set[str] = set()
    for trait in applies:
        differing = _of_devices if trait.each else differences
        for finding in differing(trait, polled[trait.what]):
            odd.update(finding.nodes)
            yield finding
    for finding in _gaps([trait for trait in applies if trait not in dark or trait.breaks], polled):
        odd.update(finding.nodes)
        yield finding
    if fine := [name for name in names if name not in odd]:
        yield _the_rest(applies, polled).on(fine)


def _the_rest(traits: Sequence[Trait], polled: Mapping[str, Electorate]) -> Finding:
    """Return the finding for nodes without a difference.

    It lists the equal values and those that no node shows.
    """
    seen = [trait for trait in traits if polled[trait.what].shown]
    unseen = [trait.what for trait in traits if trait not in seen and not trait.breaks]
    if not seen:
        return unknown(f"no node of this kind shows these values: {', '.join(unseen)}",
                       evidence=[trait.key for trait in traits[:3]])  # fmt: skip
    beside = f"; no node shows {', '.join(unseen)}" if unseen else ""
    listed = ", ".join(trait.what for trait in seen)
    most = any(len(polled[trait.what].result.values) > 1 for trait in seen if not trait.each)
    on = "on most" if most else "on the other"
    return passed(f"{clause(len(seen), 'value', 'is')} the same as {on} nodes of this kind{beside}", found=listed,
                  evidence=list(dict.fromkeys(trait.key for trait in seen))[:8])  # fmt: skip


def differences(trait: Trait, polled: Electorate) -> Iterator[Finding]:
    """Yield findings for nodes that differ from the majority, or for lack of one."""
    found = polled.result
    report = failed if trait.breaks else warned
    yield from missed(trait, polled, {name: _apart(trait, value, found.usual) for name, value in polled.apart.items()
                                       if value != found.usual})  # fmt: skip
    if len(found.values) < 2:
        return
    if found.usual is None:
        yield undecided(trait, found)
        return
    for value, holders in sorted(found.odd.items()):
        mine, theirs = _parts(trait, value, found.usual)
        have = "have it" if theirs == "unset" else "have"
        yield report(
            f"{trait.what}: {_cut(mine)}; most nodes ({len(found.holders)} of {found.total}) {have} {_cut(theirs)}",
            subject=trait.what, found=mine, expected=f"{ONE_VALUE}; most {have} {theirs}", evidence=[trait.key],
            action=trait.action,
        ).on(holders)  # fmt: skip


def _apart(trait: Trait, value: str, usual: str | None) -> tuple[str, str]:
    return _parts(trait, value, usual) if usual is not None else (value, "")


def missed(trait: Trait, polled: Electorate, wrong: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    """Yield findings for nodes without the expected value.

    ``wrong`` maps each of them to its value and the voters' value. Without voters, there is nothing to compare, and the
    findings are *skip*.
    """
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for name, (mine, theirs) in wrong.items():
        alike[mine, theirs, polled.reported_by[name]].append(name)
    for (mine, theirs, by), names in alike.items():
        checks = " and ".join(by)
        if not polled.values:
            message = f"{trait.what}: not compared, because no node has the value that {checks} expects"
            finding = skipped(message, subject=trait.what, evidence=[trait.key])
        else:
            beside = f"; nodes with the expected value have {_cut(theirs)}" if theirs else ""
            finding = (failed if trait.breaks else warned)(
                f"{trait.what}: {_cut(mine)}, not the expected value (see {checks}){beside}", subject=trait.what,
                found=mine, expected=theirs or f"see {checks}", evidence=[trait.key],
                fix=f"Correct the fault that {checks} found.", action=trait.action,
            )  # fmt: skip
        yield finding.unless_reported(by).on(names)


def _of_devices(trait: Trait, polled: Electorate) -> Iterator[Finding]:
    """Compare each device; report all differences of a node in one finding.

    Only nodes where the device is up take part.
    """
    by_device: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, value in polled.values.items():
        for device, reading in _devices(trait, value):
            by_device[device].append((name, reading))
    votes = {device: vote(values) for device, values in by_device.items()}
    for device, found in votes.items():
        if found.usual is None:
            yield undecided(trait, found, f"{trait.what}, {device}")
    usual = {device: found.usual for device, found in votes.items() if found.usual is not None}
    apart = {}
    for name, value in polled.apart.items():
        wrong = _other_devices(trait, value, usual)
        if not polled.values or wrong[0]:
            apart[name] = wrong if polled.values else (value, "")
    yield from missed(trait, polled, apart)
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, value in polled.values.items():
        mine, theirs = _other_devices(trait, value, usual)
        if mine:
            alike[mine, theirs].append(name)
    report = failed if trait.breaks else warned
    for (mine, theirs), names in alike.items():
        yield report(
            f"{trait.what}: {_cut(mine)}; on most nodes {_cut(theirs)}", subject=trait.what, found=mine,
            expected=f"{ONE_VALUE}; on most {theirs}", evidence=[trait.key],
        ).on(names)  # fmt: skip


def _devices(trait: Trait, value: str) -> list[tuple[str, str]]:
    parts = (item.partition(" ") for item in value.split(trait.items))
    return [(device, reading) for device, _, reading in parts]


def _other_devices(trait: Trait, value: str, usual: Mapping[str, str]) -> tuple[str, str]:
    """Return the devices that differ, with their values and the usual ones."""
    wrong = [(device, reading) for device, reading in _devices(trait, value) if usual.get(device, reading) != reading]
    mine = trait.items.join(f"{device} {reading}" for device, reading in wrong)
    return mine, trait.items.join(f"{device} {usual[device]}" for device, _ in wrong)


def undecided(trait: Trait, found: Vote, what: str = "") -> Finding:
    """Return the finding for a value without a majority.

    Which of the values is wrong is unknown.
    """
    report = failed if trait.breaks else warned
    if found.total == 2:
        (one, on_one), (other, on_other) = sorted(found.values.items())
        mine, theirs = _parts(trait, one, other)
        listed = f"{_cut(mine)} on {on_one[0]}, {_cut(theirs)} on {on_other[0]}"
        sentence = f"{what or trait.what} differs between two nodes; which one is wrong is not known: {listed}"
    else:
        listed = "; ".join(
            f"{_cut(value)} on {_nodes(len(nodes))}" for value, nodes in sorted(found.values.items())[:8]
        )
        sentence = f"{what or trait.what} differs, and no value has a majority: {listed}"
    names = sorted(name for nodes in found.values.values() for name in nodes)
    return replace(
        report(sentence, subject=trait.what, found=listed, expected=f"{ONE_VALUE}; which side is wrong is not known",
            evidence=[trait.key]),
        undecided=True, nodes=tuple(names),
    )  # fmt: skip


def _gaps(traits: Sequence[Trait], polled: Mapping[str, Electorate]) -> Iterator[Finding]:
    """Yield *unknown* for values that could not be read, grouped by reason and nodes."""
    folded: dict[tuple[tuple[str, ...], str], list[tuple[Trait, EvidenceError]]] = defaultdict(list)
    for trait in traits:
        reasons: dict[str, list[str]] = defaultdict(list)
        first: dict[str, EvidenceError] = {}
        for name, error in polled[trait.what].unread.items():
            reasons[error.why].append(name)
            first.setdefault(error.why, error)
        for why, names in reasons.items():
            folded[tuple(names), why].append((trait, first[why]))
    for (holders, why), found in folded.items():
        what = ", ".join(trait.what for trait, _ in found)
        keys = list(dict.fromkeys(error.key for _, error in found))
        target = keys[0].partition(":")[2]
        reason = why if why.startswith(target) else with_subject(target, why)
        yield unknown(f"{what} could not be read: {reason}",
                      subject=found[0][0].what if len(found) == 1 else "", evidence=keys[:8]).on(holders)  # fmt: skip


def _parts(trait: Trait, value: str, usual: str) -> tuple[str, str]:
    """Return both values; for long values, only the parts that differ."""
    if not trait.items:
        return value, usual
    mine, theirs = value.split(trait.items), usual.split(trait.items)
    only = [part for part in mine if part not in theirs]
    lacks = [part for part in theirs if part not in mine]
    if not only and not lacks:
        return f"in a different order: {value}", usual
    return trait.items.join(only) or "none", trait.items.join(lacks) or "none"


def _cut(value: str) -> str:
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"


def softened(finding: Finding) -> Finding:
    """Return the finding with a failure turned into a warning."""
    return replace(finding, status=Status.WARN) if finding.status is Status.FAIL else finding
