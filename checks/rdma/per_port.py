"""Helpers for checks of port counters: judged ports, unread counters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from preflight import facts
from preflight.checks.applicability import RDMA_CLASS, failing
from preflight.evidence.document import with_subject
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port, is_software
from preflight.model import Finding, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.counter_catalogue import CounterKind
    from preflight.facts.counter_growth import Growth, PortGrowth

#: Display names of the sources.
NAMES = {
    "counters": "the counters directory", "hw_counters": "the hw_counters directory", "ethtool": "`ethtool -S`",
    "carrier": "carrier_changes",
}  # fmt: skip

#: Maximum number of ports in one finding.
MOST_NAMED = 3


def no_judged_port(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without an active compute port of a real HCA."""
    if judged_ports(node, site):
        return None
    compute = site.roles(node).compute
    active = {port.device for port in compute if port.active}
    if not active:
        keys = compute[0].evidence[:1]
        return unknown("no compute port is active: see rdma.port-state", evidence=keys, fix="see rdma.port-state")
    message = f"{', '.join(sorted(active))}: software devices, without hardware counters"
    return skipped(message, evidence=[RDMA_CLASS])


def judged_ports(node: NodeFacts, site: Site) -> list[Port]:
    """Return the active compute ports of real HCAs.

    A spare port that is down has no traffic, and a software device counts only its own retries.
    """
    return [port for port in site.roles(node).compute if port.active and not is_software(node.evidence, port.device)]


def windows(node: NodeFacts, site: Site) -> list[PortGrowth]:
    """Return the counter growth of the judged ports in the window."""
    return [node.port_growth[port.name] for port in judged_ports(node, site)]


def report_gaps(node: NodeFacts, site: Site, *kinds: CounterKind) -> Generator[Finding, None, list[PortGrowth]]:
    """Return the judged ports; yield findings on unread counters."""
    ports = windows(node, site)
    yield from unread(ports, facts.counter_growth.SOURCES)
    yield from unclear(ports, kinds)
    return ports


def port_reporters(node: NodeFacts, site: Site) -> tuple[Callable[..., Finding], Callable[..., Finding]]:
    """Return the constructors of warnings and failures of compute ports.

    Both are `unknown` if it is not known whether a job uses the port.
    """
    roles = site.roles(node)
    fail = failing(roles, site)
    return (warned if roles.known_from else fail), fail


def unread(ports: Iterable[PortGrowth], sources: Collection[str]) -> Iterator[Finding]:
    """Report the sources that were not read twice, with one finding for each reason."""
    alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for port in ports:
        for source, error in port.refused.items():
            if source in sources:
                alike.setdefault((source, error.why), []).append((port.port.name, error.key))
    for (source, why), found in alike.items():
        yield unknown(
            f"{some([name for name, _ in found])}: {with_subject(NAMES[source], why)}",
            subject=found[0][0] if len(found) == 1 else "",
            evidence=[key for _, key in found[:MOST_NAMED]],
            fix="collect again with --window 60" if "read once" in why else "",
        )


def unclear(ports: Iterable[PortGrowth], kinds: Collection[CounterKind]) -> Iterator[Finding]:
    """List the counters of these kinds with unknown growth.

    They stopped, wrapped or were reset.
    """
    for port in ports:
        vague = [one for one in port.unclear if one.counter.kind in kinds]
        if vague:
            listed = "; ".join(f"{one.counter.name} {one.why}" for one in vague[:MOST_NAMED])
            yield unknown(
                f"the growth of counters on {port.port.name} is unknown: {listed}",
                subject=port.port.name,
                evidence=sorted({one.key for one in vague}),
                fix="collect again; clear a saturated counter with `perfquery -R`",
            )


def is_complete(port: PortGrowth, sources: Collection[str], kinds: Collection[CounterKind] = ()) -> bool:
    """Return whether all sources were read twice and no growth is unclear."""
    read = not set(port.refused) & set(sources)
    return read and not any(one.counter.kind in kinds for one in port.unclear)


def listing(growths: Sequence[Growth]) -> str:
    """Return counters with their growth: ``symbol_error +12 (0.2/s)``."""
    return ", ".join(f"{one.counter.name} +{quantity(one)} ({rate(one.per_s)})" for one in growths)


def about(port: PortGrowth, growths: Sequence[Growth]) -> dict[str, Any]:
    """Return subject, records and both readings for a finding on a port."""
    return {"subject": port.port.name, "evidence": keys(growths), "quote": quoted(growths)}


def quoted(growths: Iterable[Growth]) -> str:
    """Return counters at both ends of the window, one per line."""
    return "\n".join(f"{one.counter.name}: {one.before} -> {one.after}, {one.seconds:.0f} s apart" for one in growths)


def total(port: PortGrowth, *patterns: str) -> int:
    """Return the total growth of the counters with matching names."""
    return sum(one.grown for pattern in patterns for one in port.matching(pattern))


def quantity(growth: Growth) -> str:
    """Format the growth of a counter in its unit."""
    return f"{growth.grown} {growth.counter.unit}".rstrip()


def rate(per_s: float) -> str:
    """Format a rate per second, or per hour if it is small."""
    return f"{per_s:.3g}/s" if per_s >= 1 else f"{per_s * 3600:.3g}/h"


def keys(growths: Iterable[Growth]) -> list[str]:
    """Return the keys of the records that contain the counters."""
    return list(dict.fromkeys(growth.key for growth in growths))


def some(names: Sequence[str]) -> str:
    """List up to three port names; for more, their number and the first three."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{len(names)} ports ({', '.join(names[:MOST_NAMED])}, …)"
