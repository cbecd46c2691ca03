"""Commands that query a switch with Linux and FRRouting, and their answers.

One such system is Cumulus Linux; its NVUE (``nv show … -o json``) is not read, as no recorded answer was available.
Sources: iproute2 6.1, lldpd 1.0 and FRRouting 8.4 on Linux; FRRouting's manual (``show bgp summary json``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.host.kernel_log import parse_uptime
from preflight.parsers.network import lldp
from preflight.parsers.switch import show_commands
from preflight.parsers.switch.show_commands import ShowCommand

LOAD, CPUS = "cat /proc/loadavg", "nproc"
UPTIME, LINK, SPEED = "cat /proc/uptime", "ip -j -s link", "grep . /sys/class/net/*/speed"
NEIGHBOURS, BGP = lldp.LLDP.removeprefix("cmd:"), "vtysh -c 'show bgp summary json'"

#: A port at the front of a switch, or a part of one.
_PORT = re.compile(r"swp[0-9]{1,4}(?:s[0-9]{1,2})?|Ethernet[0-9]{1,4}")
_SPEED_LINE = re.compile(r"/sys/class/net/([^/\s]{1,64})/speed:(-?[0-9]{1,9})")
_LOAD_LINE = re.compile(r"([0-9]{1,6}\.[0-9]{1,3}) [0-9.]{1,9} [0-9.]{1,9} ")
_LONGEST = 200  # maximum characters of a string

#: Forms of each command in a session, without `sudo` and quotes; the load is of interest only before other commands.
_TYPED = {
    UPTIME: re.compile(r"cat /proc/uptime"),
    LINK: re.compile(r"ip (?:-s -j|-j -s) l(?:ink)?(?: show)?"),
    SPEED: re.compile(r"grep (?:-H )?(?:\.|'') /sys/class/net/[\w*?]{1,20}/speed(?: 2>/dev/null)?"),
    NEIGHBOURS: re.compile(r"lldp(?:ctl|cli) -f json0(?: show neighbors(?: details?)?)?"),
    BGP: re.compile(r"(?:vtysh -c )?show (?:ip )?bgp (?:vrf (?:all|default) )?(?:ipv4 )?(?:unicast )?summary json"),
}
_QUOTES = str.maketrans("", "", "\"'")

#: A line that sudo or vtysh prints beside the answer.
_NOTE = re.compile(r"\[sudo\] |% ")

#: Maximum depth to which address families and VRFs are nested above the peers.
_DEPTH = 2


def question(typed: str) -> str | None:
    """Return the command that was typed, in its usual form; None for others."""
    plain = " ".join(typed.split())
    words = re.sub(r"^sudo (?:-n )?", "", plain)
    bare = words.translate(_QUOTES)
    return next((name for name, form in _TYPED.items() if form.fullmatch(words) or form.fullmatch(bare)), None)


def _cpus(text: str) -> dict[str, Any]:
    number = text.strip()
    if not number.isascii() or not number.isdecimal() or len(number) > 4:
        raise ValueError(f"{number[:40]!r} is not a number of CPUs")
    return {"cpus": int(number)}


def _load(text: str) -> dict[str, Any]:
    match = _LOAD_LINE.match(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a load average")
    return {"load": float(match[1])}


def _uptime(text: str) -> dict[str, Any]:
    return {"uptime_s": parse_uptime(text)}


def _object(value: Any, name: str) -> Mapping[str, Any]:
    entry = value.get(name) if isinstance(value, dict) else None
    return entry if isinstance(entry, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _link(text: str) -> dict[str, Any]:
    rows = json_limits.text(text)
    if not isinstance(rows, list):
        raise ValueError("the answer is not a list of interfaces")
    ports: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row.get("ifname") if isinstance(row, dict) else None
        if not isinstance(name, str) or not _PORT.fullmatch(name):
            continue
        # the kernel of Cumulus Linux shows the counters of the chip; that of SONiC counts only its own packets
        flags, counted = row.get("flags"), _object(row, "stats64" if name.startswith("swp") else "")
        state = row.get("operstate")
        ports[name] = {
            "mtu": _count(row.get("mtu")), "operstate": state[:_LONGEST] if isinstance(state, str) else "",
            "admin_up": "UP" in flags if isinstance(flags, list) else None,
            **{f"{way}_{what}": _count(_object(counted, way).get(what))
               for way in ("rx", "tx") for what in ("bytes", "errors", "dropped")},
        }  # fmt: skip
    return {"interfaces": ports}


def _speed(text: str) -> dict[str, Any]:
    mbps = {match[1]: int(match[2]) for line in text.splitlines() if (match := _SPEED_LINE.fullmatch(line.strip()))}
    if not mbps:
        raise ValueError("the answer has no line such as /sys/class/net/swp1/speed:400000")
    return {"mbps": {name: rate for name, rate in mbps.items() if rate > 0 and _PORT.fullmatch(name)}}


def _neighbours(text: str) -> dict[str, Any]:
    return {"neighbours": {
        name: {"systemName": far.switch[:_LONGEST], "chassis": far.chassis[:_LONGEST], "port": far.port[:_LONGEST],
               "description": far.description[:_LONGEST]}
        for name, far in lldp.parse(text).items()
    }}  # fmt: skip


def _bgp(text: str) -> dict[str, Any]:
    value = json_limits.text(text)
    tables = list(_peers(value, _DEPTH))
    if not isinstance(value, dict) or (value and not tables):
        raise ValueError("the answer has no peers")
    return {"peers": {
        str(address)[:_LONGEST]: {name: shown[:_LONGEST] if isinstance(shown := row.get(name), str) else ""
                                  for name in ("state", "hostname")}
        for table in reversed(tables) for address, row in table.items() if isinstance(row, dict)
    }}  # fmt: skip


def _peers(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the peers of each address family, in each VRF."""
    if not isinstance(value, dict):
        return
    if isinstance(value.get("peers"), dict):
        yield value["peers"]
    elif depth:
        for below in value.values():
            yield from _peers(below, depth - 1)


COMMANDS: Mapping[str, ShowCommand] = {
    CPUS: ShowCommand("number of CPUs"),
    LOAD: ShowCommand("load of the control plane"),
    UPTIME: ShowCommand("time since its start", twice=True),
    LINK: ShowCommand("state, MTU and counters of each port", twice=True),
    SPEED: ShowCommand("speed of each port"),
    NEIGHBOURS: ShowCommand("neighbour of each port"),
    BGP: ShowCommand("BGP sessions"),
}

_READERS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    CPUS: _cpus, LOAD: _load, UPTIME: _uptime, LINK: _link, SPEED: _speed, NEIGHBOURS: _neighbours, BGP: _bgp,
}  # fmt: skip


def sent(command: str) -> str:
    """Return a command with its path, as PATH may lack that of administrators."""
    return f"/usr/sbin/{command}" if command == NEIGHBOURS else command


def load(answers: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the load of the last minute in percent; None if it is not shown."""
    cpus, running = (_object(answers.get(name), "value").get(field) for name, field in ((CPUS, "cpus"), (LOAD, "load")))
    return 100.0 * running / cpus if cpus and isinstance(running, float) else None


def answer(command: str, text: str) -> dict[str, Any]:
    """Return the wanted fields of an answer; raises ValueError."""
    lines = [line for line in text.splitlines() if line.strip()]
    read = [line for line in lines if not _NOTE.match(line)]
    if not read:
        raise ValueError(f"the answer is empty: {' '.join(lines)[:80]!r}")
    return _READERS[command]("\n".join(read))


def record(command: str, text: str) -> dict[str, Any]:
    """Return the record of an answer, with an error if the answer is invalid."""
    return show_commands.record_of(command, text, answer)


def records(answers: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the records by key; ``answers`` are in chronological order."""
    return show_commands.by_key("linux", answers, lambda command: COMMANDS[command].twice)
