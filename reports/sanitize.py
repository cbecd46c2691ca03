"""Sanitising of foreign text: control characters, bidi marks, node names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from preflight import nodeset

#: The name of a run's evidence in the judge (``preflight.facts.job.RUN``).
RUN = "@run"
RUN_WORDS = "the run's logs"
#: The name of a fabric sweep in the judge (``preflight.facts.fabric.sweep.FABRIC``).
FABRIC = "@fabric"
FABRIC_WORDS = "the fabric"
#: The name of the Ethernet switches in the judge (``preflight.facts.switch.ethernet.SWITCHES``).
SWITCHES = "@switches"
SWITCHES_WORDS = "the switches"
_WORDS = {RUN: RUN_WORDS, FABRIC: FABRIC_WORDS, SWITCHES: SWITCHES_WORDS}

# Controls except \n and \t; soft hyphen; marks, isolates and overrides of direction; zero-width and other invisible
# characters; line and paragraph separator; surrogates; non-characters; tags.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
#: Maximum length of a list that stays on one line.
_LONGEST_WORD = 60
_COMMA = re.compile(",(?! )")
#: Maximum number of numeric fields of a name that are folded: ``row1-rack[01-12]-n[1-4]``.
_BRACKETS = 3
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def visible(text: str) -> str:
    r"""Escape control and invisible characters: ``\x1b``, ``\u202e``."""
    return _HIDDEN.sub(_escape, text)


def one_line(text: str) -> str:
    r"""Make text visible and escape its line feeds and tabs as ``\n`` and ``\t``."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def short(text: str, limit: int) -> str:
    """Return text as one line of at most ``limit`` characters, with a mark if cut."""
    text = one_line(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def counted(names: Sequence[str], limit: int) -> str:
    """Fold node names into at most ``limit`` characters; add their number if cut."""
    text = one_line(listed(names))
    number = f" ({len(names)} nodes)"
    return text if len(text) <= limit else short(text, limit - len(number)) + number


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fold(names: Iterable[str]) -> str:
    """Fold node names: ``gpu[001-063]``; invalid host names follow unfolded."""
    return _fold(tuple(names))


def listed(names: Iterable[str]) -> str:
    """Fold node names for wrapped lines; a long list breaks at spaces between names."""
    text = fold(names)
    return text if len(text) <= _LONGEST_WORD else _COMMA.sub(", ", text)


@lru_cache(maxsize=128)  # in a large fleet, most findings apply to the same nodes
def _fold(names: tuple[str, ...]) -> str:
    distinct = dict.fromkeys(names)
    plain = [name for name in distinct if _PLAIN_NAME.fullmatch(name)]
    legal = set(plain)
    odd = [_WORDS.get(name) or one_line(name) for name in distinct if name not in legal]
    return ", ".join([*([nodeset.fold(plain, _BRACKETS)] if plain else []), *odd])
