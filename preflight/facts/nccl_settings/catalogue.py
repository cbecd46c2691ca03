"""NCCL's variables: meaning, first and last version; owners of other names.

The table ``variables.json`` has facts from the NCCL user guide ("Environment Variables", 2.30) and from the releases
2.3.5 to 2.30.7; it is loaded on first use. ``since`` and ``last`` of an undocumented name come from a sample of
releases and may be slightly inaccurate.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from preflight._startup.lightclass import dataclass

#: Major, minor, patch; a release without a patch number has 0.
Version = tuple[int, int, int]

#: Formats of values: see ``preflight.facts.nccl_settings.value_grammar``.
KINDS = (
    "switch", "number", "bytes", "truth", "word", "words", "flags", "level", "path", "text", "ports", "interfaces",
    "network", "address",
)  # fmt: skip


@dataclass(frozen=True)
class Variable:
    """One name that NCCL reads, or used to read."""

    name: str
    kind: str  # one of KINDS
    documented: bool = False  # documented in the user guide; other names may change in any release
    site: bool = False  # intended for sites; the guide reserves other names for debugging
    since: Version | None = None  # first release that reads it; None: older than the examined releases
    last: Version | None = None  # last release that reads it; None: the newest release does, or no release is known to
    ended: str = ""  # "removed", "renamed" or "deprecated"; empty: current
    ended_in: str = ""  # release
    instead: str = ""  # the name to use instead
    values: tuple[str | int, ...] = ()
    values_since: tuple[tuple[str, Version], ...] = ()
    min: int | None = None
    max: int | None = None
    exact: bool = False  # whether words are case-sensitive
    default: str = ""  # described in words; empty: unset
    number: int | None = None  # the default of the newest release, if it is a plain number

    def is_read_by(self, version: Version) -> bool:
        """Return whether a release reads the variable."""
        if self.ended in ("removed", "renamed"):
            return self.last is not None and version <= self.last
        return self.since is None or version >= self.since


@dataclass(frozen=True)
class VariableTable:
    """The table of known names."""

    newest: Version  # the newest examined release
    variables: Mapping[str, Variable]
    others: tuple[tuple[str, str], ...]  # (name or PREFIX*, owner)
    pytorch: Mapping[str, str]  # un-prefixed name that PyTorch read up to 2.1 -> its name from 2.2 on
    invented: Mapping[str, str]  # name without a reader -> the intended name; empty if none

    def owner(self, name: str) -> str:
        """Return who reads a name: ``NCCL``, a plug-in or ``PyTorch``; empty if unknown."""
        if name in self.invented:  # even if a plug-in's names have this prefix: NCCL_SHARP_ENABLE
            return ""
        if name in self.variables:
            return "NCCL"
        if name in self.pytorch:
            return "PyTorch"
        for known, owner in self.others:
            if name == known or (known.endswith("*") and name.startswith(known[:-1])):
                return owner
        return ""


def version(text: str) -> Version:
    """Parse ``2.27.5``, ``2.27.5-1`` or ``2.5``; raises ValueError."""
    if not (match := re.match(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?![\d.])", text)):
        raise ValueError(f"{text[:40]!r} is not an NCCL version")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def dotted(number: Version) -> str:
    """Format a version as ``2.27.5``."""
    return ".".join(map(str, number))


@cache
def table() -> VariableTable:
    """Return the table, which is read once."""
    loader: Any = __spec__.loader  # like importlib.resources, which is slow to import
    return read(loader.get_data(os.path.join(os.path.dirname(__file__), "variables.json")).decode("utf-8"))


def read(text: str) -> VariableTable:
    """Read a table; raises ValueError if it is invalid."""
    try:
        data = json.loads(text)
        variables = {row["name"]: _variable(row) for row in data["variables"]}
        others = tuple((name, entry["owner"]) for entry in data["others"] for name in entry["names"])
        return VariableTable(version(data["newest"]), variables, others, data["pytorch"], data["invented"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no table of NCCL's variables: {type(error).__name__} {str(error)[:80]}") from None


def _variable(row: Mapping[str, Any]) -> Variable:
    fields = dict(row)
    for name in ("since", "last"):
        if name in fields:
            fields[name] = version(fields[name])
    fields["values"] = tuple(fields.get("values", ()))
    fields["values_since"] = tuple((word, version(first)) for word, first in fields.get("values_since", {}).items())
    fields["site"] = fields.pop("class", "debug") == "site"
    return Variable(**fields)


def nearest(name: str, names: Iterable[str] | None = None) -> str:
    """Return the known name that was probably intended; empty if none is similar.

    Names are similar if they have the same words in a different order, if one name starts with the given words, or if
    they differ by a typo. ``names`` defaults to NCCL's variables.
    """
    import difflib  # slow to import, and needed only for typos

    if names is None:
        known = {
            one.name: one.name if one.ended in ("", "deprecated") else one.instead for one in table().variables.values()
        }
        known = {name: meant for name, meant in known.items() if meant}
    else:
        known = {one: one for one in names}
    wanted = re.sub(r"[^A-Z0-9]+", "_", name.strip()[:80].upper()).removeprefix("EXPORT_").strip("_")
    words = Counter(wanted.split("_"))
    same = [one for one in known if Counter(one.upper().split("_")) == words]
    begun = [one for one in known if one.upper().startswith(f"{wanted}_")]
    same = same or (begun if len(begun) == 1 and len(words) > 2 else [])
    likeness = 0.85 if names is None else 0.6  # variable names resemble each other, words of a list do not
    slips = difflib.get_close_matches(wanted, {one.upper(): one for one in known}, n=1, cutoff=likeness)
    found = same or [one for one in known if one.upper() in slips]
    return known[found[0]] if found else ""
