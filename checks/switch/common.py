"""Texts and findings shared by the checks of switches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from preflight.evidence.document import with_subject
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import SwitchFacts, SwitchPort, went_back
from preflight.model import Finding, unknown

#: Maximum number of ports that a message names.
_NAMED = 4


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list: ``Ethernet0, Ethernet8 and 30 more``."""
    shown = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def unread_record(what: str, why: str) -> str:
    """Put the name of a record before the reason why it could not be read."""
    return f"reading {what} {why}" if why.startswith("failed") else with_subject(what, why)


def priority_list(value: frozenset[int] | None) -> str:
    """Return priorities as text: ``3, 4``."""
    return ", ".join(map(str, sorted(value or ()))) or "no priority"


def each_switch(
    net: Ethernet,
    site: EthernetSite,
    judge: Callable[[SwitchFacts], Iterable[Finding]],
    *parts: str,
    growth: Sequence[str] = (),
    lossless: bool = True,
) -> Generator[Finding, None, list[SwitchFacts]]:
    """Yield the findings of each switch; return the switches without any.

    A switch is judged only if its ``parts`` were read, the growth of its counters is known and, with ``lossless``, it
    has a lossless port. Otherwise, an *unknown* finding states the reason.
    """
    good = []
    for switch in net.switches:
        results = [*unread(switch, *parts)] or ([*lossy(net, switch, site)] if lossless else [])
        for part in growth:
            results = results or [*unusable(switch, part)]
        results = results or [*judge(switch)]
        yield from results
        if not results:
            good.append(switch)
    return good


def place_of(switch: SwitchFacts, port: str, priority: int) -> str:
    """Return the name of a port and priority in the parts of a finding."""
    return f"{switch.name} {port} priority {priority}"


def unread(switch: SwitchFacts, *parts: str) -> Iterator[Finding]:
    """Yield a finding for the first part of a switch that could not be read."""
    for part in parts:
        if part in switch.gaps:
            yield unknown(
                f"{switch.name}: {unread_record(switch.keys[part], switch.gaps[part])}", subject=switch.name,
                evidence=[switch.key(part)], fix=switch.remedy,
            )  # fmt: skip
            return


def judged_ports(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[tuple[SwitchPort, int]]:
    """Yield the lossless ports that are not disabled, with each priority to judge."""
    for port in switch.lossless.values():
        if port.admin_up is not False:
            for priority in sorted(net.priorities(port, site.priority)):
                yield port, priority


def lossy(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    """Yield *unknown* for a switch without a lossless port.

    Nothing shows whether that is intended.
    """
    if "pfc" in switch.gaps or any(judged_ports(net, switch, site)):
        return
    wanted = f"priority {site.priority}" if site.priority is not None else "any priority"
    yield unknown(
        f"no port of {switch.name} has PFC on {wanted}", subject=switch.name, evidence=[switch.key("pfc")],
        fix="if the fabric is lossy by design, skip the checks of lossless queues: --skip 'switch.*'",
    )  # fmt: skip


def unusable(switch: SwitchFacts, part: str) -> Iterator[Finding]:
    """Yield a finding with the reason if the growth of the counters is unknown."""
    yield from unread(switch, part)
    if part in switch.gaps:
        return
    key, why = [switch.key(part)], ""
    group = "port" if part == "port counters" else "queue"
    poll = switch.poll_ms.get(group, 1000 if group == "port" else 10_000)
    least = max((poll or 0) * 2 / 1000, 2.0)  # readings within two polling intervals may be equal
    if switch.second is None:
        why = "its counters were read only once"
    elif went_back(switch.first, switch.second):
        why = "its counters were cleared between the readings"
    elif poll is None:
        why = f"polling of the {group} counters is off (FLEX_COUNTER_TABLE)"
    elif switch.window_s is None:
        why = "the times of its two readings are not known"
    elif switch.window_s < least:
        why = (
            f"its readings are {switch.window_s:g} s apart, but the switch polls its counters only every "
            f"{poll / 1000:g} s"
        )
    if why:
        yield unknown(
            f"{switch.name}: the growth of its counters is unknown: {why}", subject=switch.name, evidence=key,
            fix=f"read the counters twice, at least {least:g} s apart (`show techsupport`, `counterpoll show`)",
        )  # fmt: skip
