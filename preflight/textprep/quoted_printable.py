"""Quoted-printable email: ``=20`` is a blank; a final ``=`` continues the line."""

from __future__ import annotations

import quopri
import re

#: Placeholder for a line that was joined to the previous one; it preserves the numbers of later lines.
GONE = "\0"

#: An encoded blank at the end of a line or alone on it. In a setting, a name precedes ``=20``.
_BLANK = re.compile(r"(?m)(?:^|[\s>])=20[ \t\r]*$")
_CODE = re.compile(r"=(?:3D|2E|20|C2=A0|E2=80)")
#: A broken line: encoded lines have at most 76 characters, and slightly fewer if broken.
_BREAK = re.compile(r"(?m)^.{60,75}(?<!=)=[ \t\r]*$")
#: Minimum occurrences of each; a text with fewer is plain.
_LEAST = 2


def is_quoted_printable(text: str) -> bool:
    """Return whether a text is an email in quoted-printable encoding."""
    if "=20" not in text and "=3D" not in text and "=\n" not in text:
        return False
    broken = len(_BREAK.findall(text))
    if broken > _LEAST:
        return True
    return len(_CODE.findall(text)) >= _LEAST and (len(_BLANK.findall(text)) >= _LEAST or broken >= _LEAST)


def decoded(text: str) -> str:
    """Decode an email; lines joined to a previous one are replaced with ``GONE``."""
    found: list[str] = []
    pieces: list[str] = []
    for line in text.split("\n"):
        pieces.append(line.rstrip("\r\t "))
        if pieces[-1].endswith("="):
            continue
        found.append(_plain(pieces))
        found += [GONE] * (len(pieces) - 1)
        pieces = []
    return "\n".join([*found, *([_plain(pieces)] if pieces else [])])


def _plain(pieces: list[str]) -> str:
    """Join and decode the pieces of a line; only the first quote mark is preserved."""
    quoted = re.match(r"(?:> ?){0,8}", pieces[0])
    mark = quoted[0] if quoted else ""
    joined = "".join(piece.removesuffix("=").removeprefix(mark if at else "") for at, piece in enumerate(pieces))
    raw = quopri.decodestring(joined.encode("utf-8", "replace"))
    return raw.decode("utf-8", "replace").replace("\n", " ")
