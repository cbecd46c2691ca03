"""Identifiers that only the format of the text reveals: kernel tables and LIDs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from preflight.nodeset import how_many, unfold
from preflight.redact.identifier_patterns import Shapes

_ROUTE = re.compile(r"(?m)^(\S{1,64}\t)([0-9A-F]{8})\t([0-9A-F]{8})(\s*\t[0-9A-F]{4}(?:\t[^\t\n]*){3}\t)([0-9A-F]{8})")
_SOCKET = re.compile(r"(?<![0-9A-F])([0-9A-F]{32}|[0-9A-F]{8})(?=:[0-9A-F]{4}\b)")
_REFERENCE = re.compile(r"(Reference ID\s{1,8}: )([0-9A-F]{8})(?= \([0-9]{1,3}\.)")

#: LIDs in sysfs, ibstat, ibv_devinfo, perftest, NCCL and infiniband-diags: `Base lid: 24`, `sm_lid:\t1`, `LID 0x18`.
_LID = re.compile(
    r"(?i)((?<![a-z])(?:base|sm|port|local|remote|rem|end|end ?port|s|d|peer|service)?[ _]?lids?\b"
    r"\\?[\"']?(?:[ \t:=#.]{1,40}|\\t){1,3}\\?[\"']?)(0x[0-9a-f]{1,4}|[0-9]{1,5})(?![0-9A-Za-z]|\.[0-9])"
)
#: `iblinkinfo -l`: `0x…  "leaf01"   12   1[  ] ==( 4X …)==>  0x…  24   1[  ] "gpu001 mlx5_0"`.
_LINK = re.compile(r"((?:\"|0x[0-9a-fA-F]{16})\s{1,12})([0-9]{1,5})(\s{1,8}[0-9]{1,3}\[[^\]\n]{0,8}\])")
_SMINFO = re.compile(r"(\bsminfo(?: -C [\w.-]{1,64})? )([0-9]{1,5})$")
#: Port GUIDs of `ibnetdiscover`, without leading zeros: `[1](2c903000a1b2c) "H-…"`.
_PORT_GUID = re.compile(r"((?:\]|0x[0-9a-fA-F]{1,16})\()([0-9a-fA-F]{1,15})(?=\))")
_LID_KEY = re.compile(r"file:/sys/class/infiniband/[^/]+/ports/\d+/(?:sm_)?lid$")


def in_text(shapes: Shapes, text: str) -> str:
    """Return a text with aliases for identifiers that only its format reveals."""
    if "Destination" in text:
        text = _ROUTE.sub(lambda match: _route(shapes, match), text)
    if "local_address" in text:
        text = _SOCKET.sub(lambda match: _socket(shapes, match[1]), text)
    if "Reference ID" in text:
        text = _REFERENCE.sub(lambda match: f"{match[1]}{shapes.ipv4_number(int(match[2], 16)):08X}", text)
    if "lid" in text or "LID" in text or "Lid" in text:
        text = _LID.sub(lambda match: match[1] + lid(shapes, match[2]), text)
    if "]" in text and "==(" in text:
        text = _LINK.sub(lambda match: match[1] + lid(shapes, match[2]) + match[3], text)
    if "sminfo" in text:
        text = _SMINFO.sub(lambda match: match[1] + lid(shapes, match[2]), text)
    if "](" in text or "guid=0x" in text:
        text = _PORT_GUID.sub(lambda match: match[1] + shapes.guid(match[2]), text)
    return text


def record(shapes: Shapes, key: str, value: Any) -> Any:
    """Return the redacted value of a record whose key reveals an identifier, or None."""
    replace: Callable[[str], str]
    if key == "file:/etc/machine-id":
        replace = _machine(shapes)
    elif _LID_KEY.fullmatch(key):
        replace = _bare_lid(shapes)
    elif key == "lid" and isinstance(value, int) and not isinstance(value, bool):
        return shapes.keyed.lid(value)
    else:
        return None
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict) and isinstance(value.get("out"), str):
        return {**value, "out": replace(value["out"])}
    return None


def _machine(shapes: Shapes) -> Callable[[str], str]:
    return lambda text: re.sub("[0-9a-f]{8,}", lambda match: shapes.keyed.hexadecimal("machine", match[0]), text)


def _bare_lid(shapes: Shapes) -> Callable[[str], str]:
    return lambda text: re.sub(r"0x[0-9a-fA-F]{1,4}|[0-9]{1,5}", lambda match: lid(shapes, match[0]), text, count=1)


def lid(shapes: Shapes, text: str) -> str:
    """Return the alias of a LID, in the same notation."""
    if text.lower().startswith("0x"):
        return f"0x{shapes.keyed.lid(int(text, 16)):0{len(text) - 2}x}"
    return str(shapes.keyed.lid(int(text)))


def _route(shapes: Shapes, match: re.Match[str]) -> str:
    """Return a line of ``/proc/net/route`` with aliases; numbers are little-endian."""
    mask = _swapped(match[5])
    to = shapes.ipv4_number(_swapped(match[2])) & mask
    gateway = shapes.ipv4_number(_swapped(match[3]))
    return f"{match[1]}{_swapped(f'{to:08X}'):08X}\t{_swapped(f'{gateway:08X}'):08X}{match[4]}{match[5]}"


def _swapped(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text), "little")


def _socket(shapes: Shapes, text: str) -> str:
    """Return the alias of an address in ``/proc/net/tcp`` or ``tcp6``.

    Each address consists of little-endian words.
    """
    words = [_swapped(text[at : at + 8]) for at in range(0, len(text), 8)]
    if len(words) == 1:
        made = [shapes.ipv4_number(words[0])]
    else:
        address = ipaddress.IPv6Address(sum(word << 32 * (3 - place) for place, word in enumerate(words)))
        alias = int(shapes.keyed.ipv6(address))
        made = [alias >> 32 * (3 - place) & 0xFFFFFFFF for place in range(4)]
    return "".join(f"{_swapped(f'{word:08X}'):08X}" for word in made)


def prefix_length(mask: str) -> int:
    """Return the number of bits set in a netmask; 0 if the text is not an address."""
    try:
        number = int(ipaddress.ip_address(mask))
    except ValueError:
        return 0
    return number.bit_count()


def unfolded(text: str, most: int) -> list[str]:
    """Return the names in a folded list.

    A text that is not one, or has more than ``most`` names, is returned as the only item.
    """
    try:
        return list(unfold(text)) if how_many(text) <= most else [text]
    except ValueError:
        return [text]
