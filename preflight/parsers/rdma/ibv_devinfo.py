"""``ibv_devinfo`` (ibverbs-utils), with or without ``-v``: devices and ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.gid_row import GidRow, mapped_ipv4
from preflight.parsers.rdma.port_list import PortLines, PortList, PortListBuilder, RdmaPort, facts, summary, word
from preflight.parsers.rdma.port_values import rate
from preflight.parsers.text_block import (
    block,
    follows_command,
    is_prompt,
    number,
    queried_device,
    value_or_none,
)
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = (":",)

_HCA = re.compile(r"\s*hca_id:\s*([A-Za-z][\w.-]{0,63})(?:\s.*)?")
_DEVINFO_PORT = re.compile(r"\s*port:\s*(\d{1,3})\s*")
_DEVINFO_FIELD = re.compile(r"\s*([a-z][a-zA-Z0-9_]{2,60}(?:\[\s*\d+\])?):\s*(.*)")
_DEVINFO_LIST = re.compile(
    r"\s*(?:[A-Z][A-Z0-9_]{1,60}(?: [A-Z]{2,12})?|state \(\d\)|Unknown flags: .*"
    r"|\*{0,2}(?:GID|P_Key)\[\s*\d+\]:.*|0x[0-9a-fA-F]+"
    r"|[\w ]{4,40}(?:\(mask\)|_mask:)\s+0x[0-9a-fA-F]+|[A-Z][\w ]{2,40}:|tag matching .{0,60}|maximum available .{0,60}"
    r"|(?:max fetch|log max) [a-z ]{4,40}\s+\d{1,6}|[\w -]{2,40} offload|Delay drop|ooo_\w{2,20}\s+= 0x[0-9a-f]{1,16}"
    r"|.{0,40}(?:caps|capabilities|_attr|supported).{0,40})\s*"
)


#: Maximum number of consecutive unknown lines in the output of ``-v``.
_OTHER = 16
_OF_DEVICES = re.compile(r"(?:max|num|hca|device|supported|qp_rate)_\w+|\w+_caps")
_OF_PORTS = frozenset(
    ("state", "max_mtu", "active_mtu", "sm_lid", "port_lid", "port_lmc", "link_layer", "max_msg_sz", "port_cap_flags",
     "port_cap_flags2", "max_vl_num", "bad_pkey_cntr", "qkey_viol_cntr", "sm_sl", "pkey_tbl_len", "gid_tbl_len",
     "subnet_timeout", "init_type_reply", "active_width", "active_speed", "phys_state", "gids")
)  # fmt: skip
#: Lines of a port; two identify output that is truncated or was filtered with grep.
_DEVINFO_HEADLESS = re.compile(
    r"\s*(?:port:\s*\d{1,3}|state:\s*PORT_\w+ .*|(?:max|active)_mtu:\s*\d{3,4} \(\d\)|(?:sm|port)_lid:\s*\d{1,5}"
    r"|port_lmc:\s*0x\d\d"
    r"|active_width:\s*\d{1,2}X \(\d{1,2}\)|active_speed:\s*\d{1,3}\.\d Gbps \(\d{1,3}\)|link_layer:\s*[A-Z]\w+"
    r"|phys_state:\s*[A-Z_]{4,32} \(\d\)|transport:\s*\w+ \(\d\)"
    r"|(?:node|sys_image)_guid:\s*[0-9a-f]{4}(?::[0-9a-f]{4}){3}"
    r"|phys_port_cnt:\s*\d{1,3}|vendor_part_id:\s*\d{1,6})\s*"
)
#: Lines that no other tool prints.
_STATE = re.compile(r"\s*state:\s+PORT_[A-Z_]{2,16} \(\d\)\s*")
_PHYSICAL_STATE = re.compile(r"\s*phys_state:\s+[A-Z_]{4,32} \(\d\)\s*")
_GID_LINE = re.compile(r"\s*\*{0,2}(GID\[\s*\d{1,4}\]):\s*(.*)")
_GID = re.compile(r"\s*GID\[\s*\d{1,4}\]:\s+[0-9a-fA-F:.]{6,45}\b.*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ibv_devinfo`` output begins at a line."""
    text = lines[at].text
    if _HCA.fullmatch(text) or _STATE.fullmatch(text):
        return True
    if not _DEVINFO_HEADLESS.fullmatch(text):
        return False
    after = lines[at + 1].text if at + 1 < len(lines) else ""
    if _PHYSICAL_STATE.fullmatch(text) and _GID.fullmatch(after):
        return True
    return bool(_DEVINFO_HEADLESS.fullmatch(after)) or follows_command(lines, at, "ibv_devinfo")


def _over_other(lines: Lines, at: int, end: int) -> int | None:
    """Return the index of a device's next known line after unknown ones, or None.

    The capabilities that ``-v`` prints differ between libraries and OFED releases.
    """
    deep = _depth(lines[at].text)
    if not _HCA.fullmatch(lines[at].text):
        return None
    for index in range(end, min(end + _OTHER, len(lines))):
        text = lines[index].text
        if not text.strip():
            continue
        if _depth(text) <= deep or is_prompt(text):
            return None
        field = _DEVINFO_FIELD.fullmatch(text)
        if _DEVINFO_PORT.fullmatch(text) or (field and (field[1] in _OF_PORTS or _OF_DEVICES.fullmatch(field[1]))):
            return index
    return None


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())


def parse_lines(lines: Lines, at: int) -> Parsed[PortList]:
    """Read the devices and their ports."""
    listing, cut = PortListBuilder(_OF_PORTS), list[ParseGap]()
    if not _HCA.fullmatch(lines[at].text):
        cut.append(ParseGap(lines[at].number, "the line that names the device is missing"))

    def belongs(text: str) -> bool:
        return bool(_HCA.fullmatch(text) or _DEVINFO_FIELD.fullmatch(text) or _DEVINFO_LIST.fullmatch(text))

    end, taken = block(lines, at, belongs)
    while (on := _over_other(lines, at, end)) is not None:
        end, more = block(lines, on, belongs)
        taken += more
    for line in taken:
        if match := _HCA.fullmatch(line.text):
            listing.begin_device(match[1])
        elif match := _DEVINFO_PORT.fullmatch(line.text):
            listing.begin_port(int(match[1]), line.number)
        elif match := _DEVINFO_FIELD.fullmatch(line.text) or _GID_LINE.fullmatch(line.text):
            listing.add(match[1], match[2].strip(), line.number)
    last = taken[-1].number
    cut += [ParseGap(last, f"the ports of {name} are missing") for name in listing.missing("phys_port_cnt")]
    listing.name_alone(queried_device(lines, at, "ibv_devinfo"))
    ports = []
    for port in listing.ports:
        fields = port.fields
        missing = ["its number"] * (port.number is None) + [
            name for name in ("state", "active_mtu", "port_lid") if not fields.get(name)
        ]
        if missing:
            cut.append(ParseGap(last, f"{port.shown} lacks {', '.join(missing)}"))
        ports.append(_port(port, listing.of(port.device)))
    return Parsed(PortList(tuple(ports), tuple(listing.devices)), tuple(cut), end)


def _port(port: PortLines, device_fields: Mapping[str, str]) -> RdmaPort:
    fields = port.fields
    state = re.match(r"PORT_(\w+) |(?!P)\w+", fields.get("state", "") + " ")
    width, speed = _rate_of(fields.get("active_width"), r"(\d{1,2})X"), rate(fields.get("active_speed"))
    device = {name: value_or_none(device_fields.get(name)) for name in ("fw_ver", "board_id", "transport", "vendor_id")}
    return RdmaPort(
        port.device, port.number, port.line, word(state[1] or state[0]) if state else None,
        word((fields.get("phys_state") or "").split(" ")[0]), round(width * speed, 3) if width and speed else None,
        word(fields.get("link_layer")), number(fields.get("port_lid")), number(fields.get("sm_lid")),
        _mtu(fields.get("active_mtu")), guid=value_or_none(device_fields.get("node_guid")),
        rate=f"{width:g}X" if width else "",
        other={
            "max_mtu": _mtu(fields.get("max_mtu")), "firmware": device["fw_ver"], "board_id": device["board_id"],
            "transport": (device["transport"] or "").partition(" (")[0] or None, "vendor_id": device["vendor_id"],
        },
        gids=tuple(_gids(port)),
    )  # fmt: skip


#: ``GID[  3]:  ::ffff:10.0.0.1, RoCE v2``; before rdma-core 34, the address has all its digits, and no type follows.
_GID_FIELD = re.compile(r"GID\[\s*(\d{1,4})\]")
_GID_VALUE = re.compile(r"([0-9a-fA-F:.]{6,45})(?:,\s*(?:IB/)?(?:RoCE (v[12])|(IB)))?")


def _gids(port: PortLines) -> Iterator[GidRow]:
    for name, value in port.fields.items():
        index, result = _GID_FIELD.fullmatch(name), _GID_VALUE.fullmatch(value)
        if index and result:
            yield GidRow(port.device, port.number, int(index[1]), result[1].lower(), mapped_ipv4(result[1]),
                         result[2] or result[3], None, port.line)  # fmt: skip


def _mtu(text: str | None) -> int | None:
    """Return an MTU in bytes; None if it is missing or truncated."""
    value = number(text)
    return value if value in (256, 512, 1024, 2048, 4096) else None


def _rate_of(text: str | None, pattern: str) -> float | None:
    match = re.match(pattern, text) if text else None
    return float(match[1]) if match else None
