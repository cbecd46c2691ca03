"""Texts and findings shared by the checks of switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import SwitchFacts, SwitchPort
from preflight.model import Finding, unknown

#: Maximum number of ports that a message names.
_NAMED = 4


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list: ``Ethernet0, Ethernet8 and 30 more``."""
    shown = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def unread(switch: SwitchFacts, *parts: str) -> Iterator[Finding]:
    """Yield a finding for the first part of a switch that could not be read."""
    for part in parts:
        if part in switch.gaps:
            yield unknown(
                f"{switch.name}: {switch.keys[part]} was not read: {switch.gaps[part]}", subject=switch.name,
                evidence=[switch.key(part)], fix=switch.remedy,
            )  # fmt: skip
            return


def judged_ports(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[tuple[SwitchPort, int]]:
    """Yield the lossless ports that are up, with each priority to judge."""
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
        f"{switch.name} has PFC on {wanted} on no port", subject=switch.name, evidence=[switch.key("pfc")],
        fix="if the fabric is lossy by design, skip the checks of lossless queues: --skip 'switch.*'",
    )  # fmt: skip
