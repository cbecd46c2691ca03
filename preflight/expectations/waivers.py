"""Exceptions of a site: waivers, shadow checks, disabled checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass
from preflight.expectations import schema

if TYPE_CHECKING:
    from datetime import date


def check_globs(value: Any) -> tuple[str, ...]:
    """Accept ids of checks, or shell patterns of them; reject an empty list."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) and re.fullmatch(r"[a-z0-9.*?\[\]!-]{1,100}", part) for part in parts):
        raise ValueError('takes a list of checks: ["gpu.count", "xid.*"] (`preflight list` names them)')
    return tuple(parts)


def check_glob(value: Any) -> str:
    """Return the id of a check, or a shell pattern of several."""
    if not isinstance(value, str):
        raise ValueError('takes a check: "rdma.port-state" (`preflight list` names them)')
    (glob,) = check_globs(value)
    return glob


def day(value: Any) -> date:
    """Return a date, which TOML has without quotes."""
    from datetime import date, datetime

    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError("takes a date without quotes: 2026-12-31")
    return value


def words(value: Any) -> str:
    """Return a short text on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("takes some words in quotes, on one line")
    return value.strip()


@dataclass(frozen=True)
class Chosen:
    """Checks that do not run, or do not gate."""

    shadow: tuple[str, ...] | None = schema.key(check_globs, "checks that are only reported")
    off: tuple[str, ...] | None = schema.key(check_globs, "checks that are not run")


@dataclass(frozen=True)
class Waiver:
    """A waiver: failures of a check on some nodes do not block jobs until a date.

    It has a responsible owner.
    """

    check: str | None = schema.key(check_glob, 'the check, or a pattern: "rdma.port-state"')
    nodes: tuple[str, ...] | None = schema.key(schema.nodes, 'nodes: "gpu[003,017]"; default: all')
    subject: str | None = schema.key(words, 'part of the node, or a pattern: "mlx5_3*"; default: everything')
    owner: str | None = schema.key(words, "responsible owner")
    reason: str | None = schema.key(words, "reason, and planned repair")
    until: date | None = schema.key(day, "last day of validity, UTC")

    def speaks_of(self, node: str) -> bool:
        """Return whether the waiver covers a node."""
        return self.nodes is None or node in self.nodes or node.split(".")[0] in self.nodes

    def covers(self, check: str, subject: str) -> bool:
        """Return whether the waiver covers a finding: this check, on this subject."""
        return fnmatchcase(check, self.check or "") and (self.subject is None or fnmatchcase(subject, self.subject))

    def expired(self, today: date) -> bool:
        """Return whether its last day is over."""
        return self.until is not None and self.until < today

    @property
    def words(self) -> str:
        """Owner, end date and reason, as text."""
        return f"waived by {self.owner} until {self.until}: {self.reason}"


#: Required keys of a waiver, and their form.
_REQUIRED = {
    "check": 'add the check: check = "rdma.port-state"',
    "owner": 'add the responsible owner: owner = "jane@example.org"',
    "reason": 'add the reason: reason = "cable on order"',
    "until": "add an end date: until = 2026-12-31",
}


def read_waivers(reader: schema.TableReader, data: Mapping[str, Any], today: date | None) -> tuple[Waiver, ...]:
    """Read the list of waivers; adds errors, with ``today`` for expired ones."""
    listed = data.get("waiver", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        reader.add_error(("waiver",), "is not a list of tables", "write each as [[waiver]]")
        return ()
    waivers = []
    for number, body in enumerate(listed):
        path = ("waiver", number)
        made = reader.dataclass(Waiver, body, path)
        for name, fix in _REQUIRED.items():
            if name not in body:
                reader.add_error(path, f"has no {name}", fix)
        if today is not None and made.expired(today):
            fix = "fix the fault, or have the owner set a new date"
            reader.add_error((*path, "until"), f"expired on {made.until}", fix)
        waivers.append(made)
    return tuple(waivers)


def unknown_checks(
    reader: schema.TableReader, named: Iterable[tuple[schema.KeyPath, Sequence[str]]], ids: Callable[[], Sequence[str]]
) -> None:
    """Add errors for patterns that match no check.

    ``ids`` is called only if the file names any check, and returns nothing if unknown.
    """
    for path, globs in named:
        for glob in globs:
            known = list(ids())
            if not known or any(fnmatchcase(id, glob) for id in known):
                continue
            from difflib import get_close_matches

            near = get_close_matches(glob, known, n=1, cutoff=0.5)
            fix = f'did you mean "{near[0]}"?' if near else "`preflight list` names them"
            reader.add_error(path, f'no check is called "{glob}"', fix)
