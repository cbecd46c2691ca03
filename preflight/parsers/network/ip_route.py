"""``ip route`` and ``ip rule``: routes, and the rules that select their table."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = (" dev ", "from ", "linkdown", "nexthop")

_ADDRESS = r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}:[0-9a-f:.]{1,40})(?:/\d{1,3})?"
_KINDS = "unreachable|blackhole|prohibit|throw|local|broadcast|anycast|multicast|unicast"
_ROUTE = re.compile(
    rf"\s*(?:(?P<kind>{_KINDS}) )?(?P<to>default|{_ADDRESS})(?P<rest>(?: (?!brd |inet)\S{{1,64}}){{2,40}})\s*"
)
_RULE = re.compile(
    r"\s*(?P<rank>\d{1,10}):\s+(?:not )?(?P<select>from \S{1,64}(?: \S{1,64}){0,16}?) (?P<does>lookup|unreachable"
    r"|blackhole|prohibit|goto)(?: (?P<table>\S{1,32}))?(?: .{0,80})?\s*"
)
_NEXT_HOP = re.compile(r"\s+nexthop (?:\S{1,64} ?){1,20}\s*")
#: Words of a route that have no value (iproute2, ip/iproute.c).
_FLAGS = frozenset({"linkdown", "dead", "onlink", "pervasive", "offload", "offload_failed", "trap", "notify",
                    "unresolved", "rt_offload", "rt_trap", "cache"})  # fmt: skip
_NAMES = frozenset(
    {
        "dev",
        "via",
        "src",
        "proto",
        "scope",
        "metric",
        "table",
        "mtu",
        "advmss",
        "weight",
        "pref",
        "error",
        "expires",
        "congctl",
        "initcwnd",
        "initrwnd",
        "rtt",
        "window",
        "encap",
        "nhid",
        "hoplimit",
    }
)


@dataclass(frozen=True)
class Route:
    """One route; a value that the text lacks is empty."""

    to: str
    device: str
    via: str
    source: str
    table: str
    kind: str  # unreachable, local, …; empty for unicast
    flags: tuple[str, ...]  # linkdown, dead, onlink, …
    line: int

    @property
    def connected(self) -> bool:
        """Whether the route is to a network directly attached to the interface."""
        return "/" in self.to and not self.via and not self.kind


@dataclass(frozen=True)
class Rule:
    """One rule of policy routing."""

    rank: int
    select: str  # packets that the rule applies to, as in "from 10.0.0.4"
    table: str
    line: int


@dataclass(frozen=True)
class Routing:
    """The routes and rules of one list."""

    routes: tuple[Route, ...]
    rules: tuple[Rule, ...]


def _route(text: str, line: int) -> Route | None:
    match = _ROUTE.fullmatch(text)
    if match is None:
        return None
    words = match["rest"].split()
    fields: dict[str, str] = {}
    flags: list[str] = []
    at = 0
    while at < len(words):
        if words[at] in _NAMES and at + 1 < len(words):
            fields.setdefault(words[at], words[at + 1])
            at += 2
        else:
            flags.append(words[at])
            at += 1
    if not _FLAGS.issuperset(flags) or (not fields.keys() & {"dev", "via"} and not match["kind"]):
        return None
    if match["to"] != "default" and not _is_network(match["to"]):
        return None
    return Route(match["to"], fields.get("dev", ""), fields.get("via", ""), fields.get("src", ""),
                 fields.get("table", ""), match["kind"] or "", tuple(flags), line)  # fmt: skip


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of routes or rules begins at a line."""
    text = lines[at].text
    return _RULE.fullmatch(text) is not None or _route(text, 0) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[Routing]:
    """Read the routes and rules starting at a line."""

    def belongs(text: str) -> bool:
        return bool(_RULE.fullmatch(text) or _NEXT_HOP.fullmatch(text)) or _route(text, 0) is not None

    end, taken = block(lines, at, belongs, blanks=1)
    routes: list[Route] = []
    rules: list[Rule] = []
    for line in taken:
        if match := _RULE.fullmatch(line.text):
            rules.append(Rule(int(match["rank"]), match["select"], match["table"] or match["does"], line.number))
        elif (route := _route(line.text, line.number)) is not None:
            routes.append(route)
    return Parsed(Routing(tuple(routes), tuple(rules)), (), end)


def facts(routing: Routing) -> dict[str, Any]:
    """Return the routes and rules as `preflight read --json` prints them."""
    return {
        "routes": [
            {"to": item.to, "dev": item.device or None, "via": item.via or None, "src": item.source or None,
             "table": item.table or None, "type": item.kind or None, "flags": list(item.flags)}
            for item in routing.routes
        ],
        "rules": [{"priority": item.rank, "select": item.select, "table": item.table} for item in routing.rules],
    }  # fmt: skip


def summary(routing: Routing) -> str:
    """Return a one-line summary of the routes and rules."""
    return f"{counted(len(routing.routes), 'route')}, {counted(len(routing.rules), 'rule')}"
