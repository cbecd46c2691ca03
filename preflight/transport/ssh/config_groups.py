"""Groups of hosts that a configuration does not distinguish.

They share a call of ``ssh -G``. Only patterns are read, not values: two hosts belong to one group if every
pattern of every Host and Match line matches both or neither. Anything else that could depend on a host counts as
different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from preflight.evidence import safe_read
from preflight.transport.ssh.host_keys import matches

_T = TypeVar("_T")
_Values = Mapping[str, Sequence[str]]

_LINE = re.compile(r"^\s*([A-Za-z0-9]+)\s*(?:=\s*|\s+)(.*?)\s*$")

#: Criteria of a Match line that cannot depend on the host if the preceding blocks are the same.
_ANYWHERE = ("all", "final", "user", "localuser", "localnetwork", "tagged", "command", "sessiontype", "version")

#: Output of ``ssh -G`` that contains the host's name or depends on -v, and is ignored.
_UNREAD = ("host", "hostname", "controlpath", "remotecommand", "localcommand", "loglevel")


@dataclass(frozen=True)
class ConfigGroups:
    """The patterns of a configuration; ``apart`` means that each host must be queried."""

    patterns: tuple[str, ...]
    hostnames: tuple[str, ...]
    apart: bool

    @classmethod
    def read(cls, files: Iterable[str]) -> ConfigGroups:
        """Read the files that OpenSSH lists as read, with included ones."""
        patterns, hostnames, apart, match_host = set[str](), set[str](), False, False
        for file in dict.fromkeys(files):
            try:
                lines = (
                    safe_read.content(Path(file).expanduser(), safe_read.BY_HAND)
                    .decode("utf-8", "replace")
                    .splitlines()
                )
            except OSError:
                apart = True
                continue
            for found in filter(None, map(_LINE.match, lines)):
                keyword, value = found[1].lower(), found[2]
                words = value.replace('"', " ").split()
                if keyword == "host":
                    patterns.update(word.lstrip("!") for word in words)
                elif keyword == "hostname":
                    hostnames.update(words)
                elif keyword == "match":
                    criteria, unsure = _criteria(words)
                    patterns.update(criteria)
                    apart, match_host = apart or unsure, match_host or bool(criteria)
                elif keyword == "include":
                    apart = apart or "%" in value
                elif keyword.startswith("canonicalize"):
                    apart = apart or value.lower() not in ("no", "none")
        return cls(tuple(sorted(patterns)), tuple(sorted(hostnames)), apart or (match_host and bool(hostnames)))

    def groups(self, hosts: Sequence[_T], key: Callable[[_T], Hashable], name: Callable[[_T], str]) -> list[list[_T]]:
        """Group hosts that no pattern distinguishes and that have the same ``key``."""
        members: dict[Hashable, list[_T]] = {}
        for host in hosts:
            matched = name(host) if self.apart else tuple(matches(name(host).lower(), p) for p in self.patterns)
            # OpenSSH compares the case too; a name with capitals is queried separately
            case = name(host) if name(host) != name(host).lower() else ""
            members.setdefault((key(host), matched, case), []).append(host)
        return list(members.values())

    def shared(self, one: str, first: _Values, other: str, last: _Values) -> Callable[[str], _Values] | None:
        """Return a function that derives a host's answer from those of two others.

        None if that is not possible.
        """
        if _constant(first) != _constant(last):
            return None
        template = self._hostname(one, first) if one != other else None
        if template is None or template != self._hostname(other, last):
            return None
        return lambda name: {**first, "host": [name], "hostname": [_expanded(template, name)]}

    def _hostname(self, name: str, values: _Values) -> str | None:
        """Return the template that gave a host its HostName; None if ambiguous."""
        given = next(iter(values.get("hostname", ())), name)
        templates = {template for template in ("%h", *self.hostnames) if _expanded(template, name) == given}
        if name == given and templates <= {"%h"}:
            return "%h"
        return templates.pop() if len(templates) == 1 else None


def _expanded(template: str, name: str) -> str:
    tokens = {"%%": "%", "%h": name}
    return re.sub(r"%.", lambda found: tokens.get(found[0], found[0]), template)


def _constant(values: _Values) -> dict[str, Sequence[str]]:
    return {keyword: value for keyword, value in values.items() if keyword not in _UNREAD}


def _criteria(words: Sequence[str]) -> tuple[set[str], bool]:
    """Return the host patterns of a Match line.

    Also return whether other criteria may depend on the host.
    """
    patterns, unsure, rest = set[str](), False, list(words)
    while rest:
        criterion, _, joined = rest.pop(0).lstrip("!").lower().partition("=")
        value = joined or (rest.pop(0) if rest and criterion not in ("all", "canonical", "final") else "")
        if criterion in ("host", "originalhost"):
            patterns.update(pattern.lstrip("!") for pattern in value.split(","))
        elif criterion not in _ANYWHERE:
            unsure = True
    return patterns, unsure
