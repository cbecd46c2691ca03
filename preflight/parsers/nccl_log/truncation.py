"""Complete a truncated host name, and mark lines cut at the screen width."""

from __future__ import annotations

import re

_HOST = re.compile(rb"[\w.-]*:\d{1,10}:\d{1,10} (?:\[\d{1,4}\] )?(?:\S{1,256}:\d{1,6} )?NCCL ")
#: A channel line that may have lost the suffix that shows GPUDirect RDMA.
_WAY = re.compile(rb"\] via (?:NET|COLLNET)/(?!(?:Fast)?Socket/)[^/]{1,63}/\d{1,6}(?:\(\d+\))?\r?$")
#: A ring that may have lost ranks.
_RING = re.compile(rb"Channel \d{1,3}/\d{1,3} ?:(?:\s+\d{1,7}){2,}\s*$")
#: Marks that are appended to a transport or a ring, to show that it continues.
_WAY_GOES_ON, _RING_GOES_ON = b"/", b" ..."
#: Widths of screens and pagers, and the most common ones, for which less evidence is enough.
_WIDTHS, _USUAL = range(60, 401), frozenset((80, 100, 120, 132, 160))
_ENOUGH = 2
#: Minimum number of kinds of lines that end at the screen's edge (at a common width and at any other) and of lines.
_KINDS_AT_USUAL_WIDTH, _KINDS, _LINES = 2, 3, 3
#: A message that ends with a value.
_VALUE = re.compile(rb"(.{0,400}NCCL INFO )(?:NCCL_\w{1,64} set |Using (?:internal N|n)etwork |Assigned NET plugin )")
#: The end of a line that is padded to a width, or has a frame: it was not truncated.
_PADDED = re.compile(rb"(?:\s|\||\xe2\x94[\x82\x83]|\xe2\x95\x91)$")
#: Placeholder for a truncated value.
CUT_VALUE = b"(cut at the screen's edge)"
_COMPLETE_HOST = rb"(?<![\w.-])([A-Za-z0-9][\w.-]{0,254}?)%s(?=:\d{1,10}:\d{1,10} \[)"


def completed(lines: list[bytes]) -> list[bytes]:
    """Complete a host name that is truncated at the start of the first line.

    The lines are returned unchanged unless later lines contain exactly one host name with this ending.
    """
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None or not _HOST.match(lines[first]):
        return lines
    end = lines[first].partition(b":")[0]
    rest = b"\n".join(lines[first + 1 :])
    if re.search(rb"(?<![\w.-])%s:\d" % re.escape(end), rest):
        return lines  # a different host has this name
    begins = set(re.findall(_COMPLETE_HOST % re.escape(end), rest))
    if len(begins) != 1:
        return lines
    return [*lines[:first], begins.pop() + lines[first], *lines[first + 1 :]]


def undecided(lines: list[bytes]) -> list[bytes]:
    """Mark the transports, rings and values that may be truncated at screen width.

    They may be if no line is longer and lines of other kinds have the same length. A placeholder replaces the value of
    a variable or network, since a truncated value is wrong.
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
    """Return the mark that a line needs if it is truncated; empty for other lines."""
    if b"] via " in line:
        return _WAY_GOES_ON if _WAY.search(line) else b""
    return _RING_GOES_ON if b"Channel " in line and _RING.search(line) else b""
