"""One Ethernet switch, in vendor-neutral values.

None always means that the switch does not show the value, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight._startup.lightclass import dataclass, field

#: One number for each priority, 0 to 7.
ByPriority = tuple["int | None", ...]


@dataclass(frozen=True)
class Heard:
    """A neighbour that LLDP reports on a port; a value not announced is empty."""

    system_name: str  # of the neighbour
    chassis: str  # its chassis, usually a MAC address
    port: str
    description: str  # of that port, usually the interface name


@dataclass(frozen=True)
class SwitchPort:
    """A port and its settings."""

    name: str
    alias: str = ""
    speed_gbps: float | None = None
    mtu: int | None = None  # bytes of the payload, without Ethernet header
    fec: str | None = None  # rs, fc or none
    admin_up: bool | None = None
    up: bool | None = None
    cable_m: float | None = None  # declared length
    pfc: frozenset[int] | None = None  # lossless priorities
    heard: Heard | None = None
    lanes: int | None = None  # lanes of the switch chip
    subport: int | None = None  # number of its part of the module, from 1; 0: the entire module

    @property
    def names(self) -> frozenset[str]:
        """The names under which a neighbour may show the port."""
        return frozenset(name for name in (self.name, self.alias) if name)


@dataclass(frozen=True)
class QueueMarking:
    """ECN marking of one queue."""

    profile: str
    on: bool
    kmin: int | None  # bytes
    kmax: int | None
    pmax: int | None  # percent


@dataclass(frozen=True)
class PriorityGroup:
    """Ingress buffer of one priority group; without ``xoff`` it is lossy."""

    profile: str
    pool: str
    xoff: int | None  # bytes between the pause and the end of the buffer
    xon: int | None
    size: int | None  # bytes that are reserved
    dynamic_th: int | None  # threshold: 2 to this power, times the free bytes of its pool
    static_th: int | None  # or a fixed number of bytes


@dataclass(frozen=True)
class BgpSession:
    """A BGP session of the switch."""

    state: str  # Established, Active, Idle, …; empty: not shown
    neighbour: str  # configured name of the peer; empty: none
    off: bool  # switched off in the configuration


@dataclass(frozen=True)
class PfcWatchdog:
    """Settings of the PFC watchdog on one port."""

    action: str  # drop, forward, alert
    detect_ms: int | None
    restore_ms: int | None


@dataclass(frozen=True)
class QosMaps:
    """Classification of one port: DSCP to traffic class to queue, priority to queue.

    A map that is bound to the port but not shown is empty; None if none is bound.
    """

    tc_of_dscp: Mapping[int, int] | None
    queue_of_tc: Mapping[int, int] | None
    group_of_tc: Mapping[int, int] | None
    queue_of_priority: Mapping[int, int] | None

    def queue(self, priority: int) -> int:
        """Return the queue that a PFC priority pauses; without a map, the same number."""
        return (self.queue_of_priority or {}).get(priority, priority)

    def queue_of(self, tc: int) -> int:
        """Return the queue of a traffic class; without a map, the same number."""
        return (self.queue_of_tc or {}).get(tc, tc)

    def groups(self, priority: int) -> frozenset[int]:
        """Return all priority groups that a priority's packets may enter."""
        return frozenset(self._group_of(tc) for tc in (*self._classes(priority), priority))

    def group(self, priority: int, dscp: int | None) -> int:
        """Return the priority group of a priority's packets.

        If the traffic class of the DSCP uses the queue that the priority pauses, it decides; else the class with the
        priority's number, or, with an unknown DSCP, a class that uses the queue. Without a map, it is the same number.
        """
        classes = self._classes(priority)
        tc = None if dscp is None else (self.tc_of_dscp or {}).get(dscp)
        if tc is None and classes and priority not in classes:
            tc = classes[0]
        return self._group_of(tc if tc is not None and tc in classes else priority)

    def _classes(self, priority: int) -> list[int]:
        """Return the traffic classes whose queue a PFC priority pauses."""
        queue = self.queue(priority)
        return [tc for tc in range(8) if self.queue_of(tc) == queue]

    def _group_of(self, tc: int) -> int:
        return (self.group_of_tc or {}).get(tc, tc)


@dataclass(frozen=True)
class PortCounters:
    """Counters of one port at one time."""

    pfc_rx: ByPriority  # pause frames received
    pfc_tx: ByPriority
    paused_us: ByPriority  # µs that the port did not send, because it was paused
    estimated: bool  # the pause time was estimated by polling
    in_octets: int | None
    out_octets: int | None
    in_errors: int | None
    out_errors: int | None
    in_discards: int | None
    out_discards: int | None
    uncorrectable: int | None  # FEC codewords
    corrected: int | None
    bins: tuple[int | None, ...]  # FEC codewords by the number of wrong symbols, 0 to 15; empty: not shown
    raw_ber: float | None = None  # bit error ratio before FEC


@dataclass(frozen=True)
class QueueCounters:
    """Counters of one egress queue at one time."""

    packets: int | None
    octets: int | None
    drops: int | None
    marked: int | None
    wred_drops: int | None
    watermark: int | None  # bytes, since the last clear
    storm: str  # state of the watchdog: operational, stormed; empty: not shown
    detected: int | None
    restored: int | None


@dataclass(frozen=True)
class GroupCounters:
    """Counters of one ingress priority group at one time."""

    drops: int | None
    xoff_watermark: int | None  # bytes, since the last clear


@dataclass(frozen=True)
class Optics:
    """Module of one port: its values, and the thresholds in its memory."""

    rx_dbm: tuple[float | None, ...]  # by lane of the module
    tx_dbm: tuple[float | None, ...]
    temperature_c: float | None
    thresholds: Mapping[str, float]  # by rx, tx or temp, then low or high, then alarm or warning: "rx low alarm"


@dataclass(frozen=True)
class Counters:
    """All counters at one time, by port, or by port and number of queue or group."""

    ports: Mapping[str, PortCounters] = field(default_factory=dict)
    queues: Mapping[tuple[str, int], QueueCounters] = field(default_factory=dict)
    groups: Mapping[tuple[str, int], GroupCounters] = field(default_factory=dict)
    link_changes: Mapping[str, int] = field(default_factory=dict)  # times that a port went up or down


@dataclass(frozen=True)
class SwitchFacts:
    """Everything that one switch shows.

    ``keys`` maps each part (ports, pfc, ecn, …) to its record. ``gaps`` maps each part that could not be read to the
    reason.
    """

    name: str
    system_name: str  # as configured on the switch
    platform: str
    model: str
    chassis: str
    ports: Mapping[str, SwitchPort]
    ecn: Mapping[tuple[str, int], QueueMarking]
    groups: Mapping[tuple[str, int], PriorityGroup]
    pools: Mapping[str, Mapping[str, int | None]]
    maps: Mapping[str, QosMaps]
    watchdogs: Mapping[str, PfcWatchdog]
    watchdog_poll_ms: int | None
    poll_ms: Mapping[str, int | None]  # by group of counters; None: they are not counted
    marks_counted: bool | None  # whether the hardware counts ECN marks
    optics: Mapping[str, Optics]
    hash_seed: str | None  # of the ECMP hash
    bgp: Mapping[str, BgpSession]  # by address of the peer
    first: Counters
    second: Counters | None  # at the end of a window
    window_s: float | None  # None: one reading, or readings without a time
    keys: Mapping[str, str]
    gaps: Mapping[str, str]
    remedy: str  # how to collect what is missing
    #: Ports and priority groups that have a buffer of their own; None: some of them may not be shown.
    buffered: frozenset[tuple[str, int]] | None = None
    began: float | None = None  # time of the first reading, seconds since 1970; None: not recorded

    def key(self, part: str) -> str:
        """Return a part's record as findings name it: the switch, then the record key."""
        return f"{self.name} {self.keys[part]}"

    @property
    def lossless(self) -> Mapping[str, SwitchPort]:
        """The ports with PFC on."""
        return {name: port for name, port in self.ports.items() if port.pfc}

    def queue(self, port: str, priority: int) -> int:
        """Return the queue that a PFC priority pauses; without a map, the same number."""
        maps = self.maps.get(port)
        return maps.queue(priority) if maps else priority

    def group(self, port: str, priority: int, dscp: int | None) -> int:
        """Return the priority group of a priority's packets.

        ``dscp`` is that of RoCE packets. Without a map, it is the same number.
        """
        maps = self.maps.get(port)
        return maps.group(priority, dscp) if maps else priority


def growth(before: int | None, after: int | None) -> int | None:
    """Return the growth of a counter; None if unknown or reset in between."""
    return after - before if before is not None and after is not None and after >= before else None


def went_back(first: Counters, second: Counters) -> Sequence[str]:
    """Return the ports with a traffic counter that decreased, as after a clear."""
    return [
        name
        for name, now in second.ports.items()
        if (before := first.ports.get(name))
        and any(
            a is not None and b is not None and b < a
            for a, b in (
                (before.in_octets, now.in_octets),
                (before.out_octets, now.out_octets),
                *zip(before.pfc_rx, now.pfc_rx, strict=True),
                *zip(before.pfc_tx, now.pfc_tx, strict=True),
            )
        )
    ]
