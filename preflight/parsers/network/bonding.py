"""``/proc/net/bonding/IF``: a bond, its members and their links."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block, number
from preflight.parsers.text_block import field as named_field
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Bonding Driver:", "Bonding Mode:")

_HEAD = re.compile(r"\s*Ethernet Channel Bonding Driver:.*")
_MODE = re.compile(r"\s*Bonding Mode:\s*(\S.*)")
_MEMBER = re.compile(r"\s*Slave Interface:\s*([\w.-]{1,40})\s*")
_FIELD = re.compile(r"\s*(?:[A-Za-z][\w ()/.-]{0,60}:.*|802\.3ad info|details (?:actor|partner) lacp pdu:)\s*")
_SPEED = re.compile(r"(\d{1,7}) Mbps")
_NAME = re.compile(r"/proc/net/bonding/([\w.-]{1,40})")


@dataclass(frozen=True)
class BondMember:
    """One interface of a bond; a value that the text lacks is None."""

    name: str
    mii_status: str | None  # "up" or "down"
    speed_gbps: float | None
    link_failures: int | None  # since the bond was created
    aggregator: int | None  # LACP aggregator ID; only members of the active aggregator carry traffic


@dataclass(frozen=True)
class Bond:
    """A bond and its members; a value that the text lacks is None or empty."""

    line: int
    name: str
    mode: str | None
    mii_status: str | None
    active: str | None  # the member that carries the traffic, in mode active-backup
    members: tuple[BondMember, ...] = field(default=())
    hash_policy: str | None = None  # "layer2", "layer3+4", …: the fields that choose a packet's member

    @property
    def is_lacp(self) -> bool:
        """Whether LACP aggregates the members."""
        return "802.3ad" in (self.mode or "")


def begins(lines: Lines, at: int) -> bool:
    """Return whether the file of a bond begins at a line."""
    return bool(_HEAD.fullmatch(lines[at].text) or _MODE.fullmatch(lines[at].text))


def parse_lines(lines: Lines, at: int) -> Parsed[Bond]:
    """Read the bond that begins at a line."""
    end, taken = block(lines, at, lambda text: bool(_FIELD.fullmatch(text)),
                       again=lambda text: bool(_HEAD.fullmatch(text)))  # fmt: skip
    own: dict[str, str] = {}
    members: list[tuple[str, dict[str, str]]] = []
    for line in taken:
        if member := _MEMBER.fullmatch(line.text):
            members.append((member[1], {}))
        elif result := named_field(line.text):
            (members[-1][1] if members else own).setdefault(*result)
    gaps = []
    if not members:
        gaps.append(ParseGap(taken[-1].number, "no member follows"))
    elif "Link Failure Count" not in members[-1][1]:
        gaps.append(ParseGap(taken[-1].number, f"the rest of {members[-1][0]} is missing"))
    command = _NAME.search(lines[at - 1].text) if at else None
    bond = Bond(
        lines[at].number, command[1] if command else "", own.get("Bonding Mode"), own.get("MII Status"),
        own.get("Currently Active Slave"), tuple(_member(name, fields) for name, fields in members),
        own.get("Transmit Hash Policy", "").partition(" (")[0] or None,
    )  # fmt: skip
    return Parsed(bond, tuple(gaps), end)


def _member(name: str, fields: dict[str, str]) -> BondMember:
    speed = _SPEED.match(fields.get("Speed", ""))
    return BondMember(
        name, fields.get("MII Status"), int(speed[1]) / 1000 if speed else None,
        number(fields.get("Link Failure Count")), number(fields.get("Aggregator ID")),
    )  # fmt: skip


def facts(bond: Bond) -> dict[str, Any]:
    """Return the bond as `preflight read --json` prints it."""
    return {
        "name": bond.name or None, "mode": bond.mode, "mii_status": bond.mii_status, "active": bond.active,
        "hash_policy": bond.hash_policy,
        "members": [
            {"name": item.name, "mii_status": item.mii_status, "speed_gbps": item.speed_gbps,
             "link_failures": item.link_failures, "aggregator": item.aggregator}
            for item in bond.members
        ],
    }  # fmt: skip


def summary(bond: Bond) -> str:
    """Return a one-line summary of the bond."""
    up = sum(member.mii_status == "up" for member in bond.members)
    return f"{bond.name or 'a bond'} ({bond.mode}): {up} of {counted(len(bond.members), 'member')} up"
