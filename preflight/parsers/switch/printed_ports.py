"""Ports as the command lines of switches print them, one answer at a time.

Values that a text lacks are None. Names of counters are those of the table or line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.textprep.agreement import counted


@dataclass(frozen=True)
class PrintedPort:
    """One port, or one queue of a port, and the values of its row or block."""

    name: str
    line: int
    admin_up: bool | None = None
    up: bool | None = None
    state: str = ""  # as printed
    about: str = ""  # description of the port, or the device behind it
    speed_gbps: float | None = None
    mtu: int | None = None
    fec: str = ""
    module: str | None = None  # its type; empty: there is none
    counters: Mapping[str, int] = field(default_factory=dict)
    received_dbm: tuple[float, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def pauses(self) -> Iterator[tuple[str, bool, str, int]]:
        """Each pause counter: name, whether it counts received frames, priority, value."""
        for name, value in self.counters.items():
            if match := _PAUSE.fullmatch(name):
                yield name, (match["way"] or match["all"]).upper() == "RX", match["priority"] or "", value

    @property
    def management(self) -> bool:
        """Whether the port carries no job traffic."""
        return _MANAGEMENT.fullmatch(self.name) is not None


@dataclass(frozen=True)
class PrintedAnswer:
    """One answer of a switch, without the session around it.

    ``settings`` are the lines of an answer that lists no ports.
    """

    switch: str  # its name in the prompt above; empty if there is none
    ports: tuple[PrintedPort, ...]
    title: str = ""  # the line above a table
    settings: Mapping[str, str] = field(default_factory=dict)

    def place(self, port: PrintedPort) -> str:
        """Return a port's name, after that of its switch if it is known."""
        return f"{self.switch} {port.name}".strip()


#: Name of a switch port, or of one of its queues.
PORT = re.compile(
    r"(?:Eth(?:ernet)?|Et|swp|Po|[Pp]ort-?[Cc]hannel|Ma|[Mm]anagement|mgmt|eth|bond|peerlink|IB|ib|xe-|et-|ge-|Hu|Fo|Fi|Te|Tw|Gi"
    r"|lo|Lo|[Vv]lan|Vl|CPU)\d[\w/.:|-]{0,30}"
)
#: Ports that carry no traffic of jobs.
_MANAGEMENT = re.compile(r"(?:Ma|[Mm]anagement|mgmt|eth|lo|Lo|[Vv]lan|Vl|CPU)\d.*")
#: A command in the prompt of a switch, and the name of the switch.
_PROMPT = re.compile(
    r"(?:[\w.-]{1,40}@)?(?P<name>[A-Za-z][\w.-]{0,80})(?:[: ][^\s#$>]{0,60}|\([\w-]{1,40}\)| \[[^\]]{1,60}\]){0,2}"
    r" ?[#>$] ?(?:sudo )?(?:nv |net |do )?sh(?:ow?)?\b.*"
)
#: Counters of pauses in the tables of EOS, NX-OS and SONiC.
_PAUSE = re.compile(r"(?P<way>[RT]X)_PFC(?P<priority>[0-7])|(?P<all>[RT]x)(?:Pfc|PPP)")
_PFC_OFF = re.compile(r"(?i)(?:off|no|n/a|-)?(?:\W.*)?")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3}){1,8}|\d{1,24}")
_SPEED = re.compile(r"(?:a-)?(\d{1,4}(?:\.\d)?) ?(G|M)(?:b(?:ps|/s|it/s)?|E)?(?:aud)?(?:[-( ].*)?", re.I)
_UP = frozenset(("up", "connected", "link-up", "active", "u", "linkup"))
_DOWN = frozenset(
    ("down", "notconnect", "notconnec", "disabled", "errdisabled", "errdisabl", "err-disabled", "d", "inactive",
     "sfpabsent", "xcvrabsen", "xcvrabsent", "linkflape", "polling", "suspended", "suspnd", "dn", "x", "admdn")
)  # fmt: skip
_OFF = frozenset(("disabled", "admdn", "x"))


def prompt_name(text: str) -> str:
    """Return the name of the switch in a prompt with a show command; else empty."""
    match = _PROMPT.fullmatch(text[:400].strip())
    return match["name"] if match else ""


def count(text: str) -> int | None:
    """Return a counter, with or without separators of thousands; None for other text."""
    return int(text.replace(",", "")) if _NUMBER.fullmatch(text) else None


def speed(text: str) -> float | None:
    """Return a speed such as ``400G`` in Gb/s; None for other text."""
    if text.isdecimal() and 4 <= len(text) <= 7:  # Mb/s
        return int(text) / 1000
    match = _SPEED.fullmatch(text.strip())
    return float(match[1]) / (1 if match[2] in "Gg" else 1000) if match else None


def is_up(text: str) -> bool | None:
    """Return whether a printed state is up; None for an unknown word."""
    word = text.strip().lower()
    return True if word in _UP else False if word in _DOWN else None


def is_off(text: str) -> bool:
    """Return whether a port with this printed state was switched off."""
    return text.strip().lower() in _OFF


def pfc_is_off(text: str) -> bool:
    """Return whether PFC is off, by its printed state or priorities."""
    return _PFC_OFF.fullmatch(text) is not None


def facts(answer: PrintedAnswer) -> dict[str, Any]:
    """Return an answer as `preflight read --json` prints it."""
    ports = [
        {
            "port": port.name, "line": port.line, "admin_up": port.admin_up, "up": port.up,
            "state": port.state or None, "description": port.about or None, "speed_gbps": port.speed_gbps,
            "mtu": port.mtu, "fec": port.fec or None, "counters": dict(port.counters),
            "received_dbm": list(port.received_dbm), "fields": dict(port.fields),
        }
        for port in answer.ports
    ]  # fmt: skip
    return {"switch": answer.switch or None, "ports": ports, "settings": dict(answer.settings)}


def summary(answer: PrintedAnswer) -> str:
    """Return a one-line summary: the switch, its ports and its counters."""
    names = sorted({name for port in answer.ports for name in port.counters})
    shown = f", {counted(len(names), 'counter')} ({', '.join(names[:6])}{', …' if names[6:] else ''})" if names else ""
    what = f"{counted(len(answer.ports), 'port')}{shown}" if answer.ports else counted(len(answer.settings), "setting")
    return f"switch {answer.switch}: {what}" if answer.switch else f"a switch: {what}"
