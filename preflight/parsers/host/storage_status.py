"""Storage states: ``ceph -s``, ``mmgetstate``, ``mmhealth`` and ``zpool status``.

Sources: ceph(8), mmgetstate and mmhealth of IBM Storage Scale, zpool-status(8).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("health:", "HEALTH_", "GPFS state", "Component", " pool:")

_CEPH = re.compile(r"\s*(?:health: ?)?(HEALTH_(?:OK|WARN|ERR))\b[ ;]*(.*)")
_CEPH_MORE = re.compile(r"\s{6,40}(\S.{0,300})")
_SECTION = re.compile(r"\s{0,4}[a-z]+:\s*")
_GPFS_HEAD = re.compile(r"\s*Node number\s+Node (?:name|address).*GPFS state.*")
_GPFS = re.compile(r"\s*\d{1,6}\s+(\S{1,80})(?:\s+\d{1,6}){0,3}\s+(active|down|arbitrating|unknown|unresponsive)\b.*")
_MMHEALTH_HEAD = re.compile(r"Component\s+(?:Node\s+)?(?:Status|Total)\s.*")
_MMHEALTH = re.compile(r"([A-Z][\w ]{1,30}?)\s{2,}([A-Z]{3,20})\s+(\S.{0,80}?)\s{2,}(\S.{0,300})")
_POOL = re.compile(r"\s+pool: (\S{1,80})\s*")
_VDEV = re.compile(
    r"\s+(?!state:)(\S{1,80})\s+(ONLINE|DEGRADED|FAULTED|OFFLINE|UNAVAIL|REMOVED|AVAIL|INUSE)"
    r"(?:\s+(\d\S{0,8}) +(\d\S{0,8}) +(\d\S{0,8}))?(?:\s{1,4}(\S.{0,100}))?\s*"
)
_POOL_LINE = re.compile(r"\s*(?:state|status|action|see|scan|config|errors|NAME)\b.*|(?:\t| {4})\s*\S.*")
_RULE = re.compile(r"\s*-{8,}\s*")


@dataclass(frozen=True)
class StorageState:
    """The state of a file system, node, component, pool or device."""

    name: str
    state: str  # as printed
    words: str  # further text; empty if there is none
    line: int
    errors: int = 0  # how many of the read, write and checksum error counts are not zero


def begins(lines: Lines, at: int) -> bool:
    """Return whether a storage status begins at a line."""
    text = lines[at].text
    return any(form.fullmatch(text) for form in (_CEPH, _GPFS_HEAD, _MMHEALTH_HEAD, _POOL))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[StorageState, ...]]:
    """Read the states that begin at a line."""
    text = lines[at].text
    if _CEPH.fullmatch(text):
        return _ceph(lines, at)
    if _POOL.fullmatch(text):
        return _pool(lines, at)
    form = _GPFS if _GPFS_HEAD.fullmatch(text) else _MMHEALTH
    states, end = list[StorageState](), at + 1
    while end < len(lines) and (
        not lines[end].text.strip() or _RULE.fullmatch(lines[end].text) or form.fullmatch(lines[end].text)
    ):
        if match := form.fullmatch(lines[end].text):
            words = match[4].strip(" -") if form is _MMHEALTH else ""
            states.append(StorageState(match[1].strip(), match[2], words, lines[end].number))
        end += 1
    return _parsed(lines, at, states, end)


def _parsed(lines: Lines, at: int, states: list[StorageState], end: int) -> Parsed[tuple[StorageState, ...]]:
    gaps = () if states else (ParseGap(lines[at].number, "no state follows"),)
    return Parsed(tuple(states), gaps, end)


def _ceph(lines: Lines, at: int) -> Parsed[tuple[StorageState, ...]]:
    match = _CEPH.fullmatch(lines[at].text)
    words, end = [match[2].strip()] if match and match[2].strip() else [], at + 1
    while end < len(lines) and not _SECTION.fullmatch(lines[end].text):
        if (more := _CEPH_MORE.fullmatch(lines[end].text)) is None:
            break
        words.append(more[1].strip())
        end += 1
    state = match[1] if match else ""
    return Parsed((StorageState("Ceph", state, "; ".join(words)[:600], lines[at].number),), (), end)


def _pool(lines: Lines, at: int) -> Parsed[tuple[StorageState, ...]]:
    states, end = list[StorageState](), at + 1
    while (
        end < len(lines)
        and (not lines[end].text.strip() or _POOL_LINE.fullmatch(lines[end].text))
        and not _POOL.fullmatch(lines[end].text)
    ):
        if (match := _VDEV.fullmatch(lines[end].text)) is not None:
            errors = sum(not re.fullmatch(r"0", match[number] or "0") for number in (3, 4, 5))
            printed = "/".join(match[number] for number in (3, 4, 5)) if match[3] else ""
            words = " ".join(filter(None, (f"read/write/checksum errors {printed}" if errors else "", match[6] or "")))
            states.append(StorageState(match[1], match[2], words, lines[end].number, errors))
        end += 1
    return _parsed(lines, at, states, end)


def facts(states: tuple[StorageState, ...]) -> dict[str, Any]:
    """Return the states as `preflight read --json` prints them."""
    return {
        "states": [
            {"name": item.name, "state": item.state, "words": item.words or None, "line": item.line}
            for item in states
        ]
    }  # fmt: skip


def summary(states: tuple[StorageState, ...]) -> str:
    """Return a one-line summary of the states."""
    return counted(len(states), "storage state")
