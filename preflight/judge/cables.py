"""Cables with a fault as data for a picture: both ends, and what each shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from preflight.facts.switch import cable_ends
from preflight.facts.switch.ethernet import CableEnd, Ethernet, EthernetCable

#: Maximum number of cables in a report.
_MOST = 64

#: Checks -> the rows of a cable that they judge.
_ROWS: Mapping[str, tuple[str, ...]] = {
    "link.pfc": ("PFC",), "link.mtu": ("MTU",), "link.speed-fec": ("speed", "FEC"), "link.flaps": ("links lost",),
}  # fmt: skip


def cables(net: Ethernet, findings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the cables that failures and warnings name, in full or by an end."""
    names: dict[str, EthernetCable] = {}
    for cable in net.cables:
        names |= {str(name): cable for name in (cable, *cable.ends)}
    judged: dict[EthernetCable, set[str]] = {}
    for finding in findings:
        if finding["status"] in ("fail", "warn") and finding["subject"] in names:
            judged.setdefault(names[finding["subject"]], set()).add(finding["check"])
    return [_cable(net, cable, checks) for cable, checks in islice(judged.items(), _MOST)]


def _cable(net: Ethernet, cable: EthernetCable, checks: Iterable[str]) -> dict[str, Any]:
    sides = [_shown(net, end) for end in cable.ends]
    if not cable.other.is_switch:
        for side in sides:
            del side["FEC"]  # optics.fec judges the FEC of hosts
    wrong = {row for check in checks for row in _ROWS.get(check, ())}
    return {
        "name": str(cable),
        "ends": [{"device": end.device, "port": end.port, "switch": end.is_switch} for end in cable.ends],
        "only": cable.heard[0].device if len(cable.heard) == 1 else "",
        "rows": [{"name": name, "values": [side[name] for side in sides], "wrong": name in wrong} for name in sides[0]],
    }


def _shown(net: Ethernet, end: CableEnd) -> dict[str, str | None]:
    """Return what an end shows, by row; None if unknown."""
    pfc, size, rate, lost = (
        cable_ends.pfc(net, end)[0], cable_ends.mtu(net, end), cable_ends.speed(net, end), cable_ends.lost(net, end)
    )  # fmt: skip
    port = net.port(end)
    return {
        "speed": None if rate is None else f"{rate:g} Gb/s",
        "FEC": port.fec if port else None,
        "MTU": None if size is None else str(size),
        "PFC": None if pfc is None else ", ".join(map(str, sorted(pfc))) or "none",
        "links lost": None if lost is None else str(lost),
    }
