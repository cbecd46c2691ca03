"""Judgement of counters that were read once.

A total since driver load does not show when it grew: beyond its limit, it is unknown, and never warns or fails.
``error_counters`` and ``congestion`` judge growth over a window on a node, with the same catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight.facts.counter_catalogue import Counter, CounterKind, counter
from preflight.model import Finding, passed, unknown

#: Counter names of perfquery and older sysfs -> names of current sysfs.
_PERFQUERY = {
    "SymbolErrorCounter": "symbol_error", "SymbolErrors": "symbol_error", "LinkErrorRecovery": "link_error_recovery",
    "LinkErrorRecoveryCounter": "link_error_recovery", "LinkRecovers": "link_error_recovery",
    "LinkDownedCounter": "link_downed", "LinkDowned": "link_downed", "PortRcvErrors": "port_rcv_errors",
    "RcvErrors": "port_rcv_errors", "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards", "XmtDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors", "PortRcvPkts": "port_rcv_packets",
    "PortXmitWait": "port_xmit_wait",
}  # fmt: skip

#: Checks by kind of counter.
CHECKS = {
    "counters.loss": (CounterKind.LOSS,),
    "counters.link-quality": (CounterKind.LINK, CounterKind.ELSEWHERE),
    "counters.flaps": (CounterKind.FLAP,),
    "counters.receiver": (CounterKind.RECEIVER,),
}

#: Lifetime totals that rdma-core's ibcheckerrs tolerates, by kind.
TOLERATED = {CounterKind.LINK: 10, CounterKind.FLAP: 10, CounterKind.ELSEWHERE: 100, CounterKind.LOSS: 100,
             CounterKind.RECEIVER: 100}  # fmt: skip

#: Totals that every port may have: the link is down once, at boot.
_USUAL = {CounterKind.FLAP: 1}

#: Maximum number of non-zero counters listed in a pass.
_MOST_SHOWN = 6

#: Share of lost packets that does not reduce throughput (as ``counter_growth.RARE``).
RARE = 1e-6

#: Driver-specific counter names -> mlx5 names, by which they are judged.
_ALIASES = {
    "rx_icrc_encapsulated_errors": "rx_icrc_encapsulated", "seq_err_naks_rcvd": "packet_seq_err",
    "to_retransmits": "local_ack_timeout_err", "oos_drop_count": "out_of_sequence",
    "max_retry_exceeded": "req_transport_retries_exceeded", "RcTimeOut": "local_ack_timeout_err",
    "RcSeqNak": "packet_seq_err", "cnpIgnored": "rp_cnp_ignored", "rcvd_seq_err": "packet_seq_err",
    "retry_exceeded_err": "req_transport_retries_exceeded", "requester_timeout": "local_ack_timeout_err",
    "responder_oos": "out_of_sequence", "rx_roce_discards": "rx_discards_phy", "tx_roce_discards": "tx_discards_phy",
}  # fmt: skip
_SOURCES = ("counters", "hw_counters", "ethtool", "switch")
#: Counter names of other drivers, by the words in them (Linux, drivers/net/ethernet; Amazon's ena).
_OTHER_NAMES = (
    (
        CounterKind.FLAP,
        re.compile(r"link_?down_?events?|(?:port_)?link_(?:down|fault)s?"),
        "number of times that the link went down",
    ),
    (
        CounterKind.LINK,
        re.compile(
            r"[rt]x_?(?:\w{1,20}_)?(?:crc|fcs|symbol|align|frame|code)_?err(?:or)?s?(?:_\w{1,20})?"
            r"|(?:port[._])?[rt]x[._](?:crc_)?errors(?:_phy)?|illegal_bytes"
        ),
        "damaged frames",
    ),
    (CounterKind.LOSS, re.compile(r"\w{2,20}_allowance_exceeded"), "packets queued or dropped at the cloud's limit"),
    (
        CounterKind.RECEIVER,
        re.compile(
            r"(?:port[._])?rx[._](?:\w{1,30}[._])?"
            r"(?:dropped|drops?|discards?|missed(?:_errors)?|no_?buf\w{0,20}|fifo_errors)"
        ),
        "packets dropped on receipt",
    ),
    (
        CounterKind.LOSS,
        re.compile(r"(?:port[._])?tx[._](?:\w{1,30}[._])?(?:dropped|drops?|discards?)"),
        "packets dropped on transmit",
    ),
    # Generic words in counter names of unknown drivers.
    (
        CounterKind.FLAP,
        re.compile(r".*(?:link|carrier)_?(?:down|lost|loss|fault|flap).*", re.I),
        "link losses",
    ),
    (
        CounterKind.LINK,
        re.compile(r".*(?:crc|fcs|symbol|align|jabber|icrc|uncorrect|bad_?(?:code|symbol)).*", re.I),
        "damaged frames",
    ),
    (
        CounterKind.RECEIVER,
        re.compile(r".*rx.*(?:drop|discard|no_?buf|no_?desc|missed|overflow|overrun|fifo|starv|alloc_fail).*", re.I),
        "packets dropped on receipt",
    ),
    (
        CounterKind.LOSS,
        re.compile(
            r".*(?:drop|discard|retrans|time_?out|out_?of_?(?:seq|order)|lost|overflow|overrun|fail|err(?:or)?s?(?:_|$)).*",
            re.I,
        ),
        "losses or errors, according to its name",
    ),
)
#: Words in the names of counters that count no losses, but packets for other hosts, packets refused by a program,
#: corrected errors, and the like.
_HARMLESS = re.compile(
    r".*(?:flush|xdp|steer|recover|corrected|err_lane|ipsec|tls|macsec|multicast|bcast|mcast|filter|fdir|vlan|csum|checksum"
    r"|cqe_compress|cache|oversize|unsupported|cnp|ecn|pause|hash|veb|lro|gro|tso|wake|stopped|busy|if_down|switch_relay"
    r"|vl15|retry_limit|threshold|interval|period|timestamp|hwtstamp|mac_(?:local|remote)_fault|in_range_len).*", re.I
)  # fmt: skip


def known(name: str) -> Counter | None:
    """Return the catalogue's counter for a name that a tool prints; None if unknown."""
    name = _PERFQUERY.get(name, _ALIASES.get(name, name))
    for source in _SOURCES:
        result = counter(source, name)
        if result.meaning:
            return result
    name = re.sub(r"^\[\d{1,4}\]:\s*", "", name)
    if _HARMLESS.fullmatch(name):
        return None
    for kind, pattern, meaning in _OTHER_NAMES:
        if pattern.fullmatch(name):
            return Counter(name, kind, meaning)
    return None


_READ_AGAIN = "Read it again after a minute under traffic, or run `preflight check --window 60` on the node."


def _share(row: Counter, value: int, packets: int) -> str:
    """Return a loss as a share of the packets; empty for one that is tolerated anyway."""
    return f" (1 in {packets // value:,} packets)" if packets > value > TOLERATED[row.kind] else ""


def _worst(counters: Mapping[str, int], packets: int) -> str:
    """Return the first counter of a port beyond its tolerance; empty if none."""
    judged = {kind for kinds in CHECKS.values() for kind in kinds}
    return next(
        (
            f"{name} {value}"
            for name, value in counters.items()
            if (row := known(name)) and row.kind in judged and _is_high(row, value, packets)
        ),
        "",
    )


#: Counters of requests that stalled or failed; others count packets that were sent again in time.
_BROKEN = frozenset({"local_ack_timeout_err", "rnr_nak_retry_err", "req_transport_retries_exceeded"})


def judge_totals(
    check: str, places: Mapping[str, Mapping[str, int]], evidence: tuple[str, ...], complete: bool
) -> Iterator[Finding]:
    """Judge the totals of a check's kinds of counters, port by port.

    An empty port name is left out of the messages.
    """
    kinds = CHECKS[check]
    looked_at, calm = 0, True
    some: list[str] = []
    for place, counters in places.items():
        mine = {name: (row, value) for name, value in counters.items() if (row := known(name)) and row.kind in kinds}
        looked_at += len(mine)
        packets = max((counters.get(name, 0) for name in ("port_rcv_packets", "PortRcvPkts", "rx_packets")), default=0)
        some += [
            f"{f'{place} ' if place else ''}{name} {value}{_share(row, value, packets)}"
            for name, (row, value) in mine.items() if value
        ]  # fmt: skip
        high = {name: result for name, result in mine.items() if _is_high(*result, packets)}
        if not high:
            worst = _worst(counters, packets)
            beside = [f"{name} {value}" for name, (row, value) in mine.items() if value > _USUAL.get(row.kind, 0)]
            if worst and (listed := ", ".join(beside)):
                calm = False
                yield unknown(
                    f"{place or 'the port'}: {listed}: rdma-core tolerates it in a port's lifetime, but not "
                    f"together with {worst}", subject=place, found=listed[:300], expected="no growth between "
                    "two readings",
                    evidence=evidence, fix=_READ_AGAIN,
                )  # fmt: skip
            continue
        calm = False
        worst_first = sorted(high, key=lambda name: (name not in _BROKEN, -high[name][1]))
        first, (row, value) = worst_first[0], high[worst_first[0]]
        also = f"; also {', '.join(f'{name} {high[name][1]}' for name in worst_first[1:4])}" if worst_first[1:] else ""
        stopped = any(row.stops and value == 2**row.bits - 1 for row, value in high.values())
        listed = ", ".join(f"{name} {value}" for name, (_, value) in high.items())
        yield unknown(
            f"{place or 'the port'}: {first} {value}: {row.meaning}{also}; the period is unknown from a single reading"
            + ("; a counter is at its maximum" if stopped else ""),
            subject=place,
            found=listed[:300],
            expected="no growth between two readings",
            evidence=evidence,
            fix=_READ_AGAIN,
        )
    if looked_at and calm and complete:
        words = f": {', '.join(some[:_MOST_SHOWN])}{' …' if some[_MOST_SHOWN:] else ''}" if some else ""
        yield passed(
            f"{looked_at} counter{'s are' if looked_at > 1 else ' is'} within a port's lifetime limits"
            f"{words}", evidence=evidence,
        )  # fmt: skip


def _is_high(row: Counter, value: int, packets: int) -> bool:
    if (row.fail_per_h == 0 and row.kind is not CounterKind.FLAP) or row.name == "tx_pause_storm_error_events":
        return value > 0  # a queue pair died, a buffer overran, the pause was switched off
    if row.rare and packets:
        return value > max(TOLERATED[row.kind], RARE * packets)
    return value > TOLERATED[row.kind]


#: Share of a second, in percent, for which PCIe stalled the NIC; above it, the host is the bottleneck.
_STALLED_MOST = 10


def judge_stalls(places: Mapping[str, Mapping[str, int]], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report NICs that wait for PCIe."""
    for place, counters in places.items():
        for name in ("outbound_pci_stalled_rd", "outbound_pci_stalled_wr"):
            if counters.get(name, 0) > _STALLED_MOST:
                yield unknown(
                    f"{place or 'the port'}: {name}: PCIe stalled the NIC for {counters[name]}% of a second",
                    subject=place, found=f"{name} {counters[name]}", expected=f"at most {_STALLED_MOST}%",
                    evidence=evidence, fix="Compare pcie.nic-link, pcie.max-read-request and the IOMMU's setting.",
                )  # fmt: skip


#: Pauses of all priorities, and ignored congestion notifications.
_HELD = re.compile(r"rx_global_pause|tx_global_pause|[rt]x_pause_ctrl_phy|[rt]x_pause_storm_warning_events"
                   r"|rp_cnp_ignored|cnpIgnored")  # fmt: skip


#: Pauses of one priority that a NIC received or sent; maximum on a healthy port of a lossless fabric: a judgement call.
_PRIORITY_PAUSE = re.compile(r"([rt])x_prio([0-7])_pause")
_USUAL_PAUSES = 10_000


def judge_priority_pauses(
    places: Mapping[str, Mapping[str, int]], evidence: tuple[str, ...], complete: bool
) -> Iterator[Finding]:
    """Report priorities on which the switch or the NIC often paused the other."""
    looked_at, calm = 0, True
    for place, counters in places.items():
        for name, value in counters.items():
            if (match := _PRIORITY_PAUSE.fullmatch(name)) is None:
                continue
            looked_at += 1
            if value <= _USUAL_PAUSES:
                continue
            calm = False
            lasted = counters.get(f"{name}_duration", 0)
            stopped, behind = ("the switch stopped the NIC", "congestion behind the port") if match[1] == "r" else (
                "the NIC stopped the switch", "a host that is too slow for its NIC")  # fmt: skip
            total = f", for {lasted / 1e6:.1f} s in total" if lasted else ""
            yield unknown(
                f"{place or 'the port'}: {name} {value}: {stopped} this often on priority {match[2]}{total}: "
                f"{behind}, if it still grows", subject=place, found=f"{name} {value}", evidence=evidence,
                expected="little growth between two readings", fix=_READ_AGAIN,
            )  # fmt: skip
    if looked_at and calm and complete:
        yield passed(
            f"{looked_at} pause counter{'s are' if looked_at > 1 else ' is'} at most {_USUAL_PAUSES:,}",
            evidence=evidence,
        )


def _meaning_of(counter: str) -> tuple[str, str]:
    """Return the meaning and the next step of a counter of congestion."""
    if counter in ("rp_cnp_ignored", "cnpIgnored"):
        return "congestion notifications arrived while its reaction point was off", "Enable ECN: roce_rp/enable."
    if "storm" in counter:
        return (
            "the NIC did not accept packets for long, and sent pauses meanwhile",
            "Compare its PCIe link, the IOMMU and its NUMA node; a host that stalls slows all senders to it.",
        )
    return (
        "pauses of all priorities, which exclude PFC",
        "`ethtool -a IF`; on a lossless site disable pause and enable PFC.",
    )


def judge_congestion(places: Mapping[str, Mapping[str, int]], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report global pauses, and ignored congestion notifications."""
    for place, counters in places.items():
        for name, value in counters.items():
            if not value or not _HELD.fullmatch(name):
                continue
            meaning, fix = _meaning_of(name)
            yield unknown(
                f"{place or 'the port'}: {name} {value}: {meaning}; the period is unknown from a single reading",
                subject=place, found=f"{name} {value}", expected="0", evidence=evidence,
                fix=fix,
            )  # fmt: skip


def judge_marking(places: Mapping[str, Mapping[str, int]], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report traffic on priority 0 if lossless priorities have hardly any."""
    for place, counters in places.items():
        by_priority = {number: counters.get(f"rx_prio{number}_bytes", 0) for number in range(8)}
        lossless = [number for number in range(1, 8) if f"rx_prio{number}_pause" in counters]
        marked = sum(by_priority[number] for number in lossless)
        if lossless and by_priority[0] > 10**9 and marked < by_priority[0] / 1000:
            names = ", ".join(map(str, lossless))
            yield unknown(
                f"{place or 'the port'}: priority 0 received {by_priority[0]} bytes, priority {names} with PFC "
                f"{marked}: RDMA may run unmarked",
                subject=place, found=f"rx_prio0_bytes {by_priority[0]}", expected=f"RDMA on priority {names}",
                evidence=evidence, fix="Compare NCCL_IB_TC and the DSCP map (`mlnx_qos -i IF`) with the PFC priority.",
            )  # fmt: skip
