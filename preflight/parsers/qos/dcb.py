"""Data Center Bridging as the kernel tells it: ``dcb -j pfc|app|buffer|dcbx show dev IF`` (iproute2, dcb(8)).

An ordinary user may ask. Drivers without DCB, and virtual functions, answer "Operation not supported".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits

PRIORITIES = range(8)
DSCPS = range(64)


@dataclass(frozen=True)
class DscpMap:
    """Which priority a DSCP means; a table may hold only some of the 64."""

    of: Mapping[int, frozenset[int]]  # DSCP -> priorities; dcb-app(8) allows several, of which one rules
    default: int = 0  # priority of a DSCP that is not listed, by IEEE 802.1Q

    def priority(self, dscp: int) -> int | None:
        """Return a DSCP's priority; None where the table does not settle it.

        The kernel lists what was set. For the rest firmware has a map of its own: all to the default, or by eights.
        Where these two agree, the priority is known.
        """
        listed = self.of.get(dscp)
        if listed is None:
            listed = frozenset({self.default, dscp >> 3})
        return next(iter(listed)) if len(listed) == 1 else None


@dataclass(frozen=True)
class Buffers:
    """Receive buffers of a port: what PFC's headroom is cut from."""

    of_priority: tuple[int, ...]  # buffer of priority 0…7
    bytes: tuple[int, ...]  # size of buffer 0…7


def parse_pfc(text: str) -> frozenset[int]:
    """Read ``dcb -j pfc show``: the priorities with PFC on; raises ValueError."""
    bits = _object(text).get("prio_pfc")
    if not isinstance(bits, list) or len(bits) != 8 or not all(isinstance(bit, bool) for bit in bits):
        raise ValueError(f"prio_pfc is not eight booleans: {str(bits)[:80]}")
    return frozenset(priority for priority in PRIORITIES if bits[priority])


def parse_app(text: str) -> DscpMap:
    """Read ``dcb -j app show``: the priority of each DSCP that is listed; raises ValueError."""
    found = _object(text)
    of: dict[int, frozenset[int]] = {}
    for entry in _list(found, "dscp_prio"):
        if not isinstance(entry, list) or len(entry) != 2 or not _numbers(entry):
            raise ValueError(f"an entry of dscp_prio is not a DSCP and a priority: {str(entry)[:80]}")
        dscp, priority = entry
        if dscp not in DSCPS or priority not in PRIORITIES:
            raise ValueError(f"DSCP {dscp} with priority {priority} is out of range")
        of[dscp] = of.get(dscp, frozenset()) | {priority}
    default = _list(found, "default_prio")
    if not _numbers(default) or not set(default) <= set(PRIORITIES):
        raise ValueError(f"default_prio is not a list of priorities: {str(default)[:80]}")
    return DscpMap(of, max(default, default=0))


def parse_buffer(text: str) -> Buffers:
    """Read ``dcb -j buffer show``; raises ValueError."""
    found = _object(text)
    of_priority, sizes = _list(found, "prio_buffer"), _list(found, "buffer_size")
    if not _numbers(of_priority) or not _numbers(sizes) or len(of_priority) != 8 or len(sizes) != 8:
        raise ValueError("prio_buffer and buffer_size are not eight numbers each")
    if not set(of_priority) <= set(PRIORITIES):
        raise ValueError(f"prio_buffer names no buffer: {str(of_priority)[:80]}")
    return Buffers(tuple(of_priority), tuple(sizes))


def parse_dcbx(text: str) -> str:
    """Read ``dcb -j dcbx show``: ``os`` where the host sets DCB, ``firmware`` where firmware takes the switch's word.

    Raises ValueError.
    """
    found = _object(text)
    if not found or not all(isinstance(flag, bool) for flag in found.values()):
        raise ValueError(f"{text.strip()[:80]!r} holds no flags")
    return "os" if found.get("host") else "firmware"


def _object(text: str) -> dict[str, Any]:
    try:
        found = json_limits.text(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:80]!r} is not the JSON of dcb(8)") from None
    if not isinstance(found, dict):
        raise ValueError(f"{text.strip()[:80]!r} is not an object")
    return found


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def _numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values)
