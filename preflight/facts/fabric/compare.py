"""Comparison of links with their peers, and of a sweep with a reference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from preflight._startup.lightclass import dataclass
from preflight.facts.majority import is_majority
from preflight.parsers.infiniband.ibnetdiscover import End, FabricDevice, FabricLink, Net
from preflight.parsers.infiniband.ibqueryerrors import FULL, Errors


@dataclass(frozen=True)
class Slow:
    """A link below the speed of its peers."""

    link: FabricLink
    usual: str  # "4xHDR"; empty: it runs in one lane, regardless of its peers
    holders: int  # peers that have the usual speed; 0: compared with the reference
    peers: int  # links of the same kind


def slow(net: Net, reference: Net | None = None) -> tuple[Slow, ...]:
    """Return the links that are slower than most of their kind, or run on one lane.

    Links of different kinds of HCAs are not compared: a storage server's HDR port next to NDR ports is normal. A
    majority is determined as for nodes (``majority.is_majority``). A link in the reference is compared with its own
    speed there, and does not vote.
    """
    due = _by_ends(reference)
    found = []
    for links in _alike(net):
        known = [link for link in links if link.gbps is not None and link.ends not in due]
        for link in links:
            then = due.get(link.ends)
            if then is not None and link.gbps is not None and link.gbps < (then.gbps or 0):
                found.append(Slow(link, then.speed, 0, 0))
        rate, holders = max(Counter(link.gbps for link in known).items(), key=lambda one: (one[1], one[0]),
                            default=(None, 0))  # fmt: skip
        usual = next((link.speed for link in known if link.gbps == rate), "")
        usually = is_majority(holders, len(known))
        for link in known:
            if usually and link.gbps is not None and rate is not None and link.gbps < rate:
                found.append(Slow(link, usual, holders, len(known)))
            elif link.speed.startswith("1x"):
                found.append(Slow(link, "", holders, len(known)))
    return tuple(sorted(found, key=lambda one: one.link.ends))


def mixed(net: Net, reference: Net | None = None) -> tuple[FabricLink, ...]:
    """Return the links of kinds whose intended speed is unknown.

    The links of such a kind have several speeds, and the fastest has no majority. Links in the reference are left out.
    """
    due = _by_ends(reference)
    found: list[FabricLink] = []
    for links in _alike(net):
        rates = Counter(link.gbps for link in links if link.gbps is not None and link.ends not in due)
        if len(rates) > 1 and not is_majority(rates[max(rates)], rates.total()):
            found += [link for link in links if link.gbps is not None and link.ends not in due]
    return tuple(sorted(found, key=lambda link: link.ends))


def _by_ends(reference: Net | None) -> dict[tuple[End, End], FabricLink]:
    return {link.ends: link for link in reference.links if link.gbps is not None} if reference else {}


def _alike(net: Net) -> Iterable[list[FabricLink]]:
    """Return the links in groups, by the kinds of chips at their ends."""
    groups: dict[tuple[object, ...], list[FabricLink]] = defaultdict(list)
    for link in net.links:
        ends = [net.devices[guid] for guid, _ in link.ends]
        if not any(end.aggregates for end in ends):
            groups[tuple(sorted((end.kind, end.device_id or 0) for end in ends))].append(link)
    return groups.values()


@dataclass(frozen=True)
class Difference:
    """Changes since a reference sweep."""

    gone: tuple[FabricDevice, ...]  # missing devices
    missing: tuple[FabricLink, ...]  # missing links between existing devices
    moved: tuple[tuple[FabricLink, FabricLink], ...]  # before, now: one end is the same port
    slower: tuple[tuple[FabricLink, FabricLink], ...]  # before, now
    new_links: tuple[FabricLink, ...]


def difference(before: Net, now: Net) -> Difference:
    """Compare two sweeps by GUID and port number."""
    then, today = ({link.ends: link for link in net.links} for net in (before, now))
    at = {end: link for link in now.links for end in link.ends}
    lost = [link for ends, link in then.items() if ends not in today]
    moved = {link.ends: other for link in lost if (other := next((at[e] for e in link.ends if e in at), None))}
    gone = [device for guid, device in before.devices.items() if guid not in now.devices]
    absent = {device.guid for device in gone}
    taken = {link.ends for link in moved.values()}
    return Difference(
        tuple(sorted(gone, key=lambda device: (device.kind, device.label, device.guid))),
        tuple(link for link in lost if link.ends not in moved and not any(guid in absent for guid, _ in link.ends)),
        tuple((link, moved[link.ends]) for link in lost if link.ends in moved),
        tuple(
            (old, today[ends])
            for ends, old in then.items()
            if ends in today and (old.gbps or 0) > (today[ends].gbps or 0) and today[ends].gbps is not None
        ),
        tuple(link for ends, link in today.items() if ends not in then and ends not in taken),
    )


@dataclass(frozen=True)
class PortErrorGrowth:
    """One counter of one port between two readings."""

    port: tuple[str, int]  # GUID, number
    counter: str
    before: int
    now: int

    @property
    def by(self) -> int:
        """The growth; negative if the counter was reset."""
        return self.now - self.before

    @property
    def full(self) -> bool:
        """Whether the counter was already saturated, and so cannot show growth."""
        return self.before >= FULL.get(self.counter, 1 << 64)


def growth(before: Errors, now: Errors) -> tuple[PortErrorGrowth, ...]:
    """Return every counter that changed or was saturated.

    A counter that decreased was reset in between. A counter missing from a reading is 0, or at most the site's
    threshold for the tool: then the growth is a lower bound.
    """
    found = []
    for port in sorted({*before.counters, *now.counters}):
        old, new = _of(before.counters, port), _of(now.counters, port)
        for counter in sorted({*old, *new}):
            first = old.get(counter, before.thresholds.get(counter, 0))
            last = new.get(counter, min(first, now.thresholds.get(counter, 0)))
            if first != last or first >= FULL.get(counter, 1 << 64):
                found.append(PortErrorGrowth(port, counter, first, last))
    return tuple(found)


def _of(counters: Mapping[tuple[str, int], Mapping[str, int]], port: tuple[str, int]) -> Mapping[str, int]:
    return counters.get(port, {})
