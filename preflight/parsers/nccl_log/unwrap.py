"""Lines that a terminal broke at its width before somebody copied them, or that somebody broke for a page."""

from __future__ import annotations

import re

#: A terminal is hardly narrower or wider; shorter or longer lines are what the program wrote.
_WIDTHS = range(60, 401)
_BEGINS = re.compile(
    rb"\s*$|#|.{0,200}?(?:NCCL (?:INFO|WARN|version) |\w:\d{1,10}:\d{1,10} \[)|\[(?:[rR]ank ?)?\d|\d{4}-\d\d-\d\d"
)
_OWN = (b"NCCL ", b"ProcessGroupNCCL.cpp:")
#: So many broken lines tell a width from a coincidence.
_ENOUGH = 3

#: A line that cannot end here: nothing stands behind the level, or a list of HCAs lacks its end.
_UNFINISHED = re.compile(rb"NCCL (?:WARN|INFO)$|NCCL INFO NET/\S{1,32} ?: Using \[.{1,4096}/(?:IB|RoCE)$")
_LAST = (b"WARN", b"INFO", b"/IB", b"/RoCE")
_LONGEST = 4096


def continued(lines: list[bytes]) -> list[bytes]:
    """Return the lines with those joined that are indented below one that cannot end where it does."""
    joined = list(lines)
    at = 0
    while at < len(lines) - 1:
        first, end = lines[at].rstrip(), at + 1
        depth = len(first) - len(first.lstrip(b" \t"))
        if len(first) <= _LONGEST and first.endswith(_LAST) and _UNFINISHED.search(first):
            while end < len(lines) and _below(lines[end], depth) and b"NCCL " not in lines[end]:
                end += 1
            if end > at + 1:
                joined[at:end] = [b" ".join([first, *map(bytes.strip, lines[at + 1 : end])]), *[b""] * (end - at - 1)]
        at = end
    return joined


def _below(line: bytes, depth: int) -> bool:
    """Tell whether a line is indented deeper than that, and no empty one."""
    return bool(line.strip()) and len(line) - len(line.lstrip(b" \t")) > depth


def unwrapped(lines: list[bytes]) -> list[bytes]:
    """Return the lines with those joined that were one; what follows a joined line is left empty, to keep numbers.

    A width is believed where no line is longer, and where nearly all lines of NCCL and of PyTorch's watchdog that
    are just as long are followed by one that begins like no line of a log.
    """
    lengths = [len(line.rstrip(b"\r")) for line in lines]
    width = max(lengths, default=0)
    if width not in _WIDTHS:
        return lines
    full = [i for i, length in enumerate(lengths[:-1]) if length == width and any(own in lines[i] for own in _OWN)]
    broken = [i for i in full if not _BEGINS.match(lines[i + 1])]
    if len(broken) < _ENOUGH or len(broken) < 0.8 * len(full):
        return lines
    joined = list(lines)
    for i in broken:
        end = i + 1
        while lengths[end] == width and end + 1 < len(lines) and not _BEGINS.match(lines[end + 1]):
            end += 1
        joined[i] = b"".join(line.rstrip(b"\r") for line in lines[i : end + 1])
        joined[i + 1 : end + 1] = [b""] * (end - i)
    return joined
