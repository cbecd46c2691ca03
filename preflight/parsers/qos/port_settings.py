"""A port's quality of service, from ``mlnx_qos`` or ``dcb``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field

PRIORITIES = range(8)
DSCPS = range(64)


@dataclass(frozen=True)
class DscpMap:
    """Map from DSCP to priority; it may list only some of the 64 DSCPs."""

    of: Mapping[int, frozenset[int]]  # DSCP -> priorities; dcb-app(8) allows several, one of which takes effect
    default: int = 0  # priority of an unlisted DSCP, by IEEE 802.1Q

    def priority(self, dscp: int) -> int | None:
        """Return a DSCP's priority; None if the map does not determine it.

        The kernel lists the configured entries. For all others, the firmware uses a map of its own: the default
        priority for all, or a priority for each block of eight. The priority is known if both maps give the same one.
        """
        listed = self.of.get(dscp)
        if listed is None:
            listed = frozenset({self.default, dscp >> 3})
        return next(iter(listed)) if len(listed) == 1 else None


@dataclass(frozen=True)
class Buffers:
    """Receive buffers of a port, including the headroom for PFC."""

    of_priority: tuple[int, ...] = ()  # buffer of each priority 0…7; empty if not shown
    bytes: tuple[int, ...] = ()  # size of each buffer 0…7; empty if not shown
    most_bytes: int | None = None  # maximum buffer size

    @property
    def complete(self) -> bool:
        """Whether the buffer of each priority and the size of each buffer are known."""
        sizes, owners = self.bytes, self.of_priority
        return len(sizes) == len(owners) == len(PRIORITIES) and set(owners) <= set(PRIORITIES)


@dataclass(frozen=True)
class PortQos:
    """A port's settings from one or several outputs; None if not shown."""

    line: int = 0
    interface: str = ""
    trust: str | None = None  # dscp, pcp or both
    pfc: Mapping[int, bool] | None = None  # priority -> PFC is on
    dscp: DscpMap | None = None
    priority_to_tc: Mapping[int, int] | None = None
    buffers: Buffers | None = None
    dcbx: str | None = None  # as printed
    tsa: Mapping[str, str] | None = None  # traffic class -> transmission selection algorithm; mlnx_qos only
    default_priority: int = field(default=0)

    @property
    def lossless(self) -> frozenset[int]:
        """The priorities with PFC on."""
        return frozenset(priority for priority, on in (self.pfc or {}).items() if on)

    @property
    def dcbx_owner(self) -> str | None:
        """The owner of the DCB settings: ``os`` or ``firmware``; None if not shown."""
        words = (self.dcbx or "").lower()
        if "controlled" in words:
            return "os" if words.startswith("os") else "firmware"
        return None if self.dcbx is None else "os" if "host" in words.split() else "firmware"


def facts(qos: PortQos) -> dict[str, Any]:
    """Return the settings as `preflight read --json` prints them."""
    buffers: dict[str, Any] | None = None
    if qos.buffers is not None:
        shown = {"of_priority": qos.buffers.of_priority, "sizes": qos.buffers.bytes}
        buffers = {name: list(value) for name, value in shown.items() if value}
        if qos.tsa is not None and qos.buffers.bytes:
            buffers["max_buffer_size"] = qos.buffers.most_bytes
    return {
        "trust": qos.trust,
        "pfc": None if qos.pfc is None else {str(priority): on for priority, on in qos.pfc.items()},
        "dscp_to_priority": None
        if qos.dscp is None
        else {str(dscp): max(priorities) for dscp, priorities in qos.dscp.of.items()},
        "priority_to_tc": None
        if qos.priority_to_tc is None
        else {str(priority): tc for priority, tc in qos.priority_to_tc.items()},
        "buffers": buffers,
        "dcbx": qos.dcbx,
        **({} if qos.tsa is None else {"tsa": qos.tsa}),
    }


def summary(qos: PortQos) -> str:
    """Return a one-line summary of the trust state and PFC."""
    on = "unknown" if qos.pfc is None else ", ".join(map(str, sorted(qos.lossless))) or "none"
    return f"trust {qos.trust or 'unknown'}, PFC on priorities: {on}"
