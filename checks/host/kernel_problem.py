"""A problem found in the kernel log, and the wording of its time and frequency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight._startup.lightclass import dataclass
from preflight.facts.kernel_log import age
from preflight.model import Status, counted
from preflight.parsers.host.kernel_events import KernelEvent
from preflight.parsers.host.raid_arrays import RaidArray

#: Seconds after boot in which devices are set up: links flap, and unsupported requests are refused.
BOOT_S = 600
#: Maximum number of names in a message.
_NAMED = 4


@dataclass(frozen=True)
class Problem:
    """One problem: severity, message, device and the lines that show it."""

    status: Status  # unknown: a fault only if a job uses the device, which the log does not show
    message: str
    subject: str
    kind: str
    events: tuple[KernelEvent, ...]
    fix: str
    parts: tuple[str, ...] = ()  # processes, or mount points


@dataclass(frozen=True)
class Window:
    """The period in which events count, and properties of the node."""

    now_s: float | None = None  # by the log's clock
    hours: float = 24.0
    since_boot: bool = True  # whether times are seconds since boot
    guest: bool = False  # whether this is a virtual machine
    mounted: tuple[tuple[str, str], ...] = ()  # mounted disks and partitions, each with a mount point
    arrays: tuple[RaidArray, ...] = ()  # disk arrays of the node

    def recent(self, event: KernelEvent) -> bool:
        """Return whether an event counts; an event of unknown age does."""
        return self.now_s is None or event.at_s is None or self.now_s - event.at_s <= self.hours * 3600

    def aged(self, events: Sequence[KernelEvent]) -> bool:
        """Return whether any of the events counts."""
        return any(map(self.recent, events))

    def booting(self, event: KernelEvent, until_s: float = BOOT_S) -> bool:
        """Return whether devices were being set up at the time."""
        return self.since_boot and event.at_s is not None and event.at_s < until_s

    def when(self, events: Sequence[KernelEvent]) -> str:
        """Return the age of the last event; empty if unknown."""
        last = max((event.at_s for event in events if event.at_s is not None), default=None)
        if self.now_s is None or last is None or last > self.now_s:
            return ""
        return f", {'last ' if len(events) > 1 else ''}{age(self.now_s - last)} ago"

    def span(self, events: Sequence[KernelEvent]) -> str:
        """Return the time span of the events; empty if unknown."""
        times = [event.at_s for event in events if event.at_s is not None]
        return f" within {age(max(times) - min(times))}" if len(times) > 1 and len(times) == len(events) else ""

    def times(self, events: Sequence[KernelEvent]) -> str:
        """Return the number of occurrences; empty for one."""
        return f" ({len(events)} times)" if len(events) > 1 else ""


def count(events: Sequence[object], noun: str) -> str:
    """Return the number of events with a noun, in the plural if needed."""
    return counted(len(events), noun)


def listed(names: Iterable[str]) -> str:
    """List the first few distinct names."""
    grouped = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(grouped) - _NAMED} more" if len(grouped) > _NAMED else ""
    return ", ".join(name[:60] for name in grouped[:_NAMED]) + more


def devices_of(events: Iterable[KernelEvent], by_bus: bool = False) -> list[tuple[str, tuple[KernelEvent, ...]]]:
    """Return the events of each device, in order."""
    grouped: dict[str, list[KernelEvent]] = {}
    for event in events:
        grouped.setdefault((event.device or event.bus) if by_bus else event.device, []).append(event)
    return [(device, tuple(held)) for device, held in grouped.items()]
