"""``ethtool -a`` (pause), ``ethtool -i`` (driver), ``ethtool -m`` (module), ``ethtool`` (link)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.parsers.text_block import block, broken_off, field, json_at, stops_in, value_or_none
from preflight.textprep.lines import Lines


def _fields(lines: Lines, at: int, belongs: Callable[[str], bool]) -> tuple[int, dict[str, str]]:
    """Return where a block of fields ends, and the fields; of several alike the first counts."""
    end, taken = block(lines, at, belongs, blanks=0)
    fields: dict[str, str] = {}
    for name, value in filter(None, (field(line.text) for line in taken)):
        fields.setdefault(name, value)
    return end, fields


def _printed(fields: dict[str, str]) -> dict[str, str | None]:
    """Return the fields by the names that are printed; None for one without a value."""
    return {name: value_or_none(value) for name, value in fields.items()}


# --- ethtool -a --------------------------------------------------------------------------------------

_PAUSE_HEAD = re.compile(r"\s*Pause parameters for ([\w.@-]{1,64}):\s*")
_PAUSE = frozenset(("Autonegotiate", "RX", "TX", "RX negotiated", "TX negotiated"))
#: What ``--include-statistics`` adds.
_PAUSE_COUNTER = re.compile(r"\s*(?:Statistics:|[rt]x_pause_frames:\s*\d{1,20})\s*")


def _begins_pause(lines: Lines, at: int) -> bool:
    return bool(_PAUSE_HEAD.fullmatch(lines[at].text)) or _pause_json(lines, at) is not None


def _pause_json(lines: Lines, at: int) -> tuple[int, dict[str, Any]] | None:
    """Return what ``ethtool --json -a`` says of an interface."""
    if lines[at].text.lstrip()[:1] != "[" or not any('"autonegotiate"' in line.text for line in lines[at : at + 5]):
        return None
    found = json_at(lines, at, 200)
    if found is None or not isinstance(found[1], list) or not found[1] or not isinstance(found[1][0], dict):
        return None
    return found[0], found[1][0]


def _take_pause_json(end: int, value: dict[str, Any]) -> ParsedPart:
    both = value.get("negotiated")
    negotiated = both if isinstance(both, dict) else {}
    values = {"autonegotiate": value.get("autonegotiate"), "rx": value.get("rx"), "tx": value.get("tx"),
            "rx_negotiated": negotiated.get("rx"), "tx_negotiated": negotiated.get("tx")}  # fmt: skip
    switches = {name: switch if isinstance(switch, bool) else None for name, switch in values.items()}
    facts: dict[str, Any] = {"interface": value.get("ifname"), **switches}
    return ParsedPart(end, facts, f"global pause of {facts['interface']}: RX {facts['rx']}, TX {facts['tx']}")


def _take_pause(lines: Lines, at: int) -> ParsedPart:
    if document := _pause_json(lines, at):
        return _take_pause_json(*document)
    head = _PAUSE_HEAD.fullmatch(lines[at].text)
    assert head

    def belongs(text: str) -> bool:
        found = field(text)
        return text is lines[at].text or bool(found and found[0] in _PAUSE) or bool(_PAUSE_COUNTER.fullmatch(text))

    end, fields = _fields(lines, at, belongs)
    cut = [TextGap(lines[end - 1].number, f"{name} is missing") for name in ("RX", "TX") if not fields.get(name)]
    facts: dict[str, Any] = {
        "interface": head[1], "autonegotiate": _switch(fields.get("Autonegotiate")), "rx": _switch(fields.get("RX")),
        "tx": _switch(fields.get("TX")), "rx_negotiated": _switch(fields.get("RX negotiated")),
        "tx_negotiated": _switch(fields.get("TX negotiated")),
    }  # fmt: skip
    printed = {name: value for name, value in fields.items() if name in _PAUSE}
    counted = {name: int(fields[name]) for name in ("tx_pause_frames", "rx_pause_frames") if fields.get(name)}
    facts |= {**printed, "fields": printed, "statistics": counted or None}
    return ParsedPart(end, facts, f"global pause of {head[1]}: RX {fields.get('RX')}, TX {fields.get('TX')}", cut)


def _switch(text: str | None) -> bool | None:
    return {"on": True, "off": False}.get(text.lower()) if text else None


# --- ethtool -i --------------------------------------------------------------------------------------

_DRIVER = frozenset(
    ("driver", "version", "firmware-version", "expansion-rom-version", "bus-info", "supports-statistics",
     "supports-test", "supports-eeprom-access", "supports-register-dump", "supports-priv-flags")
)  # fmt: skip


_DRIVER_BEGUN = re.compile(r"\s*(?:su?p?p?|supports[\w-]*|expansion[\w-]*|bus-?\w*|firmware[\w-]*)$")
#: The beginning of a PCI address.
_PCI_BEGUN = re.compile(r"[0-9a-f]{1,4}(?::[0-9a-f]{0,2}(?::[0-9a-f]{0,2}\.?)?)?")


def _begins_driver(lines: Lines, at: int) -> bool:
    if not re.fullmatch(r"\s*driver:\s*\S+\s*", lines[at].text):
        return False
    return any((found := field(line.text)) and found[0] in ("version", "firmware-version", "bus-info")
               for line in lines[at + 1 : at + 4])  # fmt: skip


def _take_driver(lines: Lines, at: int) -> ParsedPart:
    def belongs(text: str) -> bool:
        return bool((found := field(text)) and found[0] in _DRIVER)

    end, fields = _fields(lines, at, belongs)
    cut = [] if "bus-info" in fields else [TextGap(lines[end - 1].number, "bus-info is missing")]
    if stops_in(lines, end, _DRIVER_BEGUN):
        cut.append(TextGap(lines[end - 1].number, "the text stops within a field"))
    named = {name.replace("-", "_"): value_or_none(fields.get(name)) for name in sorted(_DRIVER)}
    if _PCI_BEGUN.fullmatch(named["bus_info"] or ""):
        cut.append(TextGap(lines[end - 1].number, "bus-info is not whole"))
        named["bus_info"] = None
    firmware = re.match(r"(\S+)(?:\s+\((\w+)\))?", fields.get("firmware-version", ""))
    facts = {**_printed(fields), **named, "psid": firmware[2] if firmware else None, "fields": fields}
    return ParsedPart(
        end,
        facts,
        f"{fields.get('driver')} {fields.get('version', '')}, firmware {fields.get('firmware-version')}",
        cut,
    )


# --- ethtool -m --------------------------------------------------------------------------------------

_MODULE_FIELD = re.compile(r"\s*([A-Z0-9][^:]{1,70}?)\s*:\s*(\S.*)?")


#: Pages that show it without the column leave the code out as well.
_IDENTIFIER = re.compile(r"\s*Identifier\s*:\s*(?:0x[0-9a-fA-F]{2}\b.*|(?:Q|O|D)?SFP[\w+-]{0,8}\s*)")
_ALARM = re.compile(r"(?i)\b(?:alarm|warning)(?:\s*\(Chan(?:nel)? ?\d{1,2}\))?$")


#: Names that only a module's list has, with its wide column; two in a row tell it where the head is cut off.
_OWN_FIELD = re.compile(
    r"\s*(?:(?:Laser (?:bias current|output power|tx bias|rx power|wavelength)|Module (?:temperature|voltage)"
    r"|Transmit avg optical|Rcvr signal avg optical|Receiver signal|Transmitter technology|Transceiver (?:type|codes)"
    r"|Vendor (?:OUI|PN|SN|rev|name)|Date code|BR,? Nominal|Length \("
    r"|[RT]x loss of (?:signal|lock)|Tx (?:adaptive eq )?fault|Revision Compliance|Alarm/warning flags)"
    r"[^:]{0,60}\s:\s.*|(?:Connector|Encoding|Extended identifier)\s{4,}:\s0x.*)"
)
_NEAR_FIELD = re.compile(
    r"\s*(?:Extended identifier|Connector|Transceiver|Module (?:temperature|voltage)|Laser|Encoding)\b"
)


def _begins_module(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _IDENTIFIER.fullmatch(text):
        return "0x" in text or any(_NEAR_FIELD.match(line.text) for line in lines[at + 1 : at + 3])
    return len(lines) > at + 1 and all(_OWN_FIELD.fullmatch(line.text) for line in lines[at : at + 2])


#: The wide column of names that modules are told with.
_COLUMN = re.compile(r"\s*[A-Z].{20,70}? : \S")


def _carried(lines: Lines, at: int) -> bool:
    """Tell whether a line between two fields is the rest of the one above, which a mail or a page broke."""
    if at + 1 == len(lines) or " : " in lines[at].text or not lines[at].text.strip():
        return False
    above, below = (_COLUMN.match(line.text) for line in (lines[at - 1], lines[at + 1]))
    return bool(above and below and above.end() == below.end())


def _take_module(lines: Lines, at: int) -> ParsedPart:
    carried = {id(lines[index].text) for index in range(at + 1, min(at + 100, len(lines))) if _carried(lines, index)}
    end, taken = block(
        lines,
        at,
        lambda text: bool(_MODULE_FIELD.fullmatch(text)) or id(text) in carried,
        blanks=0,
        again=lambda text: bool(_IDENTIFIER.fullmatch(text)),
    )
    fields: dict[str, str] = {}
    name = ""
    for text in (line.text for line in taken):
        if match := _MODULE_FIELD.fullmatch(text):
            name = match[1].strip()
            fields.setdefault(name, (match[2] or "").strip())
        elif id(text) in carried and name in fields:  # a mail may end such a line with =
            fields[name] = f"{fields[name]} {text.strip()}".replace("= ", "")
    alarms = sorted(name for name, value in fields.items() if _ALARM.search(name) and value.lower() in ("on", "yes"))
    identifier = re.match(r"(0x[0-9a-fA-F]{2})(?:\s+\((.*)\))?", fields.get("Identifier", ""))
    facts: dict[str, Any] = {
        "identifier": identifier[2] if identifier else None, "vendor": value_or_none(fields.get("Vendor name")),
        "part_number": value_or_none(fields.get("Vendor PN")), "serial": value_or_none(fields.get("Vendor SN")),
        "temperature_c": _measured(fields.get("Module temperature"), "(?:degrees )?C"),
        "voltage_v": _measured(fields.get("Module voltage"), "V"), "alarms": alarms, "fields": fields,
    }  # fmt: skip
    facts = {**_printed(fields), **facts}
    summary = f"{facts['identifier'] or 'module'} {facts['vendor'] or ''} {facts['part_number'] or ''}".strip()
    headless = not _IDENTIFIER.fullmatch(lines[at].text)
    cut = [TextGap(lines[at].number, "the head of the list is missing")] if headless else []
    if broken_off(lines, end):
        cut.append(TextGap(lines[end].number, "the text stops within a field"))
    return ParsedPart(end, facts, f"{summary}; alarms: {', '.join(alarms) or 'none shown'}", cut)


def _measured(text: str | None, unit: str) -> float | None:
    match = re.match(rf"(-?\d{{1,4}}(?:\.\d{{1,4}})?)\s*{unit}", text) if text else None
    return float(match[1]) if match else None


# --- ethtool DEVICE ----------------------------------------------------------------------------------

_LINK_HEAD = re.compile(r"\s*Settings for ([\w.@-]{1,64}):\s*")
#: What ethtool says between the fields of what it may not ask.
_REFUSED = re.compile(r"(?:Cannot get [\w -]{2,60}|netlink error): .{0,80}")
_SPEED = re.compile(r"(\d{1,7})Mb/s")


#: What is left of it by a search, or where the head was cut off.
_SPEED_LINE = re.compile(r"\s*Speed:\s+(?:\d{1,7}Mb/s|Unknown!.{0,20})\s*")
_DUPLEX_LINE = re.compile(r"\s*Duplex:\s+\w{2,8}!?.{0,10}")


#: What stands in it, also where the lines have lost their blanks: fields, modes, what messages are on.
_LINK_FIELD = re.compile(
    r"\s*(?:(?:(?:Supported|Supports|Advertised|Link partner advertised) [\w -]{4,30}|Speed|Lanes|Duplex|Port|PHYAD"
    r"|Transceiver|Auto-negotiation|MDI-X|Wake-on|SecureOn password|Current message level|Link detected"
    r"|master-slave (?:cfg|status)|Active FEC encodings?|SQI):.*"
    r"|\d{2,7}base\S{1,16}(?:\s+\d{2,7}base\S{1,16})*"
    r"|(?:drv|probe|link|timer|ifdown|ifup|[rt]x_err|tx_queued|intr|tx_done|rx_status|pktdata|hw|wol|\s){3,200})"
)
#: The last field, which some print behind a blank line.
_LAST = re.compile(r"\n\s*Link detected:\s+(\w{2,3})$")


def _has_lanes(lines: Lines, at: int) -> bool:
    return at + 1 < len(lines) and lines[at + 1].text.lstrip().startswith("Lanes:")


def _begins_link(lines: Lines, at: int) -> bool:
    if _LINK_HEAD.fullmatch(lines[at].text):
        return True
    return bool(
        _SPEED_LINE.fullmatch(lines[at].text)
        and any(_DUPLEX_LINE.fullmatch(line.text) for line in lines[at + 1 : at + 2 + _has_lanes(lines, at)])
    )


def _take_link(lines: Lines, at: int) -> ParsedPart:
    head = _LINK_HEAD.fullmatch(lines[at].text)
    flat = not head or not any(line.text[:1] in " \t" for line in lines[at + 1 : at + 3])  # a page took the blanks

    # Modes go on over indented lines that have no name
    def belongs(text: str) -> bool:
        if text is lines[at].text or _REFUSED.fullmatch(text):
            return True
        return bool(_LINK_FIELD.fullmatch(text)) if flat else text[:1] in " \t"

    end, fields = _fields(lines, at, belongs)
    if "Link detected" not in fields and (match := _LAST.match("\n".join(line.text for line in lines[end : end + 2]))):
        fields["Link detected"], end = match[1], end + 2
    speed = _SPEED.match(fields.get("Speed", ""))
    detected = fields.get("Link detected")
    facts = {
        "interface": head[1] if head else None, "speed_gbps": int(speed[1]) / 1000 if speed else None,
        "duplex": fields.get("Duplex"),
        "link_detected": None if detected is None else detected.startswith("yes"),
        "autonegotiation": _switch(fields.get("Auto-negotiation")),
        "fields": {k: v for k, v in fields.items() if k and v},
    }  # fmt: skip
    cut = [] if detected is not None else [TextGap(lines[end - 1].number, "Link detected is missing")]
    if not head:
        cut.append(TextGap(lines[at].number, "the head of the list is missing"))
    return ParsedPart(
        end, facts, f"{facts['interface'] or 'a port'}: speed {fields.get('Speed')}, link {detected}", cut
    )


KINDS = (
    OutputFormat("ethtool -a", _begins_pause, _take_pause, hints=("Pause parameters for ", "[")),
    OutputFormat("ethtool -i", _begins_driver, _take_driver, hints=("driver:",)),
    OutputFormat("ethtool -m", _begins_module, _take_module, hints=(":",)),
    OutputFormat("ethtool", _begins_link, _take_link, hints=("Settings for ", "Speed:")),
)
