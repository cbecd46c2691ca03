"""Modules and cables: ``ethtool -m``, ``ethtool --show-fec``, ``mlxlink``.

The modules follow SFF-8636, SFF-8472 or CMIS; mlxlink runs with ``-m -c``. Sources: ethtool(8); SFF-8636, CMIS; the
mlxlink pages of NVIDIA's MFT documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.record import parse_complete
from preflight.parsers.text_block import block, broken_off, printed, value_or_none
from preflight.textprep.lines import Lines
from preflight.textprep.plain_text import normalize_text

HINTS = (":",)

_LINE = re.compile(r"[ \t]*([A-Za-z][^:\n]{0,90}?)[ \t]*:[ \t]*([^\n]*)")
_FLAG = re.compile(r"(.{1,60}?)\s+(high|low)\s+(alarm|warning)\s*(\(Chan(?:nel)?\s*\d{1,2}\))?", re.IGNORECASE)
_HEAT = re.compile(r"(-?\d{1,3}(?:\.\d{1,3})?)\s*(?:\[(-?\d{1,3})\.\.(-?\d{1,3})\])?")
_NUMBER = re.compile(r"(-?\d{1,7}(?:\.\d{1,7})?)\s*(degrees C|mA|mW|V)\b")


@dataclass(frozen=True)
class Flag:
    """An active alarm or warning of a module."""

    what: str  # name of the value, as in "Module temperature"
    side: str  # high or low
    level: str  # alarm or warning
    channel: str  # as in "(Chan 1)"; empty for the module
    now: bool | None  # whether the value violates its threshold now; None if value or threshold is not shown

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.side, self.level, self.channel) if part)


@dataclass(frozen=True)
class Module:
    """A transceiver module or cable."""

    identifier: str
    vendor: str
    part: str
    serial: str
    temperature_c: float | None
    measures: bool  # whether it has alarm flags; passive copper has none
    flags: tuple[Flag, ...]  # active flags
    voltage_v: float | None = None
    alarms: tuple[str, ...] = ()  # the flags as printed, including those in an unknown format
    fields: Mapping[str, str] = field(default_factory=dict)
    line: int = 0

    @property
    def name(self) -> str:
        """The vendor, part and serial number, as far as known, else the identifier."""
        return " ".join(part for part in (self.vendor, self.part, self.serial) if part) or self.identifier


def parse_module(text: str) -> Module:
    """Read a node's ``ethtool -m``; raises ValueError.

    It is an error if the text does not describe a module, or is incomplete.
    """
    return parse_complete(text, begins, parse_lines)


_MODULE_FIELD = re.compile(r"\s*([A-Z0-9][^:]{1,70}?)\s*:\s*(\S.*)?")


#: The first field. Pages that print it without the wide column also omit its code.
_IDENTIFIER = re.compile(r"\s*Identifier\s*:\s*(?:0x[0-9a-fA-F]{2}\b.*|(?:Q|O|D)?SFP[\w+-]{0,8}\s*)")
_ALARM = re.compile(r"(?i)\b(?:alarm|warning|fault)(?:\s*\(Chan(?:nel)? ?\d{1,2}\))?$")


#: Names that occur only in a module's list, with its wide column; two in a row identify a list without its header.
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


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ethtool -m`` output begins at a line."""
    text = lines[at].text
    if _IDENTIFIER.fullmatch(text):
        return "0x" in text or any(_NEAR_FIELD.match(line.text) for line in lines[at + 1 : at + 3])
    return len(lines) > at + 1 and all(_OWN_FIELD.fullmatch(line.text) for line in lines[at : at + 2])


#: The wide column of names that identifies a module's list.
_COLUMN = re.compile(r"\s*[A-Z].{20,70}? : \S")


def _carried(lines: Lines, at: int) -> bool:
    """Return whether a line continues the previous field, which was wrapped."""
    if at + 1 == len(lines) or " : " in lines[at].text or not lines[at].text.strip():
        return False
    above, below = (_COLUMN.match(line.text) for line in (lines[at - 1], lines[at + 1]))
    return bool(above and below and above.end() == below.end())


def parse_lines(lines: Lines, at: int) -> Parsed[Module]:
    """Read the fields starting at a line; if a name is repeated, the first is used."""
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
        elif id(text) in carried and name in fields:  # an email may end such a line with =
            fields[name] = f"{fields[name]} {text.strip()}".replace("= ", "")
    headless = not _IDENTIFIER.fullmatch(lines[at].text)
    cut = [ParseGap(lines[at].number, "the header of the list is missing")] if headless else []
    if broken_off(lines, end):
        cut.append(ParseGap(lines[end].number, "the text stops within a field"))
    return Parsed(_module(fields, lines[at].number), tuple(cut), end)


def _module(fields: Mapping[str, str], line: int) -> Module:
    identifier = fields.get("Identifier", "")
    if match := re.match(r"0x[0-9a-fA-F]{2}(?:\s+\((.*)\))?", identifier):
        identifier = match[1] or ""
    alarms = sorted(name for name, value in fields.items() if _ALARM.search(name) and _is_on(value))
    return Module(
        identifier,
        value_or_none(fields.get("Vendor name")) or "",
        value_or_none(fields.get("Vendor PN")) or "",
        value_or_none(fields.get("Vendor SN")) or "",
        _measured(fields.get("Module temperature"), "(?:degrees )?C"),
        any(_FLAG.fullmatch(name) and value.lower() in ("on", "off") for name, value in fields.items()),
        tuple(_flags(fields)),
        _measured(fields.get("Module voltage"), "V"),
        tuple(alarms),
        fields,
        line,
    )


def _is_on(value: str) -> bool:
    return value.lower() in ("on", "yes")


def _measured(text: str | None, unit: str) -> float | None:
    match = re.match(rf"(-?\d{{1,4}}(?:\.\d{{1,4}})?)\s*{unit}", text) if text else None
    return float(match[1]) if match else None


def facts(module: Module) -> dict[str, Any]:
    """Return the module as `preflight read --json` prints it."""
    return {
        **printed(module.fields), "identifier": module.identifier if "Identifier" in module.fields else None,
        "vendor": module.vendor or None, "part_number": module.part or None, "serial": module.serial or None,
        "temperature_c": module.temperature_c, "voltage_v": module.voltage_v, "alarms": list(module.alarms),
        "fields": module.fields,
    }  # fmt: skip


def summary(module: Module) -> str:
    """Return a one-line summary of the module."""
    name = f"{module.identifier or 'module'} {module.vendor} {module.part}".strip()
    return f"{name}; alarms: {', '.join(module.alarms) or 'none shown'}"


def _flags(fields: Mapping[str, str]) -> Iterator[Flag]:
    for name, value in fields.items():
        match = _FLAG.fullmatch(name)
        if match and _is_on(value):
            what, side, level, channel = match[1], match[2].lower(), match[3].lower(), match[4] or ""
            yield Flag(what, side, level, channel, _beyond(fields, what, side, level, channel))


#: Families of flags: the prefix of the names of flags and thresholds, and the name of the value.
_VALUES = (
    (r"Laser (?:tx )?bias(?: current)?", r"Laser (?:tx )?bias current"),
    (r"Laser (?:tx|output) power", r"(?:Laser (?:tx|output) power|Transmit avg optical power)"),
    (r"Laser rx power", r"(?:Rcvr signal avg optical power|Receiver signal average optical power)"),
    (r"Module temperature", r"Module temperature"),
    (r"Module voltage", r"Module voltage"),
)


def _beyond(fields: Mapping[str, str], what: str, side: str, level: str, channel: str) -> bool | None:
    """Return whether a value violates its threshold now.

    A flag is latched, so its cause may date from the insertion of the module. The result is None if the value or its
    threshold is not shown.
    """
    number = re.sub(r"[^0-9]", "", channel)
    for family, value in _VALUES:
        if not re.fullmatch(family, what, re.IGNORECASE):
            continue
        measured = _first(fields, rf"{value}\s*(?:\(Chan(?:nel)?\s*{number}\))?" if number else value)
        limit = _first(fields, rf"{family}\s+{side}\s+{level}\s+threshold")
        if measured is None or limit is None:
            return None
        return measured > limit if side == "high" else measured < limit
    return None


_LANE = r"\s*\(Chan(?:nel)?\s*(\d{1,2})\)"
_BIAS, _RECEIVED = (re.compile(_VALUES[at][1] + _LANE, re.IGNORECASE) for at in (0, 2))


def bias_ma(module: Module) -> dict[int, float]:
    """Return the bias current of each shown laser in mA, by lane."""
    return _by_lane(module, _BIAS)


def received_mw(module: Module) -> dict[int, float]:
    """Return the received power in mW, by lane; lanes that are not shown are missing."""
    return _by_lane(module, _RECEIVED)


def _by_lane(module: Module, name_of_lane: re.Pattern[str]) -> dict[int, float]:
    matches = ((name_of_lane.fullmatch(name), _quantity(value)) for name, value in module.fields.items())
    return {int(match[1]): number for match, number in matches if match and number is not None}


def least_received_mw(module: Module) -> float | None:
    """Return the low alarm threshold of received power in mW; None if not shown."""
    return _first(module.fields, rf"{_VALUES[2][0]}\s+low\s+alarm\s+threshold")


def lanes_without_signal(module: Module) -> tuple[int, ...]:
    """Return the lanes that report a loss of signal, numbered from 1."""
    words = re.findall(r"\w+", module.fields.get("Rx loss of signal", ""))
    return tuple(lane for lane, word in enumerate(words, 1) if word.lower() == "yes")


def _first(fields: Mapping[str, str], name: str) -> float | None:
    pattern = re.compile(name, re.IGNORECASE)
    return next((_quantity(value) for key, value in fields.items() if pattern.fullmatch(key)), None)


def _quantity(text: str) -> float | None:
    match = _NUMBER.search(text)
    return float(match[1]) if match else None


def parse_fec(text: str) -> str:
    """Return the active encoding of ``ethtool --show-fec``; raises ValueError.

    Examples are RS, BaseR, Off and None.
    """
    active = _fields(text).get("Active FEC encoding", _fields(text).get("Active FEC encodings", ""))
    if not active:
        raise ValueError("the output does not show the active FEC encoding")
    return active[:40]


@dataclass(frozen=True)
class LinkQuality:
    """A link's error ratios, from ``mlxlink``; a value that it lacks is None or empty.

    The ratios are averages since the counters were last cleared.
    """

    minutes: float | None  # since the counters were last cleared
    raw_ber: float | None  # before FEC
    effective_ber: float | None  # after FEC
    symbol_ber: float | None
    fec: str
    temperature_c: float | None
    limits_c: tuple[float, float] | None  # lowest and highest allowed temperature of the module
    cable: str  # Passive copper cable, Optical Module, …


def parse_mlxlink(text: str) -> LinkQuality:
    """Read ``mlxlink -m -c``; raises ValueError if it lacks all bit error ratios."""
    fields = _fields(text)
    raw = _ratio(fields.get("Raw Physical BER", ""))
    effective, symbol = _ratio(fields.get("Effective Physical BER", "")), _ratio(fields.get("Symbol BER", ""))
    if raw is None and effective is None and symbol is None:
        first = next((line.strip() for line in normalize_text(text).split("\n") if line.strip()), "")
        raise ValueError(f"the output contains no bit error ratio; it begins with {first[:80]!r}")
    temperature, limits = None, None
    if match := _HEAT.match(fields.get("Temperature [C]", "")):
        temperature = float(match[1])
        limits = (float(match[2]), float(match[3])) if match[2] else None
    minutes = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)", fields.get("Time Since Last Clear [Min]", ""))
    cable = next((fields[name] for name in ("Cable Type", "Cable Technology") if fields.get(name, "N/A") != "N/A"), "")
    return LinkQuality(
        float(minutes[1]) if minutes else None,
        raw,
        effective,
        symbol,
        fields.get("FEC", ""),
        temperature,
        limits,
        cable,
    )


def _ratio(text: str) -> float | None:
    """Convert a ratio such as ``2E-9``; None for other text.

    mlxlink prints ``15E-255`` instead of zero.
    """
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4})?([eE][-+]?\d{1,3})?", text):
        return None
    return float(text)


def _fields(text: str) -> dict[str, str]:
    """Return the lines ``name : value``; if a name is repeated, the first is used."""
    result: dict[str, str] = {}
    for line in normalize_text(text).split("\n"):
        if match := _LINE.fullmatch(line.rstrip()[:400]):
            result.setdefault(match[1].strip(), match[2].strip())
    return result
