"""``sminfo`` output in a pasted text."""

from __future__ import annotations

from typing import Any

from preflight.parsers.infiniband.sminfo_saquery import STATES, Manager, parse_sminfo
from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Lines

HINTS = ("sminfo:",)


def _manager(text: str) -> tuple[Manager | None] | None:
    """Return (manager,), or (None,) if it did not answer; None for any other line."""
    if "sminfo:" not in text:
        return None
    try:
        return (parse_sminfo(text),)
    except ValueError:
        return None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line is an answer, or reports that there is none."""
    return _manager(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[Manager | None]:
    """Read the answer; the value is None if the query was not answered."""
    answer = _manager(lines[at].text)
    return Parsed(answer[0] if answer else None, (), at + 1)


def facts(manager: Manager | None) -> dict[str, Any]:
    """Return the manager as `preflight read --json` prints it."""
    if manager is None:
        return {"answer": False}
    return {"answer": True, "lid": manager.lid, "guid": manager.guid, "priority": manager.priority,
            "state": STATES.get(manager.state, str(manager.state))}  # fmt: skip


def summary(manager: Manager | None) -> str:
    """Return a one-line summary of the manager."""
    return "no subnet manager answered" if manager is None else f"subnet manager: {manager.words}"
