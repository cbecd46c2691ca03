"""Judges of RDMA ports, NICs, PCIe and the network.

A pasted output does not show which ports a job uses: a port that is down or slow beside others is *unknown*.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Address

from preflight._startup.lightclass import replace
from preflight.checks.kubernetes.container import judge_address, judge_guids
from preflight.checks.rdma import counter_totals, pcie
from preflight.checks.rdma.firmware import judge_board
from preflight.checks.rdma.optics import judge_module
from preflight.checks.rdma.ports import judge_link_layers, judge_port_rates, judge_port_states, usual_layer
from preflight.checks.rdma.verbs import USUAL_MTU, judge_active_mtus
from preflight.expectations import Expected
from preflight.facts.gids import Gid
from preflight.facts.rdma_ports import Port, of_listed
from preflight.facts.roce_chain.addressing import best_row
from preflight.facts.roce_chain.flow_control import headroom
from preflight.model import Finding, Status, failed, passed, unknown, warned
from preflight.parsers.counter_list import CounterList
from preflight.parsers.network.ethtool_driver import DriverInfo
from preflight.parsers.network.ethtool_link import EthernetLink
from preflight.parsers.network.ethtool_module import Module
from preflight.parsers.network.ethtool_pause import PauseParameters
from preflight.parsers.network.network_status import PodNetwork
from preflight.parsers.pci.lspci import PciFunction
from preflight.parsers.qos.port_settings import PortQos
from preflight.parsers.rdma.gid_row import GidRow
from preflight.parsers.rdma.port_list import PortList, RdmaPort
from preflight.recognition.judges import Judge, Judges, PastedValue

#: Findings of one check and part; the rest is counted in one more.
_MOST = 8
#: Names in that one.
_NAMED = 20

#: ``vendor_id`` of Soft-RoCE and Soft-iWARP (rxe_param.h, siw.h), whose packets the kernel makes.
_SOFTWARE = frozenset({"0xffffff", "0x626d74"})


def _unsure(message: str, **details: object) -> Finding:
    """Report a fault of a port that a job uses; the text does not show whether one does."""
    fix = "`preflight check` on the node knows the job's ports; or see whether it is spare, or for storage."
    return unknown(f"{message}; the text does not show whether a job uses it", **{"fix": fix, **details})


def _limited(judge: Callable[[PastedValue], Iterator[Finding]]) -> Judge:
    """Return a judge whose findings beyond the first few are one."""

    @functools.wraps(judge)
    def limited(part: PastedValue) -> Iterator[Finding]:
        rest: dict[Status, list[Finding]] = defaultdict(list)
        for number, finding in enumerate(judge(part)):
            if number < _MOST or finding.status is Status.PASS:
                yield finding
            else:
                rest[finding.status].append(finding)
        for findings in rest.values():
            names = ", ".join(finding.subject for finding in findings[:_NAMED])
            more = "" if len(findings) <= _NAMED else ", …"
            yield replace(findings[0], message=f"{len(findings)} more: {names}{more}; the first: "
                          f"{findings[0].message}", subject="")  # fmt: skip

    return limited


# --- ports ---------------------------------------------------------------------------------------------


def _ports(part: PastedValue) -> list[Port]:
    listed: PortList = part.value
    return [of_listed(port, part.evidence) for port in listed.ports]


@_limited
def _port_states(part: PastedValue) -> Iterator[Finding]:
    ports = _ports(part)
    shown = [port for port in ports if port.state]
    up = [port for port in shown if port.active]
    none_up = bool(shown) and not any(port.state == "ACTIVE" for port in shown) and part.complete

    def report_for(port: Port) -> Callable[..., Finding]:
        if port.state == "INIT" and port.physical_state in ("LinkUp", ""):
            return failed
        if port.state == "ACTIVE":
            return warned
        return failed if none_up else _unsure

    yield from judge_port_states(shown, report_for, "ACTIVE/LinkUp")
    if not shown:
        return
    if blank := [port.name for port in ports if not port.state]:
        yield unknown(f"{len(up)} of {len(ports)} RDMA ports are active; the text lacks the state of "
                      f"{', '.join(blank[:_NAMED])}", fix="Give the complete output.", evidence=part.evidence)  # fmt: skip
    elif len(up) == len(ports) and part.complete:
        yield passed(f"{len(up)} of {len(ports)} RDMA ports are active", evidence=part.evidence)
    elif len(up) == len(ports):
        yield unknown(f"the {len(up)} RDMA ports that the text shows are active, but the list is incomplete",
                      fix="Give the complete output; a device that cannot be read may be the fault.",
                      evidence=part.evidence)  # fmt: skip


@_limited
def _port_rates(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    by_layer: dict[str, list[Port]] = defaultdict(list)
    for source, port in zip(listed.ports, _ports(part), strict=True):
        if port.state != "ACTIVE" or source.rate_gbps is None:
            continue
        if _is_placeholder(source):
            yield _unknown_speed(source, part)
        elif _is_one_lane(source):
            yield _unsure(f"{source.name} runs on one lane ({source.rate}): a link that trained three lanes less, or a "
                          "split cable", subject=source.name, found=source.rate, expected="4X or 2X",
                          evidence=part.evidence)  # fmt: skip
        else:
            by_layer[port.link_layer].append(port)
    for ports in by_layer.values():
        known = [port for port in ports if port.rate_gbps is not None]
        yield from judge_port_rates(known, _unsure, "the fastest port of its link layer")


def _is_placeholder(port: RdmaPort) -> bool:
    """Return whether a rate is what the kernel prints for a speed that it does not know."""
    slow = port.link_layer == "InfiniBand" and port.rate_gbps == 10 and "FDR10" not in port.rate
    return slow or (port.link_layer == "Ethernet" and "QDR" in port.rate)


def _unknown_speed(port: RdmaPort, part: PastedValue) -> Finding:
    return unknown(
        f"{port.name} is active at {port.rate_gbps:g} Gb/s: what a kernel prints for a speed that it does not know, or "
        "a link that trained at the lowest one",
        subject=port.name, found=port.rate, evidence=part.evidence,
        fix="read it with `mlxlink -d DEVICE` or `ethtool IF`",
    )  # fmt: skip


def _is_one_lane(port: RdmaPort) -> bool:
    lanes = port.rate.partition("(")[2] or port.rate
    return port.link_layer == "InfiniBand" and lanes.startswith("1X")


def _link_layers(part: PastedValue) -> Iterator[Finding]:
    active = [port for port in _ports(part) if port.active and port.link_layer]
    if len({port.link_layer for port in active}) > 1:
        usual = usual_layer(active)
        source = "most active ports of the text"
        yield judge_link_layers(active, usual, source, _unsure, part.evidence[0])


@_limited
def _active_mtus(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    pairs = list(zip(listed.ports, _ports(part), strict=True))
    active = [port for source, port in pairs if port.active and port.active_mtu and not _in_software(source)]
    infiniband = [port for port in active if port.infiniband]
    findings = list(judge_active_mtus(infiniband, Expected(None, "", ""), _unsure))
    roce = [port for port in active if port.roce]
    small = [port for port in roce if (port.active_mtu or 0) <= 1024]
    if small and len(small) == len(roce) and not infiniband and part.complete:
        findings.append(warned(f"all {len(roce)} active Ethernet ports: active MTU {small[0].active_mtu}",
                               found=small[0].active_mtu, expected=USUAL_MTU, evidence=part.evidence,
                               fix="Set MTU 9000 (at least 4200) on the interface and on the switch port."))  # fmt: skip
    else:
        for port in roce:
            if (port.active_mtu or 0) < USUAL_MTU:
                findings.append(_unsure(f"{port.name} has an active MTU of {port.active_mtu}, expected {USUAL_MTU}",
                                        subject=port.name, found=f"{port.active_mtu} bytes",
                                        expected=f"{USUAL_MTU} bytes", evidence=part.evidence))  # fmt: skip
    yield from findings
    if active and not findings:
        yield passed(f"{len(active)} active ports have an active MTU of {USUAL_MTU} or more", evidence=part.evidence)


def _in_software(port: RdmaPort) -> bool:
    """Return whether the kernel makes a port's packets: their size is the interface's."""
    transport = str(port.other.get("transport"))
    name = port.device or ""
    return port.other.get("vendor_id") in _SOFTWARE or transport.startswith("iWARP") or name.startswith(("rxe", "siw"))


def _guids(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    found: dict[str, tuple[int, str]] = {}
    for port in listed.ports:
        for text in (port.guid, port.other.get("node_guid")):
            digits = str(text or "").replace(":", "").removeprefix("0x")
            if len(digits) == 16 and not digits.strip("0"):
                found[port.name] = 0, part.evidence[0]
    yield from judge_guids(found, _unsure)


def _port_firmware(part: PastedValue) -> Iterator[Finding]:
    listed: PortList = part.value
    boards: dict[str, dict[str, str]] = defaultdict(dict)
    for port in listed.ports:
        board, version = port.other.get("board_id"), port.other.get("firmware")
        if board and version and port.device:
            boards[board][port.device] = version
    for board, versions in boards.items():
        if len(set(versions.values())) > 1:
            yield from judge_board(board, versions, dict.fromkeys(versions, part.evidence[0]))


@_limited
def _interface_states(part: PastedValue) -> Iterator[Finding]:
    """Report the interfaces that are down; an InfiniBand port may work with IPoIB down."""
    listed: PortList = part.value
    for port in listed.ports:
        if port.other.get("netdev_state") not in ("Up", None):
            yield _unsure(f"the interface {port.netdev} of {port.name} is {port.other['netdev_state']}: RoCE does not run "
                          "over it, InfiniBand does", subject=port.name, found=port.other["netdev_state"],
                          expected="Up, where the port is RoCE", evidence=part.evidence)  # fmt: skip


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
    for name, table in list(without.items())[:_MOST]:
        shown = ", ".join(f"{row.index} {row.ipv4 or row.gid} ({row.version})" for row in table[:4])
        yield _unsure(f"{name}: the GID table has no RoCE v2 row of an IP address", subject=name, found=shown,
                      expected="RoCE v2, of an IPv4 or IPv6 address", evidence=part.evidence)  # fmt: skip
    usual = Counter(indexes.values()).most_common(1)
    odd = {name: index for name, index in indexes.items() if index != usual[0][0]} if usual else {}
    if odd:
        listed = ", ".join(f"{name} index {index}" for name, index in list(odd.items())[:_MOST])
        yield unknown(f"the RoCE v2 row of an IP address has index {usual[0][0]} on most ports, but {listed}: one "
                      "NCCL_IB_GID_INDEX does not fit all", found=listed, expected=usual[0][0], evidence=part.evidence,
                      fix="Leave NCCL_IB_GID_INDEX unset (NCCL 2.21 and newer choose).")  # fmt: skip
    elif indexes and not without and part.complete:
        yield passed(f"{len(indexes)} ports have a RoCE v2 row of an IP address, index {usual[0][0]}",
                     evidence=part.evidence)  # fmt: skip


def _gid(row: GidRow) -> Gid | None:
    try:
        address = IPv6Address(row.gid or (f"::ffff:{row.ipv4}" if row.ipv4 else ""))
    except ValueError:
        return None
    return Gid(row.index, address, f"RoCE {row.version}")


# --- counters ------------------------------------------------------------------------------------------


def _totals(check: str) -> Judge:
    def judge(part: PastedValue) -> Iterator[Finding]:
        listed: CounterList = part.value
        yield from counter_totals.judge_totals(check, listed.by_place(), part.evidence, part.complete)

    return _limited(judge)


def _congestion(part: PastedValue) -> Iterator[Finding]:
    listed: CounterList = part.value
    yield from counter_totals.judge_congestion(listed.by_place(), part.evidence)


def _marking(part: PastedValue) -> Iterator[Finding]:
    listed: CounterList = part.value
    yield from counter_totals.judge_marking(listed.by_place(), part.evidence)


_COUNTERS = (
    *((check, _totals(check)) for check in counter_totals.CHECKS),
    ("counters.congestion", _limited(_congestion)),
    ("counters.traffic-class", _marking),
)


# --- ethtool -------------------------------------------------------------------------------------------


def _pause(part: PastedValue) -> Iterator[Finding]:
    pause: PauseParameters = part.value
    name = pause.interface or "the interface"
    lost = [way for way, is_set, agreed in (("RX", pause.rx, pause.rx_negotiated), ("TX", pause.tx, pause.tx_negotiated))
            if is_set and agreed is False]  # fmt: skip
    on = [way for way, is_on in zip(("RX", "TX"), pause.effective, strict=True) if is_on]
    if lost:
        yield unknown(
            f"{name}: global pause is set ({', '.join(lost)}) and not negotiated: the other end does not pause",
            subject=name, found=f"{' and '.join(lost)} on, negotiated off", expected="off with PFC; else negotiated",
            evidence=part.evidence, fix="Lossless RoCE: `ethtool -A IF rx off tx off`, and PFC; else the switch port.",
        )  # fmt: skip
    if on:
        yield unknown(
            f"{name}: global pause is on ({', '.join(on)}): it stops the whole port and excludes PFC; the text does not "
            "show whether RoCE runs here",
            subject=name, found=f"{' and '.join(on)} on", expected="RX off, TX off with PFC", evidence=part.evidence,
            fix="Lossless RoCE: `ethtool -A IF rx off tx off`, and PFC of one priority.",
        )  # fmt: skip
    if pause.effective == (False, False) and not lost and part.complete:
        yield passed(f"{name}: global pause is off, so it does not exclude PFC", evidence=part.evidence)


def _module(part: PastedValue) -> Iterator[Finding]:
    module: Module = part.value
    dark = [flag for flag in module.flags if flag.channel and "rx power" in flag.what.lower() and flag.side == "low"]
    rest = tuple(flag for flag in module.flags if flag not in dark)
    key = part.evidence[0]
    if dark and len({flag.channel for flag in dark}) * 2 <= len(_lanes(module)):
        yield unknown(
            f"the module raises {dark[0]}{f' and {len(dark) - 1} more' if dark[1:] else ''}: a lane without light, or one "
            "that a breakout cable does not use",
            found=f"{', '.join(map(str, dark[:4]))}: on; {module.name}", expected="no alarm", evidence=[key],
        )  # fmt: skip
    elif dark:
        rest = module.flags
    others = [name for name in module.alarms if not any(name.lower().startswith(f.what.lower()) for f in module.flags)]
    if complaint := judge_module("this port", replace(module, flags=rest), key, warned, warned):
        yield complaint
    elif others:
        yield warned(f"the module reports: {', '.join(others[:8])}", found=", ".join(others[:8]), expected="no alarm",
                     evidence=[key])  # fmt: skip
    elif module.measures and not dark and part.complete:
        heat = "" if module.temperature_c is None else f"; {module.temperature_c:.0f} degrees C"
        yield passed(f"the module raises no alarm{heat}", evidence=[key])


def _lanes(module: Module) -> set[str]:
    """Return the lanes of which the module prints a receive power or a flag."""
    names = (name for name in module.fields if "rx power" in name.lower() or "rcvr signal" in name.lower())
    return {name.partition("(")[2].rpartition(")")[0].replace("Channel", "Chan") for name in names if "(" in name}


def _ethernet_state(part: PastedValue) -> Iterator[Finding]:
    link: EthernetLink = part.value
    name = link.interface or "the interface"
    if link.link is False:
        yield _unsure(f"{name} has no link: {link.link_text}", subject=name, found=link.link_text, expected="yes",
                      evidence=part.evidence)  # fmt: skip


def _ethernet_speed(part: PastedValue) -> Iterator[Finding]:
    link: EthernetLink = part.value
    name = link.interface or "the interface"
    if link.link is False:
        return
    if link.speed_gbps is not None and link.fastest_gbps is not None and link.speed_gbps < link.fastest_gbps:
        yield _unsure(f"{name} runs at {link.speed_gbps:g} Gb/s, its fastest mode has {link.fastest_gbps:g} Gb/s",
                      subject=name, found=f"{link.speed_gbps:g} Gb/s", expected=f"{link.fastest_gbps:g} Gb/s",
                      evidence=part.evidence)  # fmt: skip
    elif link.speed_gbps is None and link.link:
        yield unknown(f"{name} has a link of unknown speed", subject=name, found=link.fields.get("Speed"),
                      evidence=part.evidence, fix="`mlxlink -d DEVICE`")  # fmt: skip
    elif link.speed_gbps is not None and link.link and link.fastest_gbps == link.speed_gbps:
        yield passed(f"{name} runs at {link.speed_gbps:g} Gb/s, its fastest mode", evidence=part.evidence)
    if link.duplex is not None and link.duplex.lower() == "half":
        yield warned(f"{name} runs half duplex", subject=name, found=link.duplex, expected="Full",
                     evidence=part.evidence)  # fmt: skip


def _driver(part: PastedValue) -> Iterator[Finding]:
    """Compare the firmware of an interface with that of the others of its board in the text before it."""
    drivers: list[DriverInfo] = [driver for driver in (*part.earlier, part.value) if driver.psid and driver.firmware]
    mine: DriverInfo = part.value
    versions = {str(driver.bus_info or f"line {driver.line}"): str(driver.firmware) for driver in drivers
                if driver.psid == mine.psid}  # fmt: skip
    if mine.psid and len(set(versions.values())) > 1:
        yield from judge_board(mine.psid, versions, dict.fromkeys(versions, part.evidence[0]))
    elif mine.psid and len(versions) > 1:
        yield passed(f"{len(versions)} interfaces of board {mine.psid} run firmware {mine.firmware}",
                     evidence=part.evidence)  # fmt: skip


# --- RoCE's quality of service -------------------------------------------------------------------------

#: Lossless priorities for which a NIC has buffers.
_LOSSLESS_MOST = 2


def _qos(part: PastedValue) -> Iterator[Finding]:
    qos: PortQos = part.value
    name = qos.interface or "the port"
    if qos.pfc is not None:
        yield from _judge_pfc(qos, name, part)
    if qos.trust == "pcp" and qos.pfc is not None:
        yield unknown(f"{name}: trust pcp: untagged RoCE packets take priority 0, whatever their DSCP",
                      subject=qos.interface, found="pcp", expected="dscp, unless the fabric tags VLANs",
                      evidence=part.evidence, fix="`mlnx_qos -i IF --trust dscp`")  # fmt: skip
    unmapped = qos.lossless - {priority for row in (qos.dscp.of.values() if qos.dscp else ()) for priority in row}
    if qos.trust == "dscp" and qos.dscp and qos.lossless and unmapped == qos.lossless and part.complete:
        names = _numbers(unmapped)
        yield warned(f"{name}: no DSCP leads to the lossless priority {names}", subject=qos.interface,
                     found=f"priorities {_numbers({p for row in qos.dscp.of.values() for p in row})}",
                     expected=f"a DSCP of priority {names}", evidence=part.evidence)  # fmt: skip
    buffers = qos.buffers
    for priority in sorted(qos.lossless) if buffers and buffers.complete else ():
        assert buffers
        _, _, wrong = headroom(buffers, priority)
        if wrong:
            yield warned(f"{name}: {wrong}: no headroom for what is under way when the port pauses",
                         subject=qos.interface, found=wrong, expected="a buffer of its own, with headroom",
                         evidence=part.evidence)  # fmt: skip


def _judge_pfc(qos: PortQos, name: str, part: PastedValue) -> Iterator[Finding]:
    on = _numbers(qos.lossless)
    if len(qos.lossless) > _LOSSLESS_MOST:
        yield warned(f"{name}: PFC is on for {len(qos.lossless)} priorities: {on}", subject=qos.interface, found=on,
                     expected="1 priority; a NIC has buffers for two", evidence=part.evidence)  # fmt: skip
    elif len(qos.lossless) > 1:
        yield unknown(f"{name}: PFC is on for two priorities: {on}; RDMA uses one", subject=qos.interface, found=on,
                      expected="1 priority", evidence=part.evidence)  # fmt: skip
    elif not qos.lossless:
        yield unknown(f"{name}: PFC is off; nothing says whether this RoCE fabric is meant to be lossless",
                      subject=qos.interface, found="PFC off for all priorities", expected="one priority, if lossless",
                      evidence=part.evidence, fix="Lossless: `mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0`, and the switch."
                      )  # fmt: skip
    elif part.complete:
        yield passed(f"{name}: PFC is on for priority {on} only", found=on, evidence=part.evidence)


def _numbers(priorities: frozenset[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(priorities)))


# --- PCIe ----------------------------------------------------------------------------------------------


@_limited
def _nic_links(part: PastedValue) -> Iterator[Finding]:
    functions: Sequence[PciFunction] = part.value
    nics = [function for function in functions if function.is_network]
    slow = [function for function in nics if function.downgraded]
    for function in slow:
        most = " ".join(filter(None, (function.max_speed, function.max_width)))
        yield warned(f"{function.address} trained {function.link}", subject=function.address or "",
                     found=function.link, expected=most or "what the device can", evidence=part.evidence)  # fmt: skip
    if nics and not slow and all(function.width for function in nics):
        yield passed(f"{len(nics)} NICs have trained all they can", evidence=part.evidence)


@_limited
def _gpu_links(part: PastedValue) -> Iterator[Finding]:
    """Report GPUs with fewer lanes than they have; their speed falls while they idle."""
    functions: Sequence[PciFunction] = part.value
    for function in functions:
        if function.is_gpu and function.width and function.max_width and function.width != function.max_width:
            yield warned(f"{function.address} trained {function.width} of {function.max_width} lanes",
                         subject=function.address or "", found=function.width, expected=function.max_width,
                         evidence=part.evidence)  # fmt: skip


def _read_requests(part: PastedValue) -> Iterator[Finding]:
    functions: Sequence[PciFunction] = part.value
    small = [f"{function.address} {function.max_read_request_bytes}" for function in functions
             if function.is_network and function.max_read_request_bytes is not None
             and function.max_read_request_bytes <= pcie.SMALL_READ_BYTES]  # fmt: skip
    if small:
        finding = pcie.judge_read_requests(small, "NICs", part.evidence[0])
        yield replace(finding, status=Status.UNKNOWN, message=f"{finding.message} ({', '.join(small[:4])}): slow on a fast "
                      "port, enough on a slow one")  # fmt: skip


def _redirects(part: PastedValue) -> Iterator[Finding]:
    functions: Sequence[PciFunction] = part.value
    bridges = [function for function in functions if function.redirects]
    if not bridges:
        return
    controls = sorted({name for function in bridges for name in function.redirects})
    names = ", ".join(str(function.address) for function in bridges[:4]) + (", …" if bridges[4:] else "")
    yield unknown(
        f"ACS redirects traffic between devices through the CPU ({' '.join(f'{name}+' for name in controls)} on {names}): "
        "a fault on the path of a GPU and its NIC, needed in a virtual machine",
        subject=str(bridges[0].address) if len(bridges) == 1 else "",
        found=f"{len(bridges)} bridges", expected="ReqRedir-, CmpltRedir- and UpstreamFwd- between GPU and NIC",
        evidence=part.evidence, fix="`preflight check` on the node knows the path; `setpci` or the BIOS switches ACS off.",
    )  # fmt: skip


# --- pods ----------------------------------------------------------------------------------------------


@_limited
def _networks(part: PastedValue) -> Iterator[Finding]:
    networks: Sequence[PodNetwork] = part.value
    secondary = [network for network in networks if not network.default]
    faults = [finding for network in secondary for finding in judge_address(network, part.evidence[0])]
    yield from faults
    with_rdma = [network for network in secondary if network.rdma_device]
    for network in secondary if with_rdma else ():
        if not network.rdma_device:
            yield unknown(f"the network {network.name} has no RDMA device, {len(with_rdma)} others have",
                          subject=network.interface or network.name, found="no rdma-device", expected="rdma-device",
                          evidence=part.evidence)  # fmt: skip
    if not faults and len(with_rdma) == len(secondary) and secondary and part.complete:
        yield passed(f"{len(secondary)} secondary networks have an address and an RDMA device", evidence=part.evidence)
    elif not with_rdma and not faults:
        names = ", ".join(network.name for network in secondary[:_MOST]) or "only the cluster's own network"
        yield unknown(f"no network of the pod has an RDMA device: {names}; the text does not show what it requested",
                      found=names, evidence=part.evidence)  # fmt: skip


_PORTS = (
    ("rdma.port-state", _port_states), ("rdma.port-rate", _port_rates), ("rdma.link-layer", _link_layers),
    ("container.rdma-address", _guids),
)  # fmt: skip

JUDGES: Judges = {
    "ibstat": _PORTS,
    "ibstatus": _PORTS,
    "ibv_devinfo": (
        *_PORTS, ("rdma.active-mtu", _active_mtus), ("roce.chain", _port_gids), ("rdma.firmware", _port_firmware),
    ),
    "rdma link": _PORTS,
    "ibdev2netdev": (*_PORTS[:1], ("rdma.port-state", _interface_states)),
    "show_gids": (("roce.chain", _listed_gids),),
    "perfquery": _COUNTERS,
    "hw_counters": _COUNTERS,
    "ethtool -S": _COUNTERS,
    "ethtool -a": (("roce.chain", _pause),),
    "ethtool -i": (("rdma.firmware", _driver),),
    "ethtool -m": (("optics.module", _module),),
    "ethtool": (("rdma.port-state", _ethernet_state), ("rdma.port-rate", _ethernet_speed)),
    "mlnx_qos": (("roce.chain", _qos),),
    "dcb": (("roce.chain", _qos),),
    "lspci": (
        ("pcie.nic-link", _nic_links), ("gpu.pcie-link", _gpu_links), ("pcie.max-read-request", _read_requests),
        ("gpudirect.path", _redirects),
    ),
    "network-status": (("container.networks", _networks),),
}  # fmt: skip
