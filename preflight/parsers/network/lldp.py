"""LLDP neighbours: switch, port, frame size, PFC and ETS.

``lldpcli`` decodes the TLVs of the LLDP standard, but prints the TLVs of DCBX as bytes. They are decoded here, after
IEEE 802.1Qaz-2011, annex D (organisation 00-80-C2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits

LLDP = "cmd:lldpcli -f json0 show neighbors details"

#: Organisation codes of 802.1Qaz, and of its predecessor CEE, whose TLVs have different meanings.
_QAZ, _CEE = "00,80,C2", "00,1B,21"
_ETS, _PFC, _APPLICATION = 9, 11, 12
_BY_DSCP = 5  # selector of an application entry


#: Algorithm that selects a traffic class by its share of bandwidth (802.1Qaz, table D-2).
SHARED = 2


@dataclass(frozen=True)
class Ets:
    """Enhanced transmission selection: traffic classes and their bandwidth shares."""

    class_of: tuple[int, ...]  # traffic class of each priority 0…7
    percent: tuple[int, ...]  # share of bandwidth of each class 0…7
    selection: tuple[int, ...]  # algorithm of each class 0…7: SHARED, or 0 for strict priority


@dataclass(frozen=True)
class Neighbour:
    """The port at the other end of a cable; a value that it does not announce is None."""

    netdev: str
    switch: str  # name, else chassis ID
    port: str
    max_frame: int | None  # bytes, including the Ethernet header and checksum
    pfc: frozenset[int] | None  # priorities with PFC
    pfc_willing: bool | None  # whether it adopts the PFC priorities of its peer
    ets: Ets | None
    dscp: Mapping[int, int] | None  # DSCP -> priority
    cee: bool  # announces CEE, the predecessor of 802.1Qaz
    vlan: int | None = None  # of untagged packets (port VLAN ID, IEEE 802.1Q)
    chassis: str = ""  # chassis ID, usually a MAC address
    description: str = ""  # of the port, usually the interface name


def parse(text: str) -> dict[str, Neighbour]:
    """Read the neighbours by interface; raises ValueError.

    An interface with several neighbours is left out, because there must be a bridge in between.
    """
    try:
        value = json_limits.text(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:80]!r} is not the JSON of lldpcli") from None
    found: dict[str, list[Neighbour]] = {}
    for entry in _interfaces(value):
        neighbour = _neighbour(entry)
        found.setdefault(neighbour.netdev, []).append(neighbour)
    return {name: several[0] for name, several in found.items() if len(several) == 1}


def _interfaces(value: Any) -> Iterator[Mapping[str, Any]]:
    tops = value.get("lldp") if isinstance(value, dict) else None
    if not isinstance(tops, list):
        raise ValueError("the output has no list `lldp`; was it printed with -f json0?")
    for top in tops:
        yield from _list(top, "interface")


def _list(holder: Any, key: str) -> list[Mapping[str, Any]]:
    """Return the list of objects under a key; json0 prints every value as a list."""
    found = holder.get(key, []) if isinstance(holder, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"{key} is not a list of objects")
    return found


def _value(holder: Any, *path: str) -> str:
    """Return the value at a path, using the first item of each list; empty if absent."""
    for key in path:
        below = _list(holder, key)
        if not below:
            return ""
        holder = below[0]
    return str(holder.get("value", ""))


def _neighbour(entry: Mapping[str, Any]) -> Neighbour:
    tlvs = {}
    cee = False
    for group in _list(entry, "unknown-tlvs"):
        for tlv in _list(group, "unknown-tlv"):
            oui, subtype = str(tlv.get("oui", "")).upper(), str(tlv.get("subtype", ""))
            cee = cee or oui == _CEE
            if oui == _QAZ and re.fullmatch("[0-9]{1,3}", subtype):
                tlvs[int(subtype)] = _bytes(str(tlv.get("value", "")))
    frame = _value(entry, "port", "mfs")
    pfc, ets, application = tlvs.get(_PFC, b""), tlvs.get(_ETS, b""), tlvs.get(_APPLICATION)
    return Neighbour(
        netdev=str(entry.get("name", "")),
        switch=_value(entry, "chassis", "name") or _value(entry, "chassis", "id"),
        port=_value(entry, "port", "id"),
        max_frame=int(frame) if re.fullmatch("[0-9]{2,6}", frame) else None,
        pfc=frozenset(bit for bit in range(8) if pfc[1] & (1 << bit)) if len(pfc) >= 2 else None,
        pfc_willing=bool(pfc[0] & 0x80) if len(pfc) >= 2 else None,
        ets=_ets(ets) if len(ets) >= 21 else None,
        dscp=None if application is None else _dscp(application),
        cee=cee,
        vlan=_port_vlan(entry),
        chassis=_value(entry, "chassis", "id"),
        description=_value(entry, "port", "descr"),
    )


def _port_vlan(entry: Mapping[str, Any]) -> int | None:
    """Return the VLAN of untagged packets; None if not announced."""
    for vlan in _list(entry, "vlan"):
        number = str(vlan.get("vlan-id", ""))
        if vlan.get("pvid") in (True, "yes", "true") and re.fullmatch("[0-9]{1,4}", number):
            return int(number)
    return None


def _bytes(text: str) -> bytes:
    octets = text.split(",") if text else []
    if not all(re.fullmatch("[0-9A-Fa-f]{2}", octet) for octet in octets) or len(octets) > 511:
        raise ValueError(f"the TLV {text[:60]!r} is not a list of bytes")
    return bytes(int(octet, 16) for octet in octets)


def _ets(value: bytes) -> Ets:
    """Decode an ETS configuration TLV: flags, classes, shares and algorithms."""
    nibbles = [half for octet in value[1:5] for half in (octet >> 4, octet & 0x0F)]
    return Ets(tuple(nibbles), tuple(value[5:13]), tuple(value[13:21]))


def _dscp(value: bytes) -> dict[int, int]:
    """Decode the DSCP entries of an application TLV.

    A reserved byte comes first; each entry after it has three bytes.
    """
    entries = [value[at : at + 3] for at in range(1, len(value) - 2, 3)]
    return {entry[2]: entry[0] >> 5 for entry in entries if entry[0] & 0x07 == _BY_DSCP and entry[1] == 0}
