"""Modules and cables: ``ethtool -m`` (SFF-8636, SFF-8472, CMIS), ``ethtool --show-fec``, ``mlxlink -m -c``.

Sources: ethtool(8); SFF-8636, CMIS; the mlxlink pages of NVIDIA's MFT documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

_LINE = re.compile(r"[ \t]*([A-Za-z][^:\n]{0,90}?)[ \t]*:[ \t]*([^\n]*)")
_FLAG = re.compile(r"(.{1,60}?)\s+(high|low)\s+(alarm|warning)\s*(\(Chan(?:nel)?\s*\d{1,2}\))?", re.IGNORECASE)
_HEAT = re.compile(r"(-?\d{1,3}(?:\.\d{1,3})?)\s*(?:\[(-?\d{1,3})\.\.(-?\d{1,3})\])?")
_NUMBER = re.compile(r"(-?\d{1,7}(?:\.\d{1,7})?)\s*(degrees C|mA|mW|V)\b")


@dataclass(frozen=True)
class Flag:
    """An alarm or warning of a module that is on."""

    what: str  # Module temperature
    side: str  # high or low
    level: str  # alarm or warning
    channel: str  # (Chan 1); empty: the module
    now: bool | None  # whether the value is beyond the module's own threshold at this moment; None: not shown

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.side, self.level, self.channel) if part)


@dataclass(frozen=True)
class Module:
    """A transceiver or cable."""

    identifier: str
    vendor: str
    part: str
    serial: str
    temperature_c: float | None
    measures: bool  # whether it has alarm flags at all: passive copper has none
    flags: tuple[Flag, ...]  # those that are on

    @property
    def name(self) -> str:
        """Vendor, part and serial number, as far as they are told."""
        return " ".join(part for part in (self.vendor, self.part, self.serial) if part) or self.identifier


def parse_module(text: str) -> Module:
    """Read ``ethtool -m``; raises ValueError if it describes no module."""
    fields = _fields(text)
    identifier = re.sub(r"^0x[0-9a-fA-F]{2}\s*\((.*)\)$", r"\1", fields.get("Identifier", ""))
    if not identifier:
        first = next((line.strip() for line in normalize_text(text).split("\n") if line.strip()), "")
        raise ValueError(f"it describes no module; it begins {first[:80]!r}")
    flags = tuple(_flags(fields))
    shown = [name for name in fields if _FLAG.fullmatch(name) and fields[name].lower() in ("on", "off")]
    temperature = _quantity(fields.get("Module temperature", ""))
    return Module(
        identifier,
        fields.get("Vendor name", ""),
        fields.get("Vendor PN", ""),
        fields.get("Vendor SN", ""),
        temperature,
        bool(shown),
        flags,
    )


def _flags(fields: Mapping[str, str]) -> Iterator[Flag]:
    for name, value in fields.items():
        match = _FLAG.fullmatch(name)
        if match and value.lower() == "on":
            what, side, level, channel = match[1], match[2].lower(), match[3].lower(), match[4] or ""
            yield Flag(what, side, level, channel, _beyond(fields, what, side, level, channel))


#: Families of flags: what their names begin with, in flags and thresholds alike, and what the value is called.
_VALUES = (
    (r"Laser (?:tx )?bias(?: current)?", r"Laser (?:tx )?bias current"),
    (r"Laser (?:tx|output) power", r"(?:Laser (?:tx|output) power|Transmit avg optical power)"),
    (r"Laser rx power", r"(?:Rcvr signal avg optical power|Receiver signal average optical power)"),
    (r"Module temperature", r"Module temperature"),
    (r"Module voltage", r"Module voltage"),
)


def _beyond(fields: Mapping[str, str], what: str, side: str, level: str, channel: str) -> bool | None:
    """Tell whether a value is beyond its threshold now: the flags are latched, and may speak of the last plugging."""
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


def _first(fields: Mapping[str, str], name: str) -> float | None:
    pattern = re.compile(name, re.IGNORECASE)
    return next((_quantity(value) for key, value in fields.items() if pattern.fullmatch(key)), None)


def _quantity(text: str) -> float | None:
    match = _NUMBER.search(text)
    return float(match[1]) if match else None


def parse_fec(text: str) -> str:
    """Read ``ethtool --show-fec``: the encoding in use (RS, BaseR, Off, None, …); raises ValueError."""
    active = _fields(text).get("Active FEC encoding", _fields(text).get("Active FEC encodings", ""))
    if not active:
        raise ValueError("it does not tell the active FEC encoding")
    return active[:40]


@dataclass(frozen=True)
class LinkQuality:
    """Error ratios of a link by ``mlxlink``, averages since the counters were cleared."""

    minutes: float | None  # since then
    raw_ber: float | None  # before FEC
    effective_ber: float | None  # after FEC
    symbol_ber: float | None
    fec: str
    temperature_c: float | None
    limits_c: tuple[float, float] | None  # of the module's temperature
    cable: str  # Passive copper cable, Optical Module, …


def parse_mlxlink(text: str) -> LinkQuality:
    """Read ``mlxlink -m -c``; raises ValueError if it holds no bit error ratio."""
    fields = _fields(text)
    raw = _ratio(fields.get("Raw Physical BER", ""))
    effective, symbol = _ratio(fields.get("Effective Physical BER", "")), _ratio(fields.get("Symbol BER", ""))
    if raw is None and effective is None and symbol is None:
        first = next((line.strip() for line in normalize_text(text).split("\n") if line.strip()), "")
        raise ValueError(f"it holds no bit error ratio; it begins {first[:80]!r}")
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
    """Read ``2E-9``; ``15E-255`` is mlxlink's nought."""
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4})?([eE][-+]?\d{1,3})?", text):
        return None
    return float(text)


def _fields(text: str) -> dict[str, str]:
    """Return the lines ``name : value``; of several alike the first counts."""
    found: dict[str, str] = {}
    for line in normalize_text(text).split("\n"):
        if match := _LINE.fullmatch(line.rstrip()[:400]):
            found.setdefault(match[1].strip(), match[2].strip())
    return found
