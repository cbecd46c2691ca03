"""Quality of service of a RoCE port, from the first source that answers.

Sources: the vendor's sysfs and tool, dcb(8), ethtool(8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError, with_subject
from preflight.facts.interfaces import ROOT
from preflight.facts.rdma_ports import ROOT as IB
from preflight.parsers.network import ethtool_pause
from preflight.parsers.qos import dcb, mlnx_qos
from preflight.parsers.qos.port_settings import Buffers, DscpMap, PortQos
from preflight.parsers.record import parse_complete
from preflight.textprep.plain_text import integer, normalize_text

T = TypeVar("T")

TRAFFIC_CLASSES = f"file:{IB}/*/tc/*/traffic_class"


@dataclass(frozen=True)
class Reading(Generic[T]):
    """A value, and the record that it was read from."""

    value: T
    evidence: str


def dcb_key(netdev: str, what: str) -> str:
    """Return the record key of ``dcb -j pfc|app|buffer|dcbx show dev IF``."""
    return f"cmd:dcb -j {what} show dev {netdev}"


def _first(evidence: Evidence, *sources: tuple[str, Callable[[str], T]]) -> Reading[T]:
    """Return the answer of the first source that has one.

    Raises an EvidenceError that names all sources if none answers.
    """
    refusals = []
    for key, parse in sources:
        try:
            return Reading(parse(evidence.text(key)), key)
        except EvidenceError as error:
            refusals.append(error)
        except ValueError as error:
            refusals.append(EvidenceError(key, str(error)))
    raise EvidenceError(refusals[0].key, "; ".join(with_subject(r.key.partition(":")[2], r.why) for r in refusals))


def _of_tool(netdev: str, what: str, take: Callable[[PortQos], T | None]) -> tuple[str, Callable[[str], T]]:
    """Return the key and parser of one value of mlnx_qos; errors call it ``what``."""

    def parse(text: str) -> T:
        if (found := take(mlnx_qos.parse_record(text))) is None:
            raise ValueError(f"shows no {what}")
        return found

    return f"cmd:mlnx_qos -i {netdev}", parse


def pfc(evidence: Evidence, netdev: str) -> Reading[frozenset[int]]:
    """Return the priorities with PFC on.

    Raises an EvidenceError that names both tools if neither answers.
    """
    of_tool = _of_tool(netdev, "PFC", lambda tool: tool.lossless)
    return _first(evidence, (dcb_key(netdev, "pfc"), dcb.parse_pfc), of_tool)


def trust(evidence: Evidence, netdev: str, *, empty_is_pcp: bool) -> Reading[str]:
    """Return what determines a packet's priority: ``dscp`` or ``pcp``.

    ``empty_is_pcp`` means that the driver trusts PCP until a DSCP is listed, as mlx5 does; for other drivers, an empty
    list of dcb(8) is inconclusive. Raises EvidenceError.
    """

    def of_list(text: str) -> str:
        if dcb.parse_app(text).of:
            return "dscp"
        if not empty_is_pcp:
            raise ValueError("lists no DSCP, which is inconclusive about the trust state with this driver")
        return "pcp"

    sources: list[tuple[str, Callable[[str], str]]] = [
        _of_tool(netdev, "trust state", lambda tool: tool.trust if tool.trust != "both" else None),
        (dcb_key(netdev, "app"), of_list),
    ]
    if (file := f"file:{ROOT}/{netdev}/qos/trust") in evidence:
        sources.insert(0, (file, _trust_file))
    return _first(evidence, *sources)


def _trust_file(text: str) -> str:
    if (found := text.strip()) not in ("dscp", "pcp"):
        raise ValueError(f"contains {found[:60]!r}, neither dscp nor pcp")
    return found


def dscp_map(evidence: Evidence, netdev: str) -> Reading[DscpMap]:
    """Return the priority of each DSCP.

    Raises an EvidenceError that names both tools if neither answers.
    """

    def listed(text: str) -> DscpMap:
        found = dcb.parse_app(text)
        if not found.of:
            raise ValueError("lists no DSCP")
        return found

    return _first(evidence, _of_tool(netdev, "DSCP map", _trusted_map), (dcb_key(netdev, "app"), listed))


def _trusted_map(tool: PortQos) -> DscpMap | None:
    return tool.dscp if tool.trust == "dscp" else None


def buffers(evidence: Evidence, netdev: str) -> Reading[Buffers]:
    """Return the receive buffers.

    Raises an EvidenceError that names both tools if neither answers.
    """
    return _first(
        evidence,
        (dcb_key(netdev, "buffer"), dcb.parse_buffer),
        _of_tool(netdev, "receive buffers", _complete_buffers),
    )


def _complete_buffers(tool: PortQos) -> Buffers | None:
    return tool.buffers if tool.buffers and tool.buffers.complete else None


def dcbx(evidence: Evidence, netdev: str) -> Reading[str]:
    """Return what configures DCB: ``os`` or ``firmware``.

    Raises an EvidenceError that names both tools if neither answers.
    """
    return _first(
        evidence, _of_tool(netdev, "DCBX mode", lambda tool: tool.dcbx_owner), (dcb_key(netdev, "dcbx"), dcb.parse_dcbx)
    )


@dataclass(frozen=True)
class Pause:
    """Global pause frames (IEEE 802.3x), which stop all traffic of a port."""

    rx: bool
    tx: bool


def pause(evidence: Evidence, netdev: str) -> Reading[Pause]:
    """Return whether a port accepts and sends global pause; raises EvidenceError."""
    return _first(evidence, (f"cmd:ethtool -a {netdev}", parse_pause))


def parse_pause(text: str) -> Pause:
    """Read ``ethtool -a IF``; raises ValueError.

    The negotiated state is used if shown.
    """
    found = parse_complete(text, ethtool_pause.begins, ethtool_pause.parse_lines)
    rx, tx = found.effective
    return Pause(rx is True, tx is True)


def traffic_class(evidence: Evidence, device: str, port: int) -> Reading[int] | None:
    """Return the traffic class that the driver sets for all queue pairs, or None.

    The upstream driver has no such file and sets none. Raises EvidenceError if the file was not collected or cannot be
    read.
    """
    key = f"file:{IB}/{device}/tc/{port}/traffic_class"
    if key not in evidence:
        evidence.exists(TRAFFIC_CLASSES)  # raises unless it was collected
        return None
    text = evidence.text(key)
    try:
        found = parse_traffic_class(text)
    except ValueError as error:
        raise EvidenceError(key, str(error)) from None
    return None if found is None else Reading(found, key)


def parse_traffic_class(text: str) -> int | None:
    """Parse ``tc/1/traffic_class``; None without a global class.

    The format is ``Global tclass=106``, followed by rules for single peers. Raises ValueError.
    """
    for line in normalize_text(text).split("\n"):
        name, equals, value = line.partition("=")
        if equals and name.strip() == "Global tclass":
            found = integer(value, "Global tclass")
            if found > 255:
                raise ValueError(f"Global tclass is {found}, more than 255")
            return found if found >= 0 else None
    return None
