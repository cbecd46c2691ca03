"""Judges of RDMA ports and their GIDs.

Pasted output does not show which ports a job uses: a port that is down or slower than others is *unknown*. One that is
enabled and finds no peer, while most others are active, warns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Address

from preflight._startup.lightclass import replace
from preflight.checks.kubernetes.container import judge_guids
from preflight.checks.rdma.firmware import judge_board
from preflight.checks.rdma.ports import judge_link_layers, judge_port_rates, judge_port_states, usual_layer
from preflight.checks.rdma.verbs import USUAL_MTU, judge_active_mtus
from preflight.expectations import Expected
from preflight.facts.gids import Gid
from preflight.facts.rdma_ports import Port, of_listed
from preflight.facts.roce_chain.addressing import best_row
from preflight.model import (
    Finding,
    Status,
    all_of,
    clause,
    each_of,
    failed,
    passed,
    some_of,
    unknown,
    verb,
    warned,
)
from preflight.parsers.host.device_names import is_second_port
from preflight.parsers.rdma.gid_row import GidRow
from preflight.parsers.rdma.port_list import PortList, RdmaPort
from preflight.recognition.judges import MOST_NAMED, Judges, PastedValue
from preflight.recognition.judges.hosts import COMPARED
from preflight.recognition.judges.lists import MOST_FINDINGS, limited, unsure

#: ``vendor_id`` of Soft-RoCE and Soft-iWARP (rxe_param.h, siw.h): the kernel creates their packets.
_SOFTWARE = frozenset({"0xffffff", "0x626d74"})


def _ports(part: PastedValue) -> list[Port]:
    listed: PortList = part.value
    return [of_listed(port, part.evidence) for port in listed.ports]


#: Least number of ports of which one that finds no peer is odd: a judgement call.
_COMPARED = 3


@limited
def _port_states(part: PastedValue) -> Iterator[Finding]:
    ports = _ports(part)
    shown = [port for port in ports if port.state]
    up = [port for port in shown if port.active]
    listed: PortList = part.value
    lonely = {port.name for source, port in zip(listed.ports, ports, strict=True) if port.state == "DOWN"
              and port.physical_state == "Polling" and not _is_second(source, listed)}  # fmt: skip
    few = len(lonely) >= len(up) or len(shown) < _COMPARED
    none_up = len(shown) > 1 and not any(port.state == "ACTIVE" for port in shown) and part.complete
    alone = len(shown) == 1 and part.complete  # this port, not a list

    def report_for(port: Port) -> Callable[..., Finding]:
        if port.state == "INIT" and port.physical_state in ("LinkUp", ""):
            return failed
        if port.state == "ACTIVE" or alone or (port.name in lonely and up and not few):
            return warned
        return failed if none_up else unsure

    yield from judge_port_states(shown, report_for, "ACTIVE/LinkUp")
    if not shown:
        return
    if blank := [port.name for port in ports if not port.state]:
        yield unknown(f"{len(up)} of {len(ports)} RDMA ports are active; the text lacks the state of "
                      f"{', '.join(blank[:MOST_NAMED])}",
                      fix="Paste the complete output.", evidence=part.evidence)  # fmt: skip
    elif len(up) == len(ports) and part.complete:
        yield passed(
            f"{some_of(len(up), len(ports), 'RDMA port')} {verb(len(up), 'is')} active", evidence=part.evidence
        )
    elif len(up) == len(ports):
        yield unknown(f"the {len(up)} RDMA ports that the text shows are active, but the list is incomplete",
                      fix="Paste the complete output; an unreadable device may be faulty.",
                      evidence=part.evidence)  # fmt: skip


def _is_second(port: RdmaPort, listed: PortList) -> bool:
    """Return whether a port is not the first of its card.

    Many cards have an unused second port. The node GUID of a card's second function is one above the first's.
    """
    guids = {number for other in listed.ports if (number := _node_guid(other)) is not None}
    own = _node_guid(port)
    next_one = own is not None and own - 1 in guids
    return (port.number or 1) > 1 or is_second_port(port.netdev or "") or next_one


def _node_guid(port: RdmaPort) -> int | None:
    digits = str(port.other.get("node_guid") or "").replace(":", "").removeprefix("0x")
    try:
        return int(digits, 16)
    except ValueError:
        return None


@limited
def _port_rates(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    by_layer: dict[str, list[Port]] = defaultdict(list)
    for source, port in zip(listed.ports, _ports(part), strict=True):
        if port.state != "ACTIVE" or source.rate_gbps is None:
            continue
        if _is_placeholder(source):
            yield _unknown_speed(source, part)
        elif _is_one_lane(source):
            yield unsure(
                f"{source.name} runs on one lane ({source.rate}): a link that lost three lanes, or a split cable",
                subject=source.name,
                found=source.rate,
                expected="4X or 2X",
                evidence=part.evidence,
            )
        else:
            by_layer[port.link_layer].append(port)
    for ports in by_layer.values():
        known = [port for port in ports if port.rate_gbps is not None]
        yield from judge_port_rates(known, unsure, "the fastest port of its link layer")


def _is_placeholder(port: RdmaPort) -> bool:
    """Return whether a rate is the kernel's placeholder for an unknown speed."""
    slow = port.link_layer == "InfiniBand" and port.rate_gbps == 10 and "FDR10" not in port.rate
    return slow or (port.link_layer == "Ethernet" and "QDR" in port.rate)


def _unknown_speed(port: RdmaPort, part: PastedValue) -> Finding:
    return unknown(
        f"{port.name} is active at {port.rate_gbps:g} Gb/s: the kernel's placeholder for an unknown speed, "
        "or a link that trained at the lowest speed",
        subject=port.name,
        found=port.rate,
        evidence=part.evidence,
        fix="Read the speed with `mlxlink -d DEVICE` or `ethtool IF`.",
    )


def _is_one_lane(port: RdmaPort) -> bool:
    lanes = port.rate.partition("(")[2] or port.rate
    return port.link_layer == "InfiniBand" and lanes.startswith("1X")


def _link_layers(part: PastedValue) -> Iterator[Finding]:
    """Report ports of a different link layer that run at the usual rate.

    Slower ports of another link layer are for storage, or are reported as slow.
    """
    active = [port for port in _ports(part) if port.active and port.link_layer]
    if len({port.link_layer for port in active}) < 2:
        return
    usual = usual_layer(active)
    rates = {port.rate_gbps for port in active if port.link_layer == usual}
    alike = [port for port in active if port.link_layer == usual or port.rate_gbps in rates]
    if len({port.link_layer for port in alike}) > 1:
        yield judge_link_layers(alike, usual, "most active ports of the text", unsure, part.evidence[0])


@limited
def _active_mtus(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    pairs = list(zip(listed.ports, _ports(part), strict=True))
    active = [port for source, port in pairs if port.active and port.active_mtu and not _in_software(source)]
    infiniband = [port for port in active if port.infiniband]
    findings = list(judge_active_mtus(infiniband, Expected(None, "", ""), unsure))
    roce = [port for port in active if port.roce]
    small = [port for port in roce if (port.active_mtu or 0) <= 1024]
    if small and len(small) == len(roce) and not infiniband and part.complete:
        names = ", ".join(port.name for port in roce[:MOST_NAMED])
        findings.append(warned(f"all active Ethernet ports ({names}) have active MTU {small[0].active_mtu}",
                               found=small[0].active_mtu, expected=USUAL_MTU, evidence=part.evidence,
                               fix="Set MTU 9000 (at least 4200) on the interface and on the switch."))  # fmt: skip
    else:
        for port in roce:
            if (port.active_mtu or 0) < USUAL_MTU:
                findings.append(unsure(f"{port.name} has an active MTU of {port.active_mtu}, expected {USUAL_MTU}",
                                        subject=port.name, found=f"{port.active_mtu} bytes",
                                        expected=f"{USUAL_MTU} bytes", evidence=part.evidence))  # fmt: skip
    yield from findings
    if active and not findings:
        yield passed(
            f"active MTU of {USUAL_MTU} or more on {all_of(len(active), 'active port')}", evidence=part.evidence
        )


def _in_software(port: RdmaPort) -> bool:
    """Return whether a port is software RDMA, whose MTU the interface limits."""
    transport = str(port.other.get("transport"))
    name = port.device or ""
    return port.other.get("vendor_id") in _SOFTWARE or transport.startswith("iWARP") or name.startswith(("rxe", "siw"))


def _guids(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    result: dict[str, tuple[int, str]] = {}
    for port in listed.ports:
        for text in (port.guid, port.other.get("node_guid")):
            digits = str(text or "").replace(":", "").removeprefix("0x")
            if len(digits) == 16 and not digits.strip("0"):
                result[port.name] = 0, part.evidence[0]
    yield from judge_guids(result, unsure)


def _port_firmware(part: PastedValue) -> Iterator[Finding]:
    """Compare the firmware of devices on the same board type.

    If the text shows only the model, a difference is unknown, since boards of one model may differ.
    """
    listed: PortList = part.value
    boards: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for port in listed.ports:
        board, model, version = (port.other.get(name) for name in ("board_id", "ca_type", "firmware"))
        if (board or model) and version and port.device:
            boards[str(board or ""), str(model or "")][port.device] = version
    for (board, model), versions in boards.items():
        if len(set(versions.values())) > 1:
            for finding in judge_board(board or model, versions, dict.fromkeys(versions, part.evidence[0])):
                yield finding if board else replace(finding, status=Status.UNKNOWN)


def _identities(part: PastedValue) -> Iterator[Finding]:
    """Report GUIDs that two devices share.

    Equal LIDs are normal: each rail may be a separate fabric with its own manager.
    """
    listed: PortList = part.value
    owners: dict[str, set[str]] = defaultdict(set)
    for port in listed.ports:
        if port.guid and port.device and port.guid.strip("0x:"):
            owners[port.guid].add(port.device)
    for guid, devices in owners.items():
        if len(devices) > 1 and "x" not in guid[2:].lower():
            yield unknown(f"{', '.join(sorted(devices))} have the same GUID {guid}", found=guid,
                          expected="unique GUIDs", evidence=part.evidence,
                          fix="Devices of one card may share the node's GUID; ports may not.")  # fmt: skip


def _addresses(part: PastedValue) -> Iterator[Finding]:
    """Report IPv4 addresses that several ports share."""
    rows: Sequence[GidRow] = part.value
    owners: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.ipv4 and row.device:
            owners[row.ipv4].add(f"{row.device}:{row.port}")
    for address, names in owners.items():
        if len(names) > 1:
            yield unknown(f"{', '.join(sorted(names))} have the same address {address}", found=address,
                          expected="unique addresses", evidence=part.evidence,
                          fix="`ip -br addr`; members of a bond may share an address.")  # fmt: skip


@limited
def _interface_states(part: PastedValue) -> Iterator[Finding]:
    """Report interfaces that are down.

    An InfiniBand port may work although IPoIB is down.
    """
    listed: PortList = part.value
    if part.complete and listed.ports and all(port.other.get("netdev_state") == "Up" for port in listed.ports):
        yield passed(f"the interface of {each_of(len(listed.ports), 'RDMA port')} is up", evidence=part.evidence)
    for port in listed.ports:
        if port.other.get("netdev_state") not in ("Up", None):
            yield unsure(
                f"the interface {port.netdev} of {port.name} is {port.other['netdev_state']}: RoCE "
                "does not work over it, but InfiniBand does",
                subject=port.name,
                found=port.other["netdev_state"],
                expected="Up, if the port is RoCE",
                evidence=part.evidence,
            )


# --- GIDs ----------------------------------------------------------------------------------------------


def _listed_gids(part: PastedValue) -> Iterator[Finding]:
    rows: Sequence[GidRow] = part.value
    yield from _judge_gids(rows, part)


def _port_gids(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    rows = [row for port in listed.ports if port.logical == "ACTIVE" and port.link_layer == "Ethernet"
            for row in port.gids]  # fmt: skip
    yield from _judge_gids(rows, part)


def _judge_gids(rows: Sequence[GidRow], part: PastedValue) -> Iterator[Finding]:
    by_port: dict[tuple[str, int], list[GidRow]] = defaultdict(list)
    for row in rows:
        if row.version != "IB" and row.version is not None:
            by_port[row.device or "the device", row.port or 1].append(row)
    without = dict[str, list[GidRow]]()
    indexes = dict[str, int]()
    for (device, number), table in by_port.items():
        best = best_row([gid for row in table if (gid := _gid(row))])
        if best is None:
            without[f"{device}:{number}"] = table
        else:
            indexes[f"{device}:{number}"] = best.index
    for name, table in list(without.items())[:MOST_FINDINGS]:
        shown = ", ".join(f"{row.index} {row.ipv4 or row.gid} ({row.version})" for row in table[:4])
        yield unsure(f"{name}: the GID table has no RoCE v2 entry with an IP address", subject=name, found=shown,
                      expected="RoCE v2, of an IPv4 or IPv6 address", evidence=part.evidence)  # fmt: skip
    usual = Counter(indexes.values()).most_common(1)
    odd = {name: index for name, index in indexes.items() if index != usual[0][0]} if usual else {}
    if odd:
        listed = ", ".join(f"{name} index {index}" for name, index in list(odd.items())[:MOST_FINDINGS])
        yield unknown(
            f"the RoCE v2 entry with an IP address has index {usual[0][0]} on most ports, but {listed}: no "
            "single NCCL_IB_GID_INDEX is right for all",
            found=listed,
            expected=usual[0][0],
            evidence=part.evidence,
            fix="Leave NCCL_IB_GID_INDEX unset (NCCL 2.21 and newer choose the index).",
        )
    elif indexes and not without and part.complete:
        yield passed(f"{clause(len(indexes), 'port', 'has')} a RoCE v2 entry with an IP address, index {usual[0][0]}",
                     evidence=part.evidence)  # fmt: skip


def _gid(row: GidRow) -> Gid | None:
    try:
        address = IPv6Address(row.gid or (f"::ffff:{row.ipv4}" if row.ipv4 else ""))
    except ValueError:
        return None
    return Gid(row.index, address, f"RoCE {row.version}")


_PORTS = (
    ("rdma.port-state", _port_states), ("rdma.port-rate", _port_rates), ("rdma.link-layer", _link_layers),
    ("container.rdma-address", _guids), ("fleet.identity", _identities), *COMPARED,
)  # fmt: skip

JUDGES: Judges = {
    "ibstat": (*_PORTS, ("rdma.firmware", _port_firmware)),
    "ibstatus": _PORTS,
    "ibv_devinfo": (
        *_PORTS, ("rdma.active-mtu", _active_mtus), ("roce.chain", _port_gids), ("rdma.firmware", _port_firmware),
    ),
    "rdma link": _PORTS,
    "rdma ports": _PORTS,
    "ibdev2netdev": (*_PORTS[:1], ("rdma.port-state", _interface_states)),
    "show_gids": (("roce.chain", _listed_gids), ("fleet.identity", _addresses)),
}  # fmt: skip
