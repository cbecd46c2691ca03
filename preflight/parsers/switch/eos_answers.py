"""Commands that query an Arista EOS switch, and the fields of their answers.

Nothing outside this list is read. Serial numbers, users and the running configuration are in other answers and fields.
Every command starts with ``show``. Sources: answers of EOS devices, and the keys that ANTA (Arista's test framework)
reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.switch import show_commands
from preflight.parsers.switch.show_commands import ShowCommand

#: The fields of an object by name; ``*`` stands for every interface or channel, None for a number or text.
Fields = Mapping[str, "Fields | None"]

_INTERFACE = re.compile(r"Ethernet[0-9]{1,4}(?:/[0-9]{1,3}){0,2}")
#: The beginning of an answer: a line that begins with a brace.
_BEGIN = re.compile(r"^[ \t]{0,8}\{", re.MULTILINE)
_LONGEST = 200  # maximum characters of a string


def _of(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


#: The control plane's load, which is read first.
_LOAD = "show processes top once"

COMMANDS: Mapping[str, ShowCommand] = {
    _LOAD: ShowCommand("load of the control plane"),
    "show version": ShowCommand("model, release and address"),
    "show hostname": ShowCommand("configured name"),
    "show interfaces": ShowCommand("state, speed, MTU and counters of each port", twice=True),
    "show interfaces phy detail": ShowCommand("FEC codewords of each port", twice=True),
    "show interfaces transceiver dom thresholds": ShowCommand("light received by each module"),
    "show lldp neighbors detail": ShowCommand("neighbour of each port"),
}

#: Command -> the fields of its answer that are read.
_FIELDS: Mapping[str, Fields] = {
    _LOAD: {"cpuInfo": {"%Cpu(s)": _of("idle")}},
    "show version": _of("modelName", "version", "systemMacAddress"),
    "show hostname": _of("hostname", "fqdn"),
    "show interfaces": {"interfaces": {"*": {
        **_of("interfaceStatus", "lineProtocolStatus", "mtu", "bandwidth"),
        "interfaceCounters": _of("inOctets", "outOctets", "totalInErrors", "totalOutErrors", "inDiscards",
                                 "outDiscards", "linkStatusChanges", "counterRefreshTime"),
    }}},
    "show interfaces phy detail": {"interfacePhyStatuses": {"*": {
        "phyStatuses": {
            "description": _of("location"),
            "fec": {"correctedCodewords": _of("value"), "uncorrectedCodewords": _of("value")},
            "preFecBer": _of("value"),
        },
    }}},
    "show interfaces transceiver dom thresholds": {"interfaces": {"*": {
        "parameters": {"rxPower": {
            **_of("unit"), "channels": _of("*"),
            "threshold": _of("lowAlarm", "lowWarn", "highAlarm", "highWarn"),
        }},
    }}},
    "show lldp neighbors detail": {"lldpNeighbors": {"*": {
        "lldpNeighborInfo": {
            **_of("systemName", "chassisId"),
            "neighborInterfaceInfo": _of("interfaceId", "interfaceId_v2", "interfaceDescription"),
        },
    }}},
}  # fmt: skip


def question(typed: str) -> str | None:
    """Return the command in the list that was typed; None if none or several fit."""
    return show_commands.typed_command(typed, COMMANDS)


def load(answers: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the load of the control plane in percent; None if it is not shown."""
    shown: Any = answers.get(_LOAD, {}).get("value")
    for name in ("cpuInfo", "%Cpu(s)", "idle"):
        shown = shown.get(name) if isinstance(shown, dict) else None
    return show_commands.load_of(shown)


def answer(command: str, text: str) -> dict[str, Any]:
    """Return the wanted fields of an answer in JSON; raises ValueError.

    A banner may precede the JSON. The error quotes the beginning of the answer.
    """
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    begin = _BEGIN.search(text)
    if begin is None:
        raise ValueError(f"the answer is not JSON: {first[:80]!r}; the command is `{command} | json`")
    value = json_limits.text(text[begin.start() :])
    fields = _FIELDS[command]
    if not isinstance(value, dict):
        raise ValueError(f"the answer is not a JSON object: {first[:80]!r}")
    if isinstance(value.get("errors"), list):
        raise ValueError(f"the switch rejected the command: {' '.join(map(str, value['errors']))[:160]}")
    if not set(value) & set(fields):
        raise ValueError(f"the answer has none of the fields {', '.join(fields)}: {first[:80]!r}")
    chosen: dict[str, Any] = _chosen(value, fields)
    return chosen


def record(command: str, text: str) -> dict[str, Any]:
    """Return the record of an answer, with an error if the answer is invalid."""
    return show_commands.record_of(command, text, answer)


def records(answers: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the records by key; ``answers`` are in chronological order."""
    return show_commands.by_key("eos", answers, lambda command: COMMANDS[command].twice)


def _chosen(value: Any, fields: Fields | None) -> Any:
    """Return the wanted fields of a value, or of each element of a list, sorted."""
    if fields is None:
        return value[:_LONGEST] if isinstance(value, str) else value if isinstance(value, (int, float)) else None
    if isinstance(value, list):
        return [_chosen(entry, fields) for entry in value if isinstance(entry, dict)]
    if not isinstance(value, dict):
        return None
    if "*" in fields:
        of_each = fields["*"]
        wanted = _INTERFACE.fullmatch if of_each is not None else str.isdecimal
        return {name: _chosen(value[name], of_each) for name in sorted(value) if wanted(name)}
    return {name: _chosen(value[name], fields[name]) for name in sorted(fields) if name in value}
