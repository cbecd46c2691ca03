"""``systemctl status``: the state of a unit, and the lines of its log."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

_HEAD = re.compile(
    r"[^\w\s/]?\s{0,2}([A-Za-z][\w@.:-]{0,80}\.service)(?: - .*)?"
    r"|Unit ([A-Za-z][\w@.:-]{0,80}\.service) could not be found\.?"
)
_LOADED = re.compile(r"\s*Loaded: ([\w-]+)(?:.*?; (enabled|disabled|masked|static)\b)?.*")
_ACTIVE = re.compile(r"\s*Active: ([\w-]+)(?: \(([\w -]+)(?:: ([\w-]+))?\))?.*")
_FIELD = re.compile(r"\s+[A-Z][\w -]{1,20}: .*|\s+[├└│].*|\s+.{0,4}\d+ \S.*|\s*CGroup:.*")
_MESSAGE = re.compile(r"(?:[A-Z][a-z]{2} \d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) (\S+) [\w.()-]+(?:\[\d+\])?: (.*)")
_TROUBLE = re.compile(
    r"(?i)don'?t match|mismatch|fail(?:ed|ure)|error|fatal|timed? ?out|abort|not (?:found|available|supported)"
    r"|unable|denied"
)
_OF_SYSTEMD = re.compile(r"Failed with result|[Mm]ain process exited|Failed to start|entered failed state")


@dataclass(frozen=True)
class ServiceStatus:
    """The state of a unit, and its log lines that report a problem."""

    unit: str
    loaded: str | None
    enabled: str | None
    active: str | None  # active, inactive, failed
    sub_state: str | None
    result: str | None  # exit-code, timeout, …
    host: str | None
    troubles: tuple[tuple[int, str], ...]  # line number and message

    @property
    def cause(self) -> tuple[int, str] | None:
        """The line and message of the first problem; None if there is none.

        systemd's messages on how the unit ended are used only if there are no others.
        """
        own = [trouble for trouble in self.troubles if not _OF_SYSTEMD.search(trouble[1])]
        return next(iter(own or self.troubles), None)


def begins(lines: Lines, at: int) -> bool:
    """Return whether a unit's status begins at a line.

    The fabric manager and IMEX have a separate parser.
    """
    unit = unit_of(lines, at)
    return bool(unit) and unit not in ("nvidia-fabricmanager.service", "nvidia-imex.service")


def unit_of(lines: Lines, at: int) -> str:
    """Return the unit whose status begins at a line; empty if there is none."""
    match = _HEAD.fullmatch(lines[at].text)
    if match is None:
        return ""
    if match[2]:
        return match[2]
    below = lines[at + 1].text if at + 1 < len(lines) else ""
    described = not below or _LOADED.fullmatch(below) or _ACTIVE.fullmatch(below)
    return match[1] if described or match[1].startswith("nvidia-") else ""


def parse_lines(lines: Lines, at: int) -> Parsed[ServiceStatus]:
    """Read the status that begins at a line."""
    head = _HEAD.fullmatch(lines[at].text)
    assert head is not None
    if head[2]:
        return Parsed(ServiceStatus(head[2], "not-found", None, "inactive", None, None, None, ()), (), at + 1)
    loaded = enabled = active = sub = result = host = None
    troubles: list[tuple[int, str]] = []
    end, last = at + 1, at
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if unit_of(lines, end):
            break
        if match := _LOADED.fullmatch(text):
            loaded, enabled = match[1], match[2]
        elif match := _ACTIVE.fullmatch(text):
            active, sub, result = match[1], match[2], match[3]
        elif match := _MESSAGE.fullmatch(text):
            host = match[1]
            if _TROUBLE.search(match[2]):
                troubles.append((lines[end].number, match[2]))
        elif text.strip() and not _FIELD.fullmatch(text):
            break
        if text.strip():
            last = end
        end += 1
    gaps = () if active else (ParseGap(lines[last].number, "the line 'Active:' is missing"),)
    return Parsed(
        ServiceStatus(head[1] or "", loaded, enabled, active, sub, result, host, tuple(troubles)), gaps, last + 1
    )


HINTS = (".service",)
