"""Evaluation of NHC targets, which select nodes.

A target is a name, a glob, ``{ranges}`` or a ``/regular expression/``; a leading ``!`` negates it.

A target is evaluated for known names: ranges and single names in the file, and those listed by the operator. Only ``*``
and negated names are certain to match all other nodes.
"""

from __future__ import annotations

import re
from fnmatch import translate

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError
from preflight.nodeset import MOST_NAMES, is_name

_SINGLE = re.compile(r"[-a-zA-Z0-9_]+[0-9]+[-.a-zA-Z0-9]*")
_RANGE = re.compile(r"([-a-zA-Z0-9_]+)\[([0-9]{1,9})-([0-9]{1,9})\]([-.a-zA-Z0-9]*)")
_POSIX = {"[:digit:]": "0-9", "[:alpha:]": "A-Za-z", "[:alnum:]": "A-Za-z0-9", "[:lower:]": "a-z",
          "[:upper:]": "A-Z"}  # fmt: skip

#: Maximum number of unbounded quantifiers in an expression: the time to match it grows with this power of the length.
_MOST_QUANTIFIERS = 2


class TargetSyntax(PreflightError, ValueError):
    """The target cannot be evaluated; the message has the reason."""


@dataclass(frozen=True)
class Target:
    """A target: the names that it lists, or a pattern that names must match."""

    text: str
    negated: bool
    names: frozenset[str] | None  # ranges and single names; None: a pattern
    pattern: re.Pattern[str] | None  # None with names None: every node

    @property
    def all_nodes(self) -> bool:
        """Whether the target is ``*``."""
        return self.names is None and self.pattern is None

    def matches(self, name: str) -> bool:
        """Return whether the target selects a node."""
        if self.names is not None:
            return (name in self.names) != self.negated
        return (self.pattern is None or self.pattern.search(name) is not None) != self.negated

    def matches_unlisted(self) -> bool | None:
        """Return whether the target matches nodes that no line names; None if only some."""
        if self.pattern is not None:
            return None
        return (self.names is None) != self.negated


def parse_target(text: str) -> Target:
    """Parse the text of a target; raises TargetSyntax."""
    negated = text.startswith("!")
    inner = text[1:] if negated else text
    if inner.startswith("/") and inner.endswith("/") and len(inner) > 1:
        return Target(text, negated, None, _expression(inner[1:-1]))
    if inner.startswith("{") and inner.endswith("}") and len(inner) > 1:
        return Target(text, negated, _ranges(inner[1:-1]), None)
    if inner.startswith("%") and inner.endswith("%"):
        raise TargetSyntax("is evaluated by a site-specific program, which is not executed")
    if inner == "*":
        return Target(text, negated, None, None)
    if re.search(r"[?*+@!]\(", inner) or "$" in inner or "`" in inner:
        raise TargetSyntax("is a pattern that only a shell can evaluate")
    if re.search(r"[*?\[\\]", inner):
        return Target(text, negated, None, re.compile(translate(inner.replace("[^", "[!"))))
    if not is_name(inner) or inner.startswith("-"):
        raise TargetSyntax("is not the name of a node; NHC negates with `!`")
    return Target(text, negated, frozenset((inner,)), None)


def _ranges(text: str) -> frozenset[str]:
    names: set[str] = set()
    for part in text.split(","):
        part = part.strip()
        if _SINGLE.fullmatch(part):
            names.add(part)
        elif match := _RANGE.fullmatch(part):
            first, last = sorted((int(match[2]), int(match[3])))
            width = max(len(match[2]), len(match[3]))  # as NHC: [1-20] means 01 to 20
            if last - first >= MOST_NAMES - len(names):
                raise TargetSyntax(f"names more than {MOST_NAMES} nodes")
            names.update(f"{match[1]}{number:0{width}}{match[4]}" for number in range(first, last + 1))
        else:
            raise TargetSyntax("has a range that NHC cannot parse either, so it never matches")
    return frozenset(names)


def _expression(text: str) -> re.Pattern[str]:
    for name, signs in _POSIX.items():
        text = text.replace(name, signs)
    if "[:" in text or "(?" in text or re.search(r"\\[^\W_bBwWsS]", text):
        raise TargetSyntax("is a regular expression with unsupported syntax")
    bare = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", text)
    if re.search(r"\)[*+{]", bare) or len(re.findall(r"[*+]|\{\d*,", bare)) > _MOST_QUANTIFIERS or len(text) > 500:
        raise TargetSyntax("is a regular expression that may take too long to evaluate")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise TargetSyntax(f"is a regular expression that cannot be evaluated ({str(error)[:80]})") from None
