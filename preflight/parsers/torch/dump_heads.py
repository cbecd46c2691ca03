"""Detection of the start of a flight-recorder dump or a trace in a text."""

from __future__ import annotations

import re
from functools import lru_cache

from preflight.textprep.lines import Lines

#: Number of lines, from the start of an object, in which an identifying name must occur.
AHEAD = 12

#: The prefix of a launcher or logger, with which JSON never begins.
_PREFIX = re.compile(rb"\s*\[\s*[A-Za-z(]")
#: A dump that Python printed, and the text that may precede it on its line.
_PYTHON = re.compile(r"(?:[\w ,.()=:'\"-]{0,80}[=:]\s?|\s{0,40}(?:return|yield)\s)?\s*(?P<dump>[\[{].*)")
_PYTHON_SIGN = re.compile(r"(?P<q>['\"])(?:collective_seq_id|profiling_name|pg_status|pg_config)(?P=q)\s?:")
#: Python syntax that differs from JSON, and markers of omitted entries.
_NO_JSON = re.compile(r"'\s?:|:\s?(?:\(|True\b|False\b|None\b)|\s*\.{3}\s*(?:[\]}],?)?$")
#: Number of lines in which such syntax must occur.
_SOON = 400
#: A later line of a dump that Python printed.
_GOES_ON = re.compile(r"\s*(?:['\"\[\](){},]|-?\d|True|False|None|\.{3}\s*(?:[\]}],?)?$)")
#: Names that only occur in a dump; the process groups are a list in a trace, but an object in a dump.
_RECORDER = re.compile(r'"(?:collective_seq_id|profiling_name|pg_status)"\s*:|"pg_config"\s*:\s*\{')


def is_prefixed(head: bytes) -> bool:
    """Return whether a text begins with a prefix of a launcher or logger."""
    return _PREFIX.match(head) is not None


def printed(lines: Lines, at: int) -> str | None:
    """Return the first line of a dump that Python printed, without text before it.

    None if the line does not start one.
    """
    text = lines[at].text
    if ("{" not in text and "[" not in text) or not (match := _PYTHON.match(text)):
        return None
    ahead = "\n".join([match["dump"], *(line.text[:2000] for line in lines[at + 1 : at + AHEAD])])
    if not _PYTHON_SIGN.search(ahead[:20_000]):
        return None
    return match["dump"] if any(_is_no_json(line.text) for line in lines[at : at + _SOON]) else None


@lru_cache(maxsize=2 * _SOON)  # a line is examined for each possible start above it
def _is_no_json(text: str) -> bool:
    return _NO_JSON.search(text[:20_000]) is not None


def goes_on(text: str) -> bool:
    """Return whether a line may continue a dump that Python printed."""
    return _GOES_ON.match(text) is not None


def is_recorders(lines: Lines, at: int) -> bool:
    """Return whether the object at a line is a flight-recorder dump, not a trace."""
    return _RECORDER.search("\n".join(line.text[:2000] for line in lines[at : at + AHEAD])) is not None
