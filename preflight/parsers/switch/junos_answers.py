"""Commands that query a Juniper Junos switch, and the fields of their answers.

An answer is the JSON of ``| display json``, in which every value is a list of objects with ``data``. Nothing outside
this list is read: serial numbers and the configuration are in other fields. Sources: recorded answers of a QFX and an
MX in public test data (``show interfaces``, ``show version``), field names of junos-eznc (neighbours).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.switch import show_commands
from preflight.parsers.switch.show_commands import ShowCommand

_LONGEST = 200  # maximum characters of a string
_PORT = re.compile(r"(?:et|xe|ge)-[0-9]{1,3}/[0-9]{1,3}/[0-9]{1,3}(?::[0-9]{1,2})?")
_SPEED = re.compile(r"([0-9]{1,4})([Gm])bps")
#: The beginning of an answer, and a line above a prompt that shows the role of a routing engine.
_BEGIN = re.compile(r"^[ \t]{0,8}\{\s*$|^[ \t]{0,8}\{ *\"", re.MULTILINE)
_ROLE = re.compile(r"^\{(?:master|backup|linecard|primary)[:0-9]{0,4}\}\s*$", re.MULTILINE)

Row = dict[str, Any]

_LOAD = "show chassis routing-engine"
_VERSION, _INTERFACES, _LLDP = "show version", "show interfaces", "show lldp neighbors"


def _entries(value: Any, *names: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects below names; each is a list or a single object."""
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict):
            if names:
                yield from _entries(entry.get(names[0]), *names[1:])
            else:
                yield entry


def _text(row: Mapping[str, Any], name: str) -> str:
    data = next((entry.get("data") for entry in _entries(row.get(name))), None)
    return data.strip()[:_LONGEST] if isinstance(data, str) else ""


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 21 else None


def _load(value: Any) -> Row:
    idle = [_count(_text(row, "cpu-idle")) for row in _entries(value, "route-engine-information", "route-engine")]
    return {"cpu_idle": min((share for share in idle if share is not None), default=None)}


def _version(value: Any) -> Row:
    for row in _entries(value, "software-information"):
        names = {"host_name": "host-name", "model": "product-model", "version": "junos-version"}
        return {name: _text(row, field) for name, field in names.items()}
    return {}


def _interfaces(value: Any) -> Row:
    ports: dict[str, Row] = {}
    for row in _entries(value, "interface-information", "physical-interface"):
        if _PORT.fullmatch(name := _text(row, "name")):
            speed = _SPEED.fullmatch(_text(row, "speed"))
            ports[name] = {
                "admin": _text(row, "admin-status"), "oper": _text(row, "oper-status"),
                "mtu": _count(_text(row, "mtu")), "index": _text(row, "snmp-index"),
                "gbps": int(speed[1]) / (1 if speed[2] == "G" else 1000) if speed else None,
            }  # fmt: skip
    return {"interfaces": dict(sorted(ports.items()))}


_NEIGHBOUR = {
    "systemName": "system-name",
    "chassis": "chassis-id",
    "port": "port-id",
    "description": "port-description",
}


def _neighbours(value: Any) -> Row:
    """Return the neighbours by port; a port may have several."""
    ports: dict[str, list[Row]] = {}
    for row in _entries(value, "lldp-neighbors-information", "lldp-neighbor-information"):
        name = (_text(row, "lldp-local-port-id") or _text(row, "lldp-local-interface")).removesuffix(".0")
        if _PORT.fullmatch(name):
            shown = {key: _text(row, f"lldp-remote-{field}") for key, field in _NEIGHBOUR.items()}
            ports.setdefault(name, []).append(shown)
    return {"neighbours": dict(sorted(ports.items()))}


COMMANDS: Mapping[str, ShowCommand] = {
    _LOAD: ShowCommand("load of the control plane"),
    _VERSION: ShowCommand("model, release and name"),
    _INTERFACES: ShowCommand("state, speed and MTU of each port"),
    _LLDP: ShowCommand("neighbour of each port"),
}
#: Command -> reader of its JSON, and the field that identifies it.
_READERS: Mapping[str, tuple[Callable[[Any], Row], str]] = {
    _LOAD: (_load, "route-engine-information"), _VERSION: (_version, "software-information"),
    _INTERFACES: (_interfaces, "interface-information"), _LLDP: (_neighbours, "lldp-neighbors-information"),
}  # fmt: skip


def question(typed: str) -> str | None:
    """Return the command in the list that was typed; None if none or several fit."""
    return show_commands.typed_command(typed, COMMANDS)


def sent(command: str) -> str:
    """Return a command as it is sent."""
    return f"{command} | display json | no-more"


def load(answers: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the load of the control plane in percent; None if it is not shown."""
    shown = answers.get(_LOAD, {}).get("value")
    return show_commands.load_of(shown.get("cpu_idle") if isinstance(shown, dict) else None)


def answer(command: str, text: str) -> Row:
    """Return the wanted fields of an answer in JSON; raises ValueError.

    A banner may precede the JSON. The error quotes the beginning of the answer.
    """
    plain = _ROLE.sub("", text)
    first = next((line.strip() for line in plain.splitlines() if line.strip()), "")
    begin = _BEGIN.search(plain)
    if begin is None:
        raise ValueError(f"the answer is not JSON: {first[:80]!r}; the command is `{command} | display json`")
    value = json_limits.text(plain[begin.start() :])
    if isinstance(value, dict) and "multi-routing-engine-results" in value:
        value = next(_entries(value, "multi-routing-engine-results", "multi-routing-engine-item"), {})
    read, mark = _READERS[command]
    if not isinstance(value, dict) or mark not in value:
        raise ValueError(f"the answer has no {mark}: {first[:80]!r}")
    return read(value)


def record(command: str, text: str) -> dict[str, Any]:
    """Return the record of an answer, with an error if the answer is invalid."""
    return show_commands.record_of(command, text, answer)


def records(answers: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the records by key; ``answers`` are in chronological order."""
    return show_commands.by_key("junos", answers, lambda command: COMMANDS[command].twice)
