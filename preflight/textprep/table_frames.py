"""Frames of tables (bars and rules), and launcher prefixes before them."""

from __future__ import annotations

import re

#: A line with a frame, and the text before it.
_FRAMED_LINE = re.compile(r"(.{0,64}?)(?:\|[ =-].*[|]|\+[-=]{4,}.*\+)\s*")
#: The prefix of a launcher, or nothing.
_MARK = re.compile(r"(?:[\w.,:@/\[\]()<> =-]{1,60}[:>\])|] ?|\d{1,6}: ?)?")
#: The host and program of a syslog line.
_PROGRAM = re.compile(r"([\w.-]{1,128}) [\w.@/-]{1,64}\[\d{1,10}\]: ?")


def before_frame(text: str) -> str | None:
    """Return the text before the frame on a line; None if the line has no frame."""
    match = _FRAMED_LINE.fullmatch(text) if "|" in text or "+" in text else None
    return match[1] if match else None


def is_launchers(mark: str) -> bool:
    """Return whether the text before a frame is empty, or may be a launcher's prefix."""
    return _MARK.fullmatch(mark) is not None


def writer_of(mark: str) -> str:
    """Return the writer that the text before a frame names; empty if none."""
    program = _PROGRAM.fullmatch(mark)
    return program[1] if program else mark.strip(" :>[]()|")
