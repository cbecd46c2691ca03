"""Restoration of truncated text: first host name, lines cut at screen width."""

from __future__ import annotations

import re

_HOST = re.compile(rb"[\w.-]*:\d{1,10}:\d{1,10} (?:\[\d{1,4}\] )?(?:\S{1,256}:\d{1,6} )?NCCL ")
#: A channel line that may have lost its suffix for GPUDirect RDMA.
_WAY = re.compile(rb"\] via (?:NET|COLLNET)/(?!(?:Fast)?Socket/)[^/]{1,63}/\d{1,6}(?:\(\d+\))?\r?$")
#: The same for the ranks of a ring.
_RING = re.compile(rb"Channel \d{1,3}/\d{1,3} ?:(?:\s+\d{1,7}){2,}\s*$")
#: Ends of a line cut at screen width: the transport or the ring always continues after them.
_WAY_GOES_ON, _RING_GOES_ON = b"/", b" ..."
#: Range of usual widths of screens and pagers; the listed widths are so common that one other line suffices.
_WIDTHS, _USUAL = range(60, 401), frozenset((80, 100, 120, 132, 160))
_ENOUGH = 2
#: Kinds of lines that end there, one of them a value, at a usual width and at another; and how many lines do.
_KINDS_AT_USUAL_WIDTH, _KINDS, _LINES = 2, 3, 3
#: A message that ends with a value, and the placeholder for a truncated value.
_VALUE = re.compile(rb"(.{0,400}NCCL INFO )(?:NCCL_\w{1,64} set |Using (?:internal N|n)etwork |Assigned NET plugin )")
#: A line padded to a width, or with the bar of a frame there: it was not truncated.
_PADDED = re.compile(rb"(?:\s|\||\xe2\x94[\x82\x83]|\xe2\x95\x91)$")
CUT_VALUE = b"(cut at the screen's edge)"
_COMPLETE_HOST = rb"(?<![\w.-])([A-Za-z0-9][\w.-]{0,254}?)%s(?=:\d{1,10}:\d{1,10} \[)"


def completed(lines: list[bytes]) -> list[bytes]:
    """Return the lines, the first with its complete host name.

    Unchanged if the name is not certain.
    """
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None or not _HOST.match(lines[first]):
        return lines
    end = lines[first].partition(b":")[0]
    rest = b"\n".join(lines[first + 1 :])
    if re.search(rb"(?<![\w.-])%s:\d" % re.escape(end), rest):
        return lines  # a different host
    begins = set(re.findall(_COMPLETE_HOST % re.escape(end), rest))
    if len(begins) != 1:
        return lines
    return [*lines[:first], begins.pop() + lines[first], *lines[first + 1 :]]


def undecided(lines: list[bytes]) -> list[bytes]:
    """Return the lines, with a mark after transports and rings that may be truncated.

    They are cut at a screen's width if no line is longer and lines of other kinds have the same length. A setting or a
    network that ends there is dropped: a truncated value is not a value.
    """
    marks = {index: mark for index, line in enumerate(lines) if (mark := _goes_on(line))}
    values = {index: match[1] for index, line in enumerate(lines) if (match := _VALUE.match(line))}
    if not marks and not values:
        return lines
    lengths = [len(line.rstrip(b"\r")) for line in lines]
    width = max(lengths)
    others = sum(length == width and index not in marks for index, length in enumerate(lengths))
    full = [line for line, length in zip(lines, lengths, strict=True) if length == width and not _PADDED.search(line)]
    kinds = len({line.translate(None, b"0123456789") for line in full})
    least = _KINDS_AT_USUAL_WIDTH if width in _USUAL else _KINDS
    has_cut_values = width in _WIDTHS and kinds >= least and len(full) >= _LINES
    is_cut = width in _WIDTHS and others >= (1 if width in _USUAL else _ENOUGH)
    if not is_cut and not has_cut_values:
        return lines
    shortened = list(lines)
    for index, length in enumerate(lengths):
        if is_cut and length == width and index in marks:
            shortened[index] = lines[index].rstrip(b"\r") + marks[index]
        elif length == width and index in values and has_cut_values and not _PADDED.search(lines[index]):
            shortened[index] = values[index] + CUT_VALUE
    return shortened


def _goes_on(line: bytes) -> bytes:
    """Return the sign that a line continues; empty for a complete or other line."""
    if b"] via " in line:
        return _WAY_GOES_ON if _WAY.search(line) else b""
    return _RING_GOES_ON if b"Channel " in line and _RING.search(line) else b""
