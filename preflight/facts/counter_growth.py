"""Growth of a port's counters over a window, from sysfs and ``ethtool -S``.

Growth is reported only if it is certain: a counter that was already saturated, or decreased, has none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError, Record
from preflight.facts.counter_catalogue import CARRIER, Counter, CounterKind, counter
from preflight.facts.rdma_ports import ROOT, Port, interfaces
from preflight.facts.two_readings import Readings, output_of, twice
from preflight.parsers.network import ethtool_statistics
from preflight.parsers.record import parse_complete
from preflight.textprep.plain_text import integer

SOURCES = ("counters", "hw_counters", "ethtool")

#: Share of the received packets up to which rare events are tolerated, one in a million; more lost packets reduce RDMA
#: throughput.
RARE = 1e-6
#: Events per second at which rare events are reported if the number of packets is unknown (rdma-core).
OFTEN_PER_S = 10


@dataclass(frozen=True)
class Growth:
    """One counter's readings at both ends of a window."""

    counter: Counter
    key: str
    before: int
    after: int
    seconds: float

    @property
    def grown(self) -> int:
        """Growth in the counter's unit; a lower bound if the counter is saturated."""
        return (self.after - self.before) * self.counter.scale

    @property
    def per_s(self) -> float:
        """Growth per second."""
        return self.grown / self.seconds

    @property
    def sure_per_h(self) -> float:
        """Certain events per hour: growth minus twice its square root, to exclude chance."""
        return max(0.0, self.grown - 2 * math.sqrt(self.grown)) * 3600 / self.seconds if self.grown > 0 else 0.0

    @property
    def fails(self) -> bool:
        """Whether the growth exceeds the counter's limit, not merely by chance."""
        limit = self.counter.fail_per_h
        return limit is not None and self.grown > 0 and (limit == 0 or self.sure_per_h > limit)


@dataclass(frozen=True)
class Unclear:
    """A counter with unknown growth."""

    counter: Counter
    key: str
    why: str


@dataclass(frozen=True)
class PortGrowth:
    """Growth of a port's counters; ``refused`` maps unread sources to their errors."""

    port: Port
    growths: tuple[Growth, ...]
    unclear: tuple[Unclear, ...]
    refused: Mapping[str, EvidenceError]

    @property
    def seconds(self) -> float:
        """Length of the window, seconds; 0 if no growth is known."""
        return max((growth.seconds for growth in self.growths), default=0.0)

    def grown(self, *kinds: CounterKind) -> tuple[Growth, ...]:
        """Return the counters of these kinds that grew."""
        return tuple(g for g in self.growths if g.grown and g.counter.kind in kinds)

    def frequent(self, *kinds: CounterKind) -> list[Growth]:
        """Return the growth of these kinds, except events that are rare per packet."""
        grown = list(self.grown(*kinds))
        shared = [growth for growth in grown if growth.counter.rare]
        number = sum(growth.grown for growth in shared)
        often = number > RARE * self.packets if self.packets else sum(growth.per_s for growth in shared) > OFTEN_PER_S
        return [growth for growth in grown if often or growth not in shared]

    def named(self, name: str) -> Growth | None:
        """Return one counter; None if it was not read, or its growth is unknown."""
        return self._by_name.get(name)

    def matching(self, pattern: str) -> tuple[Growth, ...]:
        """Return the counters with names that match a regular expression completely."""
        return tuple(self.growths[place] for place in _places(pattern, self._names))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(growth.counter.name for growth in self.growths)

    @cached_property
    def _by_name(self) -> Mapping[str, Growth]:
        return {growth.counter.name: growth for growth in reversed(self.growths)}  # the first of a name is used

    @property
    def gbps(self) -> tuple[float, float] | None:
        """Gigabits per second sent and received; None if unknown."""
        names = ("tx_bytes", "rx_bytes") if self.port.efa else ("port_xmit_data", "port_rcv_data")
        sent, received = map(self.named, names)
        if sent is None or received is None:
            return None
        return sent.per_s * 8e-9, received.per_s * 8e-9

    @property
    def packets(self) -> int | None:
        """Packets received in the window; None if unknown."""
        received = self.named("rx_pkts" if self.port.efa else "port_rcv_packets")
        return None if received is None else received.grown

    @property
    def load(self) -> float | None:
        """The busier direction as a share of the port's rate; None if not known."""
        if self.gbps is None or not self.port.rate_gbps:
            return None
        return max(self.gbps) / self.port.rate_gbps


@lru_cache(maxsize=1024)
def _places(pattern: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indexes of the matching names.

    Cached, as the ports of a fleet have the same counters.
    """
    return tuple(place for place, name in enumerate(names) if re.fullmatch(pattern, name))


def key_of(source: str, port: Port) -> str:
    """Return the record key of a source.

    Raises EvidenceError if the port has no single interface.
    """
    if source != "ethtool":
        return f"files:{ROOT}/{port.device}/ports/{port.number}/{source}"
    if port.netdev is None:
        key = f"dir:{ROOT}/{port.device}/device/net"
        raise EvidenceError(key, "no single interface in this namespace belongs to the port: run preflight on the host")
    return f"cmd:ethtool -S {port.netdev}"


def sources_of(port: Port) -> tuple[str, ...]:
    """Return the sources of a port's counters.

    IPoIB's ``ethtool -S`` has nothing about an InfiniBand port.
    """
    if port.efa:
        return ("hw_counters",)  # its driver does not answer management datagrams, which sysfs counters need
    return SOURCES if port.roce else SOURCES[:2]


def totals(evidence: Evidence, port: Port) -> dict[str, int]:
    """Return a port's counters at the first reading, in their units.

    Sources without an answer are left out, and so are wait counters at their maximum, where they stop.
    """
    numbers: dict[str, int] = {}
    for source in sources_of(port):
        try:
            read = _PARSERS[source](evidence.complete_record(key_of(source, port)))
        except (EvidenceError, ValueError):
            continue
        for name, number in read.items():
            entry = counter(source, name)
            if entry.kind is not CounterKind.CONGESTION or number < 2**entry.bits - 1 or not entry.stops:
                numbers[name] = number * entry.scale
    return numbers


def port_growth(evidence: Evidence, port: Port) -> PortGrowth:
    """Return the growth of all counters of a port between two readings."""
    growths: list[Growth] = []
    unclear: list[Unclear] = []
    refused: dict[str, EvidenceError] = {}
    for source in sources_of(port):
        try:
            readings = twice(evidence, key_of(source, port), _PARSERS[source])
        except EvidenceError as error:
            refused[source] = error
            continue
        _compare(source, readings, growths, unclear)
    for netdev in _interfaces(evidence, port):
        key = f"file:/sys/class/net/{netdev}/carrier_changes"
        try:
            changes = twice(evidence, key, _carrier)
        except EvidenceError as error:
            refused["carrier"] = error
            continue
        grown = _growth(CARRIER, key, changes.before, changes.after, changes.seconds)
        (growths if isinstance(grown, Growth) else unclear).append(grown)  # type: ignore[arg-type]
    return PortGrowth(port, tuple(growths), tuple(unclear), refused)


def _interfaces(evidence: Evidence, port: Port) -> tuple[str, ...]:
    try:
        names = interfaces(evidence, port)
    except EvidenceError:
        return ()
    return names if len(names) == 1 else ()


def _compare(source: str, readings: Readings[Mapping[str, int]], growths: list[Growth], unclear: list[Unclear]) -> None:
    for name, before in readings.before.items():
        known = counter(source, name)
        after = readings.after.get(name)
        if after is None:
            unclear.append(Unclear(known, readings.key, "is gone from the second reading"))
            continue
        found = _growth(known, readings.key, before, after, readings.seconds)
        (growths if isinstance(found, Growth) else unclear).append(found)  # type: ignore[arg-type]


def _growth(known: Counter, key: str, before: int, after: int, seconds: float) -> Growth | Unclear:
    top = 2**known.bits - 1
    if before == top and (known.stops or after == before):
        return Unclear(known, key, f"is at its maximum, {top}")
    if after < before:
        return Unclear(known, key, f"decreased from {before} to {after}: it wrapped or was reset")
    return Growth(known, key, before, after, seconds)


def parse_files(value: Any) -> dict[str, int]:
    """Read a directory of counters, name -> number; raises ValueError.

    ``N/A`` means that the port's management agent lacks the counter.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"contains a {type(value).__name__}, not names and values")
    found: dict[str, int] = {}
    for name, text in value.items():
        if not isinstance(text, str):
            raise ValueError(f"{str(name)[:60]!r} is a {type(text).__name__}, not a text")
        if not text.startswith("N/A"):
            found[str(name)] = _number(text, str(name)[:60])
    if not found:
        raise ValueError("no counter found")
    return found


def parse_ethtool(text: str) -> Mapping[str, int]:
    """Read ``ethtool -S``; raises ValueError if it has no counter or is truncated."""
    if not text.strip():
        raise ValueError("no counter found")
    return parse_complete(text, ethtool_statistics.begins, ethtool_statistics.parse_lines).counters


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,20}\s*", text):
        raise ValueError(f"{what} is {text.strip()[:60]!r}, not a number")
    return int(text)


def _files(record: Record) -> Mapping[str, int]:
    return parse_files(record.value)


def _carrier(record: Record) -> int:
    return integer(record.out, "carrier_changes")


_PARSERS: Mapping[str, Callable[[Record], Mapping[str, int]]] = {
    "counters": _files,
    "hw_counters": _files,
    "ethtool": lambda record: parse_ethtool(output_of(record)),
}


def window_of(ports: Iterable[PortGrowth]) -> str:
    """Return the length of the longest window, such as ``60 s``."""
    return f"{max((port.seconds for port in ports), default=0.0):.0f} s"
