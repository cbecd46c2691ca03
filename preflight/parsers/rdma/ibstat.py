"""``ibstat`` (infiniband-diags): devices and their ports."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.port_list import PortLines, PortList, PortListBuilder, RdmaPort, facts, summary, word
from preflight.parsers.rdma.port_values import rate
from preflight.parsers.text_block import (
    block,
    field,
    follows_command,
    number,
    queried_device,
    stops_in,
    value_or_none,
)
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ("CA", ":")

_CA = re.compile(r"\s*CA:? ['’‘`]([^'’\s]{1,64})['’‘]{1,2}(?:\s.*)?")
_CA_BEGUN = re.compile(r"\s*CA:? ['’‘`]")
_OF_PORTS = frozenset(
    ("State", "Physical state", "Rate", "Base lid", "LMC", "SM lid", "Capability mask", "Port GUID", "Link layer")
)
_CA_FIELDS = _OF_PORTS | {
    "CA type", "Number of ports", "Firmware version", "Hardware version", "Node GUID", "System image GUID"
}  # fmt: skip
_PORT_LINE = re.compile(r"\s*[Pp]ort (\d{1,3}):\s*")
#: Additional lines of later releases, such as the effective speed.
_LATER_FIELD = re.compile(
    r"(?:(?:\t\t|\s{8})\s*[A-Z][a-z]+(?: [a-z]+){1,3}|\s*[A-Z][a-z]+ speed): \d[\d.]{0,8}(?: \S{1,12})?\s*"
)
#: Lines of a port; two identify the output if the header is missing or the list was filtered with grep.
_OWN = re.compile(
    r"\s*(?:State: (?:Active|Down|Initializing|Armed)|Physical state: [A-Z]\w+|Rate: [\d.]{1,6}(?: .*)?|Base lid: \d+"
    r"|LMC: \d|SM lid: \d+|Capability mask: 0x[0-9a-f]+|Port GUID: 0x[0-9a-fA-F]+|Link layer: \w+)\s*"
)


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ibstat`` output begins at a line."""
    text = lines[at].text
    if _CA.fullmatch(text):
        return True
    # if the header is missing, a port's first lines are enough
    if _PORT_LINE.fullmatch(text):
        return any((result := field(line.text)) and result[0] in ("State", "Physical state")
                   for line in lines[at + 1 : at + 3])  # fmt: skip
    if not _OWN.fullmatch(text):
        return False
    return (len(lines) > at + 1 and bool(_OWN.fullmatch(lines[at + 1].text))) or follows_command(lines, at, "ibstat")


def parse_lines(lines: Lines, at: int) -> Parsed[PortList]:
    """Read the devices and their ports."""
    listing, cut = PortListBuilder(_OF_PORTS), list[ParseGap]()

    def belongs(text: str) -> bool:
        result = field(text)
        return bool(
            _CA.fullmatch(text) or _PORT_LINE.fullmatch(text) or (result and result[0] in _CA_FIELDS)
            or re.match(r"\s*ib(?:panic|warn)\s*:", text) or _LATER_FIELD.fullmatch(text)
        )  # fmt: skip

    end, taken = block(lines, at, belongs)
    for line in taken:
        if match := _CA.fullmatch(line.text):
            listing.begin_device(match[1])
        elif match := _PORT_LINE.fullmatch(line.text):
            listing.begin_port(int(match[1]), line.number)
        elif re.match(r"\s*ibpanic", line.text):
            cut.append(ParseGap(line.number, f"the list is incomplete: {line.text.strip()[:160]}"))
        elif result := field(line.text):
            listing.add(*result, line.number)
    last = taken[-1].number
    cut += [ParseGap(last, f"the ports of {name} are missing") for name in listing.missing("Number of ports")]
    if stops_in(lines, end, _CA_BEGUN):
        cut.append(ParseGap(last, "the text ends at the start of another device"))
    listing.name_alone(queried_device(lines, at, "ibstat"))
    ports = []
    others: dict[str | None, Mapping[str, str | None]] = {}  # shared by all ports of a device
    for port in listing.ports:
        if port.device not in listing.devices:
            cut.append(ParseGap(port.line, "the line that names the device is missing"))
        if missing := _missing_of(port):
            cut.append(ParseGap(last, f"{port.shown} lacks {', '.join(missing)}"))
        fields = port.fields
        if port.device not in others:
            others[port.device] = _of_device(listing.of(port.device))
        ports.append(RdmaPort(
            port.device, port.number, port.line, word(fields.get("State")), word(fields.get("Physical state")),
            rate(fields.get("Rate")), word(fields.get("Link layer")), number(fields.get("Base lid")),
            number(fields.get("SM lid")), guid=_guid(fields.get("Port GUID")), rate=fields.get("Rate", ""),
            other=others[port.device],
        ))  # fmt: skip
    return Parsed(PortList(tuple(ports), tuple(listing.devices)), tuple(cut), end)


def _of_device(fields: Mapping[str, str]) -> Mapping[str, str | None]:
    names = {"firmware": "Firmware version", "ca_type": "CA type", "node_guid": "Node GUID"}
    return {name: value_or_none(fields.get(printed)) for name, printed in names.items()}


def _missing_of(port: PortLines) -> list[str]:
    """Return the missing fields of a port; old releases do not print a link layer."""
    fields = port.fields
    expected = ("State", "Physical state", "Rate", "Port GUID" if "Port GUID" in fields else "Link layer")
    missing = ["its number"] * (port.number is None) + [name for name in expected if not fields.get(name)]
    if value_or_none(fields.get("Port GUID")) and not _guid(fields.get("Port GUID")):
        missing.append("the rest of the Port GUID")
    return missing


def _guid(text: str | None) -> str | None:
    """Return a GUID if it is complete; its digits may be masked."""
    return text if text and re.fullmatch(r"0x[0-9a-fA-FxX*]{16}", text) else None
