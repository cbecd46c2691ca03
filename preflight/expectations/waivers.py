"""Exceptions that a site declares: waivers, shadow checks and disabled checks."""

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
    """Accept the ID of a check or a shell pattern, or a list of them."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) and re.fullmatch(r"[a-z0-9.*?\[\]!-]{1,100}", part) for part in parts):
        raise ValueError('takes a list of checks: ["gpu.count", "xid.*"] (`preflight list` names them)')
    return tuple(parts)


def check_glob(value: Any) -> str:
    """Accept the ID of a check, or a shell pattern."""
    if not isinstance(value, str):
        raise ValueError('takes a check: "rdma.port-state" (`preflight list` names them)')
    (glob,) = check_globs(value)
    return glob


def day(value: Any) -> date:
    """Accept a date, which TOML writes without quotes."""
    from datetime import date, datetime

    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError("takes a date without quotes: 2026-12-31")
    return value


def words(value: Any) -> str:
    """Accept text on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("takes text in quotes, on one line")
    return value.strip()


@dataclass(frozen=True)
class Chosen:
    """Checks that are disabled, and shadow checks, which are only reported."""

    shadow: tuple[str, ...] | None = schema.key(check_globs, "checks that are only reported")
    off: tuple[str, ...] | None = schema.key(check_globs, "checks that are not run")


@dataclass(frozen=True)
class Waiver:
    """A waiver: until a date, failures of a check on some nodes do not block jobs.

    It names a responsible owner.
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
        """Return whether the waiver covers a check's finding on a subject."""
        return fnmatchcase(check, self.check or "") and (self.subject is None or fnmatchcase(subject, self.subject))

    def expired(self, today: date) -> bool:
        """Return whether the waiver's last day has passed."""
        return self.until is not None and self.until < today

    @property
    def words(self) -> str:
        """The owner, last day and reason, as text."""
        return f"waived by {self.owner} until {self.until}: {self.reason}"


#: Required keys of a waiver, and the fix if they are missing.
_REQUIRED = {
    "check": 'add the check: check = "rdma.port-state"',
    "owner": 'add the responsible owner: owner = "jane@example.org"',
    "reason": 'add the reason: reason = "cable on order"',
    "until": "add an end date: until = 2026-12-31",
}


def read_waivers(reader: schema.TableReader, data: Mapping[str, Any], today: date | None) -> tuple[Waiver, ...]:
    """Read the list of waivers; adds errors, with ``today`` also for expired ones."""
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

    ``ids`` returns the IDs of all checks, or nothing if they are unknown. It is called only if the file names checks.
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
