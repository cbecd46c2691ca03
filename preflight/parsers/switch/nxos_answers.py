"""Commands that query a Cisco NX-OS switch, and the fields of their answers.

An answer is the text that a terminal shows, or the JSON of ``| json``; both give the same record. Nothing outside this
list is read: serial numbers and the configuration are in other fields. Sources: recorded answers of Nexus 3000 and 9000
switches in public test data, in both forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.switch import show_commands
from preflight.parsers.switch.show_commands import ShowCommand

_LONGEST = 200  # maximum characters of a string
_PORT = re.compile(r"Eth(?:ernet)?([0-9]{1,4}(?:/[0-9]{1,3}){1,2})")
_NUMBER = re.compile(r"\s*(-?[0-9]{1,20}(?:\.[0-9]{1,6})?)(?:\s*(?:dBm|C))?\s*")
#: Words for an absent value.
_ABSENT = {"", "null", "not advertised", "N/A", "--", "-"}

Row = dict[str, Any]


def _rows(value: Any, name: str) -> Iterator[Row]:
    """Yield the rows of ``TABLE_name``: one row is an object, several are a list."""
    tables = value.get(f"TABLE_{name}") if isinstance(value, dict) else None
    for table in tables if isinstance(tables, list) else [tables]:
        rows = table.get(f"ROW_{name}") if isinstance(table, dict) else None
        yield from (row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict))


def _text(value: Any) -> str:
    text = value.strip()[:_LONGEST] if isinstance(value, str) else ""
    return "" if text in _ABSENT else text


def _number(value: Any) -> float | None:
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1])
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 21:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _port(name: Any) -> str | None:
    """Return the long name of an Ethernet port; None for any other interface."""
    match = _PORT.fullmatch(name.strip()) if isinstance(name, str) else None
    return f"Ethernet{match[1]}" if match else None


def _blocks(head: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each match, and the text up to the next one."""
    heads = list(head.finditer(text))
    ends = [match.start() for match in heads[1:]] + [len(text)]
    for match, end in zip(heads, ends[: len(heads)], strict=True):
        yield match, text[match.end() : end]


# --- show version ---

_UPTIME = (("kern_uptm_days", 86_400), ("kern_uptm_hrs", 3600), ("kern_uptm_mins", 60), ("kern_uptm_secs", 1))
_VERSION_LINES = {
    "host_name": re.compile(r"^ *Device name: (\S{1,200}) *\n", re.MULTILINE),
    "chassis_id": re.compile(r"^ *cisco (Nexus.{1,100}) Chassis", re.MULTILINE | re.IGNORECASE),
    "nxos_ver_str": re.compile(r"^ *(?:NXOS|system): {1,20}version (\S{1,60})\s", re.MULTILINE | re.IGNORECASE),
}
_UPTIME_LINE = re.compile(
    r"Kernel uptime is ([0-9]{1,6}) day\(s\), ([0-9]{1,2}) hour\(s\), ([0-9]{1,2}) minute\(s\), ([0-9]{1,2}) second"
)


def _version(value: Any) -> Row:
    parts = [_count(value.get(name)) for name, _ in _UPTIME]
    shown = {name: _text(value.get(name)).removesuffix(" Chassis") for name in _VERSION_LINES}
    uptime = sum((part or 0) * unit for part, (_, unit) in zip(parts, _UPTIME, strict=True))
    return {**shown, "uptime_s": None if None in parts else uptime}


def _version_text(text: str) -> Row:
    fields = {name: match[1] for name, pattern in _VERSION_LINES.items() if (match := pattern.search(text))}
    if match := _UPTIME_LINE.search(text):
        fields |= dict(zip((name for name, _ in _UPTIME), match.groups(), strict=True))
    return fields


# --- show interface ---

_COUNTERS = {
    "eth_inbytes": re.compile(r"[0-9]{1,20} input packets {1,9}([0-9]{1,20}) bytes"),
    "eth_outbytes": re.compile(r"[0-9]{1,20} output packets {1,9}([0-9]{1,20}) bytes"),
    "eth_inerr": re.compile(r"([0-9]{1,20}) input errors?\b"),
    "eth_outerr": re.compile(r"([0-9]{1,20}) output errors?\b"),
    "eth_indiscard": re.compile(r"([0-9]{1,20}) input discard"),
    "eth_outdiscard": re.compile(r"([0-9]{1,20}) output discard"),
}
_HEAD = re.compile(r"^([A-Za-z][A-Za-z-]{0,20}[0-9][0-9/.]{0,20}) is (\w{1,20})\s(?:\(([^)\n]{1,80})\))?", re.MULTILINE)
_FIELDS = {
    "admin_state": re.compile(r"^ *admin state is (\w{1,10})[,\s]", re.MULTILINE),
    "eth_mtu": re.compile(r"^ *MTU ([0-9]{1,6}) bytes", re.MULTILINE),
    "eth_speed": re.compile(r"^ *(?:full|half|auto)-duplex, ([0-9]{1,4} [GM]b/s)", re.MULTILINE),
    **_COUNTERS,
}
#: A line that an administrator wrote.
_DESCRIPTION = re.compile(r"^ *Description: .*$", re.MULTILINE)
_SPEED = re.compile(r"([0-9]{1,4}) ([GM])b/s")


def _interfaces(value: Any) -> Row:
    ports: dict[str, Row] = {}
    for row in _rows(value, "interface"):
        if name := _port(row.get("interface")):
            speed = _SPEED.fullmatch(_text(row.get("eth_speed")))
            ports[name] = {
                "state": _text(row.get("state")),
                "admin_state": "down" if "dmin" in _text(row.get("state_rsn_desc")) else _text(row.get("admin_state")),
                "mtu": _count(row.get("eth_mtu")),
                "gbps": int(speed[1]) / (1 if speed[2] == "G" else 1000) if speed else None,
                **{counter: _count(row.get(counter)) for counter in _COUNTERS},
            }
    return {"interfaces": dict(sorted(ports.items()))}


def _interfaces_text(text: str) -> Row:
    rows = []
    for head, block in _blocks(_HEAD, text):
        own = _DESCRIPTION.sub("", block)
        values = {name: pattern.findall(own) for name, pattern in _FIELDS.items()}
        cut = any(len(shown) > 1 for shown in values.values())  # the heading of the next port is missing
        row = {name: shown[0] for name, shown in values.items() if shown and not cut}
        rows.append({"interface": head[1], "state": head[2], "state_rsn_desc": head[3] or "", **row})
    return {"TABLE_interface": {"ROW_interface": rows}}


# --- show interface transceiver details ---

_LEVELS = ("alrm_hi", "alrm_lo", "warn_hi", "warn_lo")
_QUANTITIES = {
    "temperature": ("temp", "Temperature"), "tx_pwr": ("tx_pwr", "Tx Power"), "rx_pwr": ("rx_pwr", "Rx Power"),
}  # fmt: skip
_GAP, _VALUE = " {1,20}", r"(N/A|-?[0-9]{1,4}\.[0-9]{1,3} (?:dBm|C))"
_FOUR = _GAP.join([_VALUE] * 4)
_LINES = {
    name: re.compile(rf"^ *{words}{_GAP}{_VALUE}(?: {{0,20}}(?:\+\+?|--?))?{_GAP}{_FOUR}", re.MULTILINE)
    for name, (_, words) in _QUANTITIES.items()
}
_LANE = re.compile(r"^ *Lane Number: ?([0-9]{1,2})\b.*$", re.MULTILINE)
_LANES = 16  # maximum number of lanes of a module
_MODULE = re.compile(r"^(Ethernet[0-9/]{1,12})[ \t]*$", re.MULTILINE)


def _modules(value: Any) -> Row:
    ports: dict[str, list[Row]] = {}
    for row in _rows(value, "interface"):
        if name := _port(row.get("interface")):
            keys = [*_QUANTITIES, *(f"{short}_{level}" for short, _ in _QUANTITIES.values() for level in _LEVELS)]
            lanes = {_count(lane.get("lane_number")) or place: lane for place, lane in enumerate(_rows(row, "lane"), 1)}
            ports[name] = [
                {key: _number(lanes.get(number, {}).get(key)) for key in keys}
                for number in range(1, min(max(lanes, default=0), _LANES) + 1)
            ]
    return {"interfaces": dict(sorted(ports.items()))}


def _modules_text(text: str) -> Row:
    rows = []
    for head, block in _blocks(_MODULE, text):
        parts = [(match[1], own) for match, own in _blocks(_LANE, block)] or [("1", block)]
        cut = any(int(number) != place for place, (number, _) in enumerate(parts, 1))  # a heading is missing
        lanes = [{"lane_number": number, **lane} for number, own in parts if (lane := _lane(own)) and not cut]
        rows.append({"interface": head[1], "TABLE_lane": {"ROW_lane": lanes}})
    return {"TABLE_interface": {"ROW_interface": rows}}


def _lane(text: str) -> Row:
    """Return the values of one lane; empty if it has those of several."""
    lane: Row = {}
    for name, pattern in _LINES.items():
        lines = pattern.findall(text)
        if len(lines) > 1:
            return {}
        keys = (name, *(f"{_QUANTITIES[name][0]}_{level}" for level in _LEVELS))
        lane |= dict(zip(keys, *lines, strict=True)) if lines else {}
    return lane


# --- show lldp neighbors detail ---

_NEIGHBOUR = {"chassis_id": "Chassis id", "port_id": "Port id", "l_port_id": "Local Port id",
              "port_desc": "Port Description", "sys_name": "System Name"}  # fmt: skip
_LABELS = {words: key for key, words in _NEIGHBOUR.items()}
_ORDER = tuple(_NEIGHBOUR)  # of the labels in an entry


def _neighbours(value: Any) -> Row:
    ports: dict[str, list[Row]] = {}
    for row in _rows(value, "nbor_detail"):
        if name := _port(row.get("l_port_id")):
            ports.setdefault(name, []).append({key: _text(row.get(key)) for key in _NEIGHBOUR if key != "l_port_id"})
    return {"neighbours": dict(sorted(ports.items()))}


def _neighbours_text(text: str) -> Row:
    """Return the neighbours, in rows as in JSON.

    A blank line, or a label that comes too early, begins the next one. Only complete entries count, in the order of the
    recorded answers: half an entry may belong to another port.
    """
    rows: list[Row] = [{}]
    for line in text.splitlines()[:-1]:  # the last line may be cut; no entry ends there
        label, _, value = line.partition(":")
        key = _LABELS.get(label.strip())
        if not line.strip() or (key and _ORDER.index(key) < len(rows[-1])):
            rows.append({})
        if key:
            rows[-1][key] = value
    return {"TABLE_nbor_detail": {"ROW_nbor_detail": [row for row in rows if tuple(row) == _ORDER]}}


# --- show system resources ---

_LOAD = "show system resources"
_STATES_LINE = re.compile(r"^CPU states *: .{0,80}?([0-9.]{1,6})% idle", re.MULTILINE)


def _resources(value: Any) -> Row:
    return {"cpu_idle": _number(value.get("cpu_state_idle"))}


def _resources_text(text: str) -> Row:
    match = _STATES_LINE.search(text)
    return {"cpu_state_idle": match[1]} if match else {}


COMMANDS: Mapping[str, ShowCommand] = {
    _LOAD: ShowCommand("load of the control plane"),
    "show version": ShowCommand("model, release, name and uptime", twice=True),
    "show interface": ShowCommand("state, speed, MTU and counters of each port", twice=True),
    "show interface transceiver details": ShowCommand("light, temperature and thresholds of each module"),
    "show lldp neighbors detail": ShowCommand("neighbour of each port"),
}

#: Command -> reader of the rows of JSON, and reader of text as such rows.
_READERS: Mapping[str, tuple[Callable[[Any], Row], Callable[[str], Row]]] = {
    _LOAD: (_resources, _resources_text),
    "show version": (_version, _version_text),
    "show interface": (_interfaces, _interfaces_text),
    "show interface transceiver details": (_modules, _modules_text),
    "show lldp neighbors detail": (_neighbours, _neighbours_text),
}

#: Fields that identify the answer to each command; an answer has at least one of them.
_MARKS = {
    _LOAD: ("cpu_state_idle",), "show version": ("nxos_ver_str", "kickstart_ver_str"),
    "show interface": ("TABLE_interface",), "show interface transceiver details": ("TABLE_interface",),
    "show lldp neighbors detail": ("TABLE_nbor_detail",),
}  # fmt: skip


def question(typed: str) -> str | None:
    """Return the command in the list that was typed; None if none or several fit."""
    return show_commands.typed_command(typed, COMMANDS)


def load(answers: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the load of the control plane in percent; None if it is not shown."""
    shown = answers.get(_LOAD, {}).get("value")
    return show_commands.load_of(shown.get("cpu_idle") if isinstance(shown, dict) else None)


def answer(command: str, text: str) -> Row:
    """Return the wanted fields of an answer, as JSON or as text.

    Raises a ValueError that quotes the beginning of the answer.
    """
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    of_rows, of_text = _READERS[command]
    value = json_limits.text(text) if first.startswith("{") else of_text(text)
    if not isinstance(value, dict) or not any(mark in value for mark in _MARKS[command]):
        raise ValueError(f"the answer is not that of NX-OS: {first[:80]!r}")
    made = of_rows(value)
    if all(part is None or part in ("", {}) for part in made.values()):
        raise ValueError(f"the answer shows no Ethernet port: {first[:80]!r}")
    return made


def record(command: str, text: str) -> dict[str, Any]:
    """Return the record of an answer, with an error if the answer is invalid."""
    return show_commands.record_of(command, text, answer)


def records(answers: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the records by key; ``answers`` are in chronological order."""
    return show_commands.by_key("nxos", answers, lambda command: COMMANDS[command].twice)
